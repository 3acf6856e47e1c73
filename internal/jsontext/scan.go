// Package jsontext takes JSON text apart without decoding it, for code that must name
// the place of every mistake or that runs for every run. Except for Check, its
// functions take valid JSON.
package jsontext

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// Members calls each with the name, still in quotes, and the value of every member of
// an object, in order, until it returns false.
func Members(object []byte, each func(quoted, value []byte) bool) {
	for i := skip(object, 1, ','); i < len(object) && object[i] != '}'; i = skip(object, i, ',') {
		end := closingQuote(object, i) + 1
		start := skip(object, end, ':')
		name := object[i:end]
		i = valueEnd(object, start)
		if !each(name, object[start:i]) {
			return
		}
	}
}

// Object returns the members of an object, the last of each name, or nil if the text
// is not a valid JSON object. The values are parts of the text.
func Object(text []byte) map[string]json.RawMessage {
	if !json.Valid(text) {
		return nil
	}
	if text = bytes.TrimSpace(text); text[0] != '{' {
		return nil
	}
	members := map[string]json.RawMessage{}
	Members(text, func(quoted, value []byte) bool {
		members[Unquote(quoted)] = value
		return true
	})
	return members
}

// Elements returns the elements of an array.
func Elements(array []byte) [][]byte {
	var list [][]byte
	for i := skip(array, 1, ','); i < len(array) && array[i] != ']'; {
		end := valueEnd(array, i)
		list = append(list, array[i:end])
		i = skip(array, end, ',')
	}
	return list
}

// Unquote decodes a JSON string.
func Unquote(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 && utf8.Valid(quoted) { // the usual case
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	_ = json.Unmarshal(quoted, &s) // it is valid
	return s
}

// Quote writes a string as JSON, without escaping HTML.
func Quote(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always has a JSON form
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// Kind names the kind of a value, with its article: "an object".
func Kind(value []byte) string {
	switch value[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// closingQuote is the offset of the quote that ends the string that starts at start.
func closingQuote(text []byte, start int) int {
	quote := bytes.IndexByte(text[start+1:], '"')
	if quote >= 0 && bytes.IndexByte(text[start+1:start+1+quote], '\\') < 0 {
		return start + 1 + quote
	}
	for i := start + 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(text)
}

// valueEnd is the offset behind the value that starts at start.
func valueEnd(text []byte, start int) int {
	depth := 0
	for i := start; i < len(text); i++ {
		switch text[i] {
		case '"':
			if i = closingQuote(text, i); depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			} else if depth < 0 {
				return i
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
	}
	return len(text)
}

// skip is the offset of the next byte that is neither white space nor the mark.
func skip(text []byte, from int, mark byte) int {
	for from < len(text) {
		switch c := text[from]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == mark:
			from++
		default:
			return from
		}
	}
	return from
}
