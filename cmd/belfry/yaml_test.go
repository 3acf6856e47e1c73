package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// jsonOfYAML reads a YAML text as one value.
func jsonOfYAML(content string) (string, error) {
	documents, err := parseDocuments("x.yaml", []byte(content))
	if err != nil {
		return "", err
	}
	raw, err := (&yamlToJSON{file: "x.yaml", lines: map[string]int{}}).convert(documents[0], "")
	return raw, err.orNil()
}

func TestYAMLToJSON(t *testing.T) {
	for _, tt := range []struct{ name, yaml, want string }{
		{"a number", "v: 5", `{"v":5}`},
		{"a number in quotes", `v: "5"`, `{"v":"5"}`},
		{"a large number", "v: 123456789012345678901234567890", `{"v":123456789012345678901234567890}`},
		{"the largest that a float cannot hold", "v: 9007199254740993", `{"v":9007199254740993}`},
		{"a fraction", "v: 0.10", `{"v":0.10}`},
		{"an exponent", "v: 1e3", `{"v":1e3}`},
		{"an exponent beyond floats", "v: 1e999", `{"v":1e999}`},
		{"without a leading zero", "v: .5", `{"v":0.5}`},
		{"with a point at its end", "v: 5.", `{"v":5}`},
		{"with a sign", "v: +5", `{"v":5}`},
		{"with underscores", "v: 1_000_000", `{"v":1000000}`},
		{"in another base", "v: [0xff, 0o17, 0b101, -0x10]", `{"v":[255,15,5,-16]}`},
		{"a hexadecimal number of 80 bits", "v: 0xffffffffffffffffffff", `{"v":"0xffffffffffffffffffff"}`},
		{"truth values", "v: [true, False, TRUE]", `{"v":[true,false,true]}`},
		{"words that once were truth values", "v: [on, off, yes, no, y, n]", `{"v":["on","off","yes","no","y","n"]}`},
		{"nothing", "v: [null, ~, '']", `{"v":[null,null,""]}`},
		{"a date", "v: 2026-12-01", `{"v":"2026-12-01"}`},
		{"an instant", "v: 2026-12-01T09:00:00Z", `{"v":"2026-12-01T09:00:00Z"}`},
		{"a time of day", "v: 12:30", `{"v":"12:30"}`},
		{"cron", "v: 0 9 * * 1-5", `{"v":"0 9 * * 1-5"}`},
		{"a block", "v: |\n  a\n  b\n", `{"v":"a\nb\n"}`},
		{"a tag that makes it text", "v: !!str 5", `{"v":"5"}`},
		{"keys that are not texts", "5: a\ntrue: b", `{"5":"a","true":"b"}`},
		{"an alias", "a: &x {b: 1}\nc: *x", `{"a":{"b":1},"c":{"b":1}}`},
		{"a merge", "a: &x {b: 1, c: 2}\nd:\n  <<: *x\n  c: 3", `{"a":{"b":1,"c":2},"d":{"c":3,"b":1}}`},
		{"several merges", "x: &x {a: 1}\ny: &y {a: 2, b: 2}\nz: {<<: [*x, *y]}", `{"x":{"a":1},"y":{"a":2,"b":2},"z":{"a":1,"b":2}}`},
		{"JSON", "{\"v\": \"\\ud83d\\ude00 \\/\",\n\t\"w\": 1.0}", `{"v":"😀 /","w":1.0}`},
		{"characters that HTML escapes", `v: "<a & b>"`, `{"v":"<a & b>"}`},
	} {
		got, err := jsonOfYAML(tt.yaml)
		if err != nil || got != tt.want {
			t.Errorf("%s: got %s, error %v, want %s", tt.name, got, err, tt.want)
		}
	}
}

