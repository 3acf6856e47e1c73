// Package schema reads what the tags of a struct say about its fields, and decodes and
// checks input by it: JSON objects, queries and flags. Whoever needs to know a field's
// name, description, limits or default asks here, so that they are declared once, on
// the field.
package schema

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
)

// Kind is how the values of a field are written.
type Kind int

// The kinds.
const (
	Text    Kind = iota
	Int          // int, int64 or Optional[int]
	Float        // float64 or Optional[float64]
	Bool         //
	Time         // an instant, RFC 3339
	ID           // a UUID
	Token        // 32 hexadecimal digits
	Texts        // a list of texts
	Raw          // any JSON
	Custom       // a type that reads its own JSON
	Object       // a struct
	Objects      // a list of structs
	List         // a list of anything else
	TextMap      // a map of texts
)

// Field is a field of a struct that has a JSON name.
type Field struct {
	Name  string // in JSON
	Query string // in a query
	Doc   string // code stands in single quotes
	Kind  Kind
	Type  reflect.Type // of the Go field
	Elem  *Type        // of an Object, or of the elements of Objects

	Example  string // bare text for kinds that are JSON strings, otherwise JSON
	Default  string // stored where the field is unset
	Implicit string // what an unset field means
	Zero     string // the word for the zero value
	Form     string // names of the types that a Raw field usually holds, with commas

	Required  bool
	ReadOnly  bool // set by the server; ignored in requests
	Single    bool // a list of texts that may be written as one text
	OmitEmpty bool // left out of JSON while it is zero

	Enum       []belfry.EnumValue // the only values, in any case
	Accept     []string           // the values that requests should have: some of Enum, and others
	Min, Max   *float64
	MinLen     int
	MaxLen     int  // characters
	Multiline  bool // a text may have several lines
	MinItems   int
	MaxItems   int
	ItemMaxLen int // characters of an item
	Pattern    *regexp.Regexp
	PatternDoc string

	Owner reflect.Type // the struct that declares it
	index []int
}

// Type is a struct with tagged fields.
type Type struct {
	Doc     string
	Fields  []*Field
	byName  map[string]*Field
	names   []string
	checked []*Field // the fields that have something to check
}

var types sync.Map // reflect.Type to *Type

// Of returns the type of a struct, or of what a pointer points to.
func Of(t reflect.Type) *Type {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if known, ok := types.Load(t); ok {
		return known.(*Type)
	}
	out := &Type{byName: map[string]*Field{}}
	out.gather(t, nil)
	for _, f := range out.Fields {
		out.byName[f.Name] = f
		if f.hasChecks() {
			out.checked = append(out.checked, f)
		}
		if !f.ReadOnly {
			out.names = append(out.names, f.Name)
		}
	}
	known, _ := types.LoadOrStore(t, out)
	return known.(*Type)
}

// For returns the type of a struct type.
func For[T any]() *Type { return Of(reflect.TypeFor[T]()) }

// Field returns the field of a JSON name, or nil.
func (t *Type) Field(name string) *Field { return t.byName[name] }

// Names lists the JSON names of the fields that requests may set.
func (t *Type) Names() []string { return t.names }

// Value is the field of a struct value.
func (f *Field) Value(v reflect.Value) reflect.Value {
	for _, i := range f.index { // FieldByIndex is slower, since it follows pointers
		v = v.Field(i)
	}
	return v
}

// gather adds the fields of a struct and of those embedded in it. Of two with one name
// the shallower counts, as in encoding/json.
func (t *Type) gather(s reflect.Type, index []int) {
	for i := range s.NumField() {
		sf := s.Field(i)
		at := append(index[:len(index):len(index)], i)
		name, options, _ := strings.Cut(sf.Tag.Get("json"), ",")
		switch {
		case sf.Name == "_" && len(index) == 0:
			t.Doc = sf.Tag.Get("doc")
		case sf.Anonymous && name == "" && sf.Type.Kind() == reflect.Struct:
			t.gather(sf.Type, at)
		case name != "" && name != "-" && sf.IsExported():
			f := newField(sf, name, at)
			f.Owner = s
			f.OmitEmpty = strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
			t.add(f)
		}
	}
}

func (t *Type) add(f *Field) {
	for i, other := range t.Fields {
		if other.Name == f.Name {
			if len(f.index) < len(other.index) {
				t.Fields[i] = f
			}
			return
		}
	}
	t.Fields = append(t.Fields, f)
}

