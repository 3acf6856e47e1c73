package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// misplaced is something wrong at a line of a file.
type misplaced struct {
	file string
	line int
	what string
}

func (m misplaced) Error() string {
	return fmt.Sprintf("%s:%d: %s", safe(m.file), m.line, safe(m.what))
}

// misplacedAll is everything wrong with files.
type misplacedAll []misplaced

func (all misplacedAll) Error() string {
	lines := make([]string, len(all))
	for i, m := range all {
		lines[i] = m.Error()
	}
	return strings.Join(lines, "\n")
}

// readDocuments gives the documents of a file: JSON if it is that, and otherwise
// YAML. Every node knows its line.
func readDocuments(file string, content []byte) ([]*yaml.Node, error) {
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	if !utf8.Valid(content) {
		return nil, misplaced{file, lineOfInvalid(content), "is not UTF-8"}
	}
	if json.Valid(content) {
		node, err := nodeOfJSON(content)
		if err != nil {
			return nil, misplaced{file, 1, err.Error()}
		}
		return []*yaml.Node{node}, nil
	}
	if strings.HasSuffix(file, ".json") {
		return nil, brokenJSON(file, content)
	}
	return readYAML(file, content)
}

func readYAML(file string, content []byte) ([]*yaml.Node, error) {
	var out []*yaml.Node
	for d := yaml.NewDecoder(bytes.NewReader(content)); ; {
		var document yaml.Node
		err := d.Decode(&document)
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			line, what := yamlFault(err, content)
			return nil, misplaced{file, line, what}
		}
		if len(document.Content) == 1 && document.Content[0].ShortTag() != "!!null" {
			out = append(out, document.Content[0])
		}
	}
}

var (
	yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

	// Of the faults that the YAML library finds, those of its parser are told one
	// line too early.
	yamlParser = regexp.MustCompile(`^did not find expected (<|node content|'-' indicator|key|',' or)`)

	yamlAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced`)
)

// yamlFault gives the line and the words of a fault that the YAML library found.
func yamlFault(err error, content []byte) (line int, what string) {
	parts := yamlError.FindStringSubmatch(err.Error())
	if parts == nil {
		return 1, err.Error()
	}
	line, what = 1, parts[2]
	if n, err := strconv.Atoi(parts[1]); err == nil {
		line = n
		if yamlParser.MatchString(what) {
			line++
		}
	} else if anchor := yamlAnchor.FindStringSubmatch(what); anchor != nil {
		line = lineOf(content, bytes.Index(content, []byte("*"+anchor[1])))
	} else if strings.HasPrefix(what, "control characters") {
		line = lineOf(content, bytes.IndexFunc(content, func(r rune) bool { return hidden(r) && r != '\n' && r != '\r' && r != '\t' }))
	}
	return min(line, lineOf(content, len(content))), what
}

// brokenJSON says where a file stops being JSON.
func brokenJSON(file string, content []byte) error {
	var whole json.RawMessage
	err := json.Unmarshal(content, &whole)
	offset := len(content)
	if fault := (*json.SyntaxError)(nil); errors.As(err, &fault) {
		offset = max(0, int(fault.Offset)-1)
	}
	if len(bytes.TrimSpace(content)) == 0 {
		return nil
	}
	return misplaced{file, lineOf(content, offset), fmt.Sprintf("is not JSON: %v", err)}
}

func lineOf(content []byte, offset int) int {
	return 1 + bytes.Count(content[:max(0, min(offset, len(content)))], []byte("\n"))
}

func lineOfInvalid(content []byte) int {
	for i := 0; i < len(content); {
		r, size := utf8.DecodeRune(content[i:])
		if r == utf8.RuneError && size == 1 {
			return lineOf(content, i)
		}
		i += size
	}
	return 1
}
