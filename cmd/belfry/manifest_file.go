package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
	"github.com/belfry-sh/belfry/internal/jsontext"
	"github.com/belfry-sh/belfry/internal/schema"
)

// manifest is a job as a file declares it: a JSON object whose fields have lines.
type manifest struct {
	file   string
	line   int
	name   string
	fields members
	lines  map[string]int // of the paths of fields and of what is in them

	expanded map[string]bool // paths of values with environment variables
}

// readManifests reads the jobs of files. A directory stands for the YAML and JSON files
// in it, and "-" for standard input. It also returns the files and directories without
// a job. It reports the errors of all files.
func readManifests(paths []string, stdin io.Reader, v *variables) (jobs []manifest, empty []string, err error) {
	files, empty, err := expandDirectories(paths)
	if err != nil {
		return nil, nil, err
	}
	var all fileErrors
	for _, path := range files {
		content, err := readFile(path, stdin)
		if err != nil {
			return nil, nil, fmt.Errorf("read %w", pathError(err))
		}
		name := path
		if path == "-" {
			name = "stdin"
		}
		found, errs := parseManifests(name, content, v)
		if len(found) == 0 && len(errs) == 0 {
			empty = append(empty, name)
		}
		jobs, all = append(jobs, found...), append(all, errs...)
	}
	return jobs, empty, append(all, duplicateNames(jobs)...).orNil()
}

func expandDirectories(paths []string) (files, empty []string, err error) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if path == "-" || err == nil && !info.IsDir() {
			files = append(files, path)
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, nil, fmt.Errorf("read %w", pathError(err))
		}
		before := len(files)
		for _, e := range entries {
			if !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(e.Name()))) {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
		if len(files) == before {
			empty = append(empty, path)
		}
	}
	return files, empty, nil
}

func readFile(path string, stdin io.Reader) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(path)
}

// parseManifests parses one job per document, a list, or a list under the key jobs.
func parseManifests(file string, content []byte, v *variables) (jobs []manifest, all fileErrors) {
	documents, all := parseDocuments(file, content)
	y := &yamlToJSON{file: file, variables: v}
	for _, document := range documents {
		nodes, errs := y.jobNodes(document)
		all = append(all, errs...)
		for _, n := range nodes {
			job, errs := y.manifest(n, schema.For[belfry.Manifest]())
			if raw := job.fields["name"]; len(raw) > 0 && raw[0] == '"' {
				job.name = strings.TrimSpace(jsontext.Unquote(raw))
				job.fields["name"] = json.RawMessage(jsontext.Quote(job.name))
			}
			jobs, all = append(jobs, job), append(all, errs...)
		}
	}
	return jobs, all
}

// parseDocuments parses JSON or YAML. Every node has its line.
func parseDocuments(file string, content []byte) ([]*yaml.Node, fileErrors) {
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	if !utf8.Valid(content) {
		valid := strings.ToValidUTF8(string(content), "\x00")
		return nil, fileErrors{{file, lineOf(content, strings.IndexByte(valid, 0)), "is not UTF-8"}}
	}
	if json.Valid(content) {
		return []*yaml.Node{jsonToNode(content)}, nil
	}
	if strings.HasSuffix(file, ".json") && len(bytes.TrimSpace(content)) > 0 {
		return nil, jsonError(file, content)
	}
	return parseYAML(file, content)
}

func parseYAML(file string, content []byte) ([]*yaml.Node, fileErrors) {
	var out []*yaml.Node
	for d := yaml.NewDecoder(bytes.NewReader(content)); ; {
		var document yaml.Node
		err := d.Decode(&document)
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			line, message := yamlError(err, content)
			return nil, fileErrors{{file, line, message}}
		}
		if len(document.Content) == 1 && document.Content[0].ShortTag() != "!!null" {
			out = append(out, document.Content[0])
		}
	}
}

var (
	yamlErrorText = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

	// The line of these errors, which the parser of the library finds, is one too low.
	yamlParserError = regexp.MustCompile(`^did not find expected (<|node content|'-' indicator|key|',' or)`)

	yamlAnchorError = regexp.MustCompile(`^unknown anchor '(.*)' referenced`)
)

