package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// assignInside sets a member of an object, however deep, and keeps the order of
// the others. Null removes it. Objects on the way that are missing are made.
func assignInside(raw json.RawMessage, path []string, value json.RawMessage) (json.RawMessage, error) {
	if len(path) == 0 {
		return value, nil
	}
	if path[0] == "" {
		return nil, errors.New("a name between the dots is empty")
	}
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || string(raw) == "null" {
		raw = json.RawMessage("{}")
	}
	if raw[0] != '{' {
		return nil, fmt.Errorf("%s cannot be set in what is not an object", path[0])
	}
	in := json.NewDecoder(bytes.NewReader(raw))
	in.Token() // the bracket, which is there
	var out bytes.Buffer
	add := func(name string, v json.RawMessage) {
		if out.Len() > 0 {
			out.WriteByte(',')
		}
		out.WriteString(quote(name) + ":" + string(v))
	}
	var old json.RawMessage
	found := false
	put := func() error {
		if len(path) == 1 && string(value) == "null" {
			return nil
		}
		v, err := assignInside(old, path[1:], value)
		if err == nil {
			add(path[0], v)
		}
		return err
	}
	for in.More() {
		token, err := in.Token()
		name, _ := token.(string)
		var v json.RawMessage
		if err == nil {
			err = in.Decode(&v)
		}
		if err != nil {
			return nil, fmt.Errorf("read an object: %w", err)
		}
		if name != path[0] {
			add(name, v)
			continue
		}
		old, found = v, true
		if err := put(); err != nil {
			return nil, err
		}
	}
	if !found {
		if err := put(); err != nil {
			return nil, err
		}
	}
	return json.RawMessage("{" + out.String() + "}"), nil
}
