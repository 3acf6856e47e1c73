package jsontext

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxDepth is how deep objects and arrays may be nested.
const MaxDepth = 32

// SyntaxError says why a text is not one JSON value. The message follows what the text
// is: "the body is empty".
type SyntaxError struct{ Message string }

func (e *SyntaxError) Error() string { return e.Message }

// Check returns an error unless the text is exactly one JSON value.
func Check(text []byte) *SyntaxError {
	deep := tooDeep(text)
	if deep < 0 && utf8.Valid(text) && json.Valid(text) {
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
	if deep >= 0 {
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
