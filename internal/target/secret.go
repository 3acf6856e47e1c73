package target

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/secret"
	"github.com/belfry-sh/belfry/internal/webhook"
)

// Secrets has the named secrets that requests use.
type Secrets interface {
	// Lookup returns a secret; NotFound if there is none.
	Lookup(ctx context.Context, namespace, name string) (secret.Named, error)
}

// References lists the secrets that a request refers to, or is signed with, by field.
func References(p belfry.HTTPPayload) (fields map[string][]string, wrong []belfry.FieldError) {
	set := func(field string, names []string) {
		if fields == nil {
			fields = map[string][]string{}
		}
		fields[field] = names
	}
	add := func(field, text string) {
		names, ok := secret.References(text)
		if !ok {
			wrong = append(wrong, belfry.FieldError{Field: field, Message: `has a reference to a secret that cannot be read; write {{secret "name"}}`})
		} else if names != nil {
			set(field, names)
		}
	}
	add("url", p.URL)
	for _, name := range slices.Sorted(maps.Keys(p.Headers)) {
		add("headers."+schema.Clip(name), p.Headers[name])
	}
	if bytes.Contains(p.Body, []byte("{{")) { // most have none, and need no copy
		add("body", string(p.Body))
	}
	if p.SignWith != "" {
		set("sign_with", []string{p.SignWith})
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
	r := resolution{ctx: ctx, secrets: h.Secrets, namespace: run.Namespace, host: u.Hostname()}
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
	return func(value string) (string, error) { return value, nil }
}

// sign signs a request if its job or namespace has a signing secret. The id is that of the run,
// the same in all attempts. If there is no key to sign with, the request must not be sent: its
// receiver would refuse it, or worse, learn to accept unsigned ones.
func (h *HTTP) sign(req *http.Request, run *belfry.Run, name string, body []byte) error {
	if h.SigningKeys == nil {
		if name != "" {
			return errors.New("sign the request: this worker has no secrets")
		}
		return nil
	}
	keys, err := h.SigningKeys(req.Context(), run.Namespace, name)
	if err != nil {
		return fmt.Errorf("sign the request, which was not sent: %w", err)
	}
	if len(keys) > 0 {
		webhook.Sign(req.Header, run.ID.String(), time.Now(), body, keys...)
	}
	return nil
}

// SigningKeys finds the keys that sign requests: those of the secret that a job names, or else of
// the one that its namespace names.
type SigningKeys struct {
	Secrets    secret.Source
	Namespaces func(context.Context) ([]belfry.Namespace, error)

	mu       sync.Mutex
	read     time.Time
	defaults map[string]string // by namespace; nil: never read
	err      error             // of the last read
}

// The secret that a namespace names is remembered for a while, and a database that does not
// answer is not asked for each request.
const (
	rereadNamespaces = 5 * time.Second
	readTimeout      = 3 * time.Second
)

// Find returns the keys; none if neither the job nor the namespace names a secret.
func (s *SigningKeys) Find(ctx context.Context, namespace, name string) (keys [][]byte, err error) {
	if name == "" {
		if name, err = s.defaultOf(ctx, namespace); err != nil || name == "" {
			return nil, err
		}
	}
	values, err := s.Secrets.Secret(ctx, namespace, name)
	switch {
	case belfry.CodeOf(err) == belfry.NotFound || err == nil && len(values) == 0:
		return nil, fmt.Errorf("the namespace %s has no secret %q", namespace, name)
	case err != nil:
		return nil, fmt.Errorf("read the secret %q: %w", name, err)
	}
	for _, value := range values {
		key, err := webhook.ParseKey(value)
		if err != nil {
			return nil, fmt.Errorf("the secret %q is no signing key: it %w", name, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// defaultOf is the secret that a namespace names. If namespaces cannot be read, what was read
// last holds; without it nothing is sent, since it might have to be signed.
func (s *SigningKeys) defaultOf(ctx context.Context, namespace string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.read) >= rereadNamespaces {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout) // others wait for it too
		defer cancel()
		var list []belfry.Namespace
		if list, s.err = s.Namespaces(ctx); s.err == nil {
			s.defaults = map[string]string{}
			for _, n := range list {
				s.defaults[n.Name] = n.SignWith
			}
		}
		s.read = time.Now()
	}
	if s.defaults == nil {
		return "", fmt.Errorf("read whether the namespace wants signatures: %w", s.err)
	}
	return s.defaults[namespace], nil
}
