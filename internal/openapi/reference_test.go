package openapi

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/jsontext"
)

func TestReferenceEscapesText(t *testing.T) {
	const evil = `<script>alert("x")</script>`
	page, err := Describe([]Operation{{
		ID: "evil", Method: "POST", Path: "/evil", Group: evil, Summary: evil, Doc: "`" + evil + "` " + evil, Global: true,
		Body: JSON[belfry.Resume](200, "").Type, Examples: map[string]string{evil: `{"a'b": ` + jsontext.Quote(evil) + `}`},
		Responses: []Response{{Status: 200, Doc: evil, Media: "text/plain"}},
	}}, Options{Version: evil, Groups: map[string]string{evil: evil}}).Reference()
	if err != nil {
		t.Fatal(err)
	}
	html := page.For("http://" + evil + "'; reboot")
	if bytes.Contains(html, []byte("<script")) {
		t.Error("the page has a script")
	}
	if !bytes.Contains(html, []byte(`export BELFRY_SERVER=&#39;http://&lt;script&gt;alert(&#34;x&#34;)&lt;/script&gt;&#39;\&#39;&#39;; reboot&#39;</code>`)) {
		t.Error("the address of the server is not one word of the shell")
	}
	if !bytes.Contains(html, []byte(`-d &#39;{&#34;a&#39;\&#39;&#39;b&#34;`)) {
		t.Error("a quote in an example ends the argument of the command")
	}
	for in := xml.NewDecoder(bytes.NewReader(html)); ; {
		in.Entity = xml.HTMLEntity
		if _, err := in.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the page is not well formed: %v", err)
		}
	}
}

func TestReferenceLaysOutJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":1,"b":[1,2,{}]}`:      `{"a": 1, "b": [1, 2, {}]}`,
		`{"text":"a,\"b\": {c}\n"}`: `{"text": "a,\"b\": {c}\n"}`,
		"not JSON\n":                "not JSON",
		`{"long":"` + strings.Repeat("x", 50) + `","list":[1]}`: "{\n" + `  "long": "` + strings.Repeat("x", 50) + "\",\n  \"list\": [1]\n}",
	} {
		got := layOut([]byte(in))
		if got != want {
			t.Errorf("%s is laid out as %s, want %s", in, got, want)
		}
		var before, after bytes.Buffer
		if json.Valid([]byte(in)) && (json.Compact(&before, []byte(in)) != nil || json.Compact(&after, []byte(got)) != nil || before.String() != after.String()) {
			t.Errorf("%s became other JSON: %s", in, got)
		}
	}
}

func TestReferenceHighlightsJSON(t *testing.T) {
	var parts []string
	for _, m := range regexp.MustCompile(`<span class="(.)">(.*?)</span>`).FindAllStringSubmatch(string(highlight(`{"key": "text: 1", "n": -1.5e3, "t": true}`)), -1) {
		parts = append(parts, m[1]+" "+m[2])
	}
	want := []string{`k &#34;key&#34;`, `s &#34;text: 1&#34;`, `k &#34;n&#34;`, `n -1.5e3`, `k &#34;t&#34;`, `n true`}
	if !slices.Equal(parts, want) {
		t.Errorf("the parts are %q, want %q", parts, want)
	}
}
