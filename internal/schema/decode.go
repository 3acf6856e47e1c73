package schema

import (
	"bytes"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/jsontext"
)

// maxErrors is how many errors of one input are reported, and maxMembers how many
// members an object may have.
const (
	maxErrors  = 50
	maxMembers = 200
)

// Decoder decodes JSON objects. The zero value knows the fields of the type alone.
type Decoder struct {
	Ignored []string                                                // members that are accepted without effect
	Hints   map[string]string                                       // what to say about unknown members that people expect
	Aliases map[string]func(Member) ([]Member, []belfry.FieldError) // members that stand for others
}

// Member is a member of a JSON object.
type Member struct {
	Name    string // as it is known
	Written string // path as it was written
	Value   []byte
	field   *Field // of the name; nil if that must be looked up
}

// Decode decodes a JSON object into the struct that v points to. Null and "" stand for
// the zero value; members that are missing leave their fields as they are. Names may
// be written in camelCase too. It reports every error; what could not be decoded is
// left as it is. A text that is no JSON object at all is a syntax error.
func (d Decoder) Decode(text []byte, v any) (FieldSet, []belfry.FieldError, *jsontext.SyntaxError) {
	if err := jsontext.Check(text); err != nil {
		return nil, nil, err
	}
	return d.decode(text, v, false)
}

func (d Decoder) decode(text []byte, v any, unique bool) (FieldSet, []belfry.FieldError, *jsontext.SyntaxError) {
	if text = bytes.TrimSpace(text); text[0] != '{' {
		return nil, nil, &jsontext.SyntaxError{Message: "must be a JSON object, not " + jsontext.Kind(text)}
	}
	s := state{}
	if !unique {
		for _, path := range jsontext.Duplicates(text) {
			s.fail(path, "is duplicated")
		}
	}
	t := Of(reflect.TypeOf(v))
	members, ok := s.members(t, text, "")
	if !ok {
		return nil, nil, &jsontext.SyntaxError{Message: fmt.Sprintf("has more than %d members", maxMembers)}
	}
	fields := s.object(d, t, reflect.ValueOf(v).Elem(), members)
	return fields, s.errors, nil
}

// Decode decodes a JSON object into the struct that v points to, see Decoder, checks it
// and sets implicit values.
func Decode(text []byte, v any) ([]belfry.FieldError, *jsontext.SyntaxError) {
	if err := jsontext.Check(text); err != nil {
		return nil, err
	}
	return DecodeValid(text, v, false)
}

// DecodeValid is Decode of a text that is known to be valid JSON. Unique says that it is
// known to have no duplicate names either.
func DecodeValid(text []byte, v any, unique bool) ([]belfry.FieldError, *jsontext.SyntaxError) {
	_, errors, syntax := Decoder{}.decode(text, v, unique)
	if syntax != nil {
		return nil, syntax
	}
	errors = MergeErrors(errors, Check(v))
	SetImplicit(v)
	return errors, nil
}

// MergeErrors adds errors of fields that have none yet.
func MergeErrors(errors, more []belfry.FieldError) []belfry.FieldError {
	merged := slices.Clip(errors)
	for _, e := range more {
		if !slices.ContainsFunc(errors, func(other belfry.FieldError) bool { return other.Field == e.Field }) {
			merged = append(merged, e)
		}
	}
	return merged
}

// state collects errors.
type state struct{ errors []belfry.FieldError }

