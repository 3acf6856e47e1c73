package jsontext

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// manyMembers is an object of so many members.
func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"x%d":%d`, i, i)
	}
	return "{" + b.String()[1:] + "}"
}

func TestDuplicates(t *testing.T) {
	many := manyMembers(100)
	for _, tt := range []struct {
		text string
		want []string
	}{
		{`{"a": 1, "b": {"a": 2}, "c": [{"a": 1}, {"a": 2}]}`, nil},
		{`7`, nil},
		{`"a"`, nil},
		{`{"a": 1, "a": 2}`, []string{"a"}},
		{`{"a": 1, "a": 2, "a": 3}`, []string{"a", "a"}},
		{`{"name": 1, "na\u006de": 2}`, []string{"name"}},
		{`{"payload": {"a": [{}, {"b": {"c": 1, "c": 2}}]}}`, []string{"payload.a[1].b.c"}},
		{`{"payload": {"a": "{\"b\":1,", "b": ["c", "c"], "c": "\\", "a": 1}}`, []string{"payload.a"}},
		{`{"payload": [{"a": 1}, {"a": 1}, {"a": 1, "a": 2}]}`, []string{"payload[2].a"}},
		{`[{"a": {"b": 1}, "a": {"b": 1, "b": 2}}]`, []string{"[0].a", "[0].a.b"}},
		{many[:len(many)-1] + `,"x7":1}`, []string{"x7"}},
		{`{"` + strings.Repeat("x", 100) + `":1,"` + strings.Repeat("x", 100) + `":1}`, []string{strings.Repeat("x", 64)}},
	} {
		if got := Duplicates([]byte(tt.text)); !slices.Equal(got, tt.want) {
			t.Errorf("%.100s: got %q, want %q", tt.text, got, tt.want)
		}
	}
}

func TestDuplicatesAreLimited(t *testing.T) {
	if got := Duplicates([]byte(`{"a":1` + strings.Repeat(`,"a":1`, 1000) + `}`)); len(got) != maxDuplicates {
		t.Errorf("got %d duplicates, want %d", len(got), maxDuplicates)
	}
}

func TestDuplicatesOfManyMembersAreFoundQuickly(t *testing.T) {
	many := manyMembers(50_000)
	start := time.Now()
	if got := Duplicates([]byte(many[:len(many)-1] + `,"x7":1}`)); !slices.Equal(got, []string{"x7"}) {
		t.Errorf("got %q", got)
	}
	if took := time.Since(start); took > 5*time.Second { // comparing each with each takes longer
		t.Errorf("it took %v", took)
	}
}

// FuzzDuplicates compares the number of names with the number of members that package
// json keeps.
func FuzzDuplicates(f *testing.F) {
	for _, seed := range []string{`{}`, `{"a":1,"a":2}`, `{"a":{"b":[{"c":1,"c":2}]}}`, `[{"\u0061":1,"a":1}]`, `{"a":"{","b":"}","a\\":1}`, `"a"`, `[1,[2,{"":{},"":[]}]]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if Check(text) != nil {
			return
		}
		got := Duplicates(text)
		want := countDuplicates(json.NewDecoder(strings.NewReader(string(text))))
		if len(got) != min(want, maxDuplicates) {
			t.Errorf("%q: got %q, want %d duplicates", text, got, want)
		}
	})
}

// countDuplicates counts the duplicates of the next value.
func countDuplicates(d *json.Decoder) (count int) {
	start, err := d.Token()
	if err != nil {
		return 0
	}
	names := map[any]bool{}
	switch start {
	case json.Delim('{'):
		for d.More() {
			name, _ := d.Token()
			if names[name] {
				count++
			}
			names[name] = true
			count += countDuplicates(d)
		}
		d.Token()
	case json.Delim('['):
		for d.More() {
			count += countDuplicates(d)
		}
		d.Token()
	}
	return count
}
