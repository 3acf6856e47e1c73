package api

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/belfry-sh/belfry"
)

// schema is a JSON Schema (draft 2020-12), as far as the document needs one.
type schema struct {
	Ref         string `json:"$ref,omitempty"`
	Type        kinds  `json:"type,omitempty"`
	Description string `json:"description,omitempty"`
	Format      string `json:"format,omitempty"`
	MediaType   string `json:"contentMediaType,omitempty"` // of what a text holds
	limits
	Items      *schema           `json:"items,omitempty"`
	Properties ordered[*schema]  `json:"properties,omitempty"`
	Required   []string          `json:"required,omitempty"`
	Additional any               `json:"additionalProperties,omitempty"` // false, or a *schema
	AnyOf      []*schema         `json:"anyOf,omitempty"`
	Default    json.RawMessage   `json:"default,omitempty"`
	Examples   []json.RawMessage `json:"examples,omitempty"`

	choices []choice // what Enum stands for
}

// limits are what a value must keep to beside its type.
type limits struct {
	Enum      []string `json:"enum,omitempty"`
	Pattern   string   `json:"pattern,omitempty"`
	MinLength int      `json:"minLength,omitempty"`
	MaxLength int      `json:"maxLength,omitempty"`
	MinItems  int      `json:"minItems,omitempty"`
	MaxItems  int      `json:"maxItems,omitempty"`
	Minimum   *float64 `json:"minimum,omitempty"`
	Maximum   *float64 `json:"maximum,omitempty"`
}

// kinds are the JSON types that a value may have. One is written as a text.
type kinds []string

func (k kinds) MarshalJSON() ([]byte, error) {
	if len(k) == 1 {
		return json.Marshal(k[0])
	}
	return json.Marshal([]string(k))
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
		name, err := json.Marshal(m.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, name...), ':'), value...)
	}
	return append(out, '}'), nil
}

// get gives the member of a name, or the zero value.
func (o ordered[T]) get(name string) (value T, ok bool) {
	for _, m := range o {
		if m.name == name {
			return m.value, true
		}
	}
	return value, false
}

func (o *ordered[T]) add(name string, value T) { *o = append(*o, named[T]{name, value}) }

func (o ordered[T]) sorted() ordered[T] {
	return slices.SortedFunc(slices.Values(o), func(a, b named[T]) int { return strings.Compare(a.name, b.name) })
}

// schemas makes schemas of Go types. Structs and enumerations become components,
// each under one name.
type schemas struct {
	components ordered[*schema]
	types      map[string]reflect.Type // of the components
	strict     bool                    // structs met from now on are read: what they do not name is refused
	faults     []string                // types that cannot be described
}

func newSchemas() *schemas { return &schemas{types: make(map[string]reflect.Type)} }

const componentRef = "#/components/schemas/"

var (
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
)

// of gives the schema of what encoding/json writes for a type.
func (s *schemas) of(t reflect.Type) *schema {
	switch t {
	case nil, reflect.TypeFor[json.RawMessage](), reflect.TypeFor[any]():
		return &schema{}
	case reflect.TypeFor[time.Time]():
		return &schema{Type: kinds{"string"}, Format: "date-time"}
	case reflect.TypeFor[belfry.ID]():
		return &schema{Type: kinds{"string"}, Format: "uuid"}
	case reflect.TypeFor[belfry.Token]():
		return &schema{Type: kinds{"string"}, limits: limits{Pattern: "^[0-9a-f]{32}$"}}
	}
	switch t {
	case reflect.TypeFor[belfry.Priority]():
		return s.priority()
	case reflect.TypeFor[belfry.Delays]():
		return &schema{Type: kinds{"array"}, Items: &schema{Type: kinds{"number"}, limits: between(0, belfry.MaxDelay.Seconds())}}
	}
	if list, ok := enumerations[t]; ok {
		return s.enumeration(t, list)
	}
	if t.Kind() == reflect.Pointer {
		return nullable(s.of(t.Elem()))
	}
	if t.Implements(textMarshaler) || t.Implements(jsonMarshaler) {
		s.fault("%s writes itself in a form that is not known", t)
		return &schema{}
	}
	switch t.Kind() {
	case reflect.Struct:
		return s.structure(t)
	case reflect.Slice, reflect.Array:
		return &schema{Type: kinds{"array"}, Items: s.of(t.Elem())}
	case reflect.Map:
		return &schema{Type: kinds{"object"}, Additional: s.of(t.Elem())}
	case reflect.String:
		return &schema{Type: kinds{"string"}}
	case reflect.Bool:
		return &schema{Type: kinds{"boolean"}}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return &schema{Type: kinds{"integer"}}
	case reflect.Float64:
		return &schema{Type: kinds{"number"}}
	}
	s.fault("%s has no JSON form", t)
	return &schema{}
}