func yamlError(err error, content []byte) (line int, message string) {
	parts := yamlErrorText.FindStringSubmatch(err.Error())
	if parts == nil {
		return 1, err.Error()
	}
	line, message = 1, parts[2]
	if n, err := strconv.Atoi(parts[1]); err == nil {
		line = n
		if yamlParserError.MatchString(message) {
			line++
		}
	} else if anchor := yamlAnchorError.FindStringSubmatch(message); anchor != nil {
		line = lineOf(content, bytes.Index(content, []byte("*"+anchor[1])))
	} else if strings.HasPrefix(message, "control characters") {
		line = lineOf(content, bytes.IndexFunc(content, func(r rune) bool { return !isPrintable(r) && !strings.ContainsRune("\n\r\t", r) }))
	}
	return min(line, lineOf(content, len(content))), message
}

func jsonError(file string, content []byte) fileErrors {
	var value json.RawMessage
	err := json.Unmarshal(content, &value)
	offset := len(content)
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		offset = int(syntax.Offset) - 1
	}
	return fileErrors{{file, lineOf(content, offset), fmt.Sprintf("is not JSON: %v", err)}}
}

func lineOf(content []byte, offset int) int {
	return 1 + bytes.Count(content[:max(0, min(offset, len(content)))], []byte("\n"))
}

func (y *yamlToJSON) jobNodes(document *yaml.Node) ([]*yaml.Node, fileErrors) {
	root := resolveAlias(document)
	if root.Kind == yaml.SequenceNode {
		return root.Content, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, y.errorf(root, "must be a job, a list of jobs, or the key jobs with a list")
	}
	members, err := y.members(root)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(members, func(m yamlMember) bool { return m.name == "jobs" })
	if at < 0 {
		return []*yaml.Node{root}, nil
	}
	for i, m := range members {
		if i != at {
			return nil, y.errorf(m.key, "%s is not allowed next to jobs", m.name)
		}
	}
	list := resolveAlias(members[at].value)
	if list.Kind != yaml.SequenceNode && list.ShortTag() != "!!null" {
		return nil, y.errorf(list, "jobs must be a list")
	}
	return list.Content, nil
}

// manifest reads an object with the fields of a type. Fields that are null are left out.
func (y *yamlToJSON) manifest(n *yaml.Node, t *schema.Type) (manifest, fileErrors) {
	y.lines, y.expanded, y.wrong = map[string]int{}, map[string]bool{}, nil
	job := manifest{file: y.file, line: max(n.Line, 1), fields: members{}, lines: y.lines, expanded: y.expanded}
	object := resolveAlias(n)
	if object.Kind != yaml.MappingNode {
		return job, y.errorf(n, "must consist of keys and values, such as %s: ...", t.Names()[0])
	}
	list, all := y.members(object)
	for _, m := range list {
		field := t.Field(m.name)
		y.isText = field != nil && slices.Contains([]schema.Kind{schema.Text, schema.Time, schema.ID, schema.Texts}, field.Kind)
		y.lines[m.name] = m.key.Line
		value, errs := y.convert(m.value, m.name)
		for _, e := range errs {
			all = append(all, fileError{e.file, e.line, m.name + ": " + e.message})
		}
		if len(errs) == 0 && value != "null" {
			job.fields[m.name] = json.RawMessage(value)
		}
	}
	return job, append(all, y.wrong...)
}

func duplicateNames(jobs []manifest) (all fileErrors) {
	first := make(map[string]manifest)
	for _, j := range jobs {
		if f, exists := first[j.name]; exists && j.name != "" {
			all = append(all, fileError{j.file, j.lineOf("name"), fmt.Sprintf("name: %s is duplicated; first at %s:%d", j.name, f.file, f.lineOf("name"))})
			continue
		}
		first[j.name] = j
	}
	return all
}

// lineOf is the line of a field, such as payload.headers.Accept or tags[2], or else of
// the innermost value around it.
func (m manifest) lineOf(path string) int {
	for path != "" {
		if line, ok := m.lines[path]; ok {
			return line
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return m.line
}

func (m manifest) fieldErrors(fields []belfry.FieldError) fileErrors {
	return mapSlice(fields, func(f belfry.FieldError) fileError {
		return fileError{m.file, m.lineOf(f.Field), f.Field + ": " + f.Message}
	})
}

// errorsOf adds lines to the server's errors about the job; not ok for other failures.
func (m manifest) errorsOf(err error) (all fileErrors, ok bool) {
	if exitCode(err) != exitRefused {
		return nil, false
	}
	if answer, ok := errors.AsType[*client.Error](err); ok && len(answer.Fields) > 0 {
		return m.fieldErrors(answer.Fields), true
	}
	return mapSlice(errorLines(err), func(line string) fileError { return fileError{m.file, m.line, line} }), true
}
