package api

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/openapi"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/validate"
)

// maxBody is how many bytes a body may have, unless its type says otherwise.
const maxBody = 1 << 20

// request is what all operations read of a request.
type request struct {
	namespace string
	address   string    // of the server, as the client knows it
	ref       string    // of a job, channel, monitor, namespace or API key in the path
	id        belfry.ID // of a run, worker or alert in the path
	key       control.Key
	match     condition
	page      store.Page

	path   string // escaped, for the next page
	query  url.Values
	cursor cursorScope
}

// bodyDecoder is a body that does not come from its tags alone.
type bodyDecoder interface {
	decodeBody(text []byte, r *request) error
}

// patchBody is a body with the fields of a struct to set.
type patchBody[T any] struct{ text []byte }

func (b *patchBody[T]) decodeBody(text []byte, _ *request) error {
	b.text = text
	if _, _, syntax := (schema.Decoder{}).Decode(text, new(T)); syntax != nil {
		return badRequest("the body %s", syntax.Message)
	}
	return nil
}

func (b *patchBody[T]) set(v *T) (schema.FieldSet, []belfry.FieldError) {
	fields, errors, _ := schema.Decoder{}.Decode(b.text, v) // It was decoded before.
	return fields, errors
}

// readRequest reads a request of an operation: path, headers, query and body.
func readRequest(r *http.Request, op *openapi.Operation, query, body any) (*request, error) {
	in, err := readHead(r, op, query)
	if err != nil || r.Method == http.MethodGet || r.Method == http.MethodDelete {
		return in, err
	}
	return in, in.readBody(r, op, body)
}

func readHead(r *http.Request, op *openapi.Operation, query any) (in *request, err error) {
	in = &request{address: addressOf(r)}
	if err := in.readHeaders(r, op); err != nil {
		return nil, err
	}
	if err := in.readPath(r); err != nil {
		return nil, err
	}
	return in, in.readQuery(r, op, query)
}

func (in *request) readHeaders(r *http.Request, op *openapi.Operation) (err error) {
	if in.namespace, err = readNamespace(r); err != nil {
		return err
	}
	if slices.Contains(op.Headers, keyHeader) {
		if in.key.Text, err = readKey(r); err != nil {
			return err
		}
	}
	if slices.Contains(op.Headers, matchHeader) {
		in.match, err = readCondition(r)
	}
	return err
}

func (in *request) readPath(r *http.Request) (err error) {
	in.ref = cmp.Or(r.PathValue("job"), r.PathValue("channel"), r.PathValue("monitor"), r.PathValue("key"), r.PathValue("namespace"), r.PathValue("secret"))
	for _, kind := range []string{"alert", "run"} {
		if text := r.PathValue(kind); text != "" {
			if in.id, err = belfry.ParseID(text); err != nil {
				return belfry.Errorf(belfry.NotFound, "there is no %s %.40q; %[1]ss are named by their ids", kind, text)
			}
		}
	}
	if text := r.PathValue("worker"); text != "" {
		if in.id, err = belfry.ParseID(text); err != nil || in.id.IsZero() {
			return badParameters(belfry.FieldError{Field: "worker", Message: "must be a UUID that the worker generates each time it starts"})
		}
	}
	return nil
}

func (in *request) readQuery(r *http.Request, op *openapi.Operation, query any) error {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return badRequest("the query of the address cannot be read")
	}
	var page pageQuery
	targets := []any{query}
	paged := slices.Contains(op.Query, pageQueryType)
	if paged {
		targets = append(targets, &page)
	}
	fields := schema.DecodeQuery(values, targets...)
	if paged {
		in.path, in.query = r.URL.EscapedPath(), values
		in.cursor = newCursorScope(in.path, in.namespace, values)
		in.page.Limit = page.Limit
		if in.page.After, err = in.cursor.decode(page.Cursor); err != nil {
			fields = append(fields, belfry.FieldError{Field: "cursor", Message: err.Error()})
		}
	}
	if len(fields) > 0 {
		return badParameters(fields...)
	}
	return nil
}

func (in *request) readBody(r *http.Request, op *openapi.Operation, body any) error {
	most := int64(maxBody)
	if limited, ok := body.(interface{ maxBody() int64 }); ok {
		most = limited.maxBody()
	}
	text, err := readAll(r, most)
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(text)) == 0 && (op.Optional || op.Body == nil) {
		text = []byte("{}")
	}
	if in.key.Text != "" {
		in.key.Hash = requestHash(op.Method+" "+op.Path, in.ref, text)
	}
	if d, ok := body.(bodyDecoder); ok {
		return d.decodeBody(text, in)
	}
	if name := schema.Of(reflect.TypeOf(body)).Field("name"); name != nil && op.Method == http.MethodPut { // as the path says
		name.Value(reflect.ValueOf(body).Elem()).SetString(in.ref)
	}
	fields, syntax := schema.Decode(text, body)
	if syntax != nil {
		return badRequest("the body %s", syntax.Message)
	}
	return invalid(fields)
}

// requestHash is the same for requests that ask for the same: an operation, what it is
// about, and a body of JSON regardless of white space.
func requestHash(operation, ref string, body []byte) (sum [32]byte) {
	var compact bytes.Buffer
	if json.Compact(&compact, body) == nil {
		body = compact.Bytes()
	}
	h := sha256.New()
	fmt.Fprintf(h, "%q %q\n", operation, ref)
	h.Write(body)
	h.Sum(sum[:0])
	return sum
}

