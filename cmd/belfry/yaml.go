package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/belfry-sh/belfry/internal/jsontext"
)

// Limits of a file; aliases make large values of small ones.
const (
	maxAliasNodes = 1 << 17 // nodes that aliases stand for
	maxNesting    = 64
)

// yamlToJSON converts nodes of a file to JSON. It resolves aliases and merge keys.
type yamlToJSON struct {
	file       string
	variables  *variables      // nil: of no interest
	expanded   map[string]bool // paths of values that have variables
	wrong      fileErrors      // variables that cannot be substituted
	failed     fileErrors      // the first error of a node, after which the rest of it is not converted
	lines      map[string]int  // of every path, such as payload.headers.Accept or tags[2]
	isText     bool            // scalars are strings, however YAML understands them
	aliasNodes int             // nodes that were reached through aliases
	depth      int
	inAlias    bool // the current node was reached through an alias
}

func (y *yamlToJSON) errorf(n *yaml.Node, format string, args ...any) fileErrors {
	return fileErrors{{y.file, max(n.Line, 1), fmt.Sprintf(format, args...)}}
}

func (y *yamlToJSON) fail(n *yaml.Node, format string, args ...any) {
	if y.failed == nil {
		y.failed = y.errorf(n, format, args...)
	}
}

// takeError returns the error of a node, so that the next one can be converted.
func (y *yamlToJSON) takeError() (err fileErrors) {
	err, y.failed = y.failed, nil
	return err
}

func resolveAlias(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// convert returns the JSON of a node.
func (y *yamlToJSON) convert(n *yaml.Node, path string) (string, fileErrors) {
	return y.value(n, path), y.takeError()
}

func (y *yamlToJSON) value(n *yaml.Node, path string) string {
	defer y.enter(n, n.Kind == yaml.AliasNode)()
	if y.failed != nil {
		return ""
	}
	at := n
	n = resolveAlias(n)
	if y.variables != nil && n.ShortTag() == "!!str" && reference.MatchString(n.Value) {
		n = y.expandNode(n, path)
	}
	switch tag := n.ShortTag(); {
	case n.Kind == yaml.MappingNode && tag == "!!map":
		items := mapSlice(y.members(n), func(m yamlMember) string {
			y.lines[path+"."+m.name] = m.key.Line
			return jsontext.Quote(m.name) + ":" + y.value(m.value, path+"."+m.name)
		})
		return "{" + strings.Join(items, ",") + "}"
	case n.Kind == yaml.SequenceNode && tag == "!!seq":
		items := make([]string, len(n.Content))
		for i, item := range n.Content {
			at := fmt.Sprintf("%s[%d]", path, i)
			y.lines[at] = item.Line
			items[i] = y.value(item, at)
		}
		return "[" + strings.Join(items, ",") + "]"
	case n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode:
		y.fail(n, "the tag %s is not supported", tag)
		return ""
	case y.isText && tag != "!!null":
		return jsontext.Quote(n.Value)
	}
	value, err := scalarJSON(n)
	if err != nil {
		y.fail(at, "%s", err)
	}
	return value
}

// enter refuses a node beyond the limits. The caller leaves it in any case.
func (y *yamlToJSON) enter(n *yaml.Node, isAlias bool) (leave func()) {
	depth, inAlias := y.depth, y.inAlias
	y.depth, y.inAlias = depth+1, inAlias || isAlias
	if y.inAlias {
		y.aliasNodes++
	}
	switch {
	case y.inAlias && y.aliasNodes > maxAliasNodes:
		y.fail(n, "the aliases of the file stand for more than %d values", maxAliasNodes)
	case y.depth > maxNesting:
		y.fail(resolveAlias(n), "is nested deeper than %d levels", maxNesting)
	}
	return func() { y.depth, y.inAlias = depth, inAlias }
}

type yamlMember struct {
	name  string
	key   *yaml.Node
	value *yaml.Node
}

// members lists the members of a mapping, its own before those that are merged in; none
// if the mapping is wrong.
func (y *yamlToJSON) members(n *yaml.Node) (own []yamlMember) {
	var merged []yamlMember
	lines := make(map[string]int)
	for i := 0; i+1 < len(n.Content) && y.failed == nil; i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.ShortTag() == "!!merge" {
			merged = append(merged, y.merge(value)...)
			continue
		}
		name := resolveAlias(key)
		line, exists := lines[name.Value]
		switch {
		case name.Kind != yaml.ScalarNode:
			y.fail(key, "a key must be a string")
		case exists:
			y.fail(key, "%s is duplicated; first in line %d", name.Value, line)
		}
		lines[name.Value] = key.Line
		own = append(own, yamlMember{name.Value, key, value})
	}
	for _, m := range merged {
		if _, exists := lines[m.name]; !exists {
			lines[m.name] = m.key.Line
			own = append(own, m)
		}
	}
	if y.failed != nil {
		return nil
	}
	return own
}

