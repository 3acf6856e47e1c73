package openapi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/jsontext"
	"github.com/belfry-sh/belfry/internal/schema"
)

// Schema is a JSON Schema (draft 2020-12), as far as the document needs one.
type Schema struct {
	Ref         string            `json:"$ref,omitempty"`
	Type        typeNames         `json:"type,omitempty"`
	Description string            `json:"description,omitempty"`
	Format      string            `json:"format,omitempty"`
	MediaType   string            `json:"contentMediaType,omitempty"`
	Enum        []string          `json:"enum,omitempty"`
	Pattern     string            `json:"pattern,omitempty"`
	MinLength   int               `json:"minLength,omitempty"`
	MaxLength   int               `json:"maxLength,omitempty"`
	MinItems    int               `json:"minItems,omitempty"`
	MaxItems    int               `json:"maxItems,omitempty"`
	Minimum     *float64          `json:"minimum,omitempty"`
	Maximum     *float64          `json:"maximum,omitempty"`
	Items       *Schema           `json:"items,omitempty"`
	Properties  ordered[*Schema]  `json:"properties,omitempty"`
	Required    []string          `json:"required,omitempty"`
	Additional  any               `json:"additionalProperties,omitempty"` // false, or a *Schema
	AnyOf       []*Schema         `json:"anyOf,omitempty"`
	Default     json.RawMessage   `json:"default,omitempty"`
	Examples    []json.RawMessage `json:"examples,omitempty"`

	values []belfry.EnumValue // of Enum
}

// typeNames are the JSON types of a value; one is written as a string.
type typeNames []string

func (t typeNames) MarshalJSON() ([]byte, error) {
	if len(t) == 1 {
		return json.Marshal(t[0])
	}
	return json.Marshal([]string(t))
}

// ordered is a JSON object whose members keep their order.
type ordered[T any] []named[T]

type named[T any] struct {
	name  string
	value T
}

func (o ordered[T]) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			out = append(out, ',')
		}
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, jsontext.Quote(m.name)...), ':'), value...)
	}
	return append(out, '}'), nil
}

func (o ordered[T]) get(name string) (value T, ok bool) {
	for _, m := range o {
		if m.name == name {
			return m.value, true
		}
	}
	return value, false
}

func (o *ordered[T]) add(name string, value T) { *o = append(*o, named[T]{name, value}) }

// share adds a value unless there is one of that name, and returns the one that is there.
func (o *ordered[T]) share(name string, value T) T {
	if known, exists := o.get(name); exists {
		return known
	}
	o.add(name, value)
	return value
}

func (o ordered[T]) sorted() ordered[T] {
	return slices.SortedFunc(slices.Values(o), func(a, b named[T]) int { return strings.Compare(a.name, b.name) })
}

const componentRef = "#/components/schemas/"

// component is the name of the component that a schema refers to.
func (s *Schema) component() (name string, ok bool) { return strings.CutPrefix(s.Ref, componentRef) }

// schemas makes schemas of Go types. Structs and enumerations become components.
type schemas struct {
	components ordered[*Schema]
	types      map[string]reflect.Type // of the components
	request    bool                    // types seen from now on are read, and refuse unknown members
}

// typed is the schema of all values of a JSON type.
func typed(name string) *Schema { return &Schema{Type: typeNames{name}} }

// ownForms are the schemas of types whose JSON does not follow from their kind.
var ownForms = map[reflect.Type]Schema{
	reflect.TypeFor[json.RawMessage]():          {},
	reflect.TypeFor[time.Time]():                {Type: typeNames{"string"}, Format: "date-time"},
	reflect.TypeFor[belfry.ID]():                {Type: typeNames{"string"}, Format: "uuid"},
	reflect.TypeFor[belfry.Token]():             {Type: typeNames{"string"}, Pattern: "^[0-9a-f]{32}$"},
	reflect.TypeFor[belfry.Delays]():            {Type: typeNames{"array"}, Items: &Schema{Type: typeNames{"number"}, Minimum: new(0.0), Maximum: new(belfry.MaxDelay.Seconds())}},
	reflect.TypeFor[belfry.Optional[int]]():     {Type: typeNames{"integer"}},
	reflect.TypeFor[belfry.Optional[float64]](): {Type: typeNames{"number"}},
}

