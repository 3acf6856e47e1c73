package secret

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/belfry-sh/belfry"
)

// A reference to a named secret in a text: {{secret "name"}}. The quotes may be single ones, none,
// or escaped as they are inside JSON.
var (
	reference    = regexp.MustCompile(`\{\{ *secret +(?:\\?"|'|)([a-z0-9][a-z0-9._-]{0,62})(?:\\?"|'|) *\}\}`)
	anyReference = regexp.MustCompile(`\{\{ *secret\b`)
)

// HasReference reports whether a payload refers to named secrets, or tries to, also if it
// writes the reference with escapes.
func HasReference(payload []byte) bool {
	if bytes.Contains(payload, []byte(`\u`)) {
		var value any
		if json.Unmarshal(payload, &value) == nil {
			payload = belfry.MustJSON(value)
		}
	}
	return bytes.Contains(payload, []byte("{{")) && anyReference.Match(payload)
}

// References lists the names of the secrets that a text refers to, in their order. It is not ok
// if the text has a reference that cannot be read.
func References(text string) (names []string, ok bool) {
	if !strings.Contains(text, "{{") {
		return nil, true
	}
	for _, match := range reference.FindAllStringSubmatch(text, -1) {
		names = append(names, match[1])
	}
	return names, len(anyReference.FindAllString(text, -1)) == len(names)
}

// Resolve replaces the references of a text by what value returns for their names.
func Resolve(text string, value func(name string) (string, error)) (_ string, err error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	resolved := reference.ReplaceAllStringFunc(text, func(match string) string {
		v, failed := value(reference.FindStringSubmatch(match)[1])
		if err == nil {
			err = failed
		}
		return v
	})
	return resolved, err
}

// onlyReferences reports whether a secret is no secret itself: it has nothing but references, and
// perhaps the name of a scheme before them.
func onlyReferences(text string) bool {
	if !strings.Contains(text, "{{") {
		return false
	}
	rest := strings.ToLower(strings.TrimSpace(reference.ReplaceAllString(text, "")))
	return len(rest) < len(text) && (rest == "" || rest == "bearer" || rest == "basic")
}

// of is what replaces a secret, unless that only refers to one.
func (h hide) of(secret string) string {
	if onlyReferences(secret) {
		return secret
	}
	return h(secret)
}

// Source has the named secrets of namespaces.
type Source interface {
	// Secret returns the values of a secret: the one in use first, then those that a rotation still
	// accepts. NotFound if there is none.
	Secret(ctx context.Context, namespace, name string) (values []string, err error)
}

// Named is a named secret.
type Named struct {
	Values       []string // the one in use first
	AllowedHosts []string // empty: any
}

// Allows reports whether the value may be sent to a host.
func (n Named) Allows(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return len(n.AllowedHosts) == 0 || slices.ContainsFunc(n.AllowedHosts, func(allowed string) bool {
		domain, wild := strings.CutPrefix(allowed, "*")
		return allowed == host || wild && strings.HasSuffix(host, domain)
	})
}
