package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// jsonToNode converts a JSON value to a YAML node of the same meaning. Members keep
// their order, numbers their notation, and every node has its line.
func jsonToNode(content []byte) (*yaml.Node, error) {
	r := nodeReader{json: json.NewDecoder(bytes.NewReader(content)), content: content, line: 1}
	r.json.UseNumber()
	return r.value()
}

type nodeReader struct {
	json    *json.Decoder
	content []byte
	offset  int // up to which lines are counted
	line    int
}

func (r *nodeReader) value() (*yaml.Node, error) {
	token, err := r.json.Token()
	if err != nil {
		return nil, fmt.Errorf("read JSON: %w", err)
	}
	offset := int(r.json.InputOffset())
	r.line += bytes.Count(r.content[r.offset:offset], []byte("\n"))
	r.offset = offset
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: r.line}
	switch v := token.(type) {
	case json.Delim:
		return n, r.collection(n, v)
	case string:
		n.Tag, n.Value, n.Style = "!!str", v, stringStyle(v)
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

func (r *nodeReader) collection(n *yaml.Node, open json.Delim) error {
	n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
	if open == '{' {
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
	}
	for r.json.More() {
		inner, err := r.value() // Keys are tokens like other strings.
		if err != nil {
			return err
		}
		n.Content = append(n.Content, inner)
	}
	if len(n.Content) == 0 {
		n.Style = yaml.FlowStyle
	}
	_, err := r.json.Token()
	return err
}

var (
	// ambiguous are strings that some YAML parser takes for another type.
	ambiguous = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|true|false|null|~|<<|=|[-+.0-9][-+.:_0-9a-fox]*(e[-+]?[0-9]+)?)$`)

	// multiline are strings of several lines that can be a literal block.
	multiline = regexp.MustCompile(`^[^\s][^\n]*(\n([^\s][^\n]*)?)+$`)

	trailingBlank = regexp.MustCompile(`[ \t](\n|$)`)
)

// stringStyle is a readable style in which every YAML parser reads the same string.
func stringStyle(s string) yaml.Style {
	hidden := strings.ContainsFunc(strings.ReplaceAll(s, "\n", ""), func(r rune) bool { return !isPrintable(r) })
	switch {
	case hidden || ambiguous.MatchString(s):
		return yaml.DoubleQuotedStyle
	case !strings.Contains(s, "\n"):
		return 0
	case multiline.MatchString(s) && !trailingBlank.MatchString(s):
		return yaml.LiteralStyle
	}
	return yaml.DoubleQuotedStyle
}

// encodeYAML writes a node. Characters that are not printable are written as codes;
// strings that have some are in double quotes, where the codes stand for them.
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
	return []byte(escapeExcept(b.String(), "\n")), nil
}
