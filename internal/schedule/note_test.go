package schedule

import (
	"context"
	"strings"
	"testing"
	"time"
)

func TestNotes(t *testing.T) {
	for _, tt := range []struct {
		name, text, zone string
		options          Options
		after            string
		want             []string
	}{
		{"a time that is skipped", "30 2 * * *", "America/New_York", Options{}, "2026-03-07T12:00:00Z",
			[]string{"02:30 does not exist that day: runs at 03:00", "", ""}},
		{"two that are skipped", "0,30 2 * * *", "America/New_York", Options{}, "2026-03-07T12:00:00Z",
			[]string{"02:00 and 02:30 do not exist that day: runs once, at 03:00", "", ""}},
		{"many that are skipped", "*/10 2 * * *", "America/New_York", Options{}, "2026-03-08T06:00:00Z",
			[]string{"02:00 to 02:50 (6 times) do not exist that day: runs once, at 03:00", "", ""}},
		{"thousands that are skipped", "* * 2 * * *", "America/New_York", Options{}, "2026-03-08T06:00:00Z",
			[]string{"02:00 and 3599 later times do not exist that day: runs once, at 03:00", "", ""}},
		{"one that meets a regular one", "0 2,3 * * *", "America/New_York", Options{}, "2026-03-07T12:00:00Z",
			[]string{"02:00 does not exist that day: merged into the run at 03:00", "", ""}},
		{"one that is covered", "30 * * * *", "America/New_York", Options{}, "2026-03-08T06:00:00Z", []string{"", "", ""}},
		{"a day that is skipped", "0 12 * * *", "Pacific/Apia", Options{}, "2011-12-29T12:00:00Z",
			[]string{"", "12:00 does not exist on 30 December 2011: runs at 00:00", ""}},
		{"one that is left out", "30 2 * * *", "America/New_York", Options{SkipGap: true}, "2026-03-07T00:00:00Z",
			[]string{"", "02:30 does not exist on 8 March 2026: left out", ""}},
		{"two that are left out", "0,30 2 * * *", "America/New_York", Options{SkipGap: true}, "2026-03-07T12:00:00Z",
			[]string{"02:00 and 02:30 do not exist on 8 March 2026: left out", "", ""}},
		{"many that are left out", "*/10 2 * * *", "America/New_York", Options{SkipGap: true}, "2026-03-08T00:00:00Z",
			[]string{"02:00 to 02:50 (6 times) do not exist on 8 March 2026: left out", "", ""}},
		{"a fixed time that is repeated", "30 1 * * *", "America/New_York", Options{}, "2026-10-31T12:00:00Z",
			[]string{"01:30 comes twice: runs the first time", "", ""}},
		{"an hourly rule that is repeated", "30 * * * *", "America/New_York", Options{}, "2026-11-01T05:00:00Z",
			[]string{"", "second 01:30", ""}},
		{"one that is left out and one that is not", "0 2,3 * * *", "America/New_York", Options{SkipGap: true}, "2026-03-07T12:00:00Z",
			[]string{"02:00 does not exist that day: left out", "", ""}},
		{"a date of its own that it meets", "DTSTART:20260307T023000 RRULE:FREQ=DAILY RDATE:20260308T030000", "America/New_York", Options{}, "2026-03-08T00:00:00Z",
			[]string{"02:30 does not exist that day: merged into the run at 03:00", "", ""}},
		{"an instant that is skipped", "2026-03-08T02:30:00", "America/New_York", Options{}, "2026-01-01T00:00:00Z",
			[]string{"02:30 does not exist that day: runs at 03:00"}},
		{"an instant that is repeated", "2026-11-01T01:30:00", "America/New_York", Options{}, "2026-01-01T00:00:00Z",
			[]string{"01:30 comes twice: runs the first time"}},
		{"a calendar rule", "DTSTART:20260307T023000 RRULE:FREQ=DAILY", "America/New_York", Options{}, "2026-03-07T00:00:00Z",
			[]string{"", "02:30 does not exist that day: runs at 03:00", ""}},
		{"a calendar rule that meets itself", "DTSTART:20260308T020000 RRULE:FREQ=DAILY;BYHOUR=2,3", "America/New_York", Options{}, "2026-03-07T00:00:00Z",
			[]string{"02:00 does not exist that day: merged into the run at 03:00", "", ""}},
		{"an interval of seconds", "R/2026-03-08T06:30:00Z/PT1H", "America/New_York", Options{}, "2026-03-08T06:00:00Z", []string{"", "", ""}},
		{"UTC", "30 2 * * *", "UTC", Options{}, "2026-03-07T12:00:00Z", []string{"", "", ""}},
	} {
		tt.options.Timezone = tt.zone
		rule, err := Parse(tt.text, tt.options)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		after, err := time.Parse(time.RFC3339, tt.after)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range Preview(t.Context(), rule, after, time.Time{}, time.Time{}, 3) {
			got = append(got, o.Note)
		}
		if strings.Join(got, "|") != strings.Join(tt.want, "|") {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
		if at := Location(rule); at.String() != tt.zone {
			t.Errorf("%s: it is read in %s, want %s", tt.name, at, tt.zone)
		}
	}
}

func TestNotesOfManyGapsAreShort(t *testing.T) {
	rule, err := Parse("30 2 8-14 3 SUN", Options{Timezone: "America/New_York", SkipGap: true})
	if err != nil {
		t.Fatal(err)
	}
	after := time.Date(2010, 1, 1, 0, 0, 0, 0, time.UTC)
	note := NoteSkipped(rule, after, time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC))
	if !strings.Contains(note, "02:30 does not exist on 14 March 2010: left out") || !strings.HasSuffix(note, "; and so at 14 clock changes after that") || len(note) > 300 {
		t.Errorf("the note is %q", note)
	}
}

