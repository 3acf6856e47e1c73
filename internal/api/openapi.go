package api

import (
	"encoding/json"
	"strconv"
	"strings"
)

// document describes the API as OpenAPI 3.1 does. It is made of the operations
// themselves and of the types that they read and write.
type document struct {
	OpenAPI    string                               `json:"openapi"`
	Info       documentInfo                         `json:"info"`
	Servers    []documentServer                     `json:"servers"`
	Security   []map[string][]string                `json:"security,omitempty"`
	Tags       []documentTag                        `json:"tags"`
	Paths      ordered[ordered[*documentOperation]] `json:"paths"`
	Components documentComponents                   `json:"components"`

	schemas *schemas
	traits
}

// traits are what the description of one server may differ in from that of
// another.
type traits struct {
	version string
	keyed   bool // API keys are needed
	limited bool // there is a limit on the requests of a key
}

type documentInfo struct {
	Title       string          `json:"title"`
	Summary     string          `json:"summary"`
	Description string          `json:"description"`
	Version     string          `json:"version"`
	License     documentLicence `json:"license"`
}

type documentLicence struct {
	Name       string `json:"name"`
	Identifier string `json:"identifier"`
}

type documentServer struct {
	URL         string `json:"url"`
	Description string `json:"description"`
}

type documentTag struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
}

type documentOperation struct {
	ID          string                     `json:"operationId"`
	Tags        []string                   `json:"tags"`
	Summary     string                     `json:"summary"`
	Description string                     `json:"description,omitempty"`
	Security    *[]map[string][]string     `json:"security,omitempty"`
	Parameters  []*documentParameter       `json:"parameters,omitempty"`
	RequestBody *documentBody              `json:"requestBody,omitempty"`
	Responses   ordered[*documentResponse] `json:"responses"`
}

type documentParameter struct {
	Ref         string          `json:"$ref,omitempty"`
	Name        string          `json:"name,omitempty"`
	In          string          `json:"in,omitempty"`
	Description string          `json:"description,omitempty"`
	Required    bool            `json:"required,omitempty"`
	Explode     bool            `json:"explode,omitempty"`
	Schema      *schema         `json:"schema,omitempty"`
	Example     json.RawMessage `json:"example,omitempty"`
}

type documentBody struct {
	Required bool                    `json:"required,omitempty"`
	Content  ordered[*documentMedia] `json:"content"`
}

type documentMedia struct {
	Schema   *schema                   `json:"schema"`
	Examples ordered[*documentExample] `json:"examples,omitempty"`
}

type documentExample struct {
	Summary string          `json:"summary"`
	Value   json.RawMessage `json:"value"`
}

type documentResponse struct {
	Ref         string                   `json:"$ref,omitempty"`
	Description string                   `json:"description,omitempty"`
	Headers     ordered[*documentHeader] `json:"headers,omitempty"`
	Content     ordered[*documentMedia]  `json:"content,omitempty"`
}

type documentHeader struct {
	Ref         string          `json:"$ref,omitempty"`
	Description string          `json:"description,omitempty"`
	Schema      *schema         `json:"schema,omitempty"`
	Example     json.RawMessage `json:"example,omitempty"`
}

type documentComponents struct {
	Schemas         ordered[*schema]            `json:"schemas"`
	Parameters      ordered[*documentParameter] `json:"parameters,omitempty"`
	Headers         ordered[*documentHeader]    `json:"headers,omitempty"`
	Responses       ordered[*documentResponse]  `json:"responses,omitempty"`
	SecuritySchemes ordered[documentScheme]     `json:"securitySchemes"`
}

type documentScheme struct {
	Type        string `json:"type"`
	Scheme      string `json:"scheme"`
	Description string `json:"description"`
}

// describe makes the document of a list of operations, in their order.
func describe(operations []operation, of traits) *document {
	d := &document{
		OpenAPI: "3.1.0",
		Info: documentInfo{
			Title:       "Belfry",
			Summary:     "Cron for a fleet: jobs, their runs, and the workers that run them.",
			Description: introduction,
			Version:     of.version,
			License:     documentLicence{"Apache License 2.0", "Apache-2.0"},
		},
		Servers: []documentServer{{"/", "The server that this document came from."}},
		schemas: newSchemas(),
		traits:  of,
	}
	if of.version == "" {
		d.Info.Version = "unknown"
	}
	if of.keyed {
		d.Security = []map[string][]string{{bearer: {}}}
	}
	d.Components.SecuritySchemes.add(bearer, documentScheme{"http", "bearer", "An API key, as in `Authorization: Bearer KEY`."})
	d.answersFirst(operations)
	for i := range operations {
		d.add(&operations[i])
	}
	d.Components.Schemas = d.schemas.components.sorted()
	d.Components.Parameters = d.Components.Parameters.sorted()
	d.Components.Headers = d.Components.Headers.sorted()
	d.Components.Responses = d.Components.Responses.sorted()
	return d
}

const bearer = "bearer"

const introduction = "JSON over HTTP. Times are RFC 3339 in UTC. Failures are problem documents (RFC 9457) that name every field at fault.\n\n" +
	"The header `Belfry-Namespace` chooses a namespace; without it, it is `default`. Lists come in pages: the `Link` header of one leads to the next. " +
	"A request with an `Idempotency-Key` may be repeated safely for seven days."

// answersFirst makes the components of what is answered before those of what is
// read, which alone refuse members that they do not name.
func (d *document) answersFirst(operations []operation) {
	d.schemas.of(problemType)
	for _, op := range operations {
		for _, r := range op.answers {
			if r.content != nil && r.content.kind != nil {
				d.schemas.of(r.content.kind)
			}
		}
	}
	d.schemas.strict = true
}

// add describes one operation.
func (d *document) add(op *operation) {
	out := &documentOperation{ID: op.id, Tags: []string{op.group}, Summary: op.summary, Description: op.about}
	if d.keyed && op.open {
		out.Security = &[]map[string][]string{}
	}
	out.Parameters = d.parameters(op)
	if op.body != nil {
		out.RequestBody = &documentBody{Required: op.body.required, Content: d.content(op.body)}
	}
	for _, r := range op.answers {
		out.Responses.add(strconv.Itoa(r.status), d.answer(r))
	}
	d.refusals(op, out)
	d.tag(op.group)
	path := documentPath(op.path)
	for i := range d.Paths {
		if d.Paths[i].name == path {
			d.Paths[i].value.add(strings.ToLower(op.method), out)
			return
		}
	}
	d.Paths.add(path, ordered[*documentOperation]{{strings.ToLower(op.method), out}})
}

// documentPath is a path of the mux as OpenAPI writes it.
func documentPath(pattern string) string { return strings.TrimSuffix(pattern, "{$}") }

func (d *document) tag(name string) {
	for _, t := range d.Tags {
		if t.Name == name {
			return
		}
	}
	d.Tags = append(d.Tags, documentTag{name, groups[name]})
}

// groups says what the operations under a heading are about.
var groups = map[string]string{
	"Jobs":      "What to run and when.",
	"Schedules": "What a schedule means, before a job has it.",
	"Runs":      "What became of it: one record for every occurrence and every trigger.",

	"Dead letters": "Runs that are out of attempts: look at them, run them again, or give them up.",
	"Events":       "What people should hear of although nobody asked for it.",
	"Workers":      "How a program of your own gets its work: claim, heartbeat, finish.",
	"Server":       "The server itself.",
}
