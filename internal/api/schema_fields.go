package api

import (
	"reflect"
	"strings"
)

// jsonField is a member of the JSON object that a struct becomes.
type jsonField struct {
	name     string
	kind     reflect.Type
	owner    reflect.Type // the struct that declares it
	optional bool         // left out while it has its zero value
	depth    int
}

// jsonFields lists the members of a struct as encoding/json writes them: those of
// embedded structs stand among the others, and of two with one name the one
// nearer to the surface counts.
func jsonFields(t reflect.Type) []jsonField {
	var list []jsonField
	for _, f := range gather(t, 0) {
		place := -1
		for i, g := range list {
			if g.name == f.name {
				place = i
			}
		}
		switch {
		case place < 0:
			list = append(list, f)
		case f.depth < list[place].depth:
			list[place] = f
		}
	}
	return list
}

func gather(t reflect.Type, depth int) []jsonField {
	var list []jsonField
	for i := range t.NumField() {
		f := t.Field(i)
		tag, tagged := f.Tag.Lookup("json")
		name, options, _ := strings.Cut(tag, ",")
		switch {
		case tag == "-":
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			list = append(list, gather(f.Type, depth+1)...)
		case !f.IsExported():
		default:
			if !tagged || name == "" {
				name = f.Name
			}
			optional := strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
			list = append(list, jsonField{name, f.Type, t, optional, depth})
		}
	}
	return list
}

// lookup finds what a table says of a member: of this component, of the struct
// that declares it, or of a component that has the same members. Without a member
// it finds what is said of the component itself.
func lookup[T any](table map[string]T, component, owner, member string) T {
	if member == "" {
		return table[component]
	}
	for _, name := range append([]string{component, owner}, likened[component]...) {
		if value, ok := table[name+"."+member]; ok {
			return value
		}
	}
	var none T
	return none
}

// likened says whose members a component has under the same names with the same
// meaning.
var likened = map[string][]string{
	"JobInput":   {"Spec", "Job"},
	"JobChange":  {"JobInput", "Spec", "Job"},
	"Revision":   {"Job"},
	"ClaimedRun": {"Run", "Spec"},
	"Result":     {"Attempt", "ClaimedRun"},
	"Held":       {"Result"},

	"PreviewInput": {"JobInput", "Spec"},
	"Preview":      {"Spec"},

	"DeadLetter": {"Run"},
	"WhyRule":    {"Spec"},
}

// refers gives the name of the component that a schema stands for.
func (s *schema) refers() (name string, ok bool) { return strings.CutPrefix(s.Ref, componentRef) }