func TestYAMLErrorsHaveLines(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 'b'; i < 'i'; i++ {
		before := string(i - 1)
		bomb += string(i) + ": &" + string(i) + " [" + strings.Repeat("*"+before+",", 10) + "]\n"
	}
	for _, tt := range []struct{ name, yaml, want string }{
		{"a colon too much", "a: 1\nb: c: d\n", "x.yaml:2: mapping values are not allowed"},
		{"a colon too much in the first line", "b: c: d\n", "x.yaml:1: "},
		{"a bracket left open", "a: 1\nb: [1, 2\nc: 3\n", "x.yaml:2: did not find expected ',' or ']'"},
		{"a list that ends in keys", "- a\nb: 1\n", "x.yaml:2: "},
		{"a tab", "a:\n\tb: 2\n", "x.yaml:2: found"},
		{"an unknown anchor", "a: 1\nb: *nowhere\n", "x.yaml:2: unknown anchor 'nowhere'"},
		{"a control character", "a: 1\nb: \x01\n", "x.yaml:2: control characters"},
		{"Latin-1", "a: 1\nb: caf\xe9\n", "x.yaml:2: is not UTF-8"},
		{"a key twice", "a: 1\nb: 2\na: 3\n", "x.yaml:3: a is duplicated; first in line 1"},
		{"a key twice further down", "a:\n  - b: 1\n    b: 2\n", "x.yaml:3: b is duplicated"},
		{"a number that starts with zero", "a: 1\nb: 0123\n", "x.yaml:2: 0123 starts with a zero"},
		{"infinity", "a: .inf\n", "x.yaml:1: .inf is not a JSON number"},
		{"no number", "a: .nan\n", "x.yaml:1: .nan is not"},
		{"a tag of somebody's own", "a: 1\nb: !thing 5\n", "x.yaml:2: the tag !thing is not supported"},
		{"binary", "a: !!binary aGk=\n", "x.yaml:1: the tag !!binary is not supported"},
		{"a number by its tag alone", "a: !!int five\n", "x.yaml:1: five is not a JSON number"},
		{"a merge of something else", "a: 1\n<<: 5\n", "x.yaml:2: << can only merge mappings"},
		{"a loop", "a: &a\n  b: *a\n", "x.yaml:1: is nested deeper than 64 levels"},
		{"a loop of merges", "a: &a\n  <<: *a\n", "nested deeper"},
		{"a bomb", bomb, "the aliases of the file stand for more than 131072 values"},
	} {
		got, err := jsonOfYAML(tt.yaml)
		if m := (fileErrors{}); !errors.As(err, &m) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %.100s, error %v, want %s", tt.name, got, err, tt.want)
		}
	}
	if _, err := parseDocuments("x.json", []byte("{\n\"a\": 1,\n}")); err == nil || !strings.HasPrefix(err.Error(), "x.json:3: is not JSON") {
		t.Errorf("broken JSON: got %v", err)
	}
}

// drawValue draws a value that JSON can write.
func drawValue(t *rapid.T, depth int) any {
	texts := rapid.OneOf(
		rapid.String(),
		rapid.SampledFrom([]string{"on", "No", "1e3", "0x1f", "1:30", "~", "null", "<<", "=", "- a", "a: b", "#", "007", "1_000", "\ta\n b", "a\n", "\n", "a \nb", " x\ny", "2026-01-01", "a\n\n", "\u2028a\nb", "*/5 * * * *", "é\nü"}),
		rapid.StringMatching(`[a-z \n\t:#\-'"]{0,12}`),
	)
	limit := 5
	if depth > 3 {
		limit = 3
	}
	switch rapid.IntRange(0, limit).Draw(t, "kind") {
	case 0:
		return strings.ToValidUTF8(texts.Draw(t, "text"), "?")
	case 1:
		return json.Number(rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,10})?([eE][-+]?[0-9]{1,3})?`).Draw(t, "number"))
	case 2:
		return rapid.Bool().Draw(t, "bool")
	case 3:
		return nil
	case 4:
		list := make([]any, rapid.IntRange(0, 3).Draw(t, "length"))
		for i := range list {
			list[i] = drawValue(t, depth+1)
		}
		return list
	}
	object := make(map[string]any)
	for range rapid.IntRange(0, 3).Draw(t, "size") {
		object[strings.ToValidUTF8(texts.Draw(t, "key"), "?")] = drawValue(t, depth+1)
	}
	return object
}

func TestYAMLOutputReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := drawValue(t, 0)
		want, err := encode(value, "json")
		if err != nil {
			t.Fatal(err)
		}
		printed, err := encode(map[string]any{"v": value}, "yaml")
		if err != nil {
			t.Fatal(err)
		}
		documents, errs := parseYAML("x.yaml", printed)
		if len(errs) > 0 {
			t.Fatalf("%v in\n%s", errs, printed)
		}
		raw, errs := (&yamlToJSON{lines: map[string]int{}}).convert(documents[0], "")
		var back struct{ V json.RawMessage }
		if len(errs) > 0 || json.Unmarshal([]byte(raw), &back) != nil || !sameJSON(back.V, json.RawMessage(want)) {
			t.Fatalf("%s was printed as\n%s\nand read as %s, error %v", want, printed, raw, errs)
		}
	})
}
