package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxDepth is how deep objects and arrays may be in each other.
const maxDepth = 32

// flaw says what keeps a text from being a JSON object, in words that fit behind
// what the text is: "the body", or a line of it.
type flaw struct{ what string }

func flawed(format string, args ...any) *flaw { return &flaw{fmt.Sprintf(format, args...)} }

// refusal is for a body that is one JSON object, or should be.
func (f *flaw) refusal() error { return refuse("the body %s", f.what) }

// checkJSON refuses what is not exactly one JSON value, and says where.
func checkJSON(text []byte) *flaw {
	deep := tooDeep(text)
	if deep < 0 && utf8.Valid(text) && json.Valid(text) {
		return nil
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return flawed("is empty; it must be a JSON object")
	}
	for i, rest := 0, text; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r == utf8.RuneError && size == 1 {
			return misplaced(text, i, "not valid UTF-8")
		}
		i, rest = i+size, rest[size:]
	}
	if deep >= 0 {
		return misplaced(text, deep, fmt.Sprintf("nested deeper than %d levels", maxDepth))
	}
	var whole json.RawMessage
	err := json.Unmarshal(text, &whole)
	var fault *json.SyntaxError
	switch {
	case !errors.As(err, &fault):
		return flawed("is not JSON")
	case strings.HasPrefix(fault.Error(), "unexpected end"):
		return misplaced(text, len(text), "the JSON ends too early")
	}
	return misplaced(text, int(fault.Offset)-1, fault.Error())
}

// misplaced tells of what is at an offset.
func misplaced(text []byte, offset int, what string) *flaw {
	before := text[:max(0, min(offset, len(text)))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	return flawed("is not JSON that can be read: line %d, column %d: %s", line, column, what)
}

// tooDeep gives the offset of the first bracket that goes deeper than maxDepth, or
// -1. It does not need the JSON to be right.
func tooDeep(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i = closingQuote(text, i)
		case '{', '[':
			if depth++; depth > maxDepth {
				return i
			}
		case '}', ']':
			depth--
		}
	}
	return -1
}

// closingQuote gives where the string ends that begins at an offset.
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

// valueEnd gives the offset behind the value that begins at another. The text must
// be JSON.
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

// skipBlanks gives the offset of the first byte, from another on, that is neither
// white space nor one of the marks.
func skipBlanks(text []byte, from int, mark byte) int {
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

// elements takes a JSON array apart. The text must be JSON.
func elements(array []byte) [][]byte {
	var list [][]byte
	for i := skipBlanks(array, 1, ','); i < len(array) && array[i] != ']'; {
		end := valueEnd(array, i)
		list = append(list, array[i:end])
		i = skipBlanks(array, end, ',')
	}
	return list
}

// unquote reads a JSON string. The text must be one.
func unquote(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	json.Unmarshal(quoted, &s) // It was checked before.
	return s
}

// kindOf says what a JSON value is.
func kindOf(value []byte) string {
	switch value[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a truth value"
	case 'n':
		return "null"
	}
	return "a number"
}
