package schedule

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestCronErrors(t *testing.T) {
	const signs, empty = "numbers cannot have a sign", "a list item is empty"
	for _, c := range []struct {
		text    string
		column  int
		message string // part of it
	}{
		{"", 0, "the text is empty"},
		{" \t ", 0, "the text is empty"},
		{"*", 0, "1 field instead of 5"},
		{"* * * *", 0, "4 fields instead of 5"},
		{"* * * * * * * *", 0, "8 fields"},
		{strings.Repeat("* ", 500), 0, "500 fields"},
		{strings.Repeat("* ", 5000), 0, "the text has 10000 bytes, the most is 1024"},
		{"FREQ=DAILY" + strings.Repeat(" ", 5000), 0, "the text has 5010 bytes, the most is 4096"},
		{"0" + strings.Repeat(",0", 600) + " * * * *", 0, "the text has 1209 bytes"},

		{"60 * * * *", 1, "minute 60 is out of range, it goes from 0 to 59"},
		{"*/99999999999999999999 * * * *", 3, "the step 99999999999999999999 is out of range, it goes from 1 to 999999"},
		{"0 24 * * *", 3, "hour 24 is out of range, it goes from 0 to 23"},
		{"0 0 0 * *", 5, "day of month 0 is out of range, it goes from 1 to 31"},
		{"0 0 32 * *", 5, "day of month 32"},
		{"0 0 * 0 *", 7, "month 0 is out of range, it goes from 1 to 12"},
		{"0 0 * 1,13 *", 9, "month 13"},
		{"0 0 * * 8", 9, "weekday 8 is out of range, it goes from 0 to 7"},
		{"60 0 0 * * *", 1, "second 60"},
		{"0 0 0 * * * 1969", 13, "year 1969 is out of range, it goes from 1970 to 2499"},
		{"0 0 0 * * * 2030-2020", 13, "year: the range 2030-2020 ends before it begins"},
		{"99999999999999999999 * * * *", 1, "minute 99999999999999999999 is out of range"},
		{"5-60 * * * *", 3, "minute 60"},

		{"*/0 * * * *", 3, "minute: the step must be at least 1"},
		{"*/ * * * *", 3, "minute: the step is missing"},
		{"0 1-5/,7 * * *", 7, "hour: the step is missing"},
		{"*/a * * * *", 3, "minute: unexpected 'A' in place of the step"},
		{"*/-5 * * * *", 3, signs},
		{"*/5/5 * * * *", 4, `unexpected "/5" after "*/5"`},
		{"0 1-2-3 * * *", 6, `unexpected "-3" after "1-2"`},
		{"0 1- * * *", 5, "hour: a value is missing"},
		{"+5 * * * *", 1, signs},
		{"-5 * * * *", 1, signs},
		{"0 1-+5 * * *", 5, signs},
		{"1,,2 * * * *", 3, empty},
		{",1 * * * *", 1, empty},
		{"1, * * * *", 3, empty},
		{"*5 * * * *", 2, `unexpected "5" after "*"`},
		{"*-5 * * * *", 2, `unexpected "-5" after "*"`},
		{"1.5 * * * *", 2, `unexpected ".5" after "1"`},
		{"0 0 ?/2 * *", 5, `"?" must be`},
		{"0 0 ?? * *", 5, `"?" must be`},
		{"! * * * *", 1, "minute: unexpected '!' in place of a value"},

		{"MON * * * *", 1, `minute: "MON" is not a number`},
		{"0 0 * FOO *", 7, `month: there is no "FOO"; names have three letters, JAN to DEC`},
		{"0 0 * JANUARY *", 7, `month: there is no "JANUARY"`},
		{"0 0 * MON *", 7, `month: there is no "MON"`},
		{"0 0 * * MONDAY", 9, `weekday: there is no "MONDAY"; names have three letters, SUN to SAT`},
		{"0 0 * * UNM", 9, `weekday: there is no "UNM"`},
		{"0 0 * * MON-XYZ", 13, `weekday: there is no "XYZ"`},

		{"0 0 LX * *", 6, `unexpected "X" after "L"`},
		{"0 0 L5 * *", 6, `unexpected "5" after "L"`},
		{"0 0 L/2 * *", 6, `unexpected "/2" after "L"`},
		{"0 0 L- * *", 7, "the number after L- is missing"},
		{"0 0 L-31 * *", 7, "the number after L- 31 is out of range, it goes from 0 to 30"},
		{"0 0 L--1 * *", 7, signs},
		{"0 0 LWX * *", 7, `unexpected "X" after "LW"`},
		{"0 0 1-L * *", 7, `day of month: "L" is not a number`},
		{"0 0 W * *", 5, "W needs a day before it"},
		{"0 0 0W * *", 5, "day of month 0"},
		{"0 0 32W * *", 5, "day of month 32"},
		{"0 0 15WL * *", 8, `unexpected "L" after "15W"`},
		{"0 0 15W/2 * *", 8, `unexpected "/2" after "15W"`},
		{"0 0 1-15W * *", 9, `unexpected "W" after "1-15"`},
		{"0 0 5L * *", 6, `unexpected "L" after "5"`},
		{"L * * * *", 1, `minute: "L" is not a number`},
		{"0 0 * L *", 7, `month: there is no "L"`},
		{"0 0 * * L", 9, "L needs a weekday before it"},
		{"0 0 * * LW", 9, `weekday: there is no "LW"`},
		{"0 0 * * 5W", 10, `unexpected "W" after "5"`},
		{"0 0 * * 5LW", 11, `unexpected "W" after "5L"`},
		{"0 0 * * 8L", 9, "weekday 8"},
		{"0 0 * * 1-5L", 12, `unexpected "L" after "1-5"`},
		{"0 0 * * 5#0", 11, "the number after # 0 is out of range, it goes from 1 to 5"},
		{"0 0 * * 5#6", 11, "the number after # 6 is out of range"},
		{"0 0 * * 5#", 11, "the number after # is missing"},
		{"0 0 * * 5#L", 11, "unexpected 'L' in place of the number after #"},
		{"0 0 * * 5#2-3", 12, `unexpected "-3" after "5#2"`},
		{"0 0 * * #2", 9, "weekday: unexpected '#' in place of a value"},
		{"0 0 5#2 * *", 6, `unexpected "#2" after "5"`},

		{"H * * * *", 1, "minute: H is not resolved: each job gets"},
		{"0 h/2 * * *", 3, "hour: H is not resolved"},
		{"0 0,H(0-7) * * *", 5, "hour: H is not resolved"},
		{"@every", 7, "a duration such as 90s is missing after @every"},
		{"@every 5m", 0, "an interval needs a start"},
		{"@every 90", 8, `"90" is not a duration such as 90s or 1h30m`},
		{"@every 1x", 8, `"1x" is not a duration`},
		{"@every 0s", 8, "the duration is under a second"},
		{"@every -5m", 8, "the duration is under a second"},
		{"@every 999ms", 8, "the duration is under a second"},
		{"@every 1.0000005s", 8, "the duration is finer than a microsecond"},
		{"@every 1000000h", 8, "the duration is longer than 100 years"},
		{"@every 90s 5", 12, `unexpected "5" after "90s"`},
		{"@reboot", 1, "@reboot names no time"},
		{"  @fortnightly", 3, `unknown macro "@fortnightly"; use @hourly`},
		{"@daily 5", 8, `unexpected "5" after @daily`},
		{"@", 1, `unknown macro "@"`},

		{"0 9 * * *\n", 10, "control character U+000A"},
		{"0 9\x00 * * *", 4, "control character U+0000"},
		{"0 9 * *\x7f *", 8, "control character U+007F"},
		{"0 9 * * \u0661", 9, "unexpected character '\u0661'"},
		{"0 9 \xff * *", 5, "the text is not valid UTF-8"},

		{"TZ=", 4, "the name of a time zone is missing"},
		{"TZ= 0 9 * * *", 4, "the name of a time zone is missing"},
		{"TZ=America/New_York", 0, "the fields are missing after the time zone"},
		{"CRON_TZ=Europe/Nowhere 0 9 * * *", 9, `there is no time zone "Europe/Nowhere"`},
		{"CRON_TZ=EST 0 9 * * *", 9, `did you mean "America/New_York"?`},
		{"CRON_TZ=Europe/Paris 0 25 * * *", 24, "hour 25"},

		{"0 0 31 2 *", 0, "the schedule never fires"},
		{"0 0 30-31 2 ?", 0, "the schedule never fires"},
		{"0 0 31W 2,4,6,9,11 ?", 0, "the schedule never fires"},
		{"0 0 L-30 2 *", 0, "the schedule never fires"},
		{"* * 31 2 *", 0, "the schedule never fires"},
		{"0 0 0 29 2 * 2026,2027", 0, "the schedule never fires"},
	} {
		_, err := Parse(c.text, Options{})
		var e *Error
		switch {
		case !errors.As(err, &e):
			t.Errorf("%.60q: error %v, want %q", c.text, err, c.message)
		case e.Field != "schedule" || e.Column != c.column || !strings.Contains(e.Message, c.message):
			t.Errorf("%.60q: %s, column %d, %q; want schedule, column %d, %q", c.text, e.Field, e.Column, e.Message, c.column, c.message)
		default:
			expectExample(t, c.text, e)
		}
	}
}