func (s *schemas) fault(format string, args ...any) {
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

// nullable is a schema that null satisfies too.
func nullable(of *schema) *schema {
	switch {
	case of.Ref != "":
		return &schema{AnyOf: []*schema{of, {Type: kinds{"null"}}}}
	case len(of.AnyOf) > 0:
		of.AnyOf = append(of.AnyOf, &schema{Type: kinds{"null"}})
	case len(of.Type) > 0:
		of.Type = append(of.Type, "null")
	}
	return of
}

// enter takes a name for a type, and tells whether its component is still to be
// made.
func (s *schemas) enter(name string, t reflect.Type) bool {
	known, there := s.types[name]
	if there && known != t {
		s.fault("%s and %s are both called %s", known, t, name)
	}
	s.types[name] = t
	return !there
}

// structure gives a reference to the component of a struct, or, for one without a
// name, the schema itself.
func (s *schemas) structure(t reflect.Type) *schema {
	name := componentName(t)
	if name == "" {
		return s.object("", t)
	}
	if s.enter(name, t) {
		place := len(s.components)
		s.components.add(name, nil) // Those that it refers to come behind it.
		s.components[place].value = s.object(name, t)
	}
	return &schema{Ref: componentRef + name}
}

func (s *schemas) object(name string, t reflect.Type) *schema {
	out := &schema{Type: kinds{"object"}, Description: lookup(about, name, "", "")}
	if s.strict && !lenient[name] {
		out.Additional = false
	}
	for _, f := range jsonFields(t) {
		if f.optional && f.kind.Kind() == reflect.Pointer && !s.strict {
			f.kind = f.kind.Elem() // What is nil is left out, and never null.
		}
		property := s.of(f.kind)
		owner := componentName(f.owner)
		if form, ok := forms[name+"."+f.name]; ok {
			property.AnyOf = []*schema{s.of(form), {Description: "Any other JSON value."}}
		}
		property.Description = lookup(about, name, owner, f.name)
		property.limits = lookup(bounds, name, owner, f.name)
		if len(property.Enum) > 0 && slices.Contains(property.Type, "null") { // An enumeration has no null.
			property.AnyOf = []*schema{{Type: kinds{"string"}, limits: property.limits}, {Type: kinds{"null"}}}
			property.Type, property.limits = nil, limits{}
		}
		if text := lookup(samples, name, owner, f.name); text != "" {
			property.Examples = []json.RawMessage{json.RawMessage(text)}
		}
		if text := lookup(memberDefaults, name, "", f.name); text != "" {
			property.Default = json.RawMessage(text)
		}
		out.Properties.add(f.name, property)
		if !f.optional && !spared[name+"."+f.name] {
			out.Required = append(out.Required, f.name)
		}
	}
	return out
}

// lenient are the components that are read and may have members beyond those that
// they name: older spellings, and what a job is shown with.
var lenient = map[string]bool{"JobInput": true, "JobChange": true}

// componentName is the name of a type in the document.
func componentName(t reflect.Type) string {
	name := t.Name()
	if called, ok := names[name]; ok {
		return called
	}
	if name == "" {
		return ""
	}
	letters := []rune(name)
	letters[0] = unicode.ToUpper(letters[0])
	return string(letters)
}

// names are those of types whose own would say little to people.
var names = map[string]string{
	"shownRun":  "Run",
	"shownDead": "DeadLetter",
	"Status":    "JobStatus",
	"RunState":  "RunStatus",
	"Kind":      "RunKind",
	"Code":      "ProblemCode",
}
