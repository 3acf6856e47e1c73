package openapi

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/jsontext"
	"github.com/belfry-sh/belfry/internal/schema"
)

// Document is an OpenAPI 3.1 document.
type Document struct {
	OpenAPI    string                            `json:"openapi"`
	Info       info                              `json:"info"`
	Servers    []server                          `json:"servers"`
	Security   []map[string][]string             `json:"security,omitempty"`
	Tags       []tag                             `json:"tags"`
	Paths      ordered[*ordered[*pathOperation]] `json:"paths"`
	Components components                        `json:"components"`

	schemas *schemas
	options Options
}

// Options are what the descriptions of two servers may differ in.
type Options struct {
	Version     string
	Keyed       bool              // API keys are required
	RateLimited bool              // requests per key are limited
	Groups      map[string]string // descriptions of the groups
	PageSize    int               // default items of a page
	MaxPageSize int
}

type info struct {
	Title       string            `json:"title"`
	Summary     string            `json:"summary"`
	Description string            `json:"description"`
	Version     string            `json:"version"`
	License     map[string]string `json:"license"`
}

type server struct {
	URL         string `json:"url"`
	Description string `json:"description"`
}

type tag struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

type pathOperation struct {
	ID          string                 `json:"operationId"`
	Tags        []string               `json:"tags"`
	Summary     string                 `json:"summary"`
	Description string                 `json:"description,omitempty"`
	Security    *[]map[string][]string `json:"security,omitempty"`
	Parameters  []*parameter           `json:"parameters,omitempty"`
	RequestBody *requestBody           `json:"requestBody,omitempty"`
	Responses   ordered[*response]     `json:"responses"`
}

// parameter is a parameter of a request, or a header of a response, which has no name
// and place of its own.
type parameter struct {
	Ref         string          `json:"$ref,omitempty"`
	Name        string          `json:"name,omitempty"`
	In          string          `json:"in,omitempty"`
	Description string          `json:"description,omitempty"`
	Required    bool            `json:"required,omitempty"`
	Explode     bool            `json:"explode,omitempty"`
	Schema      *Schema         `json:"schema,omitempty"`
	Example     json.RawMessage `json:"example,omitempty"`
}

type requestBody struct {
	Required bool            `json:"required,omitempty"`
	Content  ordered[*media] `json:"content"`
}

type media struct {
	Schema   *Schema           `json:"schema"`
	Examples ordered[*example] `json:"examples,omitempty"`
}

type example struct {
	Summary string          `json:"summary"`
	Value   json.RawMessage `json:"value"`
}

type response struct {
	Ref         string              `json:"$ref,omitempty"`
	Description string              `json:"description,omitempty"`
	Headers     ordered[*parameter] `json:"headers,omitempty"`
	Content     ordered[*media]     `json:"content,omitempty"`
}

type components struct {
	Schemas         ordered[*Schema]    `json:"schemas"`
	Parameters      ordered[*parameter] `json:"parameters,omitempty"`
	Headers         ordered[*parameter] `json:"headers,omitempty"`
	Responses       ordered[*response]  `json:"responses,omitempty"`
	SecuritySchemes map[string]any      `json:"securitySchemes"`
}

const introduction = "JSON over HTTP. Times are RFC 3339 in UTC. Failures are problem documents (RFC 9457) that name every field that is wrong.\n\n" +
	"The header `Belfry-Namespace` selects a namespace; the default is `default`. Lists have pages: the `Link` header leads to the next one. " +
	"A request with an `Idempotency-Key` can be repeated safely for seven days."

