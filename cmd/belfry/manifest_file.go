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
	"github.com/belfry-sh/belfry/internal/secret"
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

// manifestKind is what files declare.
type manifestKind struct {
	one, many string
	fields    *schema.Type
}

var jobManifests = manifestKind{one: "job", many: "jobs", fields: schema.For[belfry.Manifest]()}

// readManifests reads the jobs of files, or what else they declare. A directory stands for the YAML and JSON files
// in it, and "-" for standard input. It also returns the files and directories without
// a job. It reports the errors of all files.
func readManifests(kind manifestKind, paths []string, stdin io.Reader, v *variables) (jobs []manifest, empty []string, err error) {
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
		found, errs := parseManifests(kind, name, content, v)
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
func parseManifests(kind manifestKind, file string, content []byte, v *variables) (jobs []manifest, all fileErrors) {
	documents, all := parseDocuments(file, content)
	y := &yamlToJSON{file: file, variables: v}
	for _, document := range documents {
		nodes := y.nodes(kind, document)
		all = append(all, y.takeError()...)
		for _, n := range nodes {
			job, errs := y.manifest(n, kind.fields)
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
	err := json.Unmarshal(content, new(json.RawMessage))
	offset := len(content)
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		offset = int(syntax.Offset) - 1
	}
	return fileErrors{{file, lineOf(content, offset), fmt.Sprintf("is not JSON: %v", err)}}
}

func lineOf(content []byte, offset int) int {
	return 1 + bytes.Count(content[:max(0, min(offset, len(content)))], []byte("\n"))
}

// nodes are the jobs of a document; none if it is wrong.
func (y *yamlToJSON) nodes(kind manifestKind, document *yaml.Node) []*yaml.Node {
	root := resolveAlias(document)
	switch root.Kind {
	case yaml.SequenceNode:
		return root.Content
	case yaml.MappingNode:
	default:
		y.fail(root, "must be a %s, a list of %s, or the key %[2]s with a list", kind.one, kind.many)
		return nil
	}
	members := y.members(root)
	at := slices.IndexFunc(members, func(m yamlMember) bool { return m.name == kind.many })
	if at < 0 && y.failed == nil {
		return []*yaml.Node{root}
	}
	for i, m := range members {
		if i != at {
			y.fail(m.key, "%s is not allowed next to %s", m.name, kind.many)
		}
	}
	if y.failed != nil {
		return nil
	}
	list := resolveAlias(members[at].value)
	if list.Kind != yaml.SequenceNode && list.ShortTag() != "!!null" {
		y.fail(list, "%s must be a list", kind.many)
		return nil
	}
	return list.Content
}

// manifest reads an object with the fields of a type. Fields that are null are left out.
func (y *yamlToJSON) manifest(n *yaml.Node, t *schema.Type) (manifest, fileErrors) {
	y.lines, y.expanded, y.wrong = map[string]int{}, map[string]bool{}, nil
	job := manifest{file: y.file, line: max(n.Line, 1), fields: members{}, lines: y.lines, expanded: y.expanded}
	object := resolveAlias(n)
	if object.Kind != yaml.MappingNode {
		return job, y.errorf(n, "must consist of keys and values, such as %s: ...", t.Names()[0])
	}
	list, all := y.members(object), y.takeError()
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

// variables substitutes environment variables in the values of files, or finds values
// that somebody may expect it for.
type variables struct {
	substitute bool
	unchanged  []string // without substitute: where values have references
}

// reference is ${NAME} or the beginning of anything similar; after $ it is a text.
var reference = regexp.MustCompile(`\$?\$\{(?:[A-Za-z_][A-Za-z0-9_]*\})?`)

// expand replaces ${NAME} by the value of a variable, into which it does not look, and
// $${ by ${. It returns what is wrong with references that cannot be replaced.
func expand(text string, lookup func(name string) (string, bool)) (expanded string, wrong []string) {
	expanded = reference.ReplaceAllStringFunc(text, func(ref string) string {
		name, complete := strings.CutSuffix(strings.TrimPrefix(ref, "${"), "}")
		value, isSet := lookup(name)
		switch {
		case strings.HasPrefix(ref, "$$"):
			return ref[1:]
		case !complete:
			wrong = append(wrong, "after ${ there must be the name of an environment variable and }, as in ${TOKEN}; write $${ for the text ${ itself")
		case !isSet:
			wrong = append(wrong, "the environment variable "+name+" is not set; for the text "+ref+" itself write $"+ref)
		}
		return value
	})
	return expanded, wrong
}

// noteVariables says where values have references that are not substituted.
func (c *cli) noteVariables(v *variables) {
	for _, where := range v.unchanged {
		c.message("Note: %s; substitute environment variables with: belfry job apply --env", where)
	}
}

// expandNode returns a string of a file with its variables. It stays a string, whatever
// their values are, except that a field that is a number may be one.
func (y *yamlToJSON) expandNode(n *yaml.Node, path string) *yaml.Node {
	if !y.variables.substitute {
		where := fileError{y.file, max(n.Line, 1), path + ": " + reference.FindString(n.Value) + " is not substituted"}
		y.variables.unchanged = append(y.variables.unchanged, where.text())
		return n
	}
	value, wrong := expand(n.Value, os.LookupEnv)
	for _, message := range wrong {
		y.wrong = append(y.wrong, y.errorf(n, "%s: %s", path, message)...)
	}
	y.expanded[path] = true
	field := schema.For[belfry.Manifest]().Field(path)
	if isNumber := field != nil && (field.Kind == schema.Int || field.Kind == schema.Float); isNumber && jsonNumber.MatchString(value) {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!float", Value: value, Line: n.Line}
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value, Line: n.Line, Style: yaml.DoubleQuotedStyle}
}

// mask hides values of variables, which may be secrets, in the changes of a job.
func (m manifest) mask(changes []belfry.FieldChange) {
	for i, c := range changes {
		changes[i].Old, changes[i].New = m.maskValue(c.Field, c.Old), m.maskValue(c.Field, c.New)
	}
}

// maskValue hides values of variables in the value at a path. The server may have sorted
// a list, so that all of it is hidden.
func (m manifest) maskValue(path string, value json.RawMessage) json.RawMessage {
	isList := len(value) > 0 && value[0] == '['
	for expanded := range m.expanded {
		if value != nil && (expanded == path || isList && strings.HasPrefix(expanded, path+"[")) {
			return belfry.MustJSON(secret.Masked)
		}
	}
	if len(m.expanded) == 0 || len(value) == 0 || value[0] != '{' {
		return value
	}
	var parts []string
	jsontext.Members(value, func(quoted, inner []byte) bool {
		parts = append(parts, string(quoted)+":"+string(m.maskValue(path+"."+jsontext.Unquote(quoted), inner)))
		return true
	})
	return json.RawMessage("{" + strings.Join(parts, ",") + "}")
}
