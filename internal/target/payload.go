package target

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
)

const maxHeaderValue = 8 << 10 // bytes

// ParseHTTP reads and validates the payload of an HTTP job. It returns all errors at
// once; with none, the request can be sent. Messages never repeat a value, since values
// may be secret.
func ParseHTTP(raw json.RawMessage) (p belfry.HTTPPayload, errors []belfry.FieldError) {
	errors, syntax := schema.Decode(raw, &p)
	if syntax != nil {
		return p, []belfry.FieldError{{Field: "payload", Message: `must be a JSON object; for example {"url": "https://example.com/hook"}`}}
	}
	var more []belfry.FieldError
	fail := func(field, message string) {
		if message != "" {
			more = append(more, belfry.FieldError{Field: field, Message: message})
		}
	}
	fail("url", checkURL(p.URL))
	seen := make(map[string]bool, len(p.Headers))
	for _, name := range slices.Sorted(maps.Keys(p.Headers)) {
		lower := strings.ToLower(name)
		fail("headers."+schema.Clip(name), checkHeader(lower, p.Headers[name], seen[lower]))
		seen[lower] = true
	}
	if len(p.Body) > 0 && (p.Method == "GET" || p.Method == "HEAD") {
		fail("body", "cannot be sent with "+p.Method+"; leave it out or use another method")
	}
	errors = schema.MergeErrors(errors, more)
	for i := range errors {
		errors[i].Field = "payload." + errors[i].Field
	}
	return p, errors
}

// checkURL says what is wrong with the address of a request.
func checkURL(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || strings.TrimSpace(text) != text:
		return "is not a valid URL; for example https://example.com/hook"
	case u.Scheme != "http" && u.Scheme != "https":
		return "must begin with http:// or https://"
	case u.User != nil:
		return "must not contain a user name or password; use a header"
	case u.Hostname() == "":
		return "has no host"
	case strings.HasSuffix(u.Host, ":"):
		return "has a colon but no port"
	}
	if text := u.Port(); text != "" {
		if port, err := strconv.Atoi(text); err != nil || port < 1 || port > 65535 {
			return "has a port that is not between 1 and 65535"
		}
	}
	return ""
}

// reservedHeaders are those that the connection or Belfry sets.
var reservedHeaders = []string{
	"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer",
	"upgrade", "http2-settings", "expect", "idempotency-key",
}

// checkHeader says what is wrong with a header whose name is in lower case.
func checkHeader(name, value string, duplicate bool) string {
	switch {
	case name == "" || strings.IndexFunc(name, notTokenChar) >= 0:
		return "is not a valid header name"
	case slices.Contains(reservedHeaders, name) || strings.HasPrefix(name, "proxy-") || strings.HasPrefix(name, "belfry-"):
		return "is set by Belfry"
	case len(value) > maxHeaderValue:
		return fmt.Sprintf("has %d bytes, the maximum is %d", len(value), maxHeaderValue)
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return "contains control characters"
	case duplicate:
		return "is set twice: case makes no difference in header names"
	}
	return ""
}

// notTokenChar reports whether r is not allowed in a header name (RFC 9110, 5.6.2).
func notTokenChar(r rune) bool {
	letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}
