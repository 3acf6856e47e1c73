package target

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/jsontext"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/schema"
)

// Limits and defaults of the payload of an HTTP job, from the tags of
// belfry.HTTPPayload.
var (
	payloadFields = schema.For[belfry.HTTPPayload]().Names()
	maxURL        = schema.For[belfry.HTTPPayload]().Field("url").MaxLen
	maxHeaders    = schema.For[belfry.HTTPPayload]().Field("headers").MaxItems
	defaultMethod = schema.For[belfry.HTTPPayload]().Field("method").Implicit
	httpMethods   = func() (methods []string) {
		for _, v := range schema.For[belfry.HTTPPayload]().Field("method").Enum {
			methods = append(methods, v.Value)
		}
		return methods
	}()
)

const maxHeaderValue = 8 << 10 // bytes

// ParseHTTP reads and validates the payload of an HTTP job. It returns all errors at
// once; with none, the request can be sent. Messages never repeat a value, since values
// may be secret.
func ParseHTTP(raw json.RawMessage) (belfry.HTTPPayload, []belfry.FieldError) {
	fields := jsontext.Object(raw)
	if fields == nil {
		return belfry.HTTPPayload{}, []belfry.FieldError{{Field: "payload", Message: `must be a JSON object; for example {"url": "https://example.com/hook"}`}}
	}
	p := httpParser{fields: fields}
	p.checkNames()
	out := belfry.HTTPPayload{URL: p.url(), Method: p.method(), Headers: p.headers()}
	out.Body = p.body(out.Method)
	return out, p.errors
}

// httpParser collects errors while it reads a payload.
type httpParser struct {
	fields map[string]json.RawMessage
	errors []belfry.FieldError
}

func (p *httpParser) addError(field, format string, args ...any) {
	p.errors = append(p.errors, belfry.FieldError{Field: "payload." + field, Message: fmt.Sprintf(format, args...)})
}

// value returns a field that is set and not null.
func (p *httpParser) value(name string) (json.RawMessage, bool) {
	raw := bytes.TrimSpace(p.fields[name])
	return raw, len(raw) > 0 && string(raw) != "null"
}

func (p *httpParser) checkNames() {
	var unknown []string
	for name := range p.fields {
		if !slices.Contains(payloadFields, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown {
		p.addError(sanitize.Text(name, 40), "there is no such field; the fields are %s", strings.Join(payloadFields, ", "))
	}
}

func (p *httpParser) url() string {
	raw, ok := p.value("url")
	if !ok {
		p.addError("url", "is missing; for example https://example.com/hook")
		return ""
	}
	text, ok := jsonString(raw)
	if !ok {
		p.addError("url", "must be text; for example https://example.com/hook")
		return ""
	}
	if problem := checkURL(text); problem != "" {
		p.addError("url", "%s", problem)
	}
	return text
}

// checkURL says what is wrong with the address of a request.
func checkURL(text string) string {
	if n := len(text); n > maxURL {
		if n = utf8.RuneCountInString(text); n > maxURL {
			return fmt.Sprintf("has %d characters, the maximum is %d", n, maxURL)
		}
	}
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

func (p *httpParser) method() string {
	raw, ok := p.value("method")
	if !ok {
		return defaultMethod
	}
	text, ok := jsonString(raw)
	if !ok {
		p.addError("method", "must be text; for example POST")
		return ""
	}
	method := strings.ToUpper(text)
	if !slices.Contains(httpMethods, method) {
		p.addError("method", "must be one of %s", strings.Join(httpMethods, ", "))
	}
	return method
}

func (p *httpParser) headers() map[string]string {
	raw, ok := p.value("headers")
	if !ok {
		return nil
	}
	values := jsontext.Object(raw)
	if values == nil {
		p.addError("headers", `must be an object of texts; for example {"Accept": "application/json"}`)
		return nil
	}
	if len(values) > maxHeaders {
		p.addError("headers", "has %d headers, the maximum is %d", len(values), maxHeaders)
		return nil
	}
	headers := make(map[string]string, len(values))
	seen := make(map[string]bool, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		field, lower := "headers."+sanitize.Text(name, 100), strings.ToLower(name)
		value, ok := jsonString(values[name])
		if !ok {
			p.addError(field, "must be text")
			continue
		}
		if problem := checkHeader(lower, value); problem != "" {
			p.addError(field, "%s", problem)
		} else if seen[lower] {
			p.addError(field, "is set twice: case makes no difference in header names")
		}
		seen[lower] = true
		headers[name] = value
	}
	return headers
}

// reservedHeaders are those that the connection or Belfry sets.
var reservedHeaders = []string{
	"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer",
	"upgrade", "http2-settings", "expect", "idempotency-key",
}

// checkHeader says what is wrong with a header whose name is in lower case.
func checkHeader(name, value string) string {
	switch {
	case name == "" || strings.IndexFunc(name, notTokenChar) >= 0:
		return "is not a valid header name"
	case slices.Contains(reservedHeaders, name) || strings.HasPrefix(name, "proxy-") || strings.HasPrefix(name, "belfry-"):
		return "is set by Belfry"
	case len(value) > maxHeaderValue:
		return fmt.Sprintf("has %d bytes, the maximum is %d", len(value), maxHeaderValue)
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return "contains control characters"
	}
	return ""
}

// notTokenChar reports whether r is not allowed in a header name (RFC 9110, 5.6.2).
func notTokenChar(r rune) bool {
	letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

func (p *httpParser) body(method string) json.RawMessage {
	raw, ok := p.value("body")
	if !ok {
		return nil
	}
	if method == "GET" || method == "HEAD" {
		p.addError("body", "cannot be sent with %s; leave it out or use another method", method)
	}
	return raw
}

// jsonString decodes a JSON string; ok is false for any other value.
func jsonString(value json.RawMessage) (text string, ok bool) {
	if len(value) == 0 || value[0] != '"' {
		return "", false
	}
	return jsontext.Unquote(value), true
}
