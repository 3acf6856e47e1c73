package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/belfry-sh/belfry"
)

const (
	maxBody  = 1 << 20 // bytes of a request's body
	maxDepth = 32      // of objects and arrays in each other
)

// readBody takes the body of a request, at most maxBody bytes, that says it is
// JSON or says nothing.
func readBody(r *http.Request) ([]byte, error) {
	if err := checkMedia(r.Header); err != nil {
		return nil, err
	}
	if r.ContentLength > maxBody {
		return nil, tooLarge()
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, refuse("the body could not be read to its end")
	}
	if len(body) > maxBody {
		return nil, tooLarge()
	}
	return body, nil
}

func tooLarge() error {
	return belfry.Errorf(belfry.TooLarge, "the body is too large, the most is %d bytes", maxBody)
}

func checkMedia(h http.Header) error {
	e := &refusal{status: http.StatusUnsupportedMediaType, code: unsupportedMedia}
	if encoding := h.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		e.detail = "the body must not be compressed"
		return e
	}
	given := h.Get("Content-Type")
	if given == "" {
		return nil
	}
	media, parameters, err := mime.ParseMediaType(given)
	charset, named := parameters["charset"]
	if err != nil || media != "application/json" || named && !strings.EqualFold(charset, "utf-8") {
		e.detail = "the body must be application/json in UTF-8"
		return e
	}
	return nil
}

// checkJSON refuses what is not exactly one JSON value, and says where.
func checkJSON(body []byte) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return refuse("the body is empty; it must be a JSON object")
	}
	for i, rest := 0, body; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r == utf8.RuneError && size == 1 {
			return misplaced(body, i, "not valid UTF-8")
		}
		i, rest = i+size, rest[size:]
	}
	if i := tooDeep(body); i >= 0 {
		return misplaced(body, i, fmt.Sprintf("nested deeper than %d levels", maxDepth))
	}
	var whole json.RawMessage
	err := json.Unmarshal(body, &whole)
	var fault *json.SyntaxError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &fault):
		return refuse("the body is not JSON")
	case strings.HasPrefix(fault.Error(), "unexpected end"):
		return misplaced(body, len(body), "the JSON ends too early")
	}
	return misplaced(body, int(fault.Offset)-1, fault.Error())
}

// misplaced refuses a body for what is at an offset.
func misplaced(body []byte, offset int, what string) error {
	before := body[:max(0, min(offset, len(body)))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	return refuse("the body is not JSON that can be read: line %d, column %d: %s", line, column, what)
}

// tooDeep gives the offset of the first bracket that goes deeper than maxDepth, or
// -1. It does not need the JSON to be right.
func tooDeep(body []byte) int {
	depth := 0
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			i = closingQuote(body, i)
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
func closingQuote(body []byte, start int) int {
	for i := start + 1; i < len(body); i++ {
		switch body[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(body)
}

// repeated names the members that an object, at any depth, has twice: whoever
// reads them might see the one that was not checked. The body must be JSON.
func repeated(body []byte) []belfry.Fault {
	var faults []belfry.Fault
	var at location
	for i := 0; i < len(body) && len(faults) < maxFaults; i++ {
		switch body[i] {
		case '{', '[':
			at = append(at, level{object: body[i] == '{'})
		case '}', ']':
			at = at[:len(at)-1]
		case ',':
			at.next()
		case '"':
			end := closingQuote(body, i)
			if at.awaitsName() && at.enter(body[i:end+1]) {
				faults = append(faults, belfry.Fault{Field: at.String(), Message: "is there twice"})
			}
			i = end
		}
	}
	return faults
}

// clip shortens a name that an answer repeats.
func clip(name string) string {
	const most = 64
	if utf8.RuneCountInString(name) <= most {
		return name
	}
	return string([]rune(name)[:most]) + "..."
}
