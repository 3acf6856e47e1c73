package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store/sqlite"
)

// apiOf is the API over an empty store.
func apiOf(t *testing.T, of traits) *api {
	t.Helper()
	s, err := sqlite.Open(context.Background(), sqlite.Options{Dir: t.TempDir(), Shards: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	o := Options{Control: control.New(s, plan.Defaults{}), Version: of.version}
	if of.keyed {
		o.Keys = &Keys{}
	}
	if of.limited {
		o.RateLimit = 10
	}
	return newAPI(o)
}

// documentOf is the document of all operations.
func documentOf(t *testing.T, of traits) *document {
	t.Helper()
	d := describe(apiOf(t, of).served, of)
	if len(d.schemas.faults) > 0 {
		t.Fatalf("the document cannot be made: %v", d.schemas.faults)
	}
	return d
}

// decoded is a document as its readers see it.
func decoded(t *testing.T, text []byte) any {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func textOf(t *testing.T, of traits) []byte {
	t.Helper()
	d, err := newDescription(apiOf(t, of).served, of)
	if err != nil {
		t.Fatal(err)
	}
	return d.openapi.text
}

// eachObject calls visit for every object in a JSON value, with its JSON pointer.
func eachObject(value any, at string, visit func(at string, object map[string]any)) {
	switch value := value.(type) {
	case map[string]any:
		visit(at, value)
		for _, name := range slices.Sorted(maps.Keys(value)) {
			eachObject(value[name], at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name), visit)
		}
	case []any:
		for i, item := range value {
			eachObject(item, at+"/"+strconv.Itoa(i), visit)
		}
	}
}

// pointed follows a JSON pointer.
func pointed(value any, pointer string) (any, bool) {
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		object, ok := value.(map[string]any)
		if !ok {
			return nil, false
		}
		if value, ok = object[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]; !ok {
			return nil, false
		}
	}
	return value, true
}

func TestDocumentIsTheSameEveryTime(t *testing.T) {
	of := traits{version: "1.2.3", keyed: true, limited: true}
	first := textOf(t, of)
	for range 5 {
		if !bytes.Equal(first, textOf(t, of)) {
			t.Fatal("the same operations make two documents")
		}
	}
	var d struct {
		OpenAPI string
		Info    struct{ Version string }
		Servers []struct{ URL string }
	}
	if err := json.Unmarshal(first, &d); err != nil || d.OpenAPI != "3.1.0" || d.Info.Version != "1.2.3" || d.Servers[0].URL != "/" {
		t.Errorf("the document begins with %+v: %v", d, err)
	}
}

func TestDocumentHasEveryRouteAndNoOther(t *testing.T) {
	a := apiOf(t, traits{})
	d := describe(a.served, traits{})
	var routes, told []string
	ids := make(map[string]bool)
	for _, op := range a.served {
		routes = append(routes, op.method+" "+documentPath(op.path))
	}
	for _, path := range d.Paths {
		for _, method := range path.value {
			told = append(told, strings.ToUpper(method.name)+" "+path.name)
			op := method.value
			if ids[op.ID] || op.ID == "" || op.Summary == "" || groups[op.Tags[0]] == "" {
				t.Errorf("%s %s has the id %q, the summary %q and the group %q", method.name, path.name, op.ID, op.Summary, op.Tags)
			}
			ids[op.ID] = true
		}
	}
	slices.Sort(routes)
	slices.Sort(told)
	if !slices.Equal(routes, told) {
		t.Errorf("the document has %v, the routes are %v", told, routes)
	}
	// What the document tells of, the mux serves, by exactly that pattern.
	for _, op := range a.served {
		path := documentPath(op.path)
		for _, match := range pathParameters.FindAllString(path, -1) {
			path = strings.ReplaceAll(path, match, "x")
		}
		r := httptest.NewRequest(op.method, path, nil)
		if _, pattern := a.mux.Handler(r); pattern != op.method+" "+op.path {
			t.Errorf("%s %s is served by %q", op.method, path, pattern)
		}
	}
}

func TestDocumentReferencesResolve(t *testing.T) {
	whole := decoded(t, textOf(t, traits{keyed: true, limited: true}))
	used := make(map[string]bool)
	eachObject(whole, "", func(at string, object map[string]any) {
		ref, ok := object["$ref"].(string)
		if !ok {
			return
		}
		pointer, local := strings.CutPrefix(ref, "#")
		if _, there := pointed(whole, pointer); !local || !there {
			t.Errorf("%s refers to %s, which is not there", at, ref)
		}
		used[pointer] = true
	})
	components, _ := pointed(whole, "/components")
	for kind, list := range components.(map[string]any) {
		for name := range list.(map[string]any) {
			if pointer := "/components/" + kind + "/" + name; !used[pointer] && kind != "securitySchemes" {
				t.Errorf("nothing refers to %s", pointer)
			}
		}
	}
}

// compiled makes schemas of a document usable.
func compiled(t *testing.T, whole any) *jsonschema.Compiler {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource("belfry:openapi", whole); err != nil {
		t.Fatal(err)
	}
	return c
}

// schemasOf are the places at which a document has schemas.
func schemasOf(whole any) []string {
	var places []string
	eachObject(whole, "", func(at string, object map[string]any) {
		if _, ok := object["schema"].(map[string]any); ok && !strings.Contains(at, "/example") {
			places = append(places, at+"/schema")
		}
	})
	components, _ := pointed(whole, "/components/schemas")
	for _, name := range slices.Sorted(maps.Keys(components.(map[string]any))) {
		places = append(places, "/components/schemas/"+name)
	}
	return places
}

func TestDocumentHasValidSchemas(t *testing.T) {
	whole := decoded(t, textOf(t, traits{keyed: true, limited: true}))
	c := compiled(t, whole)
	rules, err := c.Compile("https://json-schema.org/draft/2020-12/schema")
	if err != nil {
		t.Fatal(err)
	}
	places := schemasOf(whole)
	if len(places) < 60 {
		t.Fatalf("there are %d schemas only: the test looks in the wrong place", len(places))
	}
	for _, place := range places {
		value, ok := pointed(whole, place)
		if !ok {
			continue // inside an array, and compiled below
		}
		if err := rules.Validate(value); err != nil {
			t.Errorf("%s: %v", place, err)
		}
		if _, err := c.Compile("belfry:openapi#" + strings.ReplaceAll(place, "{", "%7B")); err != nil {
			t.Errorf("%s: %v", place, err)
		}
	}
}

func TestDocumentHasValidExamples(t *testing.T) {
	whole := decoded(t, textOf(t, traits{keyed: true, limited: true}))
	c := compiled(t, whole)
	count := 0
	check := func(at string, example any) {
		s, err := c.Compile("belfry:openapi#" + at)
		if err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		if err := s.Validate(example); err != nil {
			text, _ := json.Marshal(example)
			t.Errorf("%s: %s: %v", at, text, err)
		}
		count++
	}
	eachObject(whole, "", func(at string, object map[string]any) {
		if _, ok := object["schema"]; ok {
			if example, ok := object["example"]; ok {
				check(at+"/schema", example)
			}
			if examples, ok := object["examples"].(map[string]any); ok {
				for _, example := range examples {
					check(at+"/schema", example.(map[string]any)["value"])
				}
			}
		}
		if examples, ok := object["examples"].([]any); ok {
			for _, example := range examples {
				check(at, example)
			}
		}
		if usual, ok := object["default"]; ok && strings.Contains(at, "/properties/") {
			check(at, usual)
		}
	})
	if count < 150 {
		t.Errorf("there are %d examples only", count)
	}
	// Every JSON body has one.
	eachObject(whole, "/", func(at string, object map[string]any) {
		if media, ok := object["application/json"].(map[string]any); ok && media["examples"] == nil && !strings.Contains(at, "openapi.json") {
			t.Errorf("%s has no example", at)
		}
	})
}

func TestDocumentTellsOfKeysOnlyWhereTheyAreNeeded(t *testing.T) {
	for _, c := range []struct {
		of   traits
		want map[string]bool
	}{
		{traits{}, map[string]bool{"400": true, "401": false, "422": true, "429": false, "503": true}},
		{traits{keyed: true}, map[string]bool{"401": true, "429": false}},
		{traits{keyed: true, limited: true}, map[string]bool{"401": true, "429": true}},
	} {
		d := documentOf(t, c.of)
		if (len(d.Security) > 0) != c.of.keyed {
			t.Errorf("%+v: the document asks for %v", c.of, d.Security)
		}
		path, _ := d.Paths.get(jobsPath)
		create, _ := path.get("post")
		for status, want := range c.want {
			if _, got := create.Responses.get(status); got != want {
				t.Errorf("%+v: creating a job may be answered with %s: %t, want %t", c.of, status, got, want)
			}
		}
		path, _ = d.Paths.get("/livez")
		live, _ := path.get("get")
		if _, asks := live.Responses.get("401"); asks || (live.Security != nil) != c.of.keyed {
			t.Errorf("%+v: the health check asks for a key", c.of)
		}
	}
}

func TestDocumentIsServedOnce(t *testing.T) {
	a := apiOf(t, traits{version: "1.2.3"})
	for _, path := range []string{"/api/v1/openapi.json", "/docs/api"} {
		ask := func(header string) *httptest.ResponseRecorder {
			r := httptest.NewRequest("GET", path, nil)
			r.Host = "localhost"
			if header != "" {
				r.Header.Set("If-None-Match", header)
			}
			w := httptest.NewRecorder()
			a.ServeHTTP(w, r)
			return w
		}
		w := ask("")
		tag := w.Header().Get("ETag")
		if w.Code != http.StatusOK || tag == "" || w.Header().Get("Content-Length") != fmt.Sprint(w.Body.Len()) || w.Header().Get("Cache-Control") != "no-cache" {
			t.Errorf("%s: got %d with %v", path, w.Code, w.Header())
		}
		for _, known := range []string{tag, "W/" + tag, `"other", ` + tag, "*"} {
			if w := ask(known); w.Code != http.StatusNotModified || w.Body.Len() > 0 || w.Header().Get("ETag") != tag {
				t.Errorf("%s: known as %s, got %d with %d bytes", path, known, w.Code, w.Body.Len())
			}
		}
		if w := ask(`"other"`); w.Code != http.StatusOK {
			t.Errorf("%s: known as another, got %d", path, w.Code)
		}
	}
}
