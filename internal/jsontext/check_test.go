package jsontext

import (
	"strings"
	"testing"
)

func TestCheckNamesLineAndColumn(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"an object", `{"a": [1, {"b": "}"}]}`, ""},
		{"a number", ` -1.5e3 `, ""},
		{"32 levels", strings.Repeat("[", 32) + strings.Repeat("]", 32), ""},
		{"brackets in a string", `"` + strings.Repeat("[", 100) + `"`, ""},
		{"nothing", "", "is empty; it must be a JSON object"},
		{"white space", " \n\t", "is empty; it must be a JSON object"},
		{"half an object", `{"name": "a"`, "is not valid JSON: line 1, column 13: unexpected end of JSON"},
		{"a trailing comma", "{\n  \"name\": \"é\",\n}", "is not valid JSON: line 3, column 1: invalid character '}' looking for beginning of object key string"},
		{"a trailing comma after wide letters", `{"name": "éé",}`, "is not valid JSON: line 1, column 15: invalid character '}' looking for beginning of object key string"},
		{"a value without quotes", "{\n\"name\": report}", "is not valid JSON: line 2, column 9: invalid character 'r' looking for beginning of value"},
		{"a second value", `{} {}`, "is not valid JSON: line 1, column 4: invalid character '{' after top-level value"},
		{"a line break in a string", "{\"name\": \"a\nb\"}", "is not valid JSON: line 1, column 12: invalid character '\\n' in string literal"},
		{"Latin-1", "{\"name\": \"caf\xe9\"}", "is not valid JSON: line 1, column 14: invalid UTF-8"},
		{"33 levels", strings.Repeat(`{"a":`, 33) + "1" + strings.Repeat("}", 33), "is not valid JSON: line 1, column 161: nested deeper than 32 levels"},
		{"levels that do not end", strings.Repeat(`[`, 1000), "is not valid JSON: line 1, column 33: nested deeper than 32 levels"},
	} {
		got := ""
		if err := Check([]byte(tt.text)); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, got, tt.want)
		}
	}
}
