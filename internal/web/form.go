package web

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
)

// option is a value that can be chosen.
type option struct{ Value, Label, Doc string }

// formField is an input, made from what the tags of a field say.
type formField struct {
	Name, Label, Doc string
	Control          string // text, number, select, lines or checkbox
	Value            string
	Placeholder      string
	Options          []option
	Required         bool
	MaxLen           int
	Min, Max         string
	Error            string
	List             string // id of a list of suggestions
}

// ID is the id of the input.
func (f *formField) ID() string { return "f-" + strings.ReplaceAll(f.Name, ".", "-") }

// form is the inputs for a struct.
type form struct {
	value  any
	fields map[string]*formField
	other  []belfry.FieldError // of no input
}

// newForm makes inputs for all fields of the struct that value points to. If a form was
// sent, they have what it has, and say what is wrong with it.
func newForm(value any, given url.Values, errors []belfry.FieldError) form {
	f := form{value: value, fields: map[string]*formField{}}
	f.add(value, "", given)
	f.mark(errors)
	return f
}

func (f *form) add(value any, prefix string, given url.Values) {
	v := reflect.ValueOf(value).Elem()
	for _, field := range schema.Of(v.Type()).Fields {
		if field.ReadOnly {
			continue
		}
		in := inputOf(field)
		in.Name = prefix + field.Name
		if in.Value = textOf(field, field.Value(v)); given != nil {
			in.Value = given.Get(in.Name)
		}
		f.fields[in.Name] = in
	}
}

// mark places errors beside their inputs.
func (f *form) mark(errors []belfry.FieldError) {
	for _, e := range errors {
		in := f.fields[e.Field]
		for path := e.Field; in == nil && strings.ContainsAny(path, ".["); {
			path = path[:strings.LastIndexAny(path, ".[")]
			in = f.fields[path]
		}
		if in == nil || in.Error != "" {
			f.other = append(f.other, e)
			continue
		}
		in.Error = sentence(e.Message)
	}
}

// rest says what is wrong beside what the inputs say.
func (f *form) rest(message string) string {
	for _, e := range f.other {
		message += " " + sentence(words(e.Field)+" "+e.Message)
	}
	return message
}

func inputOf(f *schema.Field) *formField {
	implied := cmp.Or(f.Default, f.Implicit, f.Zero)
	in := &formField{Name: f.Name, Label: words(f.Name), Doc: f.Doc, Control: "text", Required: f.Required, MaxLen: f.MaxLen, Placeholder: implied}
	if strings.HasSuffix(f.Name, "_seconds") {
		in.Label += ", seconds"
	}
	if in.Placeholder == "" && f.Example != "" && f.Kind != schema.Raw && f.Kind != schema.Texts && f.Kind != schema.TextMap {
		in.Placeholder = "e.g. " + strings.Trim(f.Example, "[]")
	}
	switch {
	case len(f.Enum) > 0:
		in.Control = "select"
		first := "Default"
		if implied != "" {
			first = "Default: " + strings.ReplaceAll(implied, "_", " ")
		}
		if f.Required {
			first = "Choose"
		}
		in.Options = []option{{"", first, ""}}
		for _, e := range f.Enum {
			if e.Value != f.Zero {
				in.Options = append(in.Options, option{e.Value, strings.ReplaceAll(e.Value, "_", " "), e.Doc})
			}
		}
	case f.Kind == schema.Int:
		in.Control, in.Min, in.Max = "number", limit(f.Min), limit(f.Max)
	case f.Kind == schema.Bool:
		in.Control = "checkbox"
	case f.Multiline || f.Kind == schema.Raw || f.Kind == schema.TextMap:
		in.Control = "lines"
	case f.Kind == schema.Time:
		in.Placeholder = "2027-01-31T09:00:00Z"
	case f.Kind == schema.Texts || f.Name == "retry_delays":
		in.Doc += " Separate several by commas."
	}
	return in
}

func limit(n *float64) string {
	if n == nil {
		return ""
	}
	return schema.Decimal(*n)
}

// textOf is the value of a field as an input has it.
func textOf(f *schema.Field, v reflect.Value) string {
	if v.IsZero() {
		return ""
	}
	switch value := v.Interface().(type) {
	case []string:
		return strings.Join(value, ", ")
	case map[string]string:
		var lines []string
		for _, name := range slices.Sorted(maps.Keys(value)) {
			lines = append(lines, name+": "+value[name])
		}
		return strings.Join(lines, "\n")
	case json.RawMessage:
		var text string
		if json.Unmarshal(value, &text) == nil && !json.Valid([]byte(text)) {
			return text
		}
		return jsonText(value)
	case time.Time:
		return value.Format(time.RFC3339)
	}
	switch v.Kind() {
	case reflect.String:
		return v.String()
	case reflect.Bool:
		return "true"
	}
	return strings.Trim(string(belfry.MustJSON(v.Interface())), `[]"`)
}

// objectOf is the JSON object that a form declares, of the inputs with a prefix. Empty
// inputs are left out. What is wrong with a value is said by whoever decodes it.
func objectOf(t *schema.Type, given url.Values, prefix string) map[string]json.RawMessage {
	object := map[string]json.RawMessage{}
	for _, f := range t.Fields {
		text := strings.TrimSpace(strings.ReplaceAll(given.Get(prefix+f.Name), "\r\n", "\n"))
		if text == "" || f.ReadOnly {
			continue
		}
		switch {
		case f.Kind == schema.Bool:
			object[f.Name] = json.RawMessage("true")
		case f.Kind == schema.Texts:
			object[f.Name] = belfry.MustJSON(splitList(text))
		case f.Kind == schema.Int || f.Kind == schema.Float || f.Kind == schema.Raw:
			object[f.Name] = jsonOrText(text)
		case f.Name == "retry_delays":
			if object[f.Name] = json.RawMessage("[" + text + "]"); !json.Valid(object[f.Name]) {
				object[f.Name] = belfry.MustJSON(text)
			}
		case f.Kind == schema.TextMap:
			object[f.Name] = belfry.MustJSON(splitLines(text))
		default:
			object[f.Name] = belfry.MustJSON(text)
		}
	}
	return object
}

func splitList(text string) (list []string) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

// splitLines reads lines such as "Accept: application/json".
func splitLines(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); name != "" {
			out[name] = strings.TrimSpace(value)
		}
	}
	return out
}

// filterFields are the inputs of a filter, by the names of their parameters.
func filterFields(filter any, query url.Values, names []string) (list []*formField) {
	v := reflect.ValueOf(filter).Elem()
	for _, f := range schema.Of(v.Type()).Fields {
		if !slices.Contains(names, f.Query) {
			continue
		}
		in := inputOf(f)
		in.Name, in.Label, in.Value, in.Placeholder = f.Query, words(f.Query), query.Get(f.Query), ""
		if in.Control == "select" {
			in.Options[0].Label = "Any " + strings.ToLower(in.Label)
		}
		list = append(list, in)
	}
	if i := slices.IndexFunc(list, func(f *formField) bool { return f.Name == "search" }); i > 0 {
		search := list[i]
		list = append([]*formField{search}, slices.Delete(list, i, i+1)...)
	}
	return list
}
