package schedule

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestOneOffInstants(t *testing.T) {
	const ny = "America/New_York"
	for _, c := range []struct{ text, zone, want string }{
		{"2026-03-01T09:00:00Z", "", "2026-03-01T09:00:00Z"},
		{"2026-03-01t09:00:00z", "", "2026-03-01T09:00:00Z"},
		{"2026-03-01T09:00Z", "", "2026-03-01T09:00:00Z"},
		{" 2026-03-01T09:00:00Z\t", "", "2026-03-01T09:00:00Z"},
		{"2026-03-01T09:00:00+05:45", "", "2026-03-01T03:15:00Z"},
		{"2026-03-01T09:00:00-00:00", "", "2026-03-01T09:00:00Z"},
		{"2026-02-28T21:30:15.25-08:00", ny, "2026-03-01T05:30:15.25Z"},
		{"2026-03-01T09:00:00.123456Z", "", "2026-03-01T09:00:00.123456Z"},
		{"2026-03-01T09:00:00.123456999Z", "", "2026-03-01T09:00:00.123456Z"},
		{"2026-03-01T09:00:00", ny, "2026-03-01T14:00:00Z"},
		{"2026-07-01T09:00:00", ny, "2026-07-01T13:00:00Z"},
		{"2026-03-01T09:00:00", "UTC", "2026-03-01T09:00:00Z"},
		{"2026-11-01T00:59:59", ny, "2026-11-01T04:59:59Z"},
		{"2026-11-01T01:30:00", ny, "2026-11-01T05:30:00Z"}, // the first of two
		{"2026-11-01T02:00:00", ny, "2026-11-01T07:00:00Z"},
		{"2026-03-08T01:59:59", ny, "2026-03-08T06:59:59Z"},
		{"2026-03-08T02:00:00", ny, "2026-03-08T07:00:00Z"}, // skipped: the end of the gap
		{"2026-03-08T02:30:00.5", ny, "2026-03-08T07:00:00Z"},
		{"2026-03-08T03:00:00", ny, "2026-03-08T07:00:00Z"},
		{"2026-10-25T01:30:00", "Europe/Dublin", "2026-10-25T00:30:00Z"},
		{"2026-03-29T01:30:00", "Europe/Dublin", "2026-03-29T01:00:00Z"},
		{"2011-12-30T12:00:00", "Pacific/Apia", "2011-12-30T10:00:00Z"},
		{"1972-01-07T00:00:00", "Africa/Monrovia", "1972-01-07T00:44:30Z"},
		{"2028-02-29T00:00:00Z", "", "2028-02-29T00:00:00Z"},
		{"1970-01-01T00:00:00Z", "", "1970-01-01T00:00:00Z"},
		{"2262-12-31T23:59:59Z", "", "2262-12-31T23:59:59Z"},
	} {
		rule := mustParse(t, c.text, Options{Timezone: c.zone})
		want, err := time.Parse(time.RFC3339, c.want)
		if err != nil {
			t.Fatal(err)
		}
		at, ok := Once(rule)
		if !ok || !at.Equal(want) || at.Location() != time.UTC {
			t.Errorf("%s in %q is %v, %v; want %v", c.text, c.zone, at, ok, want)
		}
		if got := rule.Next(want.Add(-time.Nanosecond)); !got.Equal(want) {
			t.Errorf("%s: just before comes %v", c.text, got)
		}
		if got := rule.Next(want); !got.IsZero() {
			t.Errorf("%s: at the instant itself comes %v, want never", c.text, got)
		}
	}
}

func TestOnceOnlyForOneOff(t *testing.T) {
	for _, expr := range []string{"0 9 * * TUE", "0 9 * OCT SAT", "0 0 0 1 1 * 2030"} {
		if at, ok := Once(mustParse(t, expr, Options{})); ok {
			t.Errorf("%s is the instant %v", expr, at)
		}
	}
}

func TestOneOffErrors(t *testing.T) {
	for _, c := range []struct {
		text    string
		column  int
		message string
	}{
		{"2026-03-01", 11, `"T" is missing before the time`},
		{"2026-03-01 09:00:00", 11, `"T" is missing before the time`},
		{"2026-03-01T", 12, "the hour has too few digits"},
		{"2026-03-01T9:00Z", 12, "the hour has too few digits"},
		{"2026-03-01T09Z", 14, `":" is missing before the minute`},
		{"20260301T090000Z", 5, `"-" is missing before the month`},
		{"2026-W10-1T09:00:00Z", 6, "the month has too few digits"},
		{"2026-060T09:00:00Z", 8, `"-" is missing before the day`},
		{"26-03-01T09:00:00Z", 1, "the year has too few digits"},
		{"2026-13-01T09:00:00Z", 6, "the month 13 is out of range, it goes from 1 to 12"},
		{"2026-00-01T09:00:00Z", 6, "the month 0 is out of range"},
		{"2026-02-29T09:00:00Z", 9, "the day 29 is out of range, it goes from 1 to 28"},
		{"2026-02-00T09:00:00Z", 9, "the day 0 is out of range"},
		{"2026-03-01T24:00:00Z", 12, "the hour 24 is out of range, it goes from 0 to 23"},
		{"2026-03-01T09:60:00Z", 15, "the minute 60 is out of range"},
		{"2026-03-01T23:59:60Z", 18, "the second 60 is out of range, it goes from 0 to 59"},
		{"2026-03-01T09:00:00.Z", 21, "a fraction of a second has 1 to 9 digits"},
		{"2026-03-01T09:00:00.1234567890Z", 21, "a fraction of a second has 1 to 9 digits"},
		{"2026-03-01T09:00:00,5Z", 20, `",5Z" is neither an offset`},
		{"2026-03-01T09:00:00+0200", 23, `":" is missing before the offset's minute`},
		{"2026-03-01T09:00:00+02", 23, `":" is missing before the offset's minute`},
		{"2026-03-01T09:00:00+24:00", 21, "the offset's hour 24 is out of range"},
		{"2026-03-01T09:00:00+02:60", 24, "the offset's minute 60 is out of range"},
		{"2026-03-01T09:00:00ZZ", 21, `"Z" is neither an offset`},
		{"2026-03-01T09:00:00 Z", 20, `" Z" is neither an offset`},
		{"2026-03-01T09:00:00Z[Europe/Paris]", 21, `"[Europe/Paris]" is neither an offset`},
		{"1969-12-31T23:59:59Z", 1, "the year 1969 is out of range, it goes from 1970 to 2262"},
		{"2263-01-01T00:00:00Z", 1, "the year 2263 is out of range"},
		{"1970-01-01T00:00:00+00:01", 0, "outside the years 1970 to 2262"},
		{"2262-12-31T23:59:59-00:01", 0, "outside the years 1970 to 2262"},
		{"12026-03-01T09:00:00Z", 1, "the year 1202 is out of range"},
	} {
		_, err := Parse(c.text, Options{Timezone: "UTC"})
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
}

func TestOneOffInGapWithSkipGap(t *testing.T) {
	o := Options{Timezone: "America/New_York", SkipGap: true}
	_, err := Parse("2026-03-08T02:30:00", o)
	if err == nil || !strings.Contains(err.Error(), "the clock in America/New_York skips 2026-03-08T02:30:00") {
		t.Errorf("got %v", err)
	}
	for _, text := range []string{"2026-03-08T03:00:00", "2026-11-01T01:30:00", "2026-03-08T02:30:00-05:00"} {
		mustParse(t, text, o)
	}
}