// merge lists the members of a mapping, or of several, of which the first wins.
func (y *yamlToJSON) merge(value *yaml.Node) (all []yamlMember) {
	defer y.enter(value, true)()
	mappings := []*yaml.Node{value}
	if list := resolveAlias(value); list.Kind == yaml.SequenceNode {
		mappings = list.Content
	}
	for _, m := range mappings {
		switch {
		case y.failed != nil:
			return nil
		case resolveAlias(m).Kind != yaml.MappingNode:
			y.fail(m, "<< can only merge mappings")
		default:
			all = append(all, y.members(resolveAlias(m))...)
		}
	}
	return all
}

func scalarJSON(n *yaml.Node) (string, error) {
	plain := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) == 0
	switch tag := n.ShortTag(); {
	case tag == "!!int" || tag == "!!float" || plain && tag == "!!str" && jsonNumber.MatchString(n.Value):
		return numberJSON(n.Value)
	case tag == "!!str" || tag == "!!timestamp" || tag == "!!merge":
		return jsontext.Quote(n.Value), nil
	case tag == "!!bool":
		if value := strings.ToLower(n.Value); value == "true" || value == "false" {
			return value, nil
		}
		return "", fmt.Errorf("%q is neither true nor false", n.Value)
	case tag == "!!null":
		return "null", nil
	default:
		return "", fmt.Errorf("the tag %s is not supported", tag)
	}
}

var (
	jsonNumber  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)
	yamlFloat   = regexp.MustCompile(`^([-+]?)([0-9]*)\.?([0-9]*)([eE][-+]?[0-9]+)?$`)
	leadingZero = regexp.MustCompile(`^[-+]?0[0-9_]`)
	otherBase   = regexp.MustCompile(`^[-+]?0[xob]`)
)

// numberJSON is a YAML number in the notation of JSON, with all its digits.
func numberJSON(text string) (string, error) {
	if jsonNumber.MatchString(text) {
		return text, nil
	}
	digits := strings.ReplaceAll(text, "_", "")
	if otherBase.MatchString(digits) {
		if n, ok := new(big.Int).SetString(digits, 0); ok {
			return n.String(), nil
		}
	}
	if leadingZero.MatchString(text) {
		return "", fmt.Errorf("%s starts with a zero, which YAML parsers understand differently; quote it if it is a string", text)
	}
	parts := yamlFloat.FindStringSubmatch(digits)
	if parts == nil || parts[2]+parts[3] == "" {
		return "", fmt.Errorf("%s is not a JSON number; quote it if it is a string", text)
	}
	out := strings.TrimPrefix(parts[1], "+") + cmp.Or(parts[2], "0")
	if parts[3] != "" {
		out += "." + parts[3]
	}
	return out + parts[4], nil
}

// jsonToNode converts valid JSON to a YAML node of the same meaning. Members keep their
// order, numbers their notation, and every node has its line.
func jsonToNode(content []byte) *yaml.Node {
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

func (r *nodeReader) value() *yaml.Node {
	token, _ := r.json.Token() // The JSON is valid.
	offset := int(r.json.InputOffset())
	r.line += bytes.Count(r.content[r.offset:offset], []byte("\n"))
	r.offset = offset
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null", Line: r.line}
	switch v := token.(type) {
	case json.Delim:
		n.Kind, n.Tag, n.Value = yaml.SequenceNode, "!!seq", ""
		if v == '{' {
			n.Kind, n.Tag = yaml.MappingNode, "!!map"
		}
		for r.json.More() {
			n.Content = append(n.Content, r.value()) // Keys are tokens like other strings.
		}
		if len(n.Content) == 0 {
			n.Style = yaml.FlowStyle
		}
		_, _ = r.json.Token() // the closing bracket
	case string:
		return textNode(v, r.line)
	case json.Number:
		n.Tag, n.Value = "!!int", v.String()
		if strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!float"
		}
	case bool:
		n.Tag, n.Value = "!!bool", fmt.Sprint(v)
	}
	return n
}

func textNode(s string, line int) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s, Style: stringStyle(s), Line: line}
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
	if err := errors.Join(e.Encode(n), e.Close()); err != nil {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	return []byte(escapeExcept(b.String(), "\n")), nil
}
