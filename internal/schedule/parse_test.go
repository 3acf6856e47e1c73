package schedule

import (
	"testing"
	"time"
)

func TestNeedsStart(t *testing.T) {
	now := time.Date(2026, 3, 1, 9, 0, 0, 900_000_000, time.FixedZone("", 3600))
	second := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		text  string
		start time.Time // the default; zero if none is needed
	}{
		{"PT15M", second},
		{" p1d ", second},
		{"R/PT15M", second},
		{"R-1/PT15M", second},
		{"R5/PT15M", second.Add(time.Second)},
		{" r5/P1M", second.Add(time.Second)},
		{"@every 90s", second},
		{"CRON_TZ=Europe/Paris @EVERY 90s", second},
		{"FREQ=DAILY", second},
		{"RRULE:FREQ=DAILY\nEXDATE:20260302T090000", second},
		{"freq=daily;count=3", second.Add(time.Second)},
		{"FREQ=DAILY;COU\r\n NT=3", second.Add(time.Second)},
		{"FREQ=DAILY; COUNT =3", second.Add(time.Second)},

		{"R5/2026-03-01T09:00:00Z/PT15M", time.Time{}},
		{"R/2026-03-01T09:00:00Z/2026-03-01T10:00:00Z", time.Time{}},
		{"DTSTART:20260301T090000 FREQ=DAILY;COUNT=3", time.Time{}},
		{"FREQ=DAILY\ndtstart;tzid=Europe/Paris:20260301T090000", time.Time{}},
		{"DTST\r\n ART:20260301T090000\r\nRRULE:FREQ=DAILY", time.Time{}},
		{"0 9 * * *", time.Time{}},
		{"@daily", time.Time{}},
		{"2026-03-01T09:00:00Z", time.Time{}},
	} {
		if got := NeedsStart(c.text); got == c.start.IsZero() {
			t.Errorf("NeedsStart(%q) = %v", c.text, got)
		}
		if got := DefaultStart(c.text, now); got != c.start {
			t.Errorf("DefaultStart(%q) = %v, want %v", c.text, got, c.start)
		}
		if _, err := Parse(c.text, Options{}); (err == nil) != c.start.IsZero() {
			t.Errorf("%q without a start: %v", c.text, err)
		}
		if _, err := Parse(c.text, Options{Start: c.start}); err != nil {
			t.Errorf("%q with a start: %v", c.text, err)
		}
	}
	if NeedsStart(" ") || NeedsStart("") {
		t.Error("an empty text needs a start")
	}
}

// TestDefaultStartKeepsTheFirstOccurrence proves that none of a number of
// occurrences has passed when a schedule starts now.
func TestDefaultStartKeepsTheFirstOccurrence(t *testing.T) {
	now := time.Date(2026, 3, 1, 9, 0, 0, 900_000_000, time.UTC)
	for _, text := range []string{"R3/PT1H", "R3/P1D", "R3/P1DT1H", "FREQ=DAILY;COUNT=3"} {
		rule := mustParse(t, text, Options{Start: DefaultStart(text, now)})
		n := 0
		for at := rule.Next(now); !at.IsZero(); at = rule.Next(at) {
			n++
		}
		if n != 3 {
			t.Errorf("%s fires %d times", text, n)
		}
	}
}

func TestNamedZone(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"CRON_TZ=Europe/Paris 0 9 * * *", "Europe/Paris"},
		{" TZ=Asia/Tokyo\t@daily", "Asia/Tokyo"},
		{"DTSTART;TZID=America/New_York:20260301T090000 FREQ=DAILY", "America/New_York"},
		{"RRULE:FREQ=DAILY\r\ndtstart;VALUE=DATE-TIME;tzid=\"America/New_York\":20260301T090000", "America/New_York"},
		{"DTSTART;TZID=America/New\r\n _York:20260301T090000\r\nRRULE:FREQ=DAILY", "America/New_York"},
		{"DTSTART:20260301T090000 FREQ=DAILY EXDATE;TZID=Asia/Tokyo:20260302T090000", ""},
		{"FREQ=DAILY", ""},
		{"0 9 * * *", ""},
		{"R/2026-03-01T09:00:00Z/PT15M", ""},
		{"2026-03-01T09:00:00Z", ""},
		{"", ""},
		{"DTSTART FREQ=DAILY", ""},
		{"DTSTART;TZID=EST:20260301T090000 FREQ=DAILY", ""},
	} {
		name, ok := NamedZone(c.text)
		if name != c.want && ok || ok != (c.want != "") {
			t.Errorf("NamedZone(%q) = %q, %v, want %q", c.text, name, ok, c.want)
		}
		rule, err := Parse(c.text, Options{Start: time.Unix(0, 0)})
		if err != nil {
			continue
		}
		if c.want == "" {
			c.want = "UTC"
		}
		if got := Location(rule).String(); got != c.want {
			t.Errorf("%q is read in %s, want %s", c.text, got, c.want)
		}
	}
}