func TestLocation(t *testing.T) {
	for text, want := range map[string]string{
		"CRON_TZ=Asia/Tokyo 0 9 * * *":                               "Asia/Tokyo",
		"DTSTART;TZID=Europe/Paris:20260302T090000 RRULE:FREQ=DAILY": "Europe/Paris",
		"2026-03-01T09:00:00Z":                                       "UTC",
		"R/2026-03-01T09:00:00Z/P1DT1H":                              "UTC",
		"R/2026-03-01T09:00:00Z/P1D":                                 "UTC",
	} {
		rule, err := Parse(text, Options{})
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := Location(rule).String(); got != want {
			t.Errorf("%s is read in %s, want %s", text, got, want)
		}
	}
}

func TestPreview(t *testing.T) {
	day := func(d, hour int) time.Time { return time.Date(2026, 3, d, hour, 30, 0, 0, time.UTC) }
	rule := mustParse(t, "30 2 * * *", Options{Timezone: "America/New_York", SkipGap: true})
	for _, c := range []struct {
		name                string
		after, starts, ends time.Time
		n                   int
		want                []time.Time
		note                string // of the first
	}{
		{"without bounds", day(6, 12), time.Time{}, time.Time{}, 2, []time.Time{day(7, 7), day(9, 6)}, ""},
		{"it starts later, and the start is inclusive", day(1, 0), day(7, 7), time.Time{}, 2, []time.Time{day(7, 7), day(9, 6)}, ""},
		{"what was left out before the start is not noted", day(1, 0), day(8, 12), time.Time{}, 1, []time.Time{day(9, 6)}, ""},
		{"what was left out after the start is", day(1, 0), day(7, 12), time.Time{}, 1, []time.Time{day(9, 6)}, "02:30 does not exist on 8 March 2026: left out"},
		{"a start in the past does not matter", day(7, 12), day(1, 0), time.Time{}, 1, []time.Time{day(9, 6)}, "02:30 does not exist on 8 March 2026: left out"},
		{"the end is inclusive", day(6, 12), time.Time{}, day(9, 6), 5, []time.Time{day(7, 7), day(9, 6)}, ""},
		{"nothing before the end", day(7, 12), time.Time{}, day(8, 0), 5, nil, ""},
	} {
		list := Preview(t.Context(), rule, c.after, c.starts, c.ends, c.n)
		if len(list) != len(c.want) {
			t.Errorf("%s: %v", c.name, list)
			continue
		}
		for i, o := range list {
			if !o.At.Equal(c.want[i]) || !o.Local.Equal(o.At) || o.Local.Format("15:04 MST")[:6] != "02:30 " || i == 0 && o.Note != c.note {
				t.Errorf("%s: %+v, want %v %q", c.name, o, c.want[i], c.note)
			}
		}
	}
}

func TestPreviewStopsWithItsContext(t *testing.T) {
	rule := mustParse(t, "* * * * *", Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if list := Preview(ctx, rule, time.Unix(0, 0), time.Time{}, time.Time{}, 1000); len(list) != 0 {
		t.Errorf("%d occurrences were computed for nobody", len(list))
	}
}

// The notes of a preview list a bounded number of times, whatever clock changes skip.
func TestPreviewNotesAreBounded(t *testing.T) {
	const gap = "FREQ=SECONDLY;BYMONTH=3;BYDAY=SU;BYMONTHDAY=8,9,10,11,12,13,14;BYHOUR=2"
	for _, skip := range []bool{false, true} {
		rule := mustParse(t, "DTSTART:20260302T090000\nRRULE:"+gap+"\nRRULE:FREQ=YEARLY", Options{Timezone: "America/New_York", SkipGap: skip})
		list := Preview(t.Context(), rule, budgetNow, time.Time{}, time.Time{}, 100)
		noted := 0
		for _, o := range list {
			if strings.Contains(o.Note, "02:00 ") {
				noted++
			}
		}
		last := list[len(list)-1].Note
		if len(list) != 100 || noted < 10 || noted > 20 || !strings.Contains(last, "times of the schedule do not exist here either") {
			t.Errorf("%d of %d occurrences have a note; the last is %q", noted, len(list), last)
		}
	}
}
