package api_test

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// contract is the OpenAPI document of a service, to which its replies are compared. It is
// stricter than the document in one thing: a reply may only have the members that the
// document names.
type contract struct {
	whole    map[string]any
	compiler *jsonschema.Compiler
	paths    []contractPath
}

type contractPath struct {
	template string
	pattern  *regexp.Regexp
	params   int
}

func newContract(t *testing.T, s *service, headers ...string) *contract {
	t.Helper()
	a := s.expect(http.StatusOK, nil, "GET", "/api/v1/openapi.json", "", headers...)
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(a.body))
	if err != nil {
		t.Fatal(err)
	}
	c := &contract{whole: value.(map[string]any), compiler: jsonschema.NewCompiler()}
	closeObjects(c.whole["components"])
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	c.compiler.AssertFormat()
	if err := c.compiler.AddResource("belfry:openapi", c.whole); err != nil {
		t.Fatal(err)
	}
	parameter := regexp.MustCompile(`\\\{[a-z]+\\\}`)
	for template := range c.whole["paths"].(map[string]any) {
		pattern := parameter.ReplaceAllString(regexp.QuoteMeta(template), `[^/]+`)
		c.paths = append(c.paths, contractPath{template, regexp.MustCompile("^" + pattern + "$"), strings.Count(template, "{")})
	}
	slices.SortFunc(c.paths, func(a, b contractPath) int { return a.params - b.params })
	return c
}

// closeObjects forbids members that a schema does not name.
func closeObjects(value any) {
	switch value := value.(type) {
	case map[string]any:
		if _, open := value["additionalProperties"]; value["properties"] != nil && value["type"] == "object" && !open {
			value["additionalProperties"] = false
		}
		for _, inner := range value {
			closeObjects(inner)
		}
	case []any:
		for _, inner := range value {
			closeObjects(inner)
		}
	}
}

