package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits on what a file may unfold to; aliases make large things of small ones.
const (
	maxUnfolded = 1 << 17 // nodes that aliases stand for
	maxNesting  = 64
)

// unfolding turns nodes of a file into JSON. Aliases are followed and merge keys
// are merged.
type unfolding struct {
	file    string
	nodes   int // that were reached through aliases
	depth   int
	aliases int // around where it is
}

func (u *unfolding) fault(n *yaml.Node, format string, args ...any) error {
	return misplaced{u.file, max(n.Line, 1), fmt.Sprintf(format, args...)}
}

// follow gives what an alias stands for.
func follow(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// json gives a node as JSON.
func (u *unfolding) json(n *yaml.Node) (json.RawMessage, error) {
	var b bytes.Buffer
	err := u.write(&b, n)
	return b.Bytes(), err
}

func (u *unfolding) write(b *bytes.Buffer, n *yaml.Node) error {
	if n.Kind == yaml.AliasNode {
		u.aliases++
		defer func() { u.aliases-- }()
	}
	if u.aliases > 0 {
		u.nodes++
	}
	if u.nodes > maxUnfolded {
		return u.fault(n, "the aliases of the file stand for more than %d values", maxUnfolded)
	}
	if u.depth++; u.depth > maxNesting {
		return u.fault(n, "is nested deeper than %d levels", maxNesting)
	}
	defer func() { u.depth-- }()
	at := n
	switch n = follow(n); n.Kind {
	case yaml.MappingNode:
		return u.object(b, n)
	case yaml.SequenceNode:
		if tag := n.ShortTag(); tag != "!!seq" {
			return u.fault(at, "the tag %s is not known here", tag)
		}
		b.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := u.write(b, item); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	}
	value, err := scalar(n)
	if err != nil {
		return u.fault(at, "%s", err)
	}
	b.WriteString(value)
	return nil
}

func (u *unfolding) object(b *bytes.Buffer, n *yaml.Node) error {
	if tag := n.ShortTag(); tag != "!!map" {
		return u.fault(n, "the tag %s is not known here", tag)
	}
	members, err := u.members(n)
	if err != nil {
		return err
	}
	b.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(quote(m.name))
		b.WriteByte(':')
		if err := u.write(b, m.value); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

// member is a key of an object and what it has.
type member struct {
	name  string
	key   *yaml.Node
	value *yaml.Node
}

// members lists the members of a mapping in order, own ones before those that are
// merged in. A key that is there twice is refused.
func (u *unfolding) members(n *yaml.Node) ([]member, error) {
	if u.depth++; u.depth > maxNesting {
		return nil, u.fault(n, "is nested deeper than %d levels", maxNesting)
	}
	defer func() { u.depth-- }()
	var own, merged []member
	seen := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.ShortTag() == "!!merge" {
			more, err := u.merge(value)
			if err != nil {
				return nil, err
			}
			merged = append(merged, more...)
			continue
		}
		plain := follow(key)
		if plain.Kind != yaml.ScalarNode {
			return nil, u.fault(key, "a key must be text")
		}
		if line, twice := seen[plain.Value]; twice {
			return nil, u.fault(key, "%s is there twice, first at line %d", plain.Value, line)
		}
		seen[plain.Value] = key.Line
		own = append(own, member{plain.Value, key, value})
	}
	for _, m := range merged {
		if _, had := seen[m.name]; !had {
			seen[m.name] = m.key.Line
			own = append(own, m)
		}
	}
	return own, nil
}

// merge gives the members that a merge key brings: of a mapping, or of several,
// the first of which wins.
func (u *unfolding) merge(value *yaml.Node) ([]member, error) {
	if u.nodes++; u.nodes > maxUnfolded {
		return nil, u.fault(value, "the aliases of the file stand for more than %d values", maxUnfolded)
	}
	switch from := follow(value); from.Kind {
	case yaml.MappingNode:
		return u.members(from)
	case yaml.SequenceNode:
		var all []member
		for _, one := range from.Content {
			if follow(one).Kind != yaml.MappingNode {
				return nil, u.fault(one, "<< can merge mappings only")
			}
			more, err := u.members(follow(one))
			if err != nil {
				return nil, err
			}
			all = append(all, more...)
		}
		return all, nil
	}
	return nil, u.fault(value, "<< can merge mappings only")
}

// scalar gives a single value as JSON.
func scalar(n *yaml.Node) (string, error) {
	plain := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) == 0
	switch tag := n.ShortTag(); {
	case tag == "!!int" || tag == "!!float" || plain && tag == "!!str" && jsonNumber.MatchString(n.Value):
		return number(n.Value)
	case tag == "!!str" || tag == "!!timestamp" || tag == "!!merge":
		return quote(n.Value), nil
	case tag == "!!bool":
		if value := strings.ToLower(n.Value); value == "true" || value == "false" {
			return value, nil
		}
		return "", fmt.Errorf("%q is neither true nor false", n.Value)
	case tag == "!!null":
		return "null", nil
	default:
		return "", fmt.Errorf("the tag %s is not known here", tag)
	}
}

var (
	jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)
	yamlFloat  = regexp.MustCompile(`^([-+]?)([0-9]*)\.?([0-9]*)([eE][-+]?[0-9]+)?$`)
	zeroFirst  = regexp.MustCompile(`^[-+]?0[0-9_]`)
	otherBase  = regexp.MustCompile(`^[-+]?0[xob]`)
)

// number writes a number of YAML as JSON does, without loss of a digit.
func number(text string) (string, error) {
	if jsonNumber.MatchString(text) {
		return text, nil
	}
	plain := strings.ReplaceAll(text, "_", "")
	if otherBase.MatchString(plain) {
		if n, ok := new(big.Int).SetString(plain, 0); ok {
			return n.String(), nil
		}
	}
	if zeroFirst.MatchString(text) {
		return "", fmt.Errorf("%s begins with a zero, which readers of YAML understand differently: quote it if it is text", text)
	}
	parts := yamlFloat.FindStringSubmatch(plain)
	if parts == nil || parts[2]+parts[3] == "" {
		return "", fmt.Errorf("%s is not a number that JSON knows: quote it if it is text", text)
	}
	out := strings.TrimPrefix(parts[1], "+")
	if parts[2] == "" {
		parts[2] = "0"
	}
	out += parts[2]
	if parts[3] != "" {
		out += "." + parts[3]
	}
	return out + parts[4], nil
}

// quote writes a text as JSON.
func quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(s) != nil {
		return `""`
	}
	return strings.TrimSuffix(b.String(), "\n")
}
