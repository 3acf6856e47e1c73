package openapi

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
)

//go:embed reference.html
var referenceText string

var referenceTemplate = template.Must(template.New("reference").Funcs(template.FuncMap{
	"prose": prose, "sentence": sentence, "breakable": breakable, "highlight": highlight, "lower": strings.ToLower, "slug": slug, "markdown": Markdown,
	"status": func(code string) int { return StatusOf(belfry.Code(code)) },
}).Parse(referenceText))

// Reference is the reference page of a document: one file that needs nothing else. It
// shows the address of the server, which each reader may know by another name.
type Reference struct{ before, after []byte }

// For is the page for a reader who knows the server by an address.
func (r Reference) For(server string) []byte {
	return slices.Concat(r.before, []byte(template.HTMLEscapeString(shellQuote(server))), r.after)
}

// Reference makes the reference page.
func (d *Document) Reference() (Reference, error) {
	const server = "SERVER-OF-THE-READER"
	page := reference{Document: d, Options: d.options, Server: server, Codes: belfry.Code("").EnumValues()}
	page.Problem = layOut(failures[http.StatusUnprocessableEntity].example(http.StatusUnprocessableEntity))
	for _, t := range d.Tags {
		group := referenceGroup{tag: t}
		for _, path := range d.Paths {
			for _, method := range *path.value {
				if slices.Contains(method.value.Tags, t.Name) {
					group.Operations = append(group.Operations, d.referenceOperation(path.name, strings.ToUpper(method.name), method.value))
				}
			}
		}
		page.Groups = append(page.Groups, group)
	}
	for _, c := range d.Components.Schemas {
		object := referenceObject{Name: c.name, Doc: c.value.Description, Fields: d.fieldRows(c.value, "", 1), Values: c.value.values}
		if len(object.Values) > 0 {
			object.Doc = ""
		}
		page.Objects = append(page.Objects, object)
	}
	var out bytes.Buffer
	err := referenceTemplate.Execute(&out, page)
	before, after, _ := bytes.Cut(bytes.TrimSpace(out.Bytes()), []byte(server))
	return Reference{before, after}, err
}

// reference is what the page shows.
type reference struct {
	*Document
	Options Options
	Server  string
	Problem string // a real problem document
	Codes   []belfry.EnumValue
	Groups  []referenceGroup
	Objects []referenceObject
}

type referenceGroup struct {
	tag
	Operations []referenceOperation
}

type referenceObject struct {
	Name, Doc string
	Fields    []fieldRow
	Values    []belfry.EnumValue
}

type referenceOperation struct {
	*pathOperation
	Method, Path, Curl string
	Open               bool // needs no key although others do
	Parameters         []fieldRow
	Body               *referenceBody
	Answers, Failures  []referenceAnswer
}

type referenceBody struct {
	Media    []string
	Required bool
	Type     template.HTML
	Doc      string
	Fields   []fieldRow
	Examples []referenceExample
}

type referenceExample struct{ Title, Text string }

type referenceAnswer struct {
	Status, Title, Doc string
	Type               template.HTML
	Headers            []string
	Examples           []referenceExample
}

// fieldRow is a field of an object, or a parameter.
type fieldRow struct {
	Name, Doc string
	Type      template.HTML
	Where     string // of a parameter: path, query or header
	Inner     bool   // of a nested object
	Required  bool
	Facts     []template.HTML
}

func (d *Document) referenceOperation(path, method string, op *pathOperation) referenceOperation {
	out := referenceOperation{pathOperation: op, Method: method, Path: path, Open: d.options.Keyed && op.Security != nil, Curl: d.curl(path, method, op)}
	for _, p := range op.Parameters {
		p = d.resolve(p)
		row := d.fieldRow(p.Name, p.Schema)
		row.Doc, row.Where, row.Required = p.Description, p.In, p.Required
		if p.Example != nil {
			row.Facts = append(row.Facts, codes("for example", unquoted(p.Example)))
		}
		out.Parameters = append(out.Parameters, row)
	}
	if b := op.RequestBody; b != nil {
		out.Body = &referenceBody{Required: b.Required}
		for _, m := range b.Content {
			out.Body.Media = append(out.Body.Media, m.name)
			out.Body.Examples = append(out.Body.Examples, examples(m.value)...)
			if m.name == MediaJSON {
				target := d.target(m.value.Schema)
				out.Body.Type, out.Body.Doc, out.Body.Fields = d.typeName(m.value.Schema), target.Description, d.fieldRows(target, "", 3)
			}
		}
	}
	for _, r := range op.Responses {
		code, err := strconv.Atoi(r.name)
		answer := referenceAnswer{Status: r.name, Title: http.StatusText(code), Doc: r.value.Description}
		if r.value.Ref != "" {
			if failed, _ := d.Components.Responses.get(strings.TrimPrefix(r.value.Ref, responseRef)); err == nil {
				answer.Doc = failed.Description
				out.Failures = append(out.Failures, answer)
			}
			continue
		}
		for _, h := range r.value.Headers[1:] { // all have X-Request-Id
			answer.Headers = append(answer.Headers, h.name)
		}
		for _, m := range r.value.Content {
			answer.Type, answer.Examples = d.typeName(m.value.Schema), examples(m.value)
		}
		if n := len(out.Answers); n > 0 && slices.Equal(answer.Examples, out.Answers[n-1].Examples) {
			answer.Examples = nil // shown just before
		}
		out.Answers = append(out.Answers, answer)
	}
	return out
}