// Describe makes the document of a list of operations, in their order. It panics if a
// type has no schema, which depends on nothing but the program.
func Describe(operations []Operation, o Options) *Document {
	d := &Document{
		OpenAPI: "3.1.0",
		Info: info{
			Title: "Belfry", Summary: "Cron for a fleet: jobs, their runs, and the workers that execute them.", Description: introduction,
			Version: cmp.Or(o.Version, "unknown"), License: map[string]string{"name": "Apache License 2.0", "identifier": "Apache-2.0"},
		},
		Servers: []server{{"/", "The server that this document came from."}},
		schemas: &schemas{types: make(map[string]reflect.Type)},
		options: o,
	}
	if o.Keyed {
		d.Security = []map[string][]string{{"bearer": {}}}
	}
	d.Components.SecuritySchemes = map[string]any{
		"bearer": map[string]string{"type": "http", "scheme": "bearer", "description": "An API key, as in `Authorization: Bearer KEY`."},
	}
	// Types of responses first: types of requests refuse unknown members.
	d.schemas.of(reflect.TypeFor[belfry.Problem]())
	for _, op := range operations {
		for _, r := range op.Responses {
			if r.Type != nil && r.Media == "" {
				d.schemas.of(r.Type)
			}
		}
	}
	d.schemas.request = true
	for i := range operations {
		d.add(&operations[i])
	}
	d.Components.Schemas = d.schemas.components.sorted()
	d.Components.Parameters = d.Components.Parameters.sorted()
	d.Components.Headers = d.Components.Headers.sorted()
	d.Components.Responses = d.Components.Responses.sorted()
	return d
}

func (d *Document) add(op *Operation) {
	out := &pathOperation{ID: op.ID, Tags: []string{op.Group}, Summary: op.Summary, Description: op.Doc, Parameters: d.parameters(op)}
	if d.options.Keyed && op.Permission == auth.Public {
		out.Security = &[]map[string][]string{}
	}
	if op.Body != nil {
		out.RequestBody = &requestBody{Required: !op.Optional, Content: d.body(op)}
	}
	for _, r := range op.Responses {
		d.addResponse(&out.Responses, r)
	}
	d.failures(op, out)
	if !slices.ContainsFunc(d.Tags, func(t tag) bool { return t.Name == op.Group }) {
		d.Tags = append(d.Tags, tag{op.Group, d.options.Groups[op.Group]})
	}
	d.Paths.share(strings.TrimSuffix(op.Path, "{$}"), &ordered[*pathOperation]{}).add(strings.ToLower(op.Method), out)
}

var pathParameter = regexp.MustCompile(`\{([a-z_]+)\}`)

// parameters describes those of the path, the headers and the query.
func (d *Document) parameters(op *Operation) []*parameter {
	var out []*parameter
	for _, match := range pathParameter.FindAllStringSubmatch(op.Path, -1) {
		out = append(out, d.parameter(match[1]))
	}
	headers := op.Headers
	if !op.Global {
		headers = append([]string{"Belfry-Namespace"}, headers...)
	}
	for _, name := range headers {
		out = append(out, d.parameter(name))
	}
	for _, t := range op.Query {
		for _, f := range schema.Of(t).Fields {
			p := &parameter{Name: f.Query, In: "query", Description: Markdown(f.Doc), Schema: d.schemas.field(f)}
			p.Schema.Description = ""
			if len(p.Schema.Examples) > 0 {
				p.Example, p.Schema.Examples = p.Schema.Examples[0], nil
			}
			p.Explode = f.Kind == schema.Texts
			out = append(out, p)
		}
	}
	return out
}

const (
	parameterRef = "#/components/parameters/"
	headerRef    = "#/components/headers/"
	responseRef  = "#/components/responses/"
)

// parameter refers to the component of a parameter that several operations have.
func (d *Document) parameter(name string) *parameter {
	p := sharedParameters[name]
	p.Name = name
	d.Components.Parameters.share(name, &p)
	return &parameter{Ref: parameterRef + name}
}

// headers refers to the components of response headers.
func (d *Document) headers(names []string) (out ordered[*parameter]) {
	for _, name := range append([]string{"X-Request-Id"}, names...) {
		d.Components.Headers.share(name, new(responseHeaders[name]))
		out.add(name, &parameter{Ref: headerRef + name})
	}
	return out
}

