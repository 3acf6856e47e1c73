package belfry

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// HasMember reports whether a text is a JSON object with a member of the name.
func HasMember(text json.RawMessage, name string) bool {
	_, has := membersOf(text)[name]
	return has
}

// membersOf gives the members of a JSON object, the last of each key; nil if it is
// none. The values are parts of the text and valid. It is on the path of every run,
// where package json would take most of the time.
func membersOf(text json.RawMessage) map[string]json.RawMessage {
	if !json.Valid(text) {
		return nil
	}
	text = bytes.TrimSpace(text)
	if text[0] != '{' {
		return nil
	}
	members := map[string]json.RawMessage{}
	for i := skip(text, 1, ","); text[i] != '}'; i = skip(text, i, ",") {
		key := text[i:textEnd(text, i)]
		start := skip(text, i+len(key), ":")
		i = valueEnd(text, start)
		name, _ := textOf(key)
		members[name] = text[start:i]
	}
	return members
}

// textOf reads a valid JSON value that must be a text.
func textOf(value json.RawMessage) (text string, ok bool) {
	if len(value) < 2 || value[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(value, '\\') < 0 && utf8.Valid(value) { // mostly: it stands there as it is
		return string(value[1 : len(value)-1]), true
	}
	err := json.Unmarshal(value, &text)
	return text, err == nil
}

// skip is where the next token begins after white space and a mark.
func skip(text []byte, i int, mark string) int {
	for {
		switch c := text[i]; c {
		case ' ', '\t', '\r', '\n', mark[0]:
			i++
		default:
			return i
		}
	}
}

// textEnd is where the text that begins at i ends.
func textEnd(text []byte, i int) int {
	for i++; text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// valueEnd is where the value that begins at i ends.
func valueEnd(text []byte, i int) int {
	for depth := 0; ; {
		switch text[i] {
		case '"':
			i = textEnd(text, i)
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		default:
			for i < len(text) && bytes.IndexByte([]byte(" \t\r\n,:}]\"{["), text[i]) < 0 {
				i++
			}
		}
		if depth == 0 {
			return i
		}
		for bytes.IndexByte([]byte(" \t\r\n,:"), text[i]) >= 0 {
			i++
		}
	}
}