// resolve returns what a pointer refers to, and where it is.
func (c *contract) resolve(at string) (string, map[string]any) {
	var value any = c.whole
	for part := range strings.SplitSeq(strings.TrimPrefix(at, "/"), "/") {
		object, _ := value.(map[string]any)
		value = object[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	object, _ := value.(map[string]any)
	if ref, ok := object["$ref"].(string); ok {
		return c.resolve(strings.TrimPrefix(ref, "#"))
	}
	return at, object
}

func pointer(part string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(part) }

// defaultStatuses are statuses that any operation may return and that the document
// describes as the default.
var defaultStatuses = []int{http.StatusForbidden, http.StatusRequestTimeout, http.StatusMisdirectedRequest, http.StatusInternalServerError}

// check says how a reply differs from the document in status, headers, media type and
// body; and, if it is a success, how the request differs.
func (c *contract) check(method, target, media, body string, a reply) error {
	address, err := url.Parse(target)
	if err != nil {
		return err
	}
	at := ""
	for _, p := range c.paths {
		if p.pattern.MatchString(address.EscapedPath()) {
			at = "/paths/" + pointer(p.template) + "/" + strings.ToLower(method)
			break
		}
	}
	_, operation := c.resolve(at)
	if operation == nil {
		return fmt.Errorf("the document has no operation %s %s", method, target)
	}
	status := strconv.Itoa(a.status)
	if slices.Contains(defaultStatuses, a.status) {
		status = "default"
	}
	place, documented := c.resolve(at + "/responses/" + status)
	if documented == nil {
		return fmt.Errorf("the document does not have the status %d", a.status)
	}
	if err := checkHeaders(documented, address.Query().Has("dry_run"), a); err != nil {
		return err
	}
	if err := c.checkContent(place, documented, a.header.Get("Content-Type"), a.body); err != nil {
		return fmt.Errorf("the reply: %w", err)
	}
	if a.status < 300 && body != "" {
		place, input := c.resolve(at + "/requestBody")
		if input == nil {
			return fmt.Errorf("the document has no request body")
		}
		if media == "" {
			media = "application/json"
		}
		if err := c.checkContent(place, input, media, body); err != nil {
			return fmt.Errorf("the request: %w", err)
		}
	}
	return nil
}

// checkHeaders compares the headers of a reply with those of the document. A dry run has
// no version.
func checkHeaders(documented map[string]any, dryRun bool, a reply) error {
	headers, _ := documented["headers"].(map[string]any)
	for _, name := range []string{"Location", "ETag", "Link", "Retry-After", "WWW-Authenticate", "X-Request-Id"} {
		_, promised := headers[name]
		has := a.header.Get(name) != ""
		if has && !promised || promised && !has && name != "Link" && !(dryRun && name == "ETag") {
			return fmt.Errorf("the header %s is there: %t, in the document: %t", name, has, promised)
		}
	}
	return nil
}

// checkContent compares a body with what the document says at a place.
func (c *contract) checkContent(place string, of map[string]any, media, body string) error {
	contents, _ := of["content"].(map[string]any)
	if contents == nil {
		if body != "" {
			return fmt.Errorf("has a body that the document does not have: %.200s", body)
		}
		return nil
	}
	media, _, err := mime.ParseMediaType(media)
	if err != nil || contents[media] == nil {
		return fmt.Errorf("is of the type %q, which the document does not have: %v", media, err)
	}
	if !strings.HasSuffix(media, "json") || strings.HasSuffix(media, "ndjson") {
		return nil
	}
	schema, err := c.compiler.Compile("belfry:openapi#" + place + "/content/" + pointer(media) + "/schema")
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("is not JSON: %w", err)
	}
	if err := schema.Validate(value); err != nil {
		return fmt.Errorf("%.300s: %w", body, err)
	}
	return nil
}

// expectDocumented sends a request that must have the status and a reply as the document
// describes it.
func (s *service) expectDocumented(c *contract, status int, into any, method, path, body string, headers ...string) reply {
	s.t.Helper()
	a := s.expect(status, nil, method, path, body, headers...)
	media := ""
	for _, h := range headers {
		if value, ok := strings.CutPrefix(h, "Content-Type: "); ok {
			media = value
		}
	}
	if err := c.check(method, path, media, body, a); err != nil {
		s.t.Errorf("%s %s, answered with %d: %v", method, path, status, err)
	}
	if into != nil {
		if err := json.Unmarshal([]byte(a.body), into); err != nil {
			s.t.Fatal(err)
		}
	}
	return a
}

func TestContractFindsDifferences(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	s.create(validJob)
	right := s.send("GET", "/api/v1/jobs/report", "")
	if err := c.check("GET", "/api/v1/jobs/report", "", "", right); err != nil {
		t.Fatalf("a correct reply is refused: %v", err)
	}
	for what, change := range map[string]func(*reply){
		"an unknown status":          func(a *reply) { a.status = http.StatusTeapot },
		"a header too few":           func(a *reply) { a.header.Del("ETag") },
		"a header too many":          func(a *reply) { a.header.Set("Location", "/") },
		"another media type":         func(a *reply) { a.header.Set("Content-Type", "text/html") },
		"no body":                    func(a *reply) { a.body = "" },
		"a member too many":          func(a *reply) { a.body = strings.Replace(a.body, `"job_id"`, `"surprise": 1, "job_id"`, 1) },
		"a member too few":           func(a *reply) { a.body = strings.Replace(a.body, `"revision"`, `"name"`, 1) },
		"a value of the wrong type":  func(a *reply) { a.body = strings.Replace(a.body, `"max_retries":3`, `"max_retries":"3"`, 1) },
		"a value that is not listed": func(a *reply) { a.body = strings.Replace(a.body, `"scheduled"`, `"busy"`, 1) },
		"an instant that is none":    func(a *reply) { a.body = strings.Replace(a.body, `"created_at":"2`, `"created_at":"x`, 1) },
	} {
		wrong := reply{right.status, right.header.Clone(), right.body}
		change(&wrong)
		if err := c.check("GET", "/api/v1/jobs/report", "", "", wrong); err == nil {
			t.Errorf("%s was not noticed", what)
		}
	}
	if err := c.check("POST", "/api/v1/nowhere", "", "", right); err == nil {
		t.Error("an unknown operation was not noticed")
	}
}
