package secret

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestMaskHidesSecretsAndNothingElse(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"a header", `{"headers":{"Authorization":"Bearer s3cret","Accept":"text/html"}}`,
			`{"headers":{"Authorization":"***","Accept":"text/html"}}`},
		{"keys in any spelling", `{"X-API-Key":"s3cret","api_key":"s3cret","ApiKey":"s3cret","setCookie":"s3cret","db_PassWord":"s3cret"}`,
			`{"X-API-Key":"***","api_key":"***","ApiKey":"***","setCookie":"***","db_PassWord":"***"}`},
		{"values that are not texts", `{"token":5,"secrets":["s3cret"],"credentials":{"user":"s3cret"},"pwd":null,"otp":true}`,
			`{"token":"***","secrets":"***","credentials":"***","pwd":"***","otp":"***"}`},
		{"any depth", `[[{"a":[{"password":"s3cret"},1]}]]`,
			`[[{"a":[{"password":"***"},1]}]]`},
		{"escaped keys", `{"p\u0061ssword":"s3cret"}`,
			`{"password":"***"}`},
		{"keys given twice", `{"token":"s3cret","token":"s3cret","a":1,"a":2}`,
			`{"token":"***","token":"***","a":1,"a":2}`},
		{"user-info in an address", `{"url":"https://user:s3cret@host/path"}`,
			`{"url":"https://***@host/path"}`},
		{"user-info with an at sign", `"https://user:s3cret@s3cret@host"`,
			`"https://***@host"`},
		{"parameters of an address", `{"url":"https://h/p?a=b&token=s3cret&api%5Fkey=s3cret&sig=s3cret&key=s3cret#x"}`,
			`{"url":"https://h/p?a=b&token=***&api%5Fkey=***&sig=***&key=***#x"}`},
		{"parameters with semicolons", `"https://h/?x=1;password=s3cret;y=2"`,
			`"https://h/?x=1;password=***;y=2"`},
		{"a fragment", `"https://h/#access_token=s3cret&state=1"`,
			`"https://h/#access_token=***&state=1"`},
		{"an address without host", `"/hook?token=s3cret"`,
			`"/hook?token=***"`},
		{"a form", `{"body":"user=me&password=s3cret&x=y"}`,
			`{"body":"user=me&password=***&x=y"}`},
		{"JSON in a text", `{"body":"{\"user\":\"me\",\"password\":\"s3cret\"}"}`,
			`{"body":"{\"user\":\"me\",\"password\":\"***\"}"}`},
		{"credentials by their form", `["Bearer s3cret","basic s3cret","eyJhbGciOi.s3cret.s3cret"]`,
			`["Bearer ***","basic ***","***"]`},
		{"order, numbers and characters stay", `{"z":1.50,"a":1e400,"b":"<&>é","c":[true,false,null,{}],"d":{},"e":[]}`,
			`{"z":1.50,"a":1e400,"b":"<&>é","c":[true,false,null,{}],"d":{},"e":[]}`},
		{"harmless words stay", `{"author":"me","key":"k","monkey":"m","passenger":"p","text":"a = b","math":"x=1","json":"{\"a\": 1}"}`,
			`{"author":"me","key":"k","monkey":"m","passenger":"p","text":"a = b","math":"x=1","json":"{\"a\": 1}"}`},
		{"a harmless address stays", `"https://example.com/a%20b?x=y&z=%41#frag"`,
			`"https://example.com/a%20b?x=y&z=%41#frag"`},
		{"a scalar", `"hello"`, `"hello"`},
		{"what is no JSON is hidden whole", `{"password":"s3cret"`, `"***"`},
		{"nothing stays nothing", ``, ``},
	} {
		got := string(Mask(json.RawMessage(tt.in)))
		if got != tt.want || strings.Contains(got, "s3cret") {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

func TestMaskIsNotFooledByDepth(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 5000) + `{"token":"s3cret"}` + strings.Repeat("}", 5000)
	if got := Mask(json.RawMessage(deep)); bytes.Contains(got, []byte("s3cret")) || !json.Valid(got) {
		t.Error("a secret 5,000 objects deep is shown")
	}
	if got := Mask(json.RawMessage(strings.Repeat("[", 100000))); string(got) != `"***"` {
		t.Errorf("got %.40s", got)
	}
}

// Whatever comes in, JSON comes out, the value of a secret key is not in it,
// and there is nothing left to mask.
func FuzzMask(f *testing.F) {
	f.Add([]byte(`{"url":"https://u:p@h/?token=x&y","headers":{"Cookie":"a=b"},"body":["{\"sig\":1}"]}`), "s3cret")
	f.Add([]byte(`[null,true,1e9,{"a":{}},"=&;=","://@?#"]`), "x")
	f.Add([]byte(`"\ud800 \u2028"`), `"`)
	f.Fuzz(func(t *testing.T, raw []byte, secret string) {
		once := Mask(raw)
		if len(raw) > 0 && !json.Valid(once) {
			t.Fatalf("%q became %q", raw, once)
		}
		if twice := Mask(once); !bytes.Equal(once, twice) {
			t.Fatalf("%q became %q, then %q", raw, once, twice)
		}
		if !json.Valid(raw) {
			return
		}
		canary := "canary-" + secret
		quoted, err := json.Marshal(canary)
		if err != nil {
			return
		}
		whole := append(append([]byte(`{"a":`), raw...), `,"X-Auth-Token":`...)
		whole = append(append(whole, quoted...), '}')
		if !bytes.Contains(raw, []byte("canary-")) && bytes.Contains(Mask(whole), []byte("canary-")) {
			t.Fatalf("the canary is in %q", Mask(whole))
		}
	})
}
