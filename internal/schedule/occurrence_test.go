package schedule

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// formatOccurrences writes occurrences as "07:00 moved 02:00 02:30, 08:00 again".
func formatOccurrences(list []Occurrence) string {
	var texts []string
	for _, o := range list {
		text := o.At.Format("02 15:04")
		if o.MovedCount > 0 {
			text += fmt.Sprintf(" moved %d:", o.MovedCount)
			for _, wall := range o.Moved {
				text += " " + wall.Time().Format("02 15:04")
			}
		}
		if o.Repeat != RepeatNone {
			text += " " + [...]string{RepeatOnly: "only", RepeatAgain: "again"}[o.Repeat]
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

func TestOccurrencesAtClockChanges(t *testing.T) {
	const ny = "America/New_York"
	for _, c := range []struct{ text, zone, after, want string }{
		{"30 2 * * *", ny, "2026-03-07 12:00", "08 07:00 moved 1: 08 02:30, 09 06:30"},
		{"0,30 2 * * *", ny, "2026-03-07 12:00", "08 07:00 moved 2: 08 02:00 08 02:30, 09 06:00"},
		{"0 2,3 * * *", ny, "2026-03-07 12:00", "08 07:00 moved 1: 08 02:00, 09 06:00"},
		{"30 2,3 * * *", ny, "2026-03-07 12:00", "08 07:00 moved 1: 08 02:30, 08 07:30"},
		{"0 3 * * *", ny, "2026-03-07 12:00", "08 07:00, 09 07:00"},
		{"0 * * * *", ny, "2026-03-08 06:00", "08 07:00, 08 08:00"}, // covered: nothing moved
		{"*/15 2 * * *", ny, "2026-03-08 06:00", "08 07:00 moved 4: 08 02:00 08 02:15 08 02:30 08 02:45, 09 06:00"},
		{"5,10,35 * * * *", "Australia/Lord_Howe", "2026-10-03 15:05", "03 15:30 moved 1: 04 02:10, 03 15:35"}, // 02:05 is covered by 02:35
		{"0 12 * * *", "Pacific/Apia", "2011-12-29 23:00", "30 10:00 moved 1: 30 12:00, 30 22:00"},
		{"30 1 * * *", ny, "2026-10-31 12:00", "01 05:30 only, 02 06:30"},
		{"30 * * * *", ny, "2026-11-01 05:00", "01 05:30, 01 06:30 again, 01 07:30"},
		{"2026-03-08T02:30:00", ny, "2026-01-01 00:00", "08 07:00 moved 1: 08 02:30"},
		{"2026-11-01T01:30:00", ny, "2026-01-01 00:00", "01 05:30 only"},
		{"2026-11-01T01:30:00-04:00", ny, "2026-01-01 00:00", "01 05:30"},
		{"2026-11-01T02:30:00", ny, "2026-01-01 00:00", "01 07:30"},
		{"R2/2026-03-08T02:30:00/P1D", ny, "2026-01-01 00:00", "08 07:00 moved 1: 08 02:30, 09 06:30"},
		{"R3/2026-10-31T01:30:00/P1D", ny, "2026-01-01 00:00", "31 05:30, 01 05:30 only, 02 06:30"},
		{"R2/2026-11-01T01:30:00-05:00/P1D", ny, "2026-01-01 00:00", "01 06:30, 02 06:30"},
		{"R2/2026-11-01T05:30:00Z/PT1H", ny, "2026-01-01 00:00", "01 05:30, 01 06:30"}, // time passes, whatever the clock shows
		{"DTSTART:20260307T023000 RRULE:FREQ=DAILY;COUNT=3", ny, "2026-01-01 00:00", "07 07:30, 08 07:00 moved 1: 08 02:30, 09 06:30"},
		{"DTSTART:20261031T013000 RRULE:FREQ=DAILY;COUNT=2", ny, "2026-01-01 00:00", "31 05:30, 01 05:30 only"},
		{"DTSTART:20261101T003000 RRULE:FREQ=HOURLY;COUNT=3", ny, "2026-01-01 00:00", "01 04:30, 01 05:30, 01 06:30 again"},
		{"DTSTART:20260307T020000 RRULE:FREQ=DAILY;COUNT=2 RDATE:20260308T023000", ny, "2026-03-08 00:00", "08 07:00 moved 2: 08 02:00 08 02:30"},
	} {
		rule := mustParse(t, c.text, Options{Timezone: c.zone})
		n := strings.Count(c.want, ", ") + 1
		if got := formatOccurrences(occurrences(rule, utc(t, c.after), n)); got != c.want {
			t.Errorf("%s in %s: %s; want %s", c.text, c.zone, got, c.want)
		}
	}
}

// occurrences lists the next n.
func occurrences(r Rule, after time.Time, n int) (list []Occurrence) {
	for range n {
		if after = r.Next(after); after.IsZero() {
			break
		}
		list = append(list, OccurrenceAt(r, after))
	}
	return list
}

func TestPreviewLimit(t *testing.T) {
	rule := mustParse(t, "* * * * *", Options{})
	for n, want := range map[int]int{1_000_000: 1000, 7: 7, -1: 0} {
		if got := len(Preview(t.Context(), rule, time.Unix(0, 0), time.Time{}, time.Time{}, n)); got != want {
			t.Errorf("%d of %d occurrences", got, n)
		}
	}
	apia := mustParse(t, "0-58 0-58 0-22 * * *", Options{Timezone: "Pacific/Apia"})
	o := OccurrenceAt(apia, utc(t, "2011-12-30 10:00"))
	if len(o.Moved) != 100 || o.MovedCount != 59*59*23 || o.Moved[0].Time().Format(time.DateTime) != "2011-12-30 00:00:00" {
		t.Errorf("a day of seconds: %d of %d moved, the first %v", len(o.Moved), o.MovedCount, o.Moved[0].Time())
	}
}

func TestSkippedGaps(t *testing.T) {
	const ny = "America/New_York"
	for _, c := range []struct{ text, zone, from, to, want string }{
		{"30 2 * * *", ny, "2026-01-01 00:00", "2026-12-31 00:00", "2026-03-08 07:00 02:30-02:30 1"},
		{"*/15 2 * * *", ny, "2026-01-01 00:00", "2028-01-01 00:00", "2026-03-08 07:00 02:00-02:45 4, 2027-03-14 07:00 02:00-02:45 4"},
		{"*/15 * * * *", ny, "2026-01-01 00:00", "2028-01-01 00:00", ""},
		{"30 2 * * *", ny, "2026-03-08 07:00", "2026-12-31 00:00", ""}, // after from
		{"30 2 * * *", ny, "2026-03-08 06:59:59", "2026-03-08 07:00", "2026-03-08 07:00 02:30-02:30 1"},
		{"30 2 * * *", ny, "2026-03-08 06:00", "2026-03-08 06:59:59", ""},
		{"0 2,3 * * *", ny, "2026-01-01 00:00", "2026-12-31 00:00", "2026-03-08 07:00 02:00-02:00 1"},
		{"R/2026-03-01T02:30:00/P1D", ny, "2026-01-01 00:00", "2026-12-31 00:00", "2026-03-08 07:00 02:30-02:30 1"},
		{"R3/2026-03-01T02:30:00/P1D", ny, "2026-01-01 00:00", "2026-12-31 00:00", ""},
		{"DTSTART:20260301T023000 RRULE:FREQ=DAILY", ny, "2026-01-01 00:00", "2026-12-31 00:00", "2026-03-08 07:00 02:30-02:30 1"},
		{"DTSTART:20260301T023000 RRULE:FREQ=DAILY;COUNT=5", ny, "2026-01-01 00:00", "2026-12-31 00:00", ""},
		{"DTSTART:20260301T023000 RRULE:FREQ=DAILY EXDATE:20260308T023000", ny, "2026-01-01 00:00", "2026-12-31 00:00", ""},
		{"PT1H", ny, "2026-01-01 00:00", "2026-12-31 00:00", ""},
		{"0 12 * * *", "Pacific/Apia", "2011-12-01 00:00", "2012-01-01 00:00", "2011-12-30 10:00 12:00-12:00 1"},
	} {
		rule := mustParse(t, c.text, Options{Timezone: c.zone, SkipGap: true, Start: utc(t, "2026-01-01 00:00")})
		var texts []string
		for _, g := range SkippedGaps(rule, utc(t, c.from), utc(t, c.to)) {
			texts = append(texts, fmt.Sprintf("%s %s-%s %d", g.At.Format("2006-01-02 15:04"), g.First.Time().Format("15:04"), g.Last.Time().Format("15:04"), g.Count))
		}
		if got := strings.Join(texts, ", "); got != c.want {
			t.Errorf("%s in %s from %s to %s: %s; want %s", c.text, c.zone, c.from, c.to, got, c.want)
		}
	}
	if gaps := SkippedGaps(mustParse(t, "30 2 * * *", Options{Timezone: ny}), time.Unix(0, 0), utc(t, "2030-01-01 00:00")); gaps != nil {
		t.Errorf("a rule that makes up for gaps skips %v", gaps)
	}
	if gaps := SkippedGaps(mustParse(t, "30 2 * * *", Options{Timezone: ny, SkipGap: true}), time.Time{}, time.Unix(1<<40, 0)); len(gaps) < 400 {
		t.Errorf("%d gaps until the end of time", len(gaps))
	}
}

// TestSkippedGapsAgreeWithMovedTimes compares a rule that makes up for gaps with the same
// rule that skips them: what one moves the other tells, and all else is the same.
func TestSkippedGapsAgreeWithMovedTimes(t *testing.T) {
	random := rand.New(rand.NewPCG(15, 16))
	moved := 0
	for range 2000 {
		_, text, o := randomRule(t, random)
		o.SkipGap = false
		run, err := Parse(text, o)
		if err != nil || strings.Contains(text, "COUNT=") { // What is skipped is not counted.
			continue
		}
		o.SkipGap = true
		skip, err := Parse(text, o)
		if err != nil {
			continue
		}
		c, ok := run.(clockRule)
		if !ok || len(c.clock().zone.periods) < 2 {
			continue
		}
		z := c.clock().zone
		p := z.periods[1+random.IntN(len(z.periods)-1)]
		from := time.Unix(p.start-6*60*60, 0)
		to := time.Unix(p.start, 0)
		var told []Gap
		for at := run.Next(from); !at.IsZero() && !at.After(to); at = run.Next(at) {
			o := OccurrenceAt(run, at)
			if o.MovedCount > 0 {
				moved++
				told = append(told, Gap{At: at, First: o.Moved[0], Last: o.Moved[len(o.Moved)-1], Count: o.MovedCount})
			} else if !firesAt(skip, at.Unix()) && at.Nanosecond() == 0 {
				t.Fatalf("%s %+v: %v is missing", text, o, at)
			}
		}
		gaps := SkippedGaps(skip, from, to)
		if len(told) > 0 && told[0].Count > maxMoved {
			told[0].Last = gaps[0].Last
		}
		if !reflect.DeepEqual(gaps, told) {
			t.Fatalf("%s %+v: skipped %v, moved %v", text, o, gaps, told)
		}
	}
	if moved < 20 {
		t.Errorf("only %d moved", moved)
	}
}

func TestNewestAgreesWithNext(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	n := 3000
	if raceDetected() {
		n = 500
	}
	for range n {
		rule, text, o := randomRule(t, random)
		from := time.Unix(946_684_800+random.Int64N(1_200_000_000), random.Int64N(2)*500_000_000)
		end := from.Add(time.Duration(random.Int64N(int64([]time.Duration{time.Minute, 48 * time.Hour, 8000 * time.Hour}[random.IntN(3)]))))
		n := random.IntN(20)
		var all []time.Time
		for at := rule.Next(from); !at.IsZero() && !at.After(end) && len(all) < 50_000; at = rule.Next(at) {
			all = append(all, at)
		}
		if len(all) == 50_000 {
			continue
		}
		newest, skipped, atLeast := Newest(rule, from, end, n)
		if want := all[max(len(all)-n, 0):]; !slices.Equal(newest, want) || int(skipped) != len(all)-len(want) || atLeast {
			t.Fatalf("%s %+v: the newest %d from %v to %v are %v, %d skipped, at least %v; want %v, %d skipped",
				text, o, n, from, end, newest, skipped, atLeast, want, len(all)-len(want))
		}
	}
}

func TestNewestAfterLongOutage(t *testing.T) {
	end := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		text    string
		from    time.Time
		skipped int64
	}{
		{"* * * * * *", end.AddDate(0, 0, -40), 40*24*60*60 - 100},
		{"@every 1s", end.AddDate(0, 0, -40), 40*24*60*60 - 100},
		{"FREQ=SECONDLY", end.AddDate(0, 0, -40), 40*24*60*60 - 100},
		{"* * * * * *", time.Time{}, end.Unix() - firstInstant - 100},
		{"* * * 1 1 *", end.AddDate(-10, 0, 0), 10*24*60*60 - 100},
	} {
		rule := mustParse(t, c.text, Options{Start: end.AddDate(-1, 0, 0)})
		newest, skipped, atLeast := Newest(rule, c.from, end, 100)
		if len(newest) != 100 || skipped != c.skipped || atLeast {
			t.Errorf("%s: %d newest, %d skipped, at least %v; want 100 and %d", c.text, len(newest), skipped, atLeast, c.skipped)
		}
	}
}

// uncountableRule is a rule that only knows Next.
type uncountableRule struct{ Rule }

func TestNewestCountsOneByOne(t *testing.T) {
	end := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	rule := uncountableRule{mustParse(t, "* * * * * *", Options{})}
	for _, c := range []struct {
		seconds int
		skipped int64
		atLeast bool
	}{{5, 0, false}, {10, 0, false}, {11, 1, false}, {100_010, 100_000, false}, {100_011, 100_000, true}, {3_000_000, 100_000, true}} {
		newest, skipped, atLeast := Newest(rule, end.Add(-time.Duration(c.seconds)*time.Second), end, 10)
		if len(newest) != min(c.seconds, 10) || skipped != c.skipped || atLeast != c.atLeast || !newest[len(newest)-1].Equal(end) {
			t.Errorf("%d seconds: %v, %d skipped, at least %v; want %d, %v", c.seconds, newest, skipped, atLeast, c.skipped, c.atLeast)
		}
	}
}

func TestNewestWithoutOccurrences(t *testing.T) {
	at := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	rule := mustParse(t, "0 0 1 1 *", Options{})
	for _, from := range []time.Time{at, at.Add(time.Hour), at.Add(-time.Hour)} {
		if newest, skipped, atLeast := Newest(rule, from, at, 5); len(newest) != 0 || skipped != 0 || atLeast {
			t.Errorf("from %v: %v, %d, %v", from, newest, skipped, atLeast)
		}
	}
}
