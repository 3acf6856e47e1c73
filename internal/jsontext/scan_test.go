package jsontext

import (
	"encoding/json"
	"reflect"
	"testing"
)

// FuzzObject compares it with package json.
func FuzzObject(f *testing.F) {
	for _, seed := range []string{
		`{}`, ` { "a" : 1 , "b" : [ { "c" : "}" } , [ ] ] } `, `{"a":"x\"}","\u0062":-1e3,"a":null}`, `{"":{"":{}}}`, `[{}]`, `null`, `"{}"`, `{"a":1`, ``,
		"{\"caf\xe9\":\"\xff\"}", `{"a":true,"b":false,"c":[1,2,[3]],"d":"\\"}`, `{"a":[],"b":{}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var want map[string]json.RawMessage
		if json.Unmarshal(text, &want) != nil {
			want = nil
		}
		got := Object(text)
		if len(got) == 0 && len(want) == 0 && (got == nil) == (want == nil) {
			return
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
		for _, value := range got {
			var text string
			if value[0] == '"' && (json.Unmarshal(value, &text) != nil || Unquote(value) != text) {
				t.Errorf("%q unquotes to %q, want %q", value, Unquote(value), text)
			}
		}
	})
}
