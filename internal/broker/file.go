package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
)

// Load reads a file of connections. Its errors name the line and the key.
func Load(path string) (*Connections, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, fmt.Errorf("%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	out := &Connections{declared: map[string]Connection{}}
	var all []error
	fail := func(line int, format string, args ...any) {
		all = append(all, fmt.Errorf("%s:%d: %s", path, line, fmt.Sprintf(format, args...)))
	}
	if len(root.Content) != 1 || root.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s: has no connections; for example connections: {orders: {url: kafka://host:9092}}", path)
	}
	for key, value := range pairs(root.Content[0]) {
		if key.Value != "connections" || value.Kind != yaml.MappingNode {
			fail(key.Line, "%s is unknown or not a map; there is only connections, a map of names", key.Value)
			continue
		}
		for name, fields := range pairs(value) {
			if !validName(name.Value, 100) {
				fail(name.Line, "the name of a connection must have 1 to 100 letters, digits, dots, underscores and hyphens")
			}
			c, lines := decode(fields)
			for _, e := range lines {
				fail(e.line, "connections.%s.%s %s", name.Value, e.Field, e.Message)
			}
			out.declared[name.Value] = c
		}
	}
	if len(out.declared) == 0 && all == nil {
		fail(root.Content[0].Line, "connections is empty")
	}
	return out, errors.Join(all...)
}

// pairs iterates over the keys and values of a map.
func pairs(m *yaml.Node) func(yield func(key, value *yaml.Node) bool) {
	return func(yield func(key, value *yaml.Node) bool) {
		for i := 0; i+1 < len(m.Content); i += 2 {
			if !yield(m.Content[i], m.Content[i+1]) {
				return
			}
		}
	}
}

type lineError struct {
	line int
	belfry.FieldError
}

// decode reads one connection.
func decode(node *yaml.Node) (c Connection, wrong []lineError) {
	var fields map[string]any
	err := node.Decode(&fields)
	var text []byte
	if err == nil {
		text, err = json.Marshal(fields)
	}
	if err != nil || fields == nil {
		return c, []lineError{{node.Line, belfry.FieldError{Field: "url", Message: "is missing, or the connection is not a map such as {url: kafka://host:9092}"}}}
	}
	errors, syntax := schema.Decode(text, &c)
	if syntax != nil {
		return c, []lineError{{node.Line, belfry.FieldError{Message: syntax.Message}}}
	}
	c, more := New(c)
	for _, e := range schema.MergeErrors(errors, more) {
		line := node.Line
		for key := range pairs(node) {
			if key.Value == e.Field {
				line = key.Line
			}
		}
		wrong = append(wrong, lineError{line, e})
	}
	return c, wrong
}
