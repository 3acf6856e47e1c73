package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"
)

func TestTextOfOthersCannotSteerATerminal(t *testing.T) {
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
		if got := safe(given); got != want {
			t.Errorf("%q: got %q, want %q", given, got, want)
		}
	}
	if got, want := safeLines("one\r\ntwo\n\tthree\x1b[2J"), "one\ntwo\n\tthree\\x1b[2J"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHiddenCharactersOfAnswersAreShownByTheirCodes(t *testing.T) {
	answer := map[string]string{"name": "a\u202eb\u009bc\x1b\x7f\U000e0001d é\n"}
	for _, format := range []string{"json", "yaml"} {
		printed, err := render(answer, format)
		if err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(string(printed), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
			t.Errorf("%s has hidden characters: %q", format, printed)
		}
		documents, err := readDocuments("answer", printed)
		if err != nil {
			t.Fatalf("%s: %v in %s", format, err, printed)
		}
		raw, err := (&unfolding{}).json(documents[0])
		var back map[string]string
		if err != nil || json.Unmarshal(raw, &back) != nil || back["name"] != answer["name"] {
			t.Errorf("%s came back as %q, error %v", format, back, err)
		}
	}
}

func TestTimesAreToldByTheirDistance(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
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
		if got := relative(now, now.Add(tt.away)); got != tt.want {
			t.Errorf("%s away: got %q, want %q", tt.away, got, tt.want)
		}
	}
	if got := exact(now, now.Add(time.Minute)); got != "2026-03-01T12:01:00Z (in 1m)" {
		t.Errorf("got %q", got)
	}
	if got := exactIn("Europe/Paris", now, &now); got != "2026-03-01T13:00:00+01:00 (now)" {
		t.Errorf("got %q", got)
	}
	if got := exactIn("Nowhere/Land", now, &now); got != "2026-03-01T12:00:00Z (now)" {
		t.Errorf("got %q", got)
	}
	if relativeTo(now, nil) != "-" || exactIn("UTC", now, nil) != "-" {
		t.Error("a missing instant should be a dash")
	}
}

func TestTablesAreAligned(t *testing.T) {
	list := newTable("NAME", "STATUS", "NEXT")
	list.row("größe", cell{"paused", yellow}, "-")
	list.row("a\nb", cell{"scheduled", green}, "in 3m")
	list.row("", "x", "")
	var b strings.Builder
	if err := list.write(&b, palette{}); err != nil {
		t.Fatal(err)
	}
	want := "NAME    STATUS      NEXT\n" +
		"größe   paused      -\n" +
		`a\nb    scheduled   in 3m` + "\n" +
		"-       x           -\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	var coloured strings.Builder
	if err := list.write(&coloured, palette{on: true}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(coloured.String(), "\x1b[33mpaused\x1b[0m      -\n") {
		t.Errorf("got %q", coloured.String())
	}
}