// expectExample checks that the example of a refusal is itself accepted.
func expectExample(t *testing.T, text string, e *Error) {
	t.Helper()
	if _, err := Parse(e.Example, Options{}); err != nil {
		t.Errorf("%.60q: the example %q is refused: %v", text, e.Example, err)
	}
}

func TestErrorText(t *testing.T) {
	_, err := Parse("0 75 * * *", Options{})
	const want = `schedule, column 3: hour 75 is out of range, it goes from 0 to 23; for example "0 9-17 * * *"`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestErrorFieldTimezone(t *testing.T) {
	for _, c := range []struct{ text, timezone, field, message string }{
		{"0 9 * * *", "Mars/Olympus", "timezone", `there is no time zone "Mars/Olympus"`},
		{"0 9 * * *", "Local", "timezone", "depends on the machine"},
		{"2026-03-01T09:00:00Z", "Mars/Olympus", "timezone", `there is no time zone "Mars/Olympus"`},
		{"2026-03-01T09:00:00", "", "timezone", "requires a time zone"},
		{"TZ=Asia/Tokyo 0 9 * * *", "Europe/Paris", "schedule", `names the time zone "Asia/Tokyo" itself`},
	} {
		_, err := Parse(c.text, Options{Timezone: c.timezone})
		var e *Error
		if !errors.As(err, &e) || e.Field != c.field || !strings.Contains(e.Message, c.message) {
			t.Errorf("%s in %q: %v, want %s: %s", c.text, c.timezone, err, c.field, c.message)
		}
	}
}

func TestParseNowRefusesNeverFiring(t *testing.T) {
	now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		expr   string
		now    time.Time
		accept bool
	}{
		{"0 0 0 1 1 * 2026", time.Time{}, true}, // stored, and over
		{"0 0 0 1 1 * 2026", now, false},
		{"0 0 0 1 1 * 2027", now, true},
		{"0 0 0 1 1 * 2071", now, true},
		{"0 0 0 1 1 * 2072", now, false},
		{"0 0 0 1 1 * 2072", time.Time{}, true},
		{"0 0 29 2 *", time.Date(2096, 2, 29, 0, 0, 0, 0, time.UTC), true},
		{"0 0 * 2 TUE#5", time.Date(2084, 3, 1, 0, 0, 0, 0, time.UTC), true},
		{"0 0 31 2 *", now, false},
	} {
		_, err := Parse(c.expr, Options{Now: c.now})
		if accepted := err == nil; accepted != c.accept {
			t.Errorf("%s, now %v: %v", c.expr, c.now, err)
		}
	}
}

func TestParseRefusesSkippedDay(t *testing.T) {
	o := Options{Timezone: "Pacific/Apia"} // had no 30 December 2011
	expectChain(t, "0 0 12 30 12 * 2011", o, "2011-01-01 00:00", "2011-12-30 10:00, never", "")
	o.SkipGap = true
	if _, err := Parse("0 0 12 30 12 * 2011", o); err == nil {
		t.Error("accepted, although its only time is skipped")
	}
}
