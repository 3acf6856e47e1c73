package schedule

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestIntervals(t *testing.T) {
	const ny = "America/New_York"
	for _, c := range []struct{ text, zone, after, want string }{
		{"R5/2026-03-01T09:00:00Z/PT15M", "", "2026-02-01 00:00",
			"2026-03-01 09:00, 09:15, 09:30, 09:45, 10:00, never"},
		{"R1/2026-03-01T09:00:00Z/PT15M", "", "2026-02-01 00:00", "2026-03-01 09:00, never"},
		{"R/2026-03-01T09:00:00Z/PT15M", "", "2026-03-01 09:00", "2026-03-01 09:15, 09:30"},
		{"R-1/2026-03-01T09:00:00Z/PT15M", "", "2030-01-01 00:07", "2030-01-01 00:15, 00:30"},
		{"r2/2026-03-01t09:00z/pt1h30m", "", "2026-02-01 00:00", "2026-03-01 09:00, 10:30, never"},
		{" R2/2026-03-01T09:00:00+05:45/PT36H\t", "", "2026-02-01 00:00", "2026-03-01 03:15, 2026-03-02 15:15, never"},
		{"R3/2026-03-01T09:00:00Z/2026-03-01T09:20:00Z", "", "2026-02-01 00:00", "2026-03-01 09:00, 09:20, 09:40, never"},
		{"R/2026-03-01T09:00:00Z/PT0.5H", "", "2026-03-01 09:00", "2026-03-01 09:30"},
		{"R/2026-03-01T09:00:00Z/PT1H1,5M", "", "2026-03-01 09:00", "2026-03-01 10:01:30"},

		// Time parts pass whatever the clock shows; date parts keep to the wall clock.
		{"R/2026-03-07T09:00:00/PT24H", ny, "2026-03-07 00:00", "2026-03-07 14:00, 2026-03-08 14:00, 2026-03-09 14:00"},
		{"R/2026-03-07T09:00:00/P1D", ny, "2026-03-07 00:00", "2026-03-07 14:00, 2026-03-08 13:00, 2026-03-09 13:00"},
		{"R/2026-03-02T09:00:00/P1W", ny, "2026-03-01 00:00", "2026-03-02 14:00, 2026-03-09 13:00, 2026-03-16 13:00"},
		{"R/2026-03-07T09:00:00-05:00/P1D", ny, "2026-03-07 00:00", "2026-03-07 14:00, 2026-03-08 13:00"},
		{"R/2026-03-07T14:00:00Z/P1D", "", "2026-03-07 00:00", "2026-03-07 14:00, 2026-03-08 14:00, 2026-03-09 14:00"},

		{"R/2026-01-31T09:00:00Z/P1M", "", "2026-01-01 00:00",
			"2026-01-31 09:00, 2026-02-28 09:00, 2026-03-31 09:00, 2026-04-30 09:00, 2026-05-31 09:00"},
		{"R/2026-01-31T09:00:00Z/P1M", "", "2028-01-31 09:00", "2028-02-29 09:00, 2028-03-31 09:00"},
		{"R/2028-02-29T00:00:00Z/P1Y", "", "2028-01-01 00:00", "2028-02-29 00:00, 2029-02-28 00:00, 2030-02-28 00:00, 2031-02-28 00:00, 2032-02-29 00:00"},
		{"R/2026-01-31T00:00:00Z/P1M10D", "", "2026-01-01 00:00", "2026-01-31 00:00, 2026-03-10 00:00, 2026-04-20 00:00, 2026-05-30 00:00"},
		{"R/2026-01-01T00:00:00Z/P1Y2M", "", "2026-01-01 00:00", "2027-03-01 00:00, 2028-05-01 00:00"},
		{"R4/2026-03-07T09:00:00/P1DT12H", ny, "2026-03-07 00:00",
			"2026-03-07 14:00, 2026-03-09 01:00, 2026-03-10 13:00, 2026-03-12 01:00, never"},

		// Skipped and repeated wall times.
		{"R/2026-03-07T02:30:00/P1D", ny, "2026-03-07 00:00", "2026-03-07 07:30, 2026-03-08 07:00, 2026-03-09 06:30"},
		{"R/2026-03-08T02:30:00/P1D", ny, "2026-03-07 00:00", "2026-03-08 07:00, 2026-03-09 06:30"},
		{"R/2026-03-08T02:30:00/PT1H", ny, "2026-03-07 00:00", "2026-03-08 07:00, 08:00"},
		{"R/2026-10-31T01:30:00/P1D", ny, "2026-10-31 00:00", "2026-10-31 05:30, 2026-11-01 05:30, 2026-11-02 06:30"},
		{"R/2026-11-01T01:30:00-05:00/P1D", ny, "2026-10-31 00:00", "2026-11-01 06:30, 2026-11-02 06:30"}, // from the second 01:30
		{"R/2026-11-01T01:30:00-05:00/P1D", ny, "2026-11-01 05:30", "2026-11-01 06:30, 2026-11-02 06:30"},
		{"R/2011-12-29T12:00:00/P1D", "Pacific/Apia", "2011-12-29 00:00", "2011-12-29 22:00, 2011-12-30 10:00, 22:00, 2011-12-31 22:00"},
		{"R3/2011-12-29T00:00:00/P1D", "Pacific/Apia", "2011-12-29 00:00", "2011-12-29 10:00, 2011-12-30 10:00, never"}, // the 30th and the 31st are one
	} {
		expectChain(t, c.text, Options{Timezone: c.zone}, c.after, c.want, "")
	}
}