func (s *state) fail(field, format string, args ...any) {
	if len(s.errors) < maxErrors {
		s.errors = append(s.errors, belfry.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
}

// prefixErrors adds the path of an element of a list to the errors about it, which are those
// after the first ones: the path is written for errors alone.
func (s *state) prefixErrors(before int, path string, index int) {
	for n := before; n < len(s.errors); n++ {
		e := &s.errors[n]
		e.Field = strings.TrimSuffix(fmt.Sprintf("%s[%d].%s", path, index, e.Field), ".")
	}
}

// members lists the members of an object; of duplicates the last one counts.
func (s *state) members(t *Type, text []byte, within string) (list []Member, ok bool) {
	list = make([]Member, 0, 6)
	ok = true
	jsontext.Members(text, func(quoted, value []byte) bool {
		m := Member{Value: value, field: t.byName[string(quoted[1:len(quoted)-1])]}
		if m.field != nil { // a known name needs no memory of its own
			m.Name, m.Written = m.field.Name, m.field.Name
		} else {
			m.Name = jsontext.Unquote(quoted)
			m.Written = m.Name
		}
		if within != "" {
			m.Written = within + m.Name
		}
		if at := find(list, m.Name); at >= 0 {
			list[at] = m
		} else {
			list = append(list, m)
		}
		ok = len(list) <= maxMembers
		return ok
	})
	return list, ok
}

func find(list []Member, name string) int {
	return slices.IndexFunc(list, func(m Member) bool { return m.Name == name })
}

// object sets the fields of a struct and returns which ones.
func (s *state) object(d Decoder, t *Type, v reflect.Value, members []Member) (fields FieldSet) {
	members = s.rename(d, t, members)
	fields = make(FieldSet, 0, len(members))
	for _, m := range members {
		f := m.field
		if f == nil {
			f = t.byName[m.Name]
		}
		switch {
		case f != nil && f.ReadOnly, slices.Contains(d.Ignored, m.Name):
		case f == nil:
			s.fail(Clip(m.Written), "%s", unknown(m.Name, t.names, d.Hints))
		default:
			fields = append(fields, f.Name)
			s.set(f, f.Value(v), m.Value, m.Written)
		}
	}
	return fields
}

// rename resolves aliases and names in camelCase.
func (s *state) rename(d Decoder, t *Type, members []Member) []Member {
	known := func(name string) bool {
		return t.byName[name] != nil || d.Aliases[name] != nil || slices.Contains(d.Ignored, name)
	}
	for i := range members {
		m := &members[i]
		if m.field != nil || known(m.Name) {
			continue
		}
		if name := SnakeCase(m.Name); known(name) {
			if other := find(members, name); other >= 0 {
				s.duplicate(*m, members[other])
			}
			m.Name = name
		}
	}
	if !slices.ContainsFunc(members, func(m Member) bool { return m.field == nil && d.Aliases[m.Name] != nil }) {
		return members
	}
	var own, expanded []Member
	for _, m := range members {
		expand := d.Aliases[m.Name]
		if expand == nil {
			own = append(own, m)
			continue
		}
		list, errors := expand(m)
		expanded = append(expanded, list...)
		s.errors = MergeErrors(s.errors, errors)
	}
	for _, m := range expanded {
		if at := find(own, m.Name); at >= 0 {
			s.duplicate(m, own[at])
			continue
		}
		own = append(own, m)
	}
	return own
}

func (s *state) duplicate(one, other Member) {
	s.fail(Clip(one.Written), "means the same as %s, which is set too; remove one of them", other.Written)
}

// SnakeCase writes a name in camelCase with underscores. Other names, such as those that
// begin with a capital letter, stay as they are.
func SnakeCase(name string) string {
	const longest = 64
	first := strings.IndexFunc(name, func(r rune) bool { return r >= 'A' && r <= 'Z' })
	if first < 1 || len(name) > longest {
		return name
	}
	out := make([]byte, 0, len(name)+4)
	for i := range len(name) {
		if c := name[i]; c >= 'A' && c <= 'Z' {
			out = append(out, '_', c-'A'+'a')
		} else {
			out = append(out, c)
		}
	}
	return string(out)
}

// unknown says what to do about a name that does not exist.
func unknown(name string, names []string, hints map[string]string) string {
	if hint := hints[name]; hint != "" {
		return hint
	}
	if near := Nearest(name, names); near != "" {
		return fmt.Sprintf("is unknown; did you mean %q?", near)
	}
	if len(names) == 0 {
		return "is unknown; nothing can be set here"
	}
	return "is unknown; known are " + strings.Join(names, ", ")
}

// Clip shortens a name that an error repeats.
func Clip(name string) string {
	const longest = 64
	if utf8.RuneCountInString(name) <= longest {
		return name
	}
	return string([]rune(name)[:longest]) + "..."
}

// DecodeQuery decodes a query into the structs that vs point to, checks them and sets
// implicit values. Each parameter may occur once, those of lists any number of times;
// unknown ones are errors, since a filter that does not exist must not seem to work.
func DecodeQuery(query url.Values, vs ...any) []belfry.FieldError {
	s := state{}
	var names []string
	fields := map[string]*Field{}
	values := map[string]reflect.Value{}
	for _, v := range vs {
		for _, f := range Of(reflect.TypeOf(v)).Fields {
			names = append(names, f.Query)
			fields[f.Query], values[f.Query] = f, f.Value(reflect.ValueOf(v).Elem())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		f, texts := fields[name], query[name]
		switch {
		case f == nil:
			s.fail(Clip(strings.ToValidUTF8(name, "?")), "%s", strings.Replace(unknown(name, names, nil), "is unknown", "is not a parameter here", 1))
			continue
		case len(texts) == 1 && texts[0] == "":
			continue // the same as if it were missing
		case f.Kind == Texts:
			values[name].Set(reflect.ValueOf(slices.DeleteFunc(slices.Clone(texts), func(t string) bool { return t == "" })))
		case len(texts) > 1:
			s.fail(name, "is duplicated")
		default:
			if err := f.SetText(values[name], texts[0]); err != nil {
				s.fail(name, "%s", err)
			}
		}
	}
	for _, v := range vs {
		errors := Check(v)
		for i, e := range errors {
			errors[i].Field = Of(reflect.TypeOf(v)).Field(e.Field).Query
		}
		s.errors = MergeErrors(s.errors, errors)
		SetImplicit(v)
	}
	return s.errors
}