var sharedParameters = map[string]parameter{
	"job":              {In: "path", Required: true, Description: "Id of a job, or its name, percent-encoded.", Schema: &Schema{Type: typeNames{"string"}, MinLength: 1}, Example: json.RawMessage(`"nightly-report"`)},
	"namespace":        {In: "path", Required: true, Description: "Name of a namespace.", Schema: &Schema{Type: typeNames{"string"}, MinLength: 1}, Example: json.RawMessage(`"billing"`)},
	"monitor":          {In: "path", Required: true, Description: "Id of a monitor, or its name, percent-encoded.", Schema: &Schema{Type: typeNames{"string"}, MinLength: 1}, Example: json.RawMessage(`"backup"`)},
	"key":              {In: "path", Required: true, Description: "Id of an API key.", Schema: &Schema{Type: typeNames{"string"}, MinLength: 1}, Example: json.RawMessage(`"k7m2q9d4"`)},
	"token":            {In: "path", Required: true, Description: "Token of a monitor, as in its `ping_url`.", Schema: &Schema{Type: typeNames{"string"}, MinLength: 1}, Example: json.RawMessage(`"6f1d9a3b5c7e48028a41d3c07b9e6f14"`)},
	"run":              {In: "path", Required: true, Description: "Id of a run.", Schema: &Schema{Type: typeNames{"string"}, Format: "uuid"}, Example: json.RawMessage(`"01a22f39-15c0-8d3b-a6c4-90e15f7b2d08"`)},
	"worker":           {In: "path", Required: true, Description: "Id that the worker generates at every start: a UUID of version 4 or 7.", Schema: &Schema{Type: typeNames{"string"}, Format: "uuid"}, Example: json.RawMessage(`"01a22f26-c640-7e02-8a41-d3c07b9e6f14"`)},
	"channel":          {In: "path", Required: true, Description: "Name of the channel.", Schema: &Schema{Type: typeNames{"string"}}, Example: json.RawMessage(`"oncall"`)},
	"secret":           {In: "path", Required: true, Description: "Name of the secret.", Schema: &Schema{Type: typeNames{"string"}}, Example: json.RawMessage(`"stripe-key"`)},
	"alert":            {In: "path", Required: true, Description: "Id of the alert.", Schema: &Schema{Type: typeNames{"string"}, Format: "uuid"}, Example: json.RawMessage(`"01a22f39-15c0-7a11-b0c4-6d1e5f7b2d08"`)},
	"Belfry-Namespace": {In: "header", Description: "Namespace of the request.", Schema: &Schema{Type: typeNames{"string"}, Default: json.RawMessage(`"` + belfry.DefaultNamespace + `"`), Pattern: "^[a-z0-9-]{1,63}$"}},
	"Idempotency-Key": {In: "header", Schema: typed("string"), Description: "A text of your own, 1 to 200 printable ASCII characters. The same request with the same key gets the same answer for seven days and is executed once; " +
		"another request with it is refused with 422.", Example: json.RawMessage(`"6d2a6c1e-create-nightly-report"`)},
	"Last-Event-ID": {In: "header", Schema: typed("string"), Description: "Of a stream: id of the last event that was received. Those after it are sent first.", Example: json.RawMessage(`"01a22f39-15c0-8a11-b0c4-6d1e5f7b2d08"`)},
	"If-Match":      {In: "header", Schema: typed("string"), Description: "`ETag` of the job as last seen. If the job has changed since, nothing is done and the answer is 412.", Example: json.RawMessage(`"\"3-8c1f0a5be2d47790\""`)},
}