func TestIntervalDSTOptions(t *testing.T) {
	const text = "R/2026-03-07T02:30:00/P1D"
	o := Options{Timezone: "America/New_York", SkipGap: true}
	expectChain(t, text, o, "2026-03-07 00:00", "2026-03-07 07:30, 2026-03-09 06:30", "")
	expectChain(t, "R3/2026-03-07T02:30:00/P1D", o, "2026-03-07 00:00", "2026-03-07 07:30, 2026-03-09 06:30, never", "a skipped one is one of three")
	expectChain(t, "R/2026-03-08T02:30:00/P1D", o, "2026-03-07 00:00", "2026-03-09 06:30", "the start is skipped")
	expectChain(t, "R/2026-10-31T01:30:00/P1D", Options{Timezone: "America/New_York", Overlap: DSTBoth}, "2026-10-31 00:00",
		"2026-10-31 05:30, 2026-11-01 05:30, 06:30, 2026-11-02 06:30", "")
	if _, err := Parse("R/2026-03-08T02:30:00/PT1H", o); err == nil || !strings.Contains(err.Error(), "skips the start") {
		t.Errorf("an interval from a skipped start: %v", err)
	}
}

func TestIntervalStartOption(t *testing.T) {
	start := time.Date(2026, 1, 31, 8, 0, 0, 250_000_999, time.UTC)
	o := Options{Timezone: "Europe/Paris", Start: start}
	for _, c := range []struct{ text, want string }{
		{"PT15M", "2026-01-31T08:00:00.25Z 2026-01-31T08:15:00.25Z"},
		{"@every 90s", "2026-01-31T08:00:00.25Z 2026-01-31T08:01:30.25Z"},
		{"@EVERY 1h0.5s", "2026-01-31T08:00:00.25Z 2026-01-31T09:00:00.75Z"},
		{"CRON_TZ=Europe/Paris @every 90s", "2026-01-31T08:00:00.25Z 2026-01-31T08:01:30.25Z"},
		{"R2/P1M", "2026-01-31T08:00:00Z 2026-02-28T08:00:00Z 0001-01-01T00:00:00Z"}, // in whole seconds
		{"P2M", "2026-01-31T08:00:00Z 2026-03-31T07:00:00Z"},
		{"P1DT1S", "2026-01-31T08:00:00Z 2026-02-01T08:00:01Z"},
		{"R/2026-03-01T09:00:00.5Z/PT1S", "2026-03-01T09:00:00.5Z 2026-03-01T09:00:01.5Z"},
	} {
		rule, at := mustParse(t, c.text, o), start.Add(-time.Second)
		for want := range strings.SplitSeq(c.want, " ") {
			if at = rule.Next(at); at.Format(time.RFC3339Nano) != want {
				t.Errorf("%s: %v instead of %s", c.text, at, want)
			}
		}
	}
	for _, year := range []int{1969, 2263, 300_000} {
		o.Start = time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		if _, err := Parse("PT15M", o); err == nil || !strings.Contains(err.Error(), "outside the years 1970 to 2262") {
			t.Errorf("start in %d: %v", year, err)
		}
	}
}

