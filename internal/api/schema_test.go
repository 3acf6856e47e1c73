package api

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

func TestSchemaIsThatOfTheJSON(t *testing.T) {
	type part struct {
		Deep string `json:"deep"`
		Both string `json:"both"`
	}
	type secret struct{ Hidden chan int }
	for _, c := range []struct {
		what  string
		value any
		want  string
	}{
		{"a text", "", `{"type":"string"}`},
		{"a number", 1, `{"type":"integer"}`},
		{"a fraction", 1.5, `{"type":"number"}`},
		{"a truth value", true, `{"type":"boolean"}`},
		{"any JSON", json.RawMessage(nil), `{}`},
		{"an instant", time.Time{}, `{"type":"string","format":"date-time"}`},
		{"an instant that may be missing", new(time.Time), `{"type":["string","null"],"format":"date-time"}`},
		{"an id", belfry.ID{}, `{"type":"string","format":"uuid"}`},
		{"a token", belfry.Token{}, `{"type":"string","pattern":"^[0-9a-f]{32}$"}`},
		{"ids", []belfry.ID{}, `{"type":"array","items":{"type":"string","format":"uuid"}}`},
		{"texts by name", map[string]string{}, `{"type":"object","additionalProperties":{"type":"string"}}`},
		{"an enumeration", belfry.KindManual, `{"$ref":"#/components/schemas/RunKind"}`},
		{"an enumeration that may be null", new(belfry.RunKind), `{"anyOf":[{"$ref":"#/components/schemas/RunKind"},{"type":"null"}]}`},
		{"a struct", belfry.FieldError{}, `{"$ref":"#/components/schemas/Fault"}`},
		{"members with and without tags", struct {
			Plain string
			Named int    `json:"named"`
			Rare  string `json:"rare,omitempty"`
			Zero  int    `json:"zero,omitzero"`
			Gone  *int   `json:"gone,omitempty"`
			Never string `json:"-"`
			own   string
		}{}, `{"type":"object","properties":{"Plain":{"type":"string"},"named":{"type":"integer"},"rare":{"type":"string"},"zero":{"type":"integer"},"gone":{"type":"integer"}},"required":["Plain","named"]}`},
		{"members of embedded structs", struct {
			part
			secret `json:"-"`
			Both   int `json:"both"`
		}{}, `{"type":"object","properties":{"deep":{"type":"string"},"both":{"type":"integer"}},"required":["deep","both"]}`},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := newSchemas()
			got, err := json.Marshal(s.of(reflect.TypeOf(c.value)))
			if err != nil || string(got) != c.want || len(s.faults) > 0 {
				t.Errorf("got %s, want %s; %v %v", got, c.want, err, s.faults)
			}
		})
	}
}

func TestSchemaOfWhatCannotBeDescribedIsAFault(t *testing.T) {
	type Run struct{ Other int }
	for what, value := range map[string]any{
		"a channel": struct{ C chan int }{},
		"a form that is not told": struct {
			U interface{ MarshalText() ([]byte, error) }
		}{},
		"two types of one name": struct {
			A shownRun
			B Run
		}{},
	} {
		s := newSchemas()
		s.of(reflect.TypeOf(value))
		if len(s.faults) == 0 {
			t.Errorf("%s was described", what)
		}
	}
}

// constants finds the values of the typed constants in a folder's sources.
func constants(t *testing.T, folder string) map[string][]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no sources in %s: %v", folder, err)
	}
	found := make(map[string][]string)
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, source, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || spec.Type == nil || len(spec.Values) == 0 {
				return true
			}
			kind := ""
			switch name := spec.Type.(type) {
			case *ast.Ident:
				kind = name.Name
			case *ast.SelectorExpr:
				kind = name.Sel.Name
			}
			for _, value := range spec.Values {
				if text, ok := value.(*ast.BasicLit); ok && text.Kind == token.STRING {
					plain, _ := strconv.Unquote(text.Value)
					found[kind] = append(found[kind], plain)
				}
			}
			return true
		})
	}
	return found
}

// unset is how the values that are left out are called where they are given.
var unset = map[string]string{"Priority": "normal", "RetryOn": "all"}

