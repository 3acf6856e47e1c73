package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store/sqlite"
)

// newTestAPI is the API over an empty store.
func newTestAPI(t *testing.T, o Options) *api {
	t.Helper()
	s, err := sqlite.Open(context.Background(), sqlite.Options{Dir: t.TempDir(), Shards: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	o.Control = control.New(s, plan.Defaults{})
	return newAPI(o)
}

// keyedOptions are those of a server that the document says most about.
var keyedOptions = Options{Version: "1.2.3", Access: &Access{Always: true}, RateLimit: 10}

func documentText(t *testing.T, o Options) []byte { return newTestAPI(t, o).described().openapi.text }

// decodeDocument decodes a document as its readers do.
func decodeDocument(t *testing.T, text []byte) any {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return value
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

// lookup follows a JSON pointer.
func lookup(value any, pointer string) (any, bool) {
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

func TestDocumentIsDeterministic(t *testing.T) {
	first := documentText(t, keyedOptions)
	for range 5 {
		if !bytes.Equal(first, documentText(t, keyedOptions)) {
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

// A validator that shares nothing with what made the document must find nothing wrong
// with it, nor with any of its examples.
func TestDocumentIsValidOpenAPI(t *testing.T) {
	for _, o := range []Options{{}, keyedOptions} {
		d, err := openapi3.NewLoader().LoadFromData(documentText(t, o))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Validate(context.Background(), openapi3.EnableExamplesValidation(), openapi3.EnableSchemaFormatValidation()); err != nil {
			t.Errorf("version %q: %v", o.Version, err)
		}
		d.Info.Title = ""
		if d.Validate(context.Background()) == nil {
			t.Error("the validator finds nothing wrong with a document that has no title")
		}
	}
}

func TestDocumentHasEveryRouteAndNoOther(t *testing.T) {
	a := newTestAPI(t, Options{})
	var document struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
			Summary     string
			Tags        []string
		}
	}
	if err := json.Unmarshal(a.described().openapi.text, &document); err != nil {
		t.Fatal(err)
	}
	var routes, described []string
	ids := make(map[string]bool)
	for _, op := range a.served {
		routes = append(routes, op.Method+" "+strings.TrimSuffix(op.Path, "{$}"))
	}
	for path, methods := range document.Paths {
		for method, op := range methods {
			described = append(described, strings.ToUpper(method)+" "+path)
			if ids[op.OperationID] || op.OperationID == "" || op.Summary == "" || groups[op.Tags[0]] == "" {
				t.Errorf("%s %s has the id %q, the summary %q and the group %q", method, path, op.OperationID, op.Summary, op.Tags)
			}
			ids[op.OperationID] = true
		}
	}
	slices.Sort(routes)
	slices.Sort(described)
	if diff := cmp.Diff(routes, described); diff != "" {
		t.Errorf("routes and document differ (-routes +document):\n%s", diff)
	}
	// Each one is served by exactly its pattern.
	parameter := regexp.MustCompile(`\{[a-z]+\}`)
	for _, op := range a.served {
		path := parameter.ReplaceAllString(strings.TrimSuffix(op.Path, "{$}"), "x")
		if _, pattern := a.mux.Handler(httptest.NewRequest(op.Method, path, nil)); pattern != op.Method+" "+op.Path {
			t.Errorf("%s %s is served by %q", op.Method, path, pattern)
		}
	}
}

func TestDocumentReferencesResolve(t *testing.T) {
	whole := decodeDocument(t, documentText(t, keyedOptions))
	used := make(map[string]bool)
	eachObject(whole, "", func(at string, object map[string]any) {
		ref, ok := object["$ref"].(string)
		if !ok {
			return
		}
		pointer, local := strings.CutPrefix(ref, "#")
		if _, there := lookup(whole, pointer); !local || !there {
			t.Errorf("%s refers to %s, which is not there", at, ref)
		}
		used[pointer] = true
	})
	components, _ := lookup(whole, "/components")
	for kind, list := range components.(map[string]any) {
		for name := range list.(map[string]any) {
			if pointer := "/components/" + kind + "/" + name; !used[pointer] && kind != "securitySchemes" {
				t.Errorf("nothing refers to %s", pointer)
			}
		}
	}
}

func TestDocumentDescribesEveryTypeAndField(t *testing.T) {
	whole := decodeDocument(t, documentText(t, keyedOptions))
	schemas, _ := lookup(whole, "/components/schemas")
	count := 0
	for name, value := range schemas.(map[string]any) {
		of := value.(map[string]any)
		if name != "FieldError" && of["description"] == nil { // a line of Problem says what it is
			t.Errorf("%s has no description", name)
		}
		properties, _ := of["properties"].(map[string]any)
		for field, property := range properties {
			count++
			if property.(map[string]any)["description"] == nil {
				t.Errorf("%s.%s has no description", name, field)
			}
		}
	}
	if count < 200 {
		t.Errorf("only %d fields were checked", count)
	}
	eachObject(whole, "", func(at string, object map[string]any) {
		if in, ok := object["in"].(string); ok && object["name"] != nil && object["description"] == nil {
			t.Errorf("the %s parameter at %s has no description", in, at)
		}
	})
}

// newCompiler compiles schemas of a document.
func newCompiler(t *testing.T, whole any) *jsonschema.Compiler {
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
	components, _ := lookup(whole, "/components/schemas")
	for _, name := range slices.Sorted(maps.Keys(components.(map[string]any))) {
		places = append(places, "/components/schemas/"+name)
	}
	return places
}

func TestDocumentHasValidSchemas(t *testing.T) {
	whole := decodeDocument(t, documentText(t, keyedOptions))
	c := newCompiler(t, whole)
	rules, err := c.Compile("https://json-schema.org/draft/2020-12/schema")
	if err != nil {
		t.Fatal(err)
	}
	places := schemasOf(whole)
	if len(places) < 60 {
		t.Fatalf("there are %d schemas only: the test looks in the wrong place", len(places))
	}
	for _, place := range places {
		value, ok := lookup(whole, place)
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
	whole := decodeDocument(t, documentText(t, keyedOptions))
	c := newCompiler(t, whole)
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

func TestDocumentRequiresKeysWhereTheServerDoes(t *testing.T) {
	for _, tt := range []struct {
		name           string
		o              Options
		keyed, limited bool
	}{
		{"open", Options{}, false, false},
		{"keyed", Options{Access: &Access{Always: true}}, true, false},
		{"keyed and limited", keyedOptions, true, true},
	} {
		whole := decodeDocument(t, documentText(t, tt.o))
		has := func(pointer string) bool {
			_, ok := lookup(whole, pointer)
			return ok
		}
		create, live := "/paths/~1api~1v1~1jobs/post", "/paths/~1livez/get"
		got := map[string]bool{
			"security": has("/security"), "400": has(create + "/responses/400"), "422": has(create + "/responses/422"), "503": has(create + "/responses/503"),
			"401": has(create + "/responses/401"), "429": has(create + "/responses/429"), "401 of the health check": has(live + "/responses/401"), "security of the health check": has(live + "/security"),
		}
		want := map[string]bool{
			"security": tt.keyed, "400": true, "422": true, "503": true, "401": tt.keyed, "429": tt.limited,
			"401 of the health check": false, "security of the health check": tt.keyed, // empty: none is required
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: difference (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestDocumentIsRevalidatedByETag(t *testing.T) {
	a := newTestAPI(t, Options{Version: "1.2.3"})
	for _, path := range []string{"/api/v1/openapi.json", "/docs/api"} {
		get := func(header string) *httptest.ResponseRecorder {
			r := httptest.NewRequest("GET", path, nil)
			r.Host = "localhost"
			if header != "" {
				r.Header.Set("If-None-Match", header)
			}
			w := httptest.NewRecorder()
			a.ServeHTTP(w, r)
			return w
		}
		w := get("")
		tag := w.Header().Get("ETag")
		if w.Code != http.StatusOK || tag == "" || w.Header().Get("Content-Length") != fmt.Sprint(w.Body.Len()) || w.Header().Get("Cache-Control") != "no-cache" {
			t.Errorf("%s: got %d with %v", path, w.Code, w.Header())
		}
		for _, known := range []string{tag, "W/" + tag, `"other", ` + tag, "*"} {
			if w := get(known); w.Code != http.StatusNotModified || w.Body.Len() > 0 || w.Header().Get("ETag") != tag {
				t.Errorf("%s: known as %s, got %d with %d bytes", path, known, w.Code, w.Body.Len())
			}
		}
		if w := get(`"other"`); w.Code != http.StatusOK {
			t.Errorf("%s: known as another, got %d", path, w.Code)
		}
	}
}