// invalid is the error of fields that are wrong, if there are any.
func invalid(fields []belfry.FieldError) error {
	if len(fields) == 0 {
		return nil
	}
	return &belfry.Error{Code: belfry.Invalid, Message: "the request is not valid", Fields: fields}
}

// readAll reads a body of at most so many bytes that says it is JSON. Without a body nothing
// need be said.
func readAll(r *http.Request, most int64) ([]byte, error) {
	media, err := checkMedia(r.Header, openapi.MediaJSON)
	if err != nil && (media != "" || r.ContentLength > 0) {
		return nil, err
	}
	missing := err
	if r.ContentLength > most {
		return nil, tooLarge(most)
	}
	var text bytes.Buffer
	text.Grow(int(min(max(r.ContentLength, 0), maxPreallocated)) + bytes.MinRead)
	if _, err := text.ReadFrom(io.LimitReader(r.Body, most+1)); err != nil {
		return nil, readError(err)
	}
	body := text.Bytes()
	if int64(len(body)) > most {
		return nil, tooLarge(most)
	}
	if len(body) > 0 && missing != nil {
		return nil, missing
	}
	return body, nil
}

// maxPreallocated is the memory that a request gets for what it says that it will send.
const maxPreallocated = 1 << 20

func tooLarge(most int64) error {
	return belfry.Errorf(belfry.TooLarge, "the body is too large, the maximum is %d bytes", most)
}

// readError says why a body was not read to its end.
func readError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &httpError{code: belfry.RequestTimeout, detail: "the body arrived too slowly", header: map[string]string{"Connection": "close"}}
	}
	return badRequest("the body could not be read to its end")
}

// checkMedia returns the media type of a body, which must be one of those supported, in
// UTF-8 and not compressed. A page of another origin cannot send these without asking.
func checkMedia(h http.Header, supported ...string) (string, error) {
	e := &httpError{code: belfry.UnsupportedMediaType}
	text := h.Get("Content-Type")
	if encoding := h.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		e.detail = "the body must not be compressed"
		return text, e
	}
	media, parameters, err := mime.ParseMediaType(text)
	charset, named := parameters["charset"]
	if err != nil || !slices.Contains(supported, media) || named && !strings.EqualFold(charset, "utf-8") {
		e.detail = fmt.Sprintf("the body must be %s in UTF-8, and Content-Type must say so, such as curl -H 'Content-Type: %s'", strings.Join(supported, " or "), supported[0])
		return text, e
	}
	return media, nil
}

const (
	namespaceHeader = "Belfry-Namespace"
	keyHeader       = "Idempotency-Key"
	matchHeader     = "If-Match"
	lastEventHeader = "Last-Event-ID"
)

func readNamespace(r *http.Request) (string, error) {
	names := r.Header.Values(namespaceHeader)
	if len(names) == 0 || len(names) == 1 && names[0] == "" {
		return belfry.DefaultNamespace, nil
	}
	if len(names) > 1 || !validate.Namespace(names[0]) {
		return "", badParameters(belfry.FieldError{Field: namespaceHeader, Message: "must have 1 to 63 lower-case letters, digits and hyphens"})
	}
	return names[0], nil
}

const maxRequestKey = 200

// readKey returns the hash of the key: it is compared and stored, and what clients put into a key is
// nobody's business.
func readKey(r *http.Request) (string, error) {
	message := ""
	switch values := r.Header.Values(keyHeader); {
	case len(values) == 0:
		return "", nil
	case len(values) > 1:
		message = "is duplicated"
	case values[0] == "" || len(values[0]) > maxRequestKey || strings.ContainsFunc(values[0], func(r rune) bool { return r < ' ' || r > '~' }):
		message = fmt.Sprintf("must have 1 to %d printable ASCII characters", maxRequestKey)
	default:
		return fmt.Sprintf("%x", sha256.Sum256([]byte(values[0]))), nil
	}
	return "", badParameters(belfry.FieldError{Field: keyHeader, Message: message})
}

// condition is the version that a job must have for a change. The zero value holds for
// any.
type condition struct {
	given bool
	any   bool     // of a "*": the job must exist
	tags  []string // without quotes; one must be the job's
}

// readCondition reads the If-Match header. Weak tags match nothing.
func readCondition(r *http.Request) (c condition, err error) {
	text := strings.TrimSpace(strings.Join(r.Header.Values(matchHeader), ","))
	if text == "" {
		return c, nil
	}
	c.given = true
	if text == "*" {
		c.any = true
		return c, nil
	}
	for rest := text; rest != ""; {
		weak := false
		rest, weak = strings.CutPrefix(rest, "W/")
		quoted, ok := strings.CutPrefix(rest, `"`)
		tag, behind, closed := strings.Cut(quoted, `"`)
		behind = strings.TrimLeft(behind, " \t")
		next, comma := strings.CutPrefix(behind, ",")
		if !ok || !closed || behind != "" && !comma {
			return c, badParameters(belfry.FieldError{Field: matchHeader, Message: `must be * or the ETag of a response in its quotes, or several separated by commas`})
		}
		if !weak {
			c.tags = append(c.tags, tag)
		}
		rest = strings.TrimLeft(next, " \t,")
	}
	return c, nil
}