// resolve is the parameter that one refers to.
func (d *Document) resolve(p *parameter) *parameter {
	if name, ok := strings.CutPrefix(p.Ref, parameterRef); ok {
		p, _ = d.Components.Parameters.get(name)
	}
	return p
}

func examples(m *media) (out []referenceExample) {
	for _, e := range m.Examples {
		out = append(out, referenceExample{e.value.Summary, unquoted(e.value.Value)})
	}
	return out
}

// target is the schema that one stands for: that of a component, or of the items of an
// array.
func (d *Document) target(of *Schema) *Schema {
	if name, ok := of.component(); ok {
		of, _ = d.schemas.components.get(name)
	} else if of.Items != nil {
		return d.target(of.Items)
	}
	return of
}

// fieldRows lists the fields of an object, and below each one its own, down to a number
// of levels.
func (d *Document) fieldRows(of *Schema, within string, levels int) (out []fieldRow) {
	for _, p := range of.Properties {
		row := d.fieldRow(within+p.name, p.value)
		row.Inner, row.Required = within != "", slices.Contains(of.Required, p.name)
		out = append(out, row)
		inner, mark := p.value, "."
		if len(inner.AnyOf) > 0 {
			inner = inner.AnyOf[0]
		}
		if inner.Items != nil {
			mark = "[]."
		}
		if target := d.target(inner); levels > 1 && target != p.value {
			out = append(out, d.fieldRows(target, within+p.name+mark, levels-1)...)
		}
	}
	return out
}

func (d *Document) fieldRow(name string, of *Schema) fieldRow {
	row := fieldRow{Name: name, Doc: of.Description, Type: d.typeName(of)}
	fact := func(format string, args ...any) {
		row.Facts = append(row.Facts, template.HTML(fmt.Sprintf(format, args...)))
	}
	if values := d.target(of).Enum; len(values) > 0 {
		row.Facts = append(row.Facts, codes("one of", values...))
	}
	switch {
	case of.Minimum != nil && of.Maximum != nil:
		fact("from %s to %s", schema.Decimal(*of.Minimum), schema.Decimal(*of.Maximum))
	case of.Minimum != nil:
		fact("at least %s", schema.Decimal(*of.Minimum))
	case of.MaxLength > 0:
		fact("at most %d characters", of.MaxLength)
	case of.MaxItems > 0:
		fact("at most %d items", of.MaxItems)
	}
	if of.Pattern != "" {
		row.Facts = append(row.Facts, codes("matches", of.Pattern))
	}
	if of.Default != nil {
		row.Facts = append(row.Facts, codes("default", unquoted(of.Default)))
	}
	return row
}

// codes is a word and values as code.
func codes(word string, values ...string) template.HTML {
	for _, v := range values {
		word += " <code>" + template.HTMLEscapeString(v) + "</code>"
	}
	return template.HTML(word)
}

// typeName is the name of a schema's type, linked if it has a place on the page.
func (d *Document) typeName(of *Schema) template.HTML {
	if name, ok := of.component(); ok {
		return template.HTML(`<a href="#object-` + name + `">` + name + `</a>`)
	}
	switch inner, isMap := of.Additional.(*Schema); {
	case len(of.AnyOf) > 0:
		return d.typeName(of.AnyOf[0]) + " or " + d.typeName(of.AnyOf[len(of.AnyOf)-1])
	case of.Items != nil:
		return "array of " + d.typeName(of.Items)
	case isMap:
		return "object of " + d.typeName(inner)
	case len(of.Type) == 0:
		return "any"
	}
	name := strings.Join(of.Type, " or ")
	if of.Format != "" {
		name = strings.Replace(name, "string", of.Format, 1)
	}
	return template.HTML(name)
}

// unquoted is JSON for people: a string without its quotes, anything else laid out.
func unquoted(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil && string(value) != "null" {
		return text
	}
	return layOut(value)
}
