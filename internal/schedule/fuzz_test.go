package schedule

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// fuzzZones are the zones of the fuzz tests. The order is part of the corpus.
var fuzzZones = []string{
	"", "UTC", "America/New_York", "Europe/Dublin", "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo",
	"Africa/Casablanca", "Africa/Monrovia", "Pacific/Chatham", "Antarctica/Troll", "Asia/Gaza",
}

// fuzzOptions turns a number into options.
func fuzzOptions(choice uint8) Options {
	return Options{
		Timezone: fuzzZones[int(choice/6)%len(fuzzZones)], SkipGap: choice%2 == 1, Overlap: DSTOverlap(choice / 2 % 3),
		Start: time.Unix(1_600_000_000+int64(choice)*86_399, 0),
	}
}

// expectError checks that what is wrong with a text is said properly.
func expectError(t *testing.T, text string, err error) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Message == "" || e.Column < 0 || e.Column > len(text)+1 || !strings.HasPrefix(err.Error(), e.Field) {
		t.Fatalf("%q: refused with %#v", text, err)
	}
}

// expectConsistent checks what holds for every rule.
func expectConsistent(t *testing.T, text string, o Options, rule Rule, after int64) {
	t.Helper()
	if again, err := Parse(text, o); err != nil || again != rule {
		t.Fatalf("%q %+v: read again it is %v, %v", text, o, again, err)
	}
	if s := Describe(rule); s == "" {
		t.Fatalf("%q %+v has no description", text, o)
	}
	first := time.Unix(after, 0)
	asked, n := first, 0
	for ; n < 100; n++ {
		next := rule.Next(asked)
		if next.IsZero() {
			break
		}
		if !next.After(asked) || !rule.Next(next.Add(-1)).Equal(next) || next.Unix() >= horizon {
			t.Fatalf("%q %+v: after %v comes %v", text, o, asked, next)
		}
		asked = next
	}
	if newest, skipped, _ := Newest(rule, first, asked, 3); int64(len(newest))+skipped != int64(n) {
		t.Fatalf("%q %+v: %d newest and %d skipped from %v to %v, want %d", text, o, len(newest), skipped, first, asked, n)
	}
	for _, occurrence := range occurrences(rule, first, 3) {
		if occurrence.MovedCount < int64(len(occurrence.Moved)) || o.SkipGap && occurrence.MovedCount > 0 {
			t.Fatalf("%q %+v: %+v", text, o, occurrence)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"* * * * *", "30 2 * * *", "0,30 1-3/2 */2 JAN-MAR,12 FRI-MON", "0 0 L-3W,15W,LW * *", "0 0 ? * FRI#2,7L",
		"*/7 */20 22-2 29 2 * 2028/4", "@daily", "@every 5m", "H H(0-7) * * *", "CRON_TZ=Europe/Paris 0 9 * * *",
		"2026-03-08T02:30:00", "2026-03-01T09:00:00.123456+05:45", "R5/2026-03-01T09:00:00Z/PT15M", "FREQ=DAILY", "0 0 31 2 *",
		"DTSTART:20260308T023000\nRRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,SU;COUNT=9\nEXDATE:20260315T023000", "P1M", "TZ=Asia/Tokyo @every 1h",
	} {
		f.Add(text, int64(1772_000_000), uint8(0))
		f.Add(text, int64(-1), uint8(29))
	}
	f.Fuzz(func(t *testing.T, text string, after int64, choice uint8) {
		o := fuzzOptions(choice)
		rule, err := Parse(text, o)
		if err != nil {
			expectError(t, text, err)
			return
		}
		expectConsistent(t, text, o, rule, after)
		Warnings(rule, time.Unix(after, 0))
	})
}

func FuzzInterval(f *testing.F) {
	for _, parts := range [][3]string{
		{"R5", "2026-03-01T09:00:00Z", "PT15M"}, {"R", "2026-03-08T02:30:00", "P1D"}, {"R-1", "2028-02-29T00:00:00+05:45", "P1Y"},
		{"R3", "2026-03-01T09:00:00Z", "2026-03-01T09:20:00Z"}, {"R9", "", "P1M10DT12H"}, {"", "", "PT0.5H"}, {"R2", "2026-01-31T00:00:00.5Z", "PT1,25S"},
	} {
		f.Add(parts[0], parts[1], parts[2], int64(1772_000_000), uint8(14))
	}
	f.Fuzz(func(t *testing.T, repetitions, start, duration string, after int64, choice uint8) {
		text := duration
		if start != "" {
			text = start + "/" + text
		}
		if repetitions != "" {
			text = repetitions + "/" + text
		}
		o := fuzzOptions(choice)
		rule, err := Parse(text, o)
		if err != nil {
			expectError(t, text, err)
			return
		}
		expectConsistent(t, text, o, rule, after)
	})
}

func FuzzResolve(f *testing.F) {
	for _, text := range []string{
		"H H * * *", "H/15 H(0-7)/2 * * *", "H H H H H H", "0 0 H(20-5) H(NOV-FEB) H(FRI-MON)/2", "H,30 9 * * THU", "CRON_TZ=Europe/Paris H 9 * * *",
		"5-H * * * *", "H(5 * * * *", "0 0 0 * * * H", "@every 1h", "h/61 h(23-23)/9 * * h",
	} {
		f.Add(text, []byte("0123456789abcdef"))
	}
	f.Fuzz(func(t *testing.T, text string, seed []byte) {
		var id [16]byte
		copy(id[:], seed)
		resolved, changed, err := Resolve(text, id)
		if err != nil {
			expectError(t, text, err)
			return
		}
		if changed == (resolved == text) {
			t.Fatalf("%q becomes %q, changed %v", text, resolved, changed)
		}
		if again, changedAgain, err := Resolve(resolved, id); changed && (again != resolved || changedAgain || err != nil) {
			t.Fatalf("%q becomes %q and then %q, %v", text, resolved, again, err)
		}
		if _, err := Parse(resolved, Options{Start: time.Unix(0, 0)}); err != nil {
			expectError(t, resolved, err)
			if changed && strings.Contains(err.Error(), "H is not resolved") {
				t.Fatalf("%q becomes %q: %v", text, resolved, err)
			}
		}
	})
}

func FuzzRRule(f *testing.F) {
	for _, c := range rfcExamples {
		f.Add("DTSTART;TZID=America/New_York:"+c.start+"T090000\nRRULE:"+c.rule, int64(873_000_000), uint8(0))
	}
	for _, text := range []string{
		"FREQ=WEEKLY;BYDAY=MO,WE;BYHOUR=9", "FREQ=SECONDLY;INTERVAL=86399;BYHOUR=9;BYMINUTE=0;BYSECOND=0,59",
		"FREQ=MINUTELY;INTERVAL=420;BYHOUR=0,7;BYDAY=SU;WKST=SA;COUNT=100000", "FREQ=YEARLY;BYWEEKNO=-1,53;BYSETPOS=-1,7",
		"FREQ=HOURLY;INTERVAL=25;BYYEARDAY=-1,366;BYMINUTE=0,30;BYSECOND=1;BYSETPOS=2", "FREQ=DAILY;UNTIL=20261101T013000",
		"RRULE:FREQ=DAILY;COUNT=3\r\nRRULE:FREQ=MONTHLY;BYDAY=2TU\nEXDATE;VALUE=DATE:20260301,20260302\nRDATE;TZID=Asia/Tokyo:20260309T170000 EXDATE:20260308T070000Z",
		"DTSTART;VALUE=DATE:20260308\n RRULE: FREQ=SECONDLY; INTERVAL=1000000000", "dtstart:99991231t235959z freq=yearly", "EXRULE:FREQ=DAILY",
	} {
		f.Add(text, int64(1_772_000_000), uint8(0))
		f.Add(text, int64(-1<<40), uint8(29))
	}
	places := []string{
		"", "UTC", "America/New_York", "Europe/Dublin", "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo",
		"Africa/Casablanca", "Africa/Monrovia", "Pacific/Chatham", "Antarctica/Troll", "Asia/Gaza",
	}
	f.Fuzz(func(t *testing.T, text string, after int64, choice uint8) {
		o := Options{
			Timezone: places[int(choice/6)%len(places)], SkipGap: choice%2 == 1, Overlap: DSTOverlap(choice / 2 % 3),
			Start: time.Date(2026, 3, 8, 9, 0, 0, 0, time.UTC),
		}
		begin := time.Now()
		rule, err := parseOnlyRRule(text, o)
		if took := time.Since(begin); took > 2*time.Second {
			t.Fatalf("%q: it took %v to read", text, took)
		}
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Message == "" || e.Column < 0 || e.Column > len(text)+1 || !strings.HasPrefix(err.Error(), e.Field) {
				t.Fatalf("%q: refused with %#v", text, err)
			}
			return
		}
		asked := time.Unix(after, 0)
		for range 100 {
			begin := time.Now()
			next := rule.Next(asked)
			if took := time.Since(begin); took > time.Second {
				t.Fatalf("%q: it took %v to find what is after %v", text, took, asked)
			}
			if next.IsZero() {
				return
			}
			if !next.After(asked) || !rule.Next(next.Add(-1)).Equal(next) {
				t.Fatalf("%q %+v: after %v comes %v", text, o, asked, next)
			}
			asked = next
		}
	})
}
