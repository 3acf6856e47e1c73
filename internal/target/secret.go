package target

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/url"
	"slices"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/secret"
)

// Secrets has the named secrets that requests use.
type Secrets interface {
	// Lookup returns a secret; NotFound if there is none.
	Lookup(ctx context.Context, namespace, name string) (secret.Named, error)
}

// References lists the secrets that a request refers to, or is signed with, by field.
func References(p belfry.HTTPPayload) (fields map[string][]string, wrong []belfry.FieldError) {
	fields = map[string][]string{}
	add := func(field, text string) {
		names, ok := secret.References(text)
		if !ok {
			wrong = append(wrong, belfry.FieldError{Field: field, Message: `has a reference to a secret that cannot be read; write {{secret "name"}}`})
		} else if names != nil {
			fields[field] = names
		}
	}
	add("url", p.URL)
	for _, name := range slices.Sorted(maps.Keys(p.Headers)) {
		add("headers."+schema.Clip(name), p.Headers[name])
	}
	add("body", string(p.Body))
	if p.SignWith != "" {
		fields["sign_with"] = []string{p.SignWith}
	}
	return fields, wrong
}

// resolution replaces references by values for one request, and keeps what it has used.
type resolution struct {
	ctx       context.Context
	secrets   Secrets
	namespace string
	host      string
	used      []string
}

func (r *resolution) value(name string) (string, error) {
	if r.secrets == nil {
		return "", fmt.Errorf("the secret %q cannot be used: this worker has no secrets", name)
	}
	found, err := r.secrets.Lookup(r.ctx, r.namespace, name)
	switch {
	case belfry.CodeOf(err) == belfry.NotFound:
		return "", fmt.Errorf("the secret %q does not exist; create it with: belfry secret set %s", name, name)
	case err != nil:
		if known, ok := errors.AsType[*belfry.Error](err); ok {
			return "", known
		}
		return "", fmt.Errorf("the secret %q cannot be read: the database does not answer", name)
	case !found.Allows(r.host):
		return "", fmt.Errorf("the secret %q must not be sent to %s; its allowed hosts are %s", name, r.host, strings.Join(found.AllowedHosts, ", "))
	}
	r.used = append(r.used, found.Values[0])
	return found.Values[0], nil
}

// text resolves a text in which values are written as escape writes them.
func (r *resolution) text(text string, escape func(string) (string, error)) (string, error) {
	return secret.Resolve(text, func(name string) (string, error) {
		value, err := r.value(name)
		if err != nil {
			return "", err
		}
		if value, err = escape(value); err != nil {
			err = fmt.Errorf("the secret %q %w", name, err)
		}
		return value, err
	})
}

// resolve replaces the references of a request, and returns the values that are now in it.
func (h *HTTP) resolve(ctx context.Context, run *belfry.Run, p *belfry.HTTPPayload) ([]string, error) {
	if !secret.HasReference(run.Payload) {
		return nil, nil
	}
	u, err := url.Parse(p.URL)
	if err != nil {
		return nil, err
	}
	r := resolution{ctx: ctx, secrets: h.secrets, namespace: run.Namespace, host: u.Hostname()}
	if p.URL, err = r.text(p.URL, inURL); err != nil {
		return r.used, err
	}
	for name, value := range p.Headers {
		if p.Headers[name], err = r.text(value, inHeader); err != nil {
			return r.used, err
		}
	}
	var body string
	if json.Unmarshal(p.Body, &body) != nil { // not a text, but any other JSON
		body, err = r.text(string(p.Body), inJSON)
		p.Body = json.RawMessage(body)
		return r.used, err
	}
	if body, err = r.text(body, inBody(p.Headers, body)); err == nil {
		p.Body = belfry.MustJSON(body)
	}
	return r.used, err
}

func inURL(value string) (string, error) {
	return strings.ReplaceAll(url.QueryEscape(value), "+", "%20"), nil
}

func inHeader(value string) (string, error) {
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return "", fmt.Errorf("has a line break or another control character, which a header must not have")
	}
	return value, nil
}

func inJSON(value string) (string, error) {
	quoted := string(belfry.MustJSON(value))
	return quoted[1 : len(quoted)-1], nil
}

func asIs(value string) (string, error) { return value, nil }

// inBody is how a value is written in a body that is a text: by its content type, or as JSON if it
// looks like that.
func inBody(headers map[string]string, body string) func(string) (string, error) {
	kind := ""
	for name, value := range headers {
		if strings.EqualFold(name, "Content-Type") {
			kind, _, _ = mime.ParseMediaType(value)
		}
	}
	start := strings.TrimLeft(body, " \t\r\n")
	switch {
	case kind == "application/x-www-form-urlencoded":
		return inURL
	case strings.HasSuffix(kind, "json"), strings.HasPrefix(start, `{"`), strings.HasPrefix(start, "["):
		return inJSON
	}
	return asIs
}
