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

// contract is the OpenAPI document that a service serves, ready to judge what it
// answers. It is stricter than the document in one thing: an answer may only have
// the members that the document names.
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

func contractOf(t *testing.T, s *service, headers ...string) *contract {
	t.Helper()
	a := s.want(http.StatusOK, nil, "GET", "/api/v1/openapi.json", "", headers...)
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

// follow gives what a reference stands for, and where it is.
func (c *contract) follow(at string) (string, map[string]any) {
	var value any = c.whole
	for part := range strings.SplitSeq(strings.TrimPrefix(at, "/"), "/") {
		object, _ := value.(map[string]any)
		value = object[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	object, _ := value.(map[string]any)
	if ref, ok := object["$ref"].(string); ok {
		return c.follow(strings.TrimPrefix(ref, "#"))
	}
	return at, object
}

func pointer(part string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(part) }

// rarely are the statuses that any operation may give in odd circumstances, and
// that the document calls by the name of default.
var rarely = []int{http.StatusForbidden, http.StatusRequestTimeout, http.StatusMisdirectedRequest, http.StatusInternalServerError}

// agrees says how an answer differs from what the document promises: its status,
// its headers, its media type, its body; and, if it is a success, how the request
// did.
func (c *contract) agrees(method, target, media, body string, a answer) error {
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
	_, operation := c.follow(at)
	if operation == nil {
		return fmt.Errorf("the document has no operation %s %s", method, target)
	}
	status := strconv.Itoa(a.status)
	if slices.Contains(rarely, a.status) {
		status = "default"
	}
	place, reply := c.follow(at + "/responses/" + status)
	if reply == nil {
		return fmt.Errorf("the document does not tell of the status %d", a.status)
	}
	if err := checkHeaders(reply, a); err != nil {
		return err
	}
	if err := c.checkContent(place, reply, a.header.Get("Content-Type"), a.body); err != nil {
		return fmt.Errorf("the answer: %w", err)
	}
	if a.status < 300 && body != "" {
		place, wanted := c.follow(at + "/requestBody")
		if wanted == nil {
			return fmt.Errorf("the document tells of no body to send")
		}
		if media == "" {
			media = "application/json"
		}
		if err := c.checkContent(place, wanted, media, body); err != nil {
			return fmt.Errorf("the request: %w", err)
		}
	}
	return nil
}

// checkHeaders compares the telling headers of an answer with those of the document.
func checkHeaders(reply map[string]any, a answer) error {
	told, _ := reply["headers"].(map[string]any)
	for _, name := range []string{"Location", "ETag", "Link", "Retry-After", "WWW-Authenticate", "X-Request-Id"} {
		_, promised := told[name]
		has := a.header.Get(name) != ""
		if has && !promised || promised && !has && name != "Link" {
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
			return fmt.Errorf("has a body of which the document does not tell: %.200s", body)
		}
		return nil
	}
	media, _, err := mime.ParseMediaType(media)
	if err != nil || contents[media] == nil {
		return fmt.Errorf("is of the type %q, of which the document does not tell: %v", media, err)
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

// agreed asks, wants the status, and wants the answer to be what the document says.
func (s *service) agreed(c *contract, status int, into any, method, path, body string, headers ...string) answer {
	s.t.Helper()
	a := s.want(status, nil, method, path, body, headers...)
	media := ""
	for _, h := range headers {
		if value, ok := strings.CutPrefix(h, "Content-Type: "); ok {
			media = value
		}
	}
	if err := c.agrees(method, path, media, body, a); err != nil {
		s.t.Errorf("%s %s, answered with %d: %v", method, path, status, err)
	}
	if into != nil {
		if err := json.Unmarshal([]byte(a.body), into); err != nil {
			s.t.Fatal(err)
		}
	}
	return a
}

func TestContractNoticesWhatIsWrong(t *testing.T) {
	s := serve(t)
	c := contractOf(t, s)
	s.create(validJob)
	right := s.ask("GET", "/api/v1/jobs/report", "")
	if err := c.agrees("GET", "/api/v1/jobs/report", "", "", right); err != nil {
		t.Fatalf("what is right is refused: %v", err)
	}
	for what, change := range map[string]func(*answer){
		"a status that is not told":  func(a *answer) { a.status = http.StatusTeapot },
		"a header too few":           func(a *answer) { a.header.Del("ETag") },
		"a header too many":          func(a *answer) { a.header.Set("Location", "/") },
		"another media type":         func(a *answer) { a.header.Set("Content-Type", "text/html") },
		"no body":                    func(a *answer) { a.body = "" },
		"a member too many":          func(a *answer) { a.body = strings.Replace(a.body, `"id"`, `"surprise": 1, "id"`, 1) },
		"a member too few":           func(a *answer) { a.body = strings.Replace(a.body, `"revision"`, `"name"`, 1) },
		"a value of the wrong type":  func(a *answer) { a.body = strings.Replace(a.body, `"max_retries":3`, `"max_retries":"3"`, 1) },
		"a value that is not listed": func(a *answer) { a.body = strings.Replace(a.body, `"scheduled"`, `"busy"`, 1) },
		"an instant that is none":    func(a *answer) { a.body = strings.Replace(a.body, `"created_at":"2`, `"created_at":"x`, 1) },
	} {
		wrong := answer{right.status, right.header.Clone(), right.body}
		change(&wrong)
		if err := c.agrees("GET", "/api/v1/jobs/report", "", "", wrong); err == nil {
			t.Errorf("%s was not noticed", what)
		}
	}
	if err := c.agrees("POST", "/api/v1/nowhere", "", "", right); err == nil {
		t.Error("an operation that is not told was not noticed")
	}
}
