package schema

import (
	"reflect"
	"slices"
)

// FieldSet is the names of the fields that a request sets, also if it sets them to null.
type FieldSet []string

// Has reports whether a field is set.
func (s FieldSet) Has(name string) bool { return slices.Contains(s, name) }

// SetImplicit sets the fields of the struct that v points to that are unset and mean
// something then.
func SetImplicit(v any) {
	target := reflect.ValueOf(v).Elem()
	for _, f := range Of(target.Type()).Fields {
		value := f.Value(target)
		if f.Implicit == "" || !value.IsZero() {
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