// body describes a request body in each of its media types.
func (d *Document) body(op *Operation) ordered[*media] {
	types := op.Media
	if len(types) == 0 {
		types = []string{MediaJSON}
	}
	var out ordered[*media]
	for _, name := range types {
		m := &media{Schema: d.schemas.of(op.Body)}
		switch {
		case op.Patch:
			m.Schema = d.schemas.structure(op.Body, true)
		case name == MediaLines:
			item, _ := d.schemas.of(op.Body.Elem()).component()
			m.Schema = &Schema{Type: typeNames{"string"}, MediaType: name, Description: "One `" + item + "` per line, as JSON."}
		}
		for _, title := range slices.Sorted(maps.Keys(op.Examples)) {
			text := op.Examples[title]
			switch lines := !strings.HasPrefix(strings.TrimSpace(text), "["); {
			case name == MediaLines && lines:
				m.Examples.add(slug(title), &example{title, json.RawMessage(jsontext.Quote(text))})
			case name == MediaJSON && json.Valid([]byte(text)):
				m.Examples.add(slug(title), &example{title, json.RawMessage(text)})
			}
		}
		d.addSample(name, m)
		out.add(name, m)
	}
	return out
}

// addSample adds an example that is made of those of the fields, if there is no other.
func (d *Document) addSample(name string, m *media) {
	if value := d.schemas.sample(m.Schema); len(m.Examples) == 0 && name == MediaJSON && value != nil {
		m.Examples.add("example", &example{"An example", value})
	}
}

// slug is a few words as a name.
func slug(words string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(words), func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}), "-")
}

// addResponse adds a response. Two of one status become one, whose body is either.
func (d *Document) addResponse(list *ordered[*response], r Response) {
	status, added := strconv.Itoa(r.Status), d.response(r)
	first, exists := list.get(status)
	if !exists {
		list.add(status, added)
		return
	}
	first.Description += " " + added.Description
	if r.Media != "" {
		first.Content = append(first.Content, added.Content...)
		return
	}
	m, _ := first.Content.get(MediaJSON)
	other, _ := added.Content.get(MediaJSON)
	m.Schema = &Schema{AnyOf: []*Schema{m.Schema, other.Schema}}
	for _, e := range other.Examples {
		m.Examples.add(slug(added.Description), &example{added.Description, e.value.Value})
	}
}

func (d *Document) response(r Response) *response {
	out := &response{Description: cmp.Or(r.Doc, http.StatusText(r.Status)), Headers: d.headers(r.Headers)}
	switch {
	case r.Media != "" && r.Media != MediaJSON:
		out.Content.add(r.Media, &media{Schema: &Schema{Type: typeNames{"string"}, MediaType: r.Media}})
	case r.Media == MediaJSON:
		out.Content.add(r.Media, &media{Schema: &Schema{}})
	case r.Type != nil:
		m := &media{Schema: d.schemas.of(r.Type)}
		d.addSample(MediaJSON, m)
		out.Content.add(MediaJSON, m)
	}
	return out
}

var responseHeaders = map[string]parameter{
	"X-Request-Id":     {Schema: typed("string"), Description: "Id of the request: the one that it sent, if that was valid, or a new one.", Example: json.RawMessage(`"01a22f39-2d30-7f6e-b1d2-6a90c3e7f5b8"`)},
	"Location":         {Schema: typed("string"), Description: "Where to find what was created.", Example: json.RawMessage(`"/api/v1/jobs/01a1de7a-fae0-7c1a-9f3e-2b6d8f4a1c55"`)},
	"Link":             {Schema: typed("string"), Description: "Next page of the list; missing on the last one. A page may be short or empty and still have a next one.", Example: json.RawMessage(`"</api/v1/jobs?cursor=EQGh3nr64HwanzQ&limit=50>; rel=\"next\""`)},
	"ETag":             {Schema: typed("string"), Description: "Version of the response, for `If-Match` or `If-None-Match`.", Example: json.RawMessage(`"\"3-8c1f0a5be2d47790\""`)},
	"Retry-After":      {Schema: typed("integer"), Description: "How many seconds to wait before trying again.", Example: json.RawMessage(`5`)},
	"WWW-Authenticate": {Schema: typed("string"), Description: "How to authenticate.", Example: json.RawMessage(`"Bearer realm=\"belfry\""`)},
}
