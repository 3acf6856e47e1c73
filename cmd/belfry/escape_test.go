package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

func TestEscape(t *testing.T) {
	for given, want := range map[string]string{
		"plain text":            "plain text",
		"größe 日本 👍":            "größe 日本 👍",
		"\x1b[31mred\x1b[0m":    `\x1b[31mred\x1b[0m`,
		"two\nlines\r\tand tab": `two\nlines\r\tand tab`,
		"\u009b31m":             `\u009b31m`,
		"abc\u202ecba":          `abc\u202ecba`,
		"bad\xff\xfe":           `bad\xff\xfe`,
		"\x00\x7f":              `\x00\x7f`,
		"replaced \ufffd stays": "replaced \ufffd stays",
		"\U000e0001":            `\U000e0001`,
	} {
		if got := escape(given); got != want {
			t.Errorf("%q: got %q, want %q", given, got, want)
		}
	}
	if got, want := escapeLines("one\r\ntwo\n\tthree\x1b[2J"), "one\ntwo\n\tthree\\x1b[2J"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOutputIsEscaped(t *testing.T) {
	answer := map[string]string{"name": "a\u202eb\u009bc\x1b\x7f\U000e0001d é\n"}
	for _, format := range []string{"json", "yaml"} {
		printed, err := encode(answer, format)
		if err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(string(printed), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
			t.Errorf("%s has hidden characters: %q", format, printed)
		}
		documents, errs := parseDocuments("answer", printed)
		if len(errs) > 0 {
			t.Fatalf("%s: %v in %s", format, errs, printed)
		}
		raw, errs := (&yamlToJSON{lines: map[string]int{}}).convert(documents[0], "")
		var back map[string]string
		if len(errs) > 0 || json.Unmarshal([]byte(raw), &back) != nil || back["name"] != answer["name"] {
			t.Errorf("%s came back as %q, error %v", format, back, errs)
		}
	}
}

func TestRelativeTimes(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	o := output{now: func() time.Time { return now }}
	for _, tt := range []struct {
		away time.Duration
		want string
	}{
		{0, "now"},
		{900 * time.Millisecond, "now"},
		{time.Second, "in 1s"},
		{-59 * time.Second, "59s ago"},
		{3 * time.Minute, "in 3m"},
		{3*time.Minute + 5*time.Second, "in 3m5s"},
		{42*time.Minute + 5*time.Second, "in 42m"},
		{-2 * time.Hour, "2h ago"},
		{-(2*time.Hour + 30*time.Minute), "2h30m ago"},
		{36 * time.Hour, "in 36h"},
		{72*time.Hour + time.Minute, "in 3d"},
		{400 * 24 * time.Hour, "in 1y35d"},
	} {
		if got := o.relativeTime(now.Add(tt.away)); got != tt.want {
			t.Errorf("%s away: got %q, want %q", tt.away, got, tt.want)
		}
	}
	if got := o.absoluteTime(now.Add(time.Minute)); got != "2026-03-01T12:01:00Z (in 1m)" {
		t.Errorf("got %q", got)
	}
	if got := o.absoluteTimeIn("Europe/Paris", &now); got != "2026-03-01T13:00:00+01:00 (now)" {
		t.Errorf("got %q", got)
	}
	if got := o.absoluteTimeIn("Nowhere/Land", &now); got != "2026-03-01T12:00:00Z (now)" {
		t.Errorf("got %q", got)
	}
	if toCell((*time.Time)(nil), o.tableTime).text != "" || o.absoluteTimeIn("UTC", nil) != "-" {
		t.Error("a missing instant should be a dash, which tables have for what is empty")
	}
	if got := o.tableTime(now); got != "now" {
		t.Errorf("got %q", got)
	}
	o.zone = time.UTC
	if got, long := toCell(&now, o.tableTime).text, o.absoluteTimeIn("Europe/Paris", &now); got != "2026-03-01T12:00:00Z" || long != got+" (now)" {
		t.Errorf("got %q and %q", got, long)
	}
}

func TestTableIsAligned(t *testing.T) {
	var b strings.Builder
	o := output{out: &writer{Writer: &b}, format: "table"}
	values := func(row []any) []any { return row }
	writeTable(&o, [][]any{
		{"größe", cell{"paused", yellow}, "-", "x"},
		{"a\nb", cell{"scheduled", green}, "in 3m", "y"},
		{"", "x", "", "z"},
	}, []string{"NAME", "STATUS", "NEXT"}, []string{"MORE"}, values)
	want := "NAME    STATUS      NEXT\n" +
		"größe   paused      -\n" +
		`a\nb    scheduled   in 3m` + "\n" +
		"-       x           -\n"
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("the table differs:\n%s", d)
	}
	b.Reset()
	wide := output{out: &writer{Writer: &b}, format: "wide", palette: palette{on: true}}
	writeTable(&wide, [][]any{{cell{"paused", yellow}, "x"}}, []string{"STATUS"}, []string{"MORE"}, values)
	if d := cmp.Diff("STATUS   MORE\n\x1b[33mpaused\x1b[0m   x\n", b.String()); d != "" {
		t.Errorf("the wide table with colours differs:\n%s", d)
	}
}
