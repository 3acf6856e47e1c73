// Package jsontext scans, encodes and decodes JSON, for code that must name the place of
// every mistake or that runs for every run. Except for Check and Unmarshal, its functions
// take valid JSON.
package jsontext

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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

// Member returns the value of a member, the last of its name, or nil if the value is not
// an object that has it.
func Member(object []byte, name string) (value []byte) {
	if object = bytes.TrimSpace(object); len(object) == 0 || object[0] != '{' {
		return nil
	}
	Members(object, func(quoted, v []byte) bool {
		if len(quoted) == len(name)+2 && string(quoted[1:len(quoted)-1]) == name || bytes.IndexByte(quoted, '\\') >= 0 && Unquote(quoted) == name {
			value = v
		}
		return true
	})
	return value
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

// valueEnd is the offset behind the value that starts at start. The text need not be
// valid.
func valueEnd(text []byte, start int) int {
	depth := 0
	for i := start; i < len(text); i++ {
		switch text[i] {
		case '"':
			if i = closingQuote(text, i); depth == 0 {
				return min(i+1, len(text))
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

// MaxDepth is how deep objects and arrays may be nested.
const MaxDepth = 32

// SyntaxError says why a text is not one JSON value. The message follows what the text
// is: "the body is empty".
type SyntaxError struct{ Message string }

func (e *SyntaxError) Error() string { return e.Message }

// Check returns an error unless the text is exactly one JSON value.
func Check(text []byte) *SyntaxError {
	if valid(text) {
		return nil
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return &SyntaxError{"is empty; it must be a JSON object"}
	}
	for i, rest := 0, text; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r == utf8.RuneError && size == 1 {
			return errorAt(text, i, "invalid UTF-8")
		}
		i, rest = i+size, rest[size:]
	}
	if deep := tooDeep(text); deep >= 0 {
		return errorAt(text, deep, fmt.Sprintf("nested deeper than %d levels", MaxDepth))
	}
	var whole json.RawMessage
	err := json.Unmarshal(text, &whole)
	var syntax *json.SyntaxError
	switch {
	case !errors.As(err, &syntax):
		return &SyntaxError{"is not valid JSON"}
	case strings.HasPrefix(syntax.Error(), "unexpected end"):
		return errorAt(text, len(text), "unexpected end of JSON")
	}
	return errorAt(text, int(syntax.Offset)-1, syntax.Error())
}

func errorAt(text []byte, offset int, what string) *SyntaxError {
	before := text[:max(0, min(offset, len(text)))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	return &SyntaxError{fmt.Sprintf("is not valid JSON: line %d, column %d: %s", line, column, what)}
}

// tooDeep is the offset of the first bracket deeper than MaxDepth, or -1. The text
// need not be valid.
func tooDeep(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i = closingQuote(text, i)
		case '{', '[':
			if depth++; depth > MaxDepth {
				return i
			}
		case '}', ']':
			depth--
		}
	}
	return -1
}

// maxDuplicates is how many duplicate names are reported.
const maxDuplicates = 50

// Duplicates returns the paths of names that an object, at any depth, has twice:
// another reader might use the value that was not validated.
func Duplicates(text []byte) []string {
	w := walk{text: text}
	w.value(skip(text, 0, ' '), nil)
	return w.paths
}

// walk goes through a JSON value once.
type walk struct {
	text  []byte
	paths []string // of duplicates
}

// place is a member of an object or an element of an array.
type place struct {
	around *place
	object bool
	name   []byte // in an object
	index  int
}

func (p *place) path() string {
	switch {
	case p == nil:
		return ""
	case !p.object:
		return fmt.Sprintf("%s[%d]", p.around.path(), p.index)
	case p.around == nil:
		return string(p.name[:min(len(p.name), 64)])
	}
	return p.around.path() + "." + string(p.name[:min(len(p.name), 64)])
}

// value goes through the value that starts at i and returns the offset behind it.
func (w *walk) value(i int, at *place) int {
	if w.text[i] != '{' && w.text[i] != '[' {
		return valueEnd(w.text, i)
	}
	var names nameSet
	here := place{around: at, object: w.text[i] == '{'}
	for i = skip(w.text, i+1, ','); w.text[i] != '}' && w.text[i] != ']'; i = skip(w.text, i, ',') {
		if here.object {
			end := closingQuote(w.text, i) + 1
			if here.name = w.text[i+1 : end-1]; bytes.IndexByte(here.name, '\\') >= 0 {
				here.name = []byte(Unquote(w.text[i:end]))
			}
			if names.has(here.name) && len(w.paths) < maxDuplicates {
				w.paths = append(w.paths, here.path())
			}
			i = skip(w.text, end, ':')
		}
		i = w.value(i, &here)
		here.index++
	}
	return i + 1
}

// nameSet is the names of an object: a linear search is faster than a map while they are few.
type nameSet struct {
	few  [16][]byte
	n    int
	many map[string]bool
}

// has reports whether a name is in the set, and adds it.
func (s *nameSet) has(name []byte) (known bool) {
	for _, other := range s.few[:s.n] {
		known = known || bytes.Equal(other, name)
	}
	if s.n < len(s.few) {
		s.few[s.n] = name
		s.n++
		return known
	}
	if s.many == nil {
		s.many = map[string]bool{}
	}
	known = known || s.many[string(name)]
	s.many[string(name)] = true
	return known
}