func newField(sf reflect.StructField, name string, index []int) *Field {
	tag := sf.Tag
	f := &Field{
		Name: name, Query: name, Doc: tag.Get("doc"), Kind: kindOf(sf.Type), Type: sf.Type,
		Example: tag.Get("example"), Default: tag.Get("default"), Implicit: tag.Get("implicit"), Zero: tag.Get("zero"), Form: tag.Get("form"),
		Required: tag.Get("required") == "true", ReadOnly: tag.Get("readonly") == "true", Single: tag.Get("single") == "true", Multiline: tag.Get("multiline") == "true",
		Min: number(tag, "min"), Max: number(tag, "max"),
		MinLen: whole(tag, "minlen"), MaxLen: whole(tag, "maxlen"), MinItems: whole(tag, "minitems"), MaxItems: whole(tag, "maxitems"), ItemMaxLen: whole(tag, "itemmaxlen"),
		PatternDoc: tag.Get("patterndoc"), index: index,
	}
	if q := tag.Get("query"); q != "" {
		f.Query = q
	}
	if p := tag.Get("pattern"); p != "" {
		f.Pattern = regexp.MustCompile(p)
	}
	if a := tag.Get("accept"); a != "" {
		f.Accept = strings.Split(a, ",")
	}
	f.Enum = enumOf(sf.Type, tag.Get("enum"))
	switch f.Kind {
	case Object:
		f.Elem = Of(sf.Type)
	case Objects:
		f.Elem = Of(sf.Type.Elem())
	}
	return f
}

// enumOf is the values of an enumeration: those of the type, as far as the tag names
// them, or those of the tag.
func enumOf(t reflect.Type, tag string) []belfry.EnumValue {
	var all []belfry.EnumValue
	if e, ok := reflect.Zero(t).Interface().(belfry.Enum); ok {
		all = e.EnumValues()
	}
	if tag == "" {
		return all
	}
	var out []belfry.EnumValue
	for value := range strings.SplitSeq(tag, ",") {
		doc := ""
		for _, e := range all {
			if e.Value == value {
				doc = e.Doc
			}
		}
		out = append(out, belfry.EnumValue{Value: value, Doc: doc})
	}
	return out
}

func number(tag reflect.StructTag, name string) *float64 {
	text := tag.Get(name)
	if text == "" {
		return nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic("schema: " + name + ": " + err.Error())
	}
	return &n
}

func whole(tag reflect.StructTag, name string) int {
	if n := number(tag, name); n != nil {
		return int(*n)
	}
	return 0
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

func kindOf(t reflect.Type) Kind {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[time.Time]():
		return Time
	case reflect.TypeFor[belfry.ID]():
		return ID
	case reflect.TypeFor[belfry.Token]():
		return Token
	case reflect.TypeFor[json.RawMessage]():
		return Raw
	case reflect.TypeFor[belfry.Optional[int]]():
		return Int
	case reflect.TypeFor[belfry.Optional[float64]]():
		return Float
	}
	switch {
	case reflect.PointerTo(t).Implements(unmarshaler):
		return Custom
	case t.Kind() == reflect.Struct:
		return Object
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64:
		return Int
	case t.Kind() == reflect.Float64:
		return Float
	case t.Kind() == reflect.Bool:
		return Bool
	case t.Kind() == reflect.Map:
		return TextMap
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String && t.Elem().PkgPath() == "":
		return Texts
	case t.Kind() == reflect.Slice && kindOf(t.Elem()) == Object:
		return Objects
	case t.Kind() == reflect.Slice:
		return List
	}
	return Text
}

// FieldSet is the names of the fields that a request sets, also if it sets them to null.
type FieldSet []string

// Has reports whether a field is set.
func (s FieldSet) Has(name string) bool { return slices.Contains(s, name) }

// SetImplicit sets the fields of the struct that v points to that are unset and mean
// something then.
func SetImplicit(v any) {
	target := reflect.ValueOf(v).Elem()
	for _, f := range Of(target.Type()).Fields {
		if f.Implicit == "" {
			continue
		}
		value := f.Value(target)
		if !value.IsZero() {
			continue
		}
		s := state{}
		if f.Kind == Texts {
			s.setTexts(f, value, []byte(f.Implicit), f.Name)
		} else if err := f.SetText(value, f.Implicit); err != nil {
			s.fail(f.Name, "%s", err)
		}
		if len(s.errors) > 0 {
			panic("schema: implicit value of " + f.Name + ": " + s.errors[0].Message)
		}
	}
}