// kindNames are the JSON types of the kinds that have one.
var kindNames = map[reflect.Kind]string{
	reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer", reflect.Int64: "integer", reflect.Float64: "number",
}

// of is the schema of the JSON form of a type.
func (s *schemas) of(t reflect.Type) *Schema {
	if form, ok := ownForms[t]; ok {
		return &form
	}
	if t == reflect.TypeFor[belfry.Priority]() {
		return s.priority()
	}
	if e, ok := reflect.Zero(t).Interface().(belfry.Enum); ok && t.Kind() != reflect.Pointer {
		return s.enumeration(t, e.EnumValues())
	}
	switch t.Kind() {
	case reflect.Pointer:
		return nullable(s.of(t.Elem()))
	case reflect.Struct:
		return s.structure(t, false)
	case reflect.Slice:
		return &Schema{Type: typeNames{"array"}, Items: s.of(t.Elem())}
	case reflect.Map:
		return &Schema{Type: typeNames{"object"}, Additional: s.of(t.Elem())}
	}
	if name := kindNames[t.Kind()]; name != "" {
		return typed(name)
	}
	panic(fmt.Sprintf("openapi: %s has no JSON schema", t))
}

// nullable is a schema that null satisfies too.
func nullable(of *Schema) *Schema {
	switch {
	case of.Ref != "" || len(of.Enum) > 0:
		out := &Schema{AnyOf: []*Schema{of, {Type: typeNames{"null"}}}, Description: of.Description, Default: of.Default, Examples: of.Examples}
		of.Description, of.Default, of.Examples = "", nil, nil
		return out
	case len(of.AnyOf) > 0:
		of.AnyOf = append(of.AnyOf, &Schema{Type: typeNames{"null"}})
	case len(of.Type) > 0 && !slices.Contains(of.Type, "null"):
		of.Type = append(of.Type, "null")
	}
	return of
}

