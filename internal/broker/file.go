package broker

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
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
	var root, declared map[string]yaml.Node
	if err = yaml.Unmarshal(text, &root); err == nil {
		list := root["connections"]
		err = list.Decode(&declared)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	out := &Connections{declared: map[string]Connection{}}
	var all []belfry.FieldError
	fail := func(line int, format string, args ...any) {
		all = append(all, belfry.FieldError{Field: fmt.Sprintf("%s:%d", path, line), Message: fmt.Sprintf(format, args...)})
	}
	for name, node := range root {
		if name != "connections" {
			fail(node.Line, "%s is unknown; there is only connections", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		node := declared[name]
		if !validName(name, 100) {
			fail(node.Line, "the name of a connection must have 1 to 100 letters, digits, dots, underscores and hyphens")
		}
		c, wrong, err := decode(&node)
		if err != nil {
			fail(node.Line, "connections.%s must be a map such as {url: kafka://host:9092}: %s", name, err)
		}
		for _, e := range wrong {
			fail(lineOf(&node, e.Field), "connections.%s.%s %s", name, e.Field, e.Message)
		}
		out.declared[name] = c
	}
	if len(declared) == 0 {
		fail(1, "there are no connections; for example connections: {orders: {url: kafka://host:9092}}")
	}
	if len(all) > 0 {
		return nil, &belfry.Error{Code: belfry.Invalid, Message: "the file of connections is not valid", Fields: all}
	}
	return out, nil
}

// decode reads one connection.
func decode(node *yaml.Node) (c Connection, wrong []belfry.FieldError, err error) {
	fields := map[string]any{}
	if err := node.Decode(&fields); err != nil {
		return c, nil, err
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return c, nil, err
	}
	wrong, _ = schema.Decode(text, &c) // which is a JSON object
	c, more := New(c)
	return c, schema.MergeErrors(wrong, more), nil
}

// lineOf is the line of a key of a map, or where the map begins.
func lineOf(m *yaml.Node, key string) int {
	for i := 0; i < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return m.Content[i].Line
		}
	}
	return m.Line
}
