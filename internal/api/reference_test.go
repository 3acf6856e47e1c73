package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry/internal/auth"
)

// parseTags lists the tags of a page, which must be well formed.
func parseTags(t *testing.T, html []byte) []xml.StartElement {
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

// plainText is what a reader sees of a page, with single blanks.
func plainText(html []byte) string {
	text := regexp.MustCompile(`(?s)<style>.*?</style>|<wbr />|</?span[^>]*>`).ReplaceAllString(string(html), "")
	text = regexp.MustCompile(`<[^>]*>`).ReplaceAllString(text, " ")
	text = strings.NewReplacer("&#34;", `"`, "&#39;", "'", "&amp;", "&", "&lt;", "<", "&gt;", ">", "&#43;", "+").Replace(text)
	return strings.Join(strings.Fields(text), " ")
}

func getReference(t *testing.T, o Options) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/docs/api", nil)
	r.Host = "localhost"
	newTestAPI(t, o).ServeHTTP(w, r)
	return w
}

func TestReferenceIsWellFormedHTML(t *testing.T) {
	w := getReference(t, Options{Version: "1.2.3"})
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
	tags := parseTags(t, html)
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

func TestReferenceShowsTheAddressItIsServedFrom(t *testing.T) {
	a := newTestAPI(t, Options{Hosts: []string{"belfry.example.com"}, Proxies: auth.Proxies{netip.MustParsePrefix("192.0.2.0/24")}})
	for _, tt := range []struct {
		host, proto string
		tls         bool
		want        string
	}{
		{"127.0.0.1:7171", "", false, "export BELFRY_SERVER='http://127.0.0.1:7171'"},
		{"[::1]:80", "", false, "export BELFRY_SERVER='http://[::1]:80'"},
		{"belfry.example.com", "https", false, "export BELFRY_SERVER='https://belfry.example.com'"},
		{"belfry.example.com", "evil", true, "export BELFRY_SERVER='https://belfry.example.com'"},
		{"belfry.example.com", "evil", false, "export BELFRY_SERVER='http://belfry.example.com'"},
		{"$(x)'<b>.localhost", "", false, `export BELFRY_SERVER='http://$(x)'\''<b>.localhost'`},
		{"", "", false, "export BELFRY_SERVER='http://192.0.2.1:99'"},
	} {
		r := httptest.NewRequest("GET", "/docs/api", nil)
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 99}))
		r.Host = tt.host
		r.Header.Set("X-Forwarded-Proto", tt.proto)
		if tt.tls {
			r.TLS = &tls.ConnectionState{}
		}
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		if text := plainText(w.Body.Bytes()); !strings.Contains(text, tt.want) || strings.Contains(text, ":7070") {
			t.Errorf("%+v: the page does not have %s", tt, tt.want)
		}
		parseTags(t, w.Body.Bytes())
	}
}

func TestReferenceLoadsNothing(t *testing.T) {
	w := getReference(t, Options{})
	policy := w.Header().Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") || strings.Contains(policy, "unsafe") {
		t.Errorf("the policy is %q", policy)
	}
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindStringSubmatch(w.Body.String())[1]
	sum := sha256.Sum256([]byte(style))
	if hash := base64.StdEncoding.EncodeToString(sum[:]); !strings.Contains(policy, "'sha256-"+hash+"'") {
		t.Errorf("the policy %q is not that of the style in the page, %s", policy, hash)
	}
	for _, far := range []string{"url(", "@import", "//"} {
		if strings.Contains(style, far) {
			t.Errorf("the style has %q", far)
		}
	}
}

func TestReferenceHasEveryOperationAndField(t *testing.T) {
	for _, o := range []Options{{Version: "1.2.3"}, keyedOptions} {
		a := newTestAPI(t, o)
		html := a.described().reference.For("")
		text := plainText(html)
		for _, op := range a.served {
			for _, want := range []string{op.Summary, op.Method + " " + strings.TrimSuffix(op.Path, "{$}")} {
				if !strings.Contains(text, want) {
					t.Errorf("%s: the page does not have %q", op.ID, want)
				}
			}
			if !bytes.Contains(html, []byte(`id="`+op.ID+`"`)) {
				t.Errorf("%s has no anchor", op.ID)
			}
		}
		eachObject(decodeDocument(t, a.described().openapi.text), "", func(at string, object map[string]any) {
			properties, ok := object["properties"].(map[string]any)
			if !ok || !strings.HasPrefix(at, "/components/schemas/") {
				return
			}
			for name := range properties {
				if !strings.Contains(text, name) {
					t.Errorf("the page does not have %s of %s", name, at)
				}
			}
		})
		for _, want := range []string{"Version 1.2.3", `"code": "invalid"`, "rate_limited", `"timezone": "Europe/Paris"`} {
			if !strings.Contains(text, want) {
				t.Errorf("the page does not have %q", want)
			}
		}
		if got := strings.Contains(text, `-H "Authorization: Bearer $BELFRY_KEY"`); got != (o.Access != nil) {
			t.Errorf("the examples have a key: %t", got)
		}
	}
}
