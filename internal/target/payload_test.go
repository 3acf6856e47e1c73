package target

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

func TestParseHTTPAccepts(t *testing.T) {
	for _, tt := range []struct{ name, raw, method, body, kind string }{
		{"an address alone is a POST with no body", `{"url":"https://example.com/hook"}`, "POST", "", ""},
		{"an empty method is the default", `{"url":"http://example.com","method":""}`, "POST", "", ""},
		{"blanks around a method", `{"url":"http://example.com","method":" get "}`, "GET", "", ""},
		{"methods come in any case", `{"url":"http://example.com","method":"get"}`, "GET", "", ""},
		{"an object is sent as JSON", `{"url":"http://a","body":{"b": [1]}}`, "POST", `{"b": [1]}`, "application/json"},
		{"a number is sent as JSON", `{"url":"http://a","body":7.10}`, "POST", `7.10`, "application/json"},
		{"a text is sent as it is", `{"url":"http://a","body":"a \"b\"\n"}`, "POST", "a \"b\"\n", "text/plain; charset=utf-8"},
		{"an empty text is an empty body", `{"url":"http://a","body":""}`, "POST", "", "text/plain; charset=utf-8"},
		{"null is the same as absent", `{"url":"http://a","method":null,"headers":null,"body":null}`, "POST", "", ""},
		{"schemes come in any case", `{"url":"HTTPS://Example.com:8443/x?y=z#f"}`, "POST", "", ""},
		{"IPv6 addresses are hosts", `{"url":"http://[::1]:80/"}`, "POST", "", ""},
		{"headers may carry any text", `{"url":"http://a","headers":{"X-A":"b\tc é","Authorization":"Bearer x","User-Agent":"me"}}`, "POST", "", ""},
	} {
		p, errors := ParseHTTP(json.RawMessage(tt.raw))
		body, kind := p.Content()
		if len(errors) > 0 || p.Method != tt.method || string(body) != tt.body || kind != tt.kind {
			t.Errorf("%s: method %q, body %q as %q, errors %v", tt.name, p.Method, body, kind, errors)
		}
	}
}

