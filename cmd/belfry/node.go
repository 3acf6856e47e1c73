package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// nodeOfJSON turns a JSON value into a YAML node that means the same, member by
// member in their order, each with its line. Numbers stay as they are written.
func nodeOfJSON(content []byte) (*yaml.Node, error) {
	r := jsonReader{in: json.NewDecoder(bytes.NewReader(content)), content: content, line: 1}
	r.in.UseNumber()
	return r.value()
}

type jsonReader struct {
	in      *json.Decoder
	content []byte
	counted int // how far lines are counted
	line    int
}

// here is the line that the reader has come to.
func (r *jsonReader) here() int {
	offset := int(r.in.InputOffset())
	r.line += bytes.Count(r.content[r.counted:offset], []byte("\n"))
	r.counted = offset
	return r.line
}

func (r *jsonReader) value() (*yaml.Node, error) {
	token, err := r.in.Token()
	if err != nil {
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: r.here()}
	switch v := token.(type) {
	case json.Delim:
		return n, r.inside(n, v)
	case string:
		n.Tag, n.Value, n.Style = "!!str", v, styleOf(v)
	case json.Number:
		n.Tag, n.Value = "!!int", v.String()
		if strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!float"
		}
	case bool:
		n.Tag, n.Value = "!!bool", fmt.Sprint(v)
	default:
		n.Tag, n.Value = "!!null", "null"
	}
	return n, nil
}

// inside reads the rest of an object or array.
func (r *jsonReader) inside(n *yaml.Node, open json.Delim) error {
	n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
	if open == '{' {
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
	}
	for r.in.More() {
		inner, err := r.value() // The keys of an object are tokens like others.
		if err != nil {
			return err
		}
		n.Content = append(n.Content, inner)
	}
	_, err := r.in.Token()
	if len(n.Content) == 0 {
		n.Style = yaml.FlowStyle
	}
	return err
}

var (
	// misread are texts that some reader of YAML takes for something else.
	misread = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|true|false|null|~|<<|=|[-+.0-9][-+.:_0-9a-fox]*(e[-+]?[0-9]+)?)$`)

	// blockable are texts of several lines that a block shows as they are.
	blockable = regexp.MustCompile(`^[^\s][^\n]*(\n([^\s][^\n]*)?)+$`)

	trailing = regexp.MustCompile(`[ \t](\n|$)`)
)

// styleOf says how a text is to be written so that every reader of YAML takes it
// for that text, and so that a person can read it.
func styleOf(s string) yaml.Style {
	switch {
	case misread.MatchString(s), strings.ContainsFunc(strings.ReplaceAll(s, "\n", ""), hidden):
		return yaml.DoubleQuotedStyle
	case !strings.Contains(s, "\n"):
		return 0
	case blockable.MatchString(s) && !trailing.MatchString(s):
		return yaml.LiteralStyle
	}
	return yaml.DoubleQuotedStyle
}

// encodeYAML writes a node. Hidden characters are shown by their codes; texts that
// have some are in double quotes, where codes mean them.
func encodeYAML(n *yaml.Node) ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(n); err != nil {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	if err := e.Close(); err != nil {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	return []byte(escape(b.String(), "\n")), nil
}
