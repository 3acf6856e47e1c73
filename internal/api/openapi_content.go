package api

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

const (
	mediaJSON  = "application/json"
	mediaLines = "application/x-ndjson"
	mediaFault = "application/problem+json"
)

// content describes a body in each of its media types, with its examples.
func (d *document) content(c *content) ordered[*documentMedia] {
	var out ordered[*documentMedia]
	for _, media := range c.media {
		m := &documentMedia{Schema: d.mediaSchema(media, c.kind)}
		for _, title := range slices.Sorted(maps.Keys(c.examples)) {
			if text := c.examples[title]; exampleOf(media, text) {
				m.Examples.add(slug(title), &documentExample{title, exampleValue(media, text)})
			}
		}
		if len(m.Examples) == 0 && media == mediaJSON {
			if value := d.schemas.sample(m.Schema); value != nil {
				m.Examples.add("example", &documentExample{"An example", value})
			}
		}
		out.add(media, m)
	}
	return out
}

// mediaSchema is the schema of a body: of its JSON, or of a text that holds
// something else.
func (d *document) mediaSchema(media string, kind reflect.Type) *schema {
	switch media {
	case mediaJSON, mediaFault:
		return d.schemas.of(kind)
	case mediaLines:
		out := &schema{Type: kinds{"string"}, MediaType: media, Description: "One JSON value a line."}
		if kind != nil && kind.Kind() == reflect.Slice {
			if name, ok := d.schemas.of(kind.Elem()).refers(); ok {
				out.Description = "One `" + name + "` a line, as JSON."
			}
		}
		return out
	}
	return &schema{Type: kinds{"string"}, MediaType: media}
}

// exampleOf tells whether a text is an example of a media type, where a body has
// several.
func exampleOf(media, text string) bool {
	switch media {
	case mediaJSON, mediaFault:
		return json.Valid([]byte(text))
	case mediaLines:
		return !strings.HasPrefix(strings.TrimSpace(text), "[")
	}
	return true
}

// exampleValue is an example as it stands in the document: JSON as it is, all else
// as a text.
func exampleValue(media, text string) json.RawMessage {
	if media == mediaJSON || media == mediaFault {
		return json.RawMessage(text)
	}
	return json.RawMessage(quoted(text))
}

// slug is a few words as a name.
func slug(words string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(words), func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}), "-")
}

// answer describes an answer of success.
func (d *document) answer(r reply) *documentResponse {
	out := &documentResponse{Description: r.about}
	if out.Description == "" {
		out.Description = http.StatusText(r.status)
	}
	for _, name := range append([]string{"X-Request-Id"}, r.headers...) {
		out.Headers.add(name, d.header(name))
	}
	if r.content != nil {
		out.Content = d.content(r.content)
	}
	return out
}

// header refers to the component of a header of answers.
func (d *document) header(name string) *documentHeader {
	if _, there := d.Components.Headers.get(name); !there {
		known, ok := answerHeaders[name]
		if !ok {
			d.schemas.fault("the header %s is not described", name)
		}
		known.Schema = &schema{Type: kinds{"string"}}
		if name == "Retry-After" {
			known.Schema.Type = kinds{"integer"}
		}
		d.Components.Headers.add(name, &known)
	}
	return &documentHeader{Ref: "#/components/headers/" + name}
}

var answerHeaders = map[string]documentHeader{
	"X-Request-Id":     {Description: "The id of the request: the one that it brought, if that was sensible, or a fresh one.", Example: json.RawMessage(samples["Problem.request_id"])},
	"Location":         {Description: "Where to find what was made.", Example: json.RawMessage(`"/api/v1/jobs/01a1de7a-fae0-7c1a-9f3e-2b6d8f4a1c55"`)},
	"Link":             {Description: "Where the list goes on; missing on the last page. A page may be short, or empty, and still have a next one.", Example: json.RawMessage(`"</api/v1/jobs?cursor=EQGh3nr64HwanzQ&limit=50>; rel=\"next\""`)},
	"ETag":             {Description: "The version of what is answered, for `If-Match`.", Example: json.RawMessage(`"\"3-8c1f0a5be2d47790\""`)},
	"Retry-After":      {Description: "How many seconds to wait before trying again.", Example: json.RawMessage(`5`)},
	"WWW-Authenticate": {Description: "How to show who you are.", Example: json.RawMessage(`"Bearer realm=\"belfry\""`)},
}