// componentName is the name of a type in the document.
func componentName(t reflect.Type) string {
	name := t.Name()
	if name == "Code" {
		return "ProblemCode"
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

// component refers to the component of a type, which it makes if it is missing.
func (s *schemas) component(name string, t reflect.Type, make func() *Schema) *Schema {
	known, exists := s.types[name]
	if exists && known != t {
		panic(fmt.Sprintf("openapi: %s and %s are both named %s", known, t, name))
	}
	if !exists {
		s.types[name] = t // before those that it refers to, which may be itself
		s.components.add(name, make())
	}
	return &Schema{Ref: componentRef + name}
}

// structure refers to the component of a struct, or of its changes: there no field is
// required, and null resets one.
func (s *schemas) structure(t reflect.Type, patch bool) *Schema {
	name := componentName(t)
	if patch {
		name += "Patch"
	}
	return s.component(name, t, func() *Schema { return s.object(t, patch) })
}

func (s *schemas) object(t reflect.Type, patch bool) *Schema {
	of := schema.Of(t)
	out := &Schema{Type: typeNames{"object"}, Description: Markdown(of.Doc)}
	if s.request && t != reflect.TypeFor[belfry.Manifest]() { // a manifest may have fields that only a job has
		out.Additional = false
	}
	for _, f := range of.Fields {
		if s.request && f.ReadOnly {
			continue
		}
		property := s.field(f)
		if patch && f.Name != "schedule" && f.Name != "payload" {
			property = nullable(property)
		}
		out.Properties.add(f.Name, property)
		if s.request && f.Required && !patch || !s.request && !f.OmitEmpty {
			out.Required = append(out.Required, f.Name)
		}
	}
	return out
}

// field is the schema of a field, with what its tags say.
func (s *schemas) field(f *schema.Field) *Schema {
	t := f.Type
	if t.Kind() == reflect.Pointer && f.OmitEmpty {
		t = t.Elem() // left out while it is nil, and never null
	}
	out := s.of(t)
	if e, ok := reflect.Zero(t).Interface().(belfry.Enum); len(f.Enum) > 0 && f.Kind == schema.Text &&
		(!ok || len(f.Enum) < len(e.EnumValues()) || s.request && len(f.Accept) > 0) {
		out = typed("string")
		for _, v := range f.Enum {
			out.Enum = append(out.Enum, v.Value)
		}
		if s.request && len(f.Accept) > 0 {
			out.Enum = f.Accept
		}
	}
	if f.Form != "" && s.request {
		for name := range strings.SplitSeq(f.Form, ",") {
			out.AnyOf = append(out.AnyOf, s.of(forms[name]))
		}
		out.AnyOf = append(out.AnyOf, &Schema{Description: "Any other JSON value."})
	}
	if f.Single && s.request {
		out = &Schema{AnyOf: []*Schema{out, {Type: typeNames{"string"}}}}
	}
	out.Description = Markdown(f.Doc)
	if f.Kind == schema.Text && f.Pattern != nil {
		out.Pattern = f.Pattern.String()
	}
	if s.request {
		out.MinLength, out.MaxLength, out.MinItems, out.Minimum, out.Maximum = f.MinLen, f.MaxLen, f.MinItems, f.Min, f.Max
		if f.Kind != schema.TextMap {
			out.MaxItems = f.MaxItems
		}
		if value := f.Default + f.Implicit; value != "" {
			out.Default = literal(f, value)
		}
		if f.Required && f.Kind == schema.Text && len(f.Enum) == 0 {
			out.MinLength = 1
		}
	}
	if f.Example != "" {
		out.Examples = []json.RawMessage{literal(f, f.Example)}
	}
	return out
}

// forms are the types that a field of any JSON usually holds.
var forms = map[string]reflect.Type{"HTTPPayload": reflect.TypeFor[belfry.HTTPPayload](), "CommandPayload": reflect.TypeFor[belfry.CommandPayload](), "MessagePayload": reflect.TypeFor[belfry.MessagePayload]()}

// literal is the JSON of a tag's value.
func literal(f *schema.Field, value string) json.RawMessage {
	switch f.Kind {
	case schema.Text, schema.Time, schema.ID, schema.Token:
		return json.RawMessage(jsontext.Quote(value))
	case schema.Custom:
		if !json.Valid([]byte(value)) {
			return json.RawMessage(jsontext.Quote(value))
		}
	}
	return json.RawMessage(value)
}

var code = regexp.MustCompile(`(^|[\s(:])'([^']+)'`)

// Markdown is a description with its code in backquotes.
func Markdown(doc string) string { return code.ReplaceAllString(doc, "$1`$2`") }

// enumeration refers to the component of an enumeration.
func (s *schemas) enumeration(t reflect.Type, values []belfry.EnumValue) *Schema {
	return s.component(componentName(t), t, func() *Schema {
		out := &Schema{Type: typeNames{"string"}, values: values}
		var lines []string
		for _, v := range values {
			out.Enum = append(out.Enum, v.Value)
			lines = append(lines, "- `"+v.Value+"`: "+Markdown(v.Doc))
		}
		out.Description = strings.Join(lines, "\n")
		return out
	})
}

// priority is a name or a digit; requests may have a number too.
func (s *schemas) priority() *Schema {
	out := &Schema{AnyOf: []*Schema{
		s.enumeration(reflect.TypeFor[belfry.Priority](), belfry.Priority("").EnumValues()),
		{Type: typeNames{"string"}, Pattern: "^[0-9]$"},
	}}
	if s.request {
		out.AnyOf = append(out.AnyOf, &Schema{Type: typeNames{"integer"}, Minimum: new(float64(belfry.MinPriority)), Maximum: new(float64(belfry.MaxPriority))})
	}
	return out
}

// sample makes an example of a schema from those of its members; nil if there are none.
func (s *schemas) sample(of *Schema) json.RawMessage {
	if len(of.Examples) > 0 {
		return of.Examples[0]
	}
	if name, ok := of.component(); ok {
		target, _ := s.components.get(name)
		return s.sample(target)
	}
	switch {
	case of.Items != nil:
		if item := s.sample(of.Items); item != nil {
			return json.RawMessage("[" + string(item) + "]")
		}
	case of.Default != nil:
		return of.Default
	case len(of.Enum) > 0:
		return json.RawMessage(jsontext.Quote(of.Enum[0]))
	case len(of.Properties) > 0:
		var members ordered[json.RawMessage]
		for _, p := range of.Properties {
			required := slices.Contains(of.Required, p.name)
			if value := s.sample(p.value); value != nil && (required || len(p.value.Examples) > 0) {
				members.add(p.name, value)
			}
		}
		text, _ := json.Marshal(members) // examples are JSON
		return text
	}
	return nil
}
