package api

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tagsOf takes a page apart, and fails if its tags do not fit each other.
func tagsOf(t *testing.T, html []byte) []xml.StartElement {
	t.Helper()
	in := xml.NewDecoder(bytes.NewReader(html))
	in.Entity = xml.HTMLEntity
	var tags []xml.StartElement
	for {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			return tags
		}
		if err != nil {
			t.Fatalf("the page is not well formed: %v", err)
		}
		if start, ok := token.(xml.StartElement); ok {
			tags = append(tags, start.Copy())
		}
	}
}

func attribute(tag xml.StartElement, name string) string {
	for _, a := range tag.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// plainText of a page is what a reader sees, with single blanks.
func plainText(html []byte) string {
	text := regexp.MustCompile(`(?s)<style>.*?</style>|<wbr />|</?span[^>]*>`).ReplaceAllString(string(html), "")
	text = regexp.MustCompile(`<[^>]*>`).ReplaceAllString(text, " ")
	text = strings.NewReplacer("&#34;", `"`, "&#39;", "'", "&amp;", "&", "&lt;", "<", "&gt;", ">", "&#43;", "+").Replace(text)
	return strings.Join(strings.Fields(text), " ")
}

func pageOf(t *testing.T, of traits) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	apiOf(t, of).reference(w, httptest.NewRequest("GET", "/docs/api", nil))
	return w
}

func TestReferenceIsOneWellFormedPage(t *testing.T) {
	w := pageOf(t, traits{version: "1.2.3"})
	if got := w.Header().Get("Content-Type"); got != "text/html; charset=utf-8" {
		t.Errorf("the content type is %q", got)
	}
	html := w.Body.Bytes()
	if !bytes.HasPrefix(html, []byte("<!DOCTYPE html>")) {
		t.Errorf("the page begins with %.40q", html)
	}
	ids := make(map[string]bool)
	count := make(map[string]int)
	level := 0
	tags := tagsOf(t, html)
	for _, tag := range tags {
		count[tag.Name.Local]++
		if id := attribute(tag, "id"); id != "" {
			if ids[id] {
				t.Errorf("two elements have the id %q", id)
			}
			ids[id] = true
		}
		if name := tag.Name.Local; len(name) == 2 && name[0] == 'h' && name[1] >= '1' && name[1] <= '6' {
			if next := int(name[1] - '0'); next > level+1 {
				t.Errorf("a heading of level %d follows one of level %d", next, level)
			} else {
				level = next
			}
		}
	}
	if count["h1"] != 1 || count["main"] != 1 || count["nav"] != 1 || count["script"] != 0 || count["style"] != 1 {
		t.Errorf("the page has %v", count)
	}
	for _, tag := range tags {
		for _, name := range []string{"href", "src", "aria-labelledby"} {
			value := attribute(tag, name)
			switch {
			case value == "" || value == "/api/v1/openapi.json":
			case name == "aria-labelledby" && ids[value]:
			case name == "href" && strings.HasPrefix(value, "#") && ids[value[1:]]:
			default:
				t.Errorf("<%s %s=%q> leads nowhere, or away", tag.Name.Local, name, value)
			}
		}
		for _, a := range tag.Attr {
			if a.Name.Local == "style" || strings.HasPrefix(a.Name.Local, "on") {
				t.Errorf("<%s> has %s, which the policy does not allow", tag.Name.Local, a.Name.Local)
			}
		}
	}
}

func TestReferenceLoadsNothing(t *testing.T) {
	w := pageOf(t, traits{})
	policy := w.Header().Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") || strings.Contains(policy, "unsafe") {
		t.Errorf("the policy is %q", policy)
	}
	if policy != pagePolicy(w.Body.Bytes()) {
		t.Errorf("the policy is not that of the style in the page")
	}
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindStringSubmatch(w.Body.String())[1]
	for _, far := range []string{"url(", "@import", "//"} {
		if strings.Contains(style, far) {
			t.Errorf("the style has %q", far)
		}
	}
}

func TestReferenceHasEverything(t *testing.T) {
	for _, of := range []traits{{version: "1.2.3"}, {version: "1.2.3", keyed: true, limited: true}} {
		html := pageOf(t, of).Body.Bytes()
		text := plainText(html)
		d := documentOf(t, of)
		for _, path := range d.Paths {
			for _, method := range path.value {
				op := method.value
				for _, want := range []string{op.Summary, strings.ToUpper(method.name) + " " + path.name} {
					if !strings.Contains(text, want) {
						t.Errorf("%s: the page does not have %q", op.ID, want)
					}
				}
				if !bytes.Contains(html, []byte(`id="`+op.ID+`"`)) {
					t.Errorf("nothing leads to %s", op.ID)
				}
			}
		}
		for _, c := range d.Components.Schemas {
			for _, p := range c.value.Properties {
				if !strings.Contains(text, p.name) {
					t.Errorf("the page does not have %s.%s", c.name, p.name)
				}
			}
		}
		for _, want := range []string{"Version 1.2.3", `"code": "invalid"`, "rate_limited", `"timezone": "Europe/Paris"`} {
			if !strings.Contains(text, want) {
				t.Errorf("the page does not have %q", want)
			}
		}
		if got := strings.Contains(text, `-H "Authorization: Bearer $BELFRY_KEY"`); got != of.keyed {
			t.Errorf("the examples have a key: %t, want %t", got, of.keyed)
		}
	}
}

func TestReferenceEscapesWhatItShows(t *testing.T) {
	const evil = `<script>alert("x")</script>`
	html, err := render(describe([]operation{{
		id: "evil", method: "POST", path: "/evil", group: evil, summary: evil, about: "`" + evil + "` " + evil,
		body:    &content{media: []string{mediaJSON}, examples: map[string]string{evil: `{"a'b": ` + quoted(evil) + `}`}},
		answers: []reply{{status: 200, about: evil, content: &content{media: []string{"text/plain"}, examples: map[string]string{"x": evil}}}},
	}}, traits{version: evil}))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(html, []byte("<script")) {
		t.Error("the page has what it was to show")
	}
	if !strings.Contains(plainText(html), `-d '{"a'\''b"`) {
		t.Error("a quote in an example ends the argument of the command")
	}
	tagsOf(t, html)
}

func TestLaidOutJSONIsTheSameJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":1,"b":[1,2,{}]}`:      `{"a": 1, "b": [1, 2, {}]}`,
		`{"text":"a,\"b\": {c}\n"}`: `{"text": "a,\"b\": {c}\n"}`,
		"not JSON\n":                "not JSON",
		`{"long":"` + strings.Repeat("x", 50) + `","list":[1]}`: "{\n" + `  "long": "` + strings.Repeat("x", 50) + "\",\n  \"list\": [1]\n}",
	} {
		if got := laid([]byte(in)); got != want {
			t.Errorf("%s is laid out as %s, want %s", in, got, want)
		}
	}
	var parts []string
	for _, m := range regexp.MustCompile(`<span class="(.)">(.*?)</span>`).FindAllStringSubmatch(string(highlight(`{"key": "text: 1", "n": -1.5e3, "t": true}`)), -1) {
		parts = append(parts, m[1]+" "+m[2])
	}
	want := []string{`k &#34;key&#34;`, `s &#34;text: 1&#34;`, `k &#34;n&#34;`, `n -1.5e3`, `k &#34;t&#34;`, `n true`}
	if !slices.Equal(parts, want) {
		t.Errorf("the parts are %q, want %q", parts, want)
	}
}