func TestIntervalErrors(t *testing.T) {
	const start = "2026-03-01T09:00:00Z"
	for _, c := range []struct {
		text    string
		column  int
		message string
	}{
		{"P", 1, "the duration is empty"},
		{"PT", 2, "the time is missing after T"},
		{"P1DT", 4, "the time is missing after T"},
		{"P0D", 1, "the duration is zero"},
		{"PT0S", 1, "the duration is zero"},
		{"PT0.999999S", 1, "the duration is under a second"},
		{"P-1D", 2, "numbers cannot have a sign"},
		{"P1.5D", 2, "days cannot have a fraction"},
		{"P0.5Y", 2, "years cannot have a fraction"},
		{"P0,5M", 2, "months cannot have a fraction"},
		{"P1.5W", 2, "weeks cannot have a fraction"},
		{"PT1.5H30M", 7, "only the last number of a duration can have a fraction"},
		{"PT1.S", 3, "a fraction has 1 to 6 digits"},
		{"PT1.1234567S", 3, "a fraction has 1 to 6 digits"},
		{"P1X", 3, "unknown designator 'X'; use Y, M, W or D"},
		{"P1DX", 4, `a number is missing before "X"`},
		{"PT15", 3, `"15" has no designator`},
		{"P15T1H", 2, `"15" has no designator`},
		{"PTM", 3, `a number is missing before "M"`},
		{"P1H", 3, "hours must follow a T, as in PT1H"},
		{"PT1D", 4, "days must precede the T"},
		{"PT1HT1M", 5, `a number is missing before "T1M"`},
		{"P1D1Y", 4, "years must precede days"},
		{"PT1M1H", 5, "hours must precede minutes"},
		{"P1D1D", 4, "days are given twice"},
		{"P1W1D", 1, "weeks cannot be combined with other units"},
		{"P1WT1H", 1, "weeks cannot be combined with other units"},
		{"P101Y", 2, "the duration is longer than 100 years"},
		{"P99Y13M", 1, "the duration is longer than 100 years"},
		{"PT99999999999999999999S", 3, "the duration is longer than 100 years"},
		{"PT15M", 0, "an interval needs a start: write one in the schedule, or set starts_at"},
		{"R5/PT15M", 0, "an interval needs a start"},

		{"R0/" + start + "/PT15M", 2, "an interval fires at least once"},
		{"R-2/" + start + "/PT15M", 2, `"-2" is not the number of firings`},
		{"R5x/" + start + "/PT15M", 2, `"5x" is not the number of firings`},
		{"R9999999999/" + start + "/PT15M", 2, "an interval fires at most 1000000000 times"},
		{"R5/", 4, `"" is not a duration such as PT15M or P1D`},
		{"R5/" + start, 4, `"2026-03-01T09:00:00Z" is not a duration`},
		{"R5/" + start + "/", 25, "the year has too few digits"},
		{"R5/PT15M/" + start, 4, "the start must precede the duration"},
		{"R5/" + start + "/PT15M/PT15M", 30, "an interval ends after the duration"},
		{"R5/2026-02-30T09:00:00Z/PT15M", 12, "the day 30 is out of range"},
		{"R5/" + start + "/2026-02-01T00:00:00Z", 25, "the end is not a second after the start"},
		{"R5/" + start + "/" + start, 25, "the end is not a second after the start"},
		{"R5/" + start + "/2200-02-01T00:00:00Z", 25, "the end is more than 100 years after the start"},
		{"R5/" + start + " /PT15M", 24, "an interval cannot contain blanks"},
		{"R5/2026-03-01T09:00:00.5Z/P1D", 0, "an interval of days or months starts on a whole second"},
		{start + "/PT15M", 21, "an interval begins with R"},
	} {
		_, err := Parse(c.text, Options{})
		var e *Error
		switch {
		case !errors.As(err, &e):
			t.Errorf("%s: error %v, want %q", c.text, err, c.message)
		case e.Field != "schedule" || e.Column != c.column || !strings.Contains(e.Message, c.message):
			t.Errorf("%s: %s, column %d, %q; want column %d, %q", c.text, e.Field, e.Column, e.Message, c.column, c.message)
		default:
			expectExample(t, c.text, e)
		}
	}
	_, err := Parse("R5/2026-03-01T09:00:00/PT15M", Options{})
	if e := (*Error)(nil); !errors.As(err, &e) || e.Field != "timezone" {
		t.Errorf("a local start without a time zone: %v", err)
	}
	_, err = Parse("R5/2020-03-01T09:00:00Z/PT15M", Options{Now: utc(t, "2026-01-01 00:00")})
	if err == nil || !strings.Contains(err.Error(), "never fires") {
		t.Errorf("an interval that is over: %v", err)
	}
}