func TestEnumerationsAreTheConstants(t *testing.T) {
	known := constants(t, "../..")
	known["Code"] = append(known["Code"], constants(t, ".")["Code"]...)
	if len(known["Status"]) < 5 || len(known["Code"]) < 10 || len(known["Action"]) < 5 {
		t.Fatalf("the test looks in the wrong place: %v", known)
	}
	for kind, list := range enumerations {
		var values []string
		for _, c := range list {
			values = append(values, c.value)
			if c.about == "" {
				t.Errorf("%s %q is not explained", kind, c.value)
			}
		}
		var want []string
		for _, value := range known[kind.Name()] {
			if value == "" {
				value = unset[kind.Name()]
			}
			want = append(want, value)
		}
		slices.Sort(values)
		slices.Sort(want)
		if !slices.Equal(values, want) {
			t.Errorf("%s has the values %v, the constants are %v", kind, values, want)
		}
	}
}

// used collects the keys of a table that lookups find.
func used[T any](table map[string]T, s *schemas) map[string]bool {
	keys := make(map[string]bool)
	for name, kind := range s.types {
		if _, ok := table[name]; ok {
			keys[name] = true
		}
		if kind.Kind() != reflect.Struct {
			continue
		}
		for _, f := range jsonFields(kind) {
			for _, of := range append([]string{name, componentName(f.owner)}, likened[name]...) {
				if _, ok := table[of+"."+f.name]; ok {
					keys[of+"."+f.name] = true
					break
				}
			}
		}
	}
	return keys
}

func checkUsed[T any](t *testing.T, what string, table map[string]T, s *schemas) {
	t.Helper()
	keys := used(table, s)
	for _, key := range slices.Sorted(maps.Keys(table)) {
		if !keys[key] {
			t.Errorf("%s tells of %s, which is not in the document", what, key)
		}
	}
}

func TestEverythingIsDescribedAndNothingElse(t *testing.T) {
	s := documentOf(t, traits{keyed: true, limited: true}).schemas
	for _, c := range s.components {
		if lookup(about, c.name, "", "") == "" {
			t.Errorf("nothing is said of %s", c.name)
		}
		for _, p := range c.value.Properties {
			if p.value.Description == "" {
				t.Errorf("nothing is said of %s.%s", c.name, p.name)
			}
		}
	}
	checkUsed(t, "about", about, s)
	checkUsed(t, "samples", samples, s)
	checkUsed(t, "bounds", bounds, s)
	checkUsed(t, "forms", forms, s)
	checkUsed(t, "spared", spared, s)
	checkUsed(t, "memberDefaults", memberDefaults, s)
	for name := range likened {
		if s.types[name] == nil {
			t.Errorf("likened tells of %s, which is not in the document", name)
		}
	}
}

func TestJobInputHasWhatTheDecoderTakes(t *testing.T) {
	taken := slices.DeleteFunc(slices.Clone(jobFields), func(name string) bool { return name == policyField })
	slices.Sort(taken)
	for _, kind := range []reflect.Type{reflect.TypeFor[jobInput](), reflect.TypeFor[jobChange]()} {
		var told []string
		for _, f := range jsonFields(kind) {
			told = append(told, f.name)
		}
		slices.Sort(told)
		if !slices.Equal(told, taken) {
			t.Errorf("%s tells of %v, and the decoder takes %v", kind, told, taken)
		}
	}
}

func TestDecoderTakesEveryMemberOfJobInput(t *testing.T) {
	s := documentOf(t, traits{}).schemas
	for _, component := range []string{"JobInput", "JobChange"} {
		of, _ := s.components.get(component)
		for _, p := range of.Properties {
			value := s.sample(p.value)
			if value == nil {
				value = json.RawMessage(`"word"`)
			}
			text := []byte(`{"` + p.name + `": ` + string(value) + `}`)
			var faults []belfry.FieldError
			var f *flaw
			if component == "JobInput" {
				_, faults, f = readDraft(text, belfry.DefaultNamespace, false)
			} else {
				_, faults, f = readPatch(text, belfry.DefaultNamespace)
			}
			if f != nil || len(faults) > 0 {
				t.Errorf("%s: %s is refused: %v %v", component, text, f, faults)
			}
		}
	}
	if _, faults, _ := readDraft([]byte(`{"unheard_of": 1}`), belfry.DefaultNamespace, false); len(faults) != 1 {
		t.Errorf("a member that nobody knows gave %v", faults)
	}
}
