package schedule

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"
)

// The cases are facts from the tests of another implementation. Those tagged
// rfc-invalid combine parts that RFC 5545 forbids.
func TestKnownCalendarRules(t *testing.T) {
	file, err := os.Open("testdata/known_rrule.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	right, refused := 0, 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var c struct {
			Expr     string
			DTStart  string
			TZ       string
			After    time.Time
			Next     []time.Time
			Complete bool
			Tags     []string
		}
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		start, err := time.Parse("2006-01-02T15:04:05", c.DTStart)
		if err != nil {
			t.Fatal(err)
		}
		text := "DTSTART:" + start.Format("20060102T150405") + "\nRRULE:" + c.Expr
		rule, err := Parse(text, Options{Timezone: c.TZ})
		if err != nil {
			if refused++; !slices.Contains(c.Tags, "rfc-invalid") {
				t.Errorf("%s: %v", c.Expr, err)
			}
			continue
		}
		want := c.Next
		if c.Complete {
			want = append(want, time.Time{})
		}
		asked, good := c.After, true
		for _, w := range want {
			got := rule.Next(asked)
			if !got.Equal(w) {
				t.Errorf("%s from %s: after %v comes %v, want %v", c.Expr, c.DTStart, asked, got, w)
				good = false
				break
			}
			asked = got
		}
		if good {
			right++
		}
	}
	t.Logf("%d rows right, %d refused as RFC 5545 demands", right, refused)
	if right != 179 || refused != 46 {
		t.Errorf("%d rows are right and %d refused, want 179 and 46", right, refused)
	}
}