// TestCalendarIntervalAgreesWithBruteForce compares intervals with steps counted one by
// one from the start and looked up in the zone second by second.
func TestCalendarIntervalAgreesWithBruteForce(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	places := []string{"UTC", "America/New_York", "Europe/Dublin", "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo", "Africa/Casablanca"}
	n := 150
	if raceDetected() {
		n = 30
	}
	for range n {
		place := places[random.IntN(len(places))]
		location, err := LoadZone(place)
		if err != nil {
			t.Fatal(err)
		}
		first := time.Date(2005+random.IntN(30), time.Month(1+random.IntN(12)), 1+random.IntN(31), random.IntN(4), 15*random.IntN(4), 0, 0, time.UTC)
		y, m, d := random.IntN(2), random.IntN(14), random.IntN(40)
		hours := random.IntN(2) * random.IntN(50)
		if y+m+d == 0 {
			continue
		}
		text := fmt.Sprintf("R60/%s/P%dY%dM%dDT%dH", first.Format("2006-01-02T15:04:05"), y, m, d, hours)
		rule := mustParse(t, text, Options{Timezone: place})
		asked := first.AddDate(0, 0, -3)
		for n := range 60 {
			month := time.Date(first.Year()+n*y, first.Month()+time.Month(n*m), 1, first.Hour(), first.Minute(), 0, 0, time.UTC)
			length := month.AddDate(0, 1, -1).Day()
			wall := month.AddDate(0, 0, min(first.Day(), length)-1+n*d)
			want := resolveByScan(location, wall).Add(time.Duration(n*hours) * time.Hour)
			if want.Equal(asked) {
				continue // Two wall times moved to one instant.
			}
			if got := rule.Next(asked); !got.Equal(want) {
				t.Fatalf("%s in %s: after %v comes %v, want %v", text, place, asked, got, want)
			}
			asked = want
		}
		if got := rule.Next(asked); !got.IsZero() {
			t.Fatalf("%s in %s: after the last comes %v", text, place, got)
		}
	}
}

// resolveByScan finds the first instant at which a clock shows a wall time or a later one
// by watching it.
func resolveByScan(location *time.Location, wall time.Time) time.Time {
	shown := func(at time.Time) time.Time {
		_, offset := at.In(location).Zone()
		return at.Add(time.Duration(offset) * time.Second)
	}
	for _, step := range []time.Duration{time.Minute, time.Second} {
		for at := wall.Add(-27 * time.Hour).Truncate(step); ; at = at.Add(step) {
			if !shown(at).Before(wall) {
				if shown(at).Equal(wall) || step == time.Second {
					return at
				}
				break
			}
		}
	}
	panic("unreachable")
}
