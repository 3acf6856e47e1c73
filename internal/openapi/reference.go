package openapi

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/belfry-sh/belfry"
)

//go:embed reference.html
var referenceText string

var referenceTemplate = template.Must(template.New("reference").Funcs(template.FuncMap{
	"prose": prose, "sentence": sentence, "breakable": breakable, "highlight": highlight, "lower": strings.ToLower,
}).Parse(referenceText))

// Reference writes the reference page of a document: one file that needs nothing else.
func (d *Document) Reference() ([]byte, error) {
	var out bytes.Buffer
	err := referenceTemplate.Execute(&out, newReference(d))
	return bytes.TrimSpace(out.Bytes()), err
}

// reference is what the page shows.
type reference struct {
	Version      string
	Keyed        bool
	Limited      bool
	DefaultLimit int
	MaxLimit     int
	Groups       []referenceGroup
	Objects      []referenceObject
	Codes        []referenceCode
	Problem      string // a real problem document
}

type referenceGroup struct {
	Name, Anchor, About string
	Operations          []referenceOperation
}

type referenceOperation struct {
	ID, Method, Path, Summary, About string
	Open                             bool // needs no key although others do
	Parameters                       []referenceField
	Body                             *referenceBody
	Answers                          []referenceAnswer
	Failures                         []referenceFailure
	Curl                             string
}

// referenceField is a member of an object, or a parameter.
type referenceField struct {
	Name, About string
	Label       referenceLabel
	Where       string // of a parameter: path, query or header
	Inner       bool   // of an object inside
	Required    bool
	Facts       []referenceFact
}

// referenceFact is what else is known of a field, as in "default 50": values, or
// words.
type referenceFact struct {
	Name   string
	Values []string
	Words  string
}

// referenceChoice is a value of an enumeration.
type referenceChoice struct{ Value, About string }

// referenceLabel is a type in words; a part of it may have a place on the page.
type referenceLabel struct{ Before, Link, Text, After string }

type referenceBody struct {
	Media    []string
	Required bool
	Label    referenceLabel
	About    string
	Fields   []referenceField
	Examples []referenceExample
}

type referenceExample struct{ Title, Text string }

type referenceAnswer struct {
	Status, Title, About string
	Headers              []string
	Media                string
	Label                *referenceLabel
	Examples             []referenceExample
}

type referenceFailure struct{ Status, Title, About string }

type referenceObject struct {
	Name, Anchor, About string
	Fields              []referenceField
	Choices             []referenceChoice
}

// referenceCode is a code of problem documents with its usual status.
type referenceCode struct {
	Code, About string
	Status      int
}

func newReference(d *Document) *reference {
	page := &reference{
		Version: d.Info.Version, Keyed: d.options.Keyed, Limited: d.options.RateLimited, DefaultLimit: d.options.PageSize, MaxLimit: d.options.MaxPageSize,
		Codes: codes(), Problem: exampleText(d, "Invalid"),
	}
	for _, t := range d.Tags {
		group := referenceGroup{Name: t.Name, Anchor: "group-" + slug(t.Name), About: t.Description}
		for _, path := range d.Paths {
			for _, method := range path.value {
				if slices.Contains(method.value.Tags, t.Name) {
					group.Operations = append(group.Operations, d.show(path.name, method.name, method.value))
				}
			}
		}
		page.Groups = append(page.Groups, group)
	}
	for _, c := range d.Components.Schemas {
		object := referenceObject{Name: c.name, Anchor: "object-" + c.name, Fields: d.fields(c.value, "", 1)}
		if len(c.value.values) == 0 {
			object.About = c.value.Description
		}
		for _, v := range c.value.values {
			object.Choices = append(object.Choices, referenceChoice{v.Value, Markdown(v.Doc)})
		}
		page.Objects = append(page.Objects, object)
	}
	return page
}

// show is an operation as the page shows it.
func (d *Document) show(path, method string, op *pathOperation) referenceOperation {
	out := referenceOperation{
		ID: op.ID, Method: strings.ToUpper(method), Path: path, Summary: op.Summary, About: op.Description,
		Open: d.options.Keyed && op.Security != nil, Curl: d.curl(path, strings.ToUpper(method), op),
	}
	for _, p := range op.Parameters {
		p = d.resolve(p)
		field := d.field(p.Name, p.Schema)
		field.About, field.Where, field.Required = p.Description, p.In, p.Required
		if p.Example != nil {
			field.Facts = append(field.Facts, referenceFact{Name: "such as", Values: []string{bareText(p.Example)}})
		}
		out.Parameters = append(out.Parameters, field)
	}
	if op.RequestBody != nil {
		out.Body = d.showBody(op.RequestBody)
	}
	for _, r := range op.Responses {
		if r.value.Ref == "" {
			answer := d.showAnswer(r.name, r.value)
			if n := len(out.Answers); n > 0 && slices.Equal(answer.Examples, out.Answers[n-1].Examples) {
				answer.Examples = nil // It was shown just before.
			}
			out.Answers = append(out.Answers, answer)
			continue
		}
		failed, _ := d.Components.Responses.get(strings.TrimPrefix(r.value.Ref, "#/components/responses/"))
		if status, err := strconv.Atoi(r.name); err == nil {
			out.Failures = append(out.Failures, referenceFailure{r.name, http.StatusText(status), failed.Description})
		}
	}
	return out
}

// resolve gives the parameter that one refers to.
func (d *Document) resolve(p *parameter) *parameter {
	if name, ok := strings.CutPrefix(p.Ref, "#/components/parameters/"); ok {
		p, _ = d.Components.Parameters.get(name)
	}
	return p
}

func (d *Document) showBody(b *requestBody) *referenceBody {
	out := &referenceBody{Required: b.Required}
	for _, m := range b.Content {
		out.Media = append(out.Media, m.name)
		out.Examples = append(out.Examples, shownExamples(m.value)...)
		if m.name == MediaJSON {
			out.Label = d.label(m.value.Schema)
			out.Fields = d.fields(d.target(m.value.Schema), "", 3)
			out.About = d.target(m.value.Schema).Description
		}
	}
	return out
}

func (d *Document) showAnswer(status string, r *response) referenceAnswer {
	code, _ := strconv.Atoi(status)
	out := referenceAnswer{Status: status, Title: http.StatusText(code), About: r.Description}
	for _, h := range r.Headers {
		if h.name != "X-Request-Id" {
			out.Headers = append(out.Headers, h.name)
		}
	}
	for _, m := range r.Content {
		out.Media = m.name
		label := d.label(m.value.Schema)
		out.Label = &label
		out.Examples = append(out.Examples, shownExamples(m.value)...)
	}
	return out
}

func shownExamples(m *media) []referenceExample {
	var out []referenceExample
	for _, e := range m.Examples {
		out = append(out, referenceExample{e.value.Summary, bareText(e.value.Value)})
	}
	return out
}

// exampleText is the example of a problem document.
func exampleText(d *Document, name string) string {
	r, ok := d.Components.Responses.get(name)
	if !ok {
		return ""
	}
	m, _ := r.Content.get(MediaProblem)
	return laid(m.Examples[0].value.Value)
}

// codes lists the codes of problem documents with their statuses.
func codes() (out []referenceCode) {
	for _, v := range belfry.Code("").EnumValues() {
		out = append(out, referenceCode{v.Value, Markdown(v.Doc), StatusOf(belfry.Code(v.Value))})
	}
	return out
}