func TestParseHTTPErrors(t *testing.T) {
	for _, tt := range []struct{ name, raw, want string }{
		{"no JSON", `{`, "payload: must be a JSON object"},
		{"nothing", ``, "payload: must be a JSON object"},
		{"null", `null`, "payload: must be a JSON object"},
		{"an array", `[]`, "payload: must be a JSON object"},
		{"no address", `{}`, "payload.url: is required"},
		{"a null address", `{"url":null}`, "payload.url: is required"},
		{"an address that is a number", `{"url":1}`, "payload.url: must be a string"},
		{"an empty address", `{"url":""}`, "payload.url: is required"},
		{"a relative address", `{"url":"/hook"}`, "payload.url: must begin with http"},
		{"an address without scheme", `{"url":"//example.com"}`, "payload.url: must begin with http"},
		{"another scheme", `{"url":"file:///etc/passwd"}`, "payload.url: must begin with http"},
		{"another scheme that dials", `{"url":"gopher://example.com"}`, "payload.url: must begin with http"},
		{"no host", `{"url":"http:///x"}`, "payload.url: has no host"},
		{"an opaque address", `{"url":"http:example.com"}`, "payload.url: must begin with http"},
		{"a port without host", `{"url":"http://:80/"}`, "payload.url: has no host"},
		{"a colon without port", `{"url":"http://a:/"}`, "payload.url: has a colon"},
		{"port zero", `{"url":"http://a:0/"}`, "payload.url: has a port"},
		{"a port too high", `{"url":"http://a:65536/"}`, "payload.url: has a port"},
		{"a port of letters", `{"url":"http://a:http/"}`, "payload.url: is not a valid URL"},
		{"user-info", `{"url":"http://u:p@a/"}`, "payload.url: must not contain a user name"},
		{"empty user-info", `{"url":"http://@a/"}`, "payload.url: must not contain a user name"},
		{"a new line in the address", `{"url":"http://a/\r\nX: y"}`, "payload.url: must not contain control characters"},
		{"a blank before the address", `{"url":" http://a/"}`, "payload.url: must begin with http"},
		{"a blank after the address", `{"url":"http://a/ "}`, "payload.url: is not a valid URL"},
		{"a long address", `{"url":"http://a/` + strings.Repeat("x", 2048) + `"}`, "payload.url: has 2057 characters"},
		{"another method", `{"url":"http://a","method":"CONNECT"}`, "payload.method: must be \"GET\""},
		{"a method that is a list", `{"url":"http://a","method":["GET"]}`, "payload.method: must be a string"},
		{"headers that are a list", `{"url":"http://a","headers":["A: b"]}`, "payload.headers: must be an object"},
		{"a header that is a number", `{"url":"http://a","headers":{"X-A":1}}`, "payload.headers.X-A: must be a string"},
		{"a header that is null", `{"url":"http://a","headers":{"X-A":null}}`, "payload.headers.X-A: must be a string"},
		{"a header with a blank in its name", `{"url":"http://a","headers":{"X A":"b"}}`, "payload.headers.X A: is not a valid header name"},
		{"a header with no name", `{"url":"http://a","headers":{"":"b"}}`, "payload.headers.: is not a valid header name"},
		{"a header named in Cyrillic", `{"url":"http://a","headers":{"Ноst":"b"}}`, "payload.headers.Ноst: is not a valid header name"},
		{"a header that breaks out", `{"url":"http://a","headers":{"X-A":"b\r\nHost: evil"}}`, "payload.headers.X-A: contains control characters"},
		{"a header with a zero byte", `{"url":"http://a","headers":{"X-A":"\u0000"}}`, "payload.headers.X-A: contains control characters"},
		{"a header that is too long", `{"url":"http://a","headers":{"X-A":"` + strings.Repeat("x", 8193) + `"}}`, "payload.headers.X-A: has 8193 bytes"},
		{"a header given twice", `{"url":"http://a","headers":{"X-A":"b","x-a":"c"}}`, "payload.headers.x-a: is set twice"},
		{"GET with a body", `{"url":"http://a","method":"get","body":{}}`, "payload.body: cannot be sent with GET"},
		{"HEAD with a body", `{"url":"http://a","method":"HEAD","body":""}`, "payload.body: cannot be sent with HEAD"},
		{"an unknown field", `{"url":"http://a","metod":"GET"}`, "payload.metod: is unknown"},
		{"a field in another case", `{"url":"http://a","Method":"GET"}`, "payload.Method: is unknown"},
	} {
		_, errors := ParseHTTP(json.RawMessage(tt.raw))
		if got := (&belfry.Error{Fields: errors}).Error(); !strings.HasPrefix(got, ": "+tt.want) || len(errors) != 1 {
			t.Errorf("%s: got%s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestParseHTTPReservedHeaders(t *testing.T) {
	for _, name := range []string{
		"Host", "content-length", "Transfer-Encoding", "Connection", "Keep-Alive", "TE", "Trailer", "Upgrade", "Expect",
		"Proxy-Authorization", "Proxy-Connection", "Idempotency-Key", "Belfry-Run-Id", "belfry-anything",
	} {
		raw := fmt.Sprintf(`{"url":"http://a","headers":{%q:"x"}}`, name)
		if _, errors := ParseHTTP(json.RawMessage(raw)); len(errors) != 1 || !strings.Contains(errors[0].Message, "set by Belfry") {
			t.Errorf("%s: errors %v", name, errors)
		}
	}
}

func TestParseHTTPReturnsAllErrors(t *testing.T) {
	_, errors := ParseHTTP(json.RawMessage(`{"url":"ftp://a","method":"FLY","headers":{"Host":"x","X-A":"\n"},"body":1,"zeal":1,"abc":2}`))
	var fields []string
	for _, f := range errors {
		fields = append(fields, f.Field)
	}
	want := []string{"payload.zeal", "payload.abc", "payload.url", "payload.method", "payload.headers.Host", "payload.headers.X-A"}
	if !slices.Equal(fields, want) {
		t.Errorf("errors in %v, want %v", fields, want)
	}
	headers := make(map[string]string)
	for i := range 65 {
		headers[fmt.Sprint("X-", i)] = "v"
	}
	raw, _ := json.Marshal(belfry.HTTPPayload{URL: "http://a", Headers: headers})
	if _, errors := ParseHTTP(raw); len(errors) != 1 || errors[0].Field != "payload.headers" {
		t.Errorf("65 headers: errors %v", errors)
	}
}

// Whatever ParseHTTP lets pass makes a request, and no message repeats a value.
func FuzzParseHTTP(f *testing.F) {
	f.Add([]byte(`{"url":"https://example.com/hook?a=b","method":"put","headers":{"X-A":"b"},"body":{"c":1}}`))
	f.Add([]byte(`{"url":"http://[fe80::1%25eth0]:80/","headers":{"a":"\u007f"}}`))
	f.Add([]byte(`{"url":"http://\u0000/","body":"x"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, errors := ParseHTTP(raw)
		if len(errors) > 0 {
			return
		}
		req, err := http.NewRequest(p.Method, p.URL, nil)
		if err != nil {
			t.Fatalf("the payload passed but makes no request: %v", err)
		}
		if req.URL.Host == "" || req.URL.User != nil {
			t.Fatalf("address %q", p.URL)
		}
		for name, value := range p.Headers {
			if strings.ContainsAny(name+value, "\r\n\x00") {
				t.Fatalf("header %q: %q", name, value)
			}
		}
		if _, err := url.Parse(p.URL); err != nil {
			t.Fatal(err)
		}
		p.Content()
	})
}
