package schedule

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestRRuleErrors(t *testing.T) {
	for _, c := range []struct {
		text    string
		column  int
		message string // part of it
	}{
		{"", 0, "there is no RRULE"},
		{"DTSTART:20260301T090000", 0, "there is no RRULE"},
		{"RRULE:", 7, "\"\" is not of the form NAME=value"},
		{"RRULE", 6, "RRULE has no parameters: a \":\" follows it"},
		{"RRULE;X=1:FREQ=DAILY", 6, "RRULE has no parameters"},
		{strings.Repeat("RRULE:FREQ=DAILY\n", 17), 273, "more than 16 RRULE lines"},
		{"FREQ=DAILY;\x00", 12, "unexpected character '\\x00'"},
		{"FREQ=DAILY;BYHOUR=\u0661", 19, "unexpected character '\u0661'"},

		{"COUNT=3", 1, "FREQ is missing"},
		{"FREQ=FORTNIGHTLY", 6, `FREQ: unknown frequency "FORTNIGHTLY"; use one of YEARLY, MONTHLY`},
		{"FREQ=", 6, `FREQ: unknown frequency ""`},
		{"FREQ=DAILY;FREQ=DAILY", 12, "there are two FREQ parts"},
		{"FREQ=DAILY;COUNT", 12, `"COUNT" is not of the form NAME=value`},
		{"FREQ=DAILY;;COUNT=3", 12, `"" is not of the form NAME=value`},
		{"FREQ=DAILY;BYEASTER=1", 12, "BYEASTER is not part of RFC 5545"},
		{"FREQ=DAILY;FOO=1", 12, `unknown part "FOO"`},
		{"FREQ=DAILY;X-FOO=1", 12, `unknown part "X-FOO"`},
		{"RRULE:FREQ=DAILY;\r\n FOO=1", 21, `unknown part "FOO"`},
		{"FREQ=DAILY COUNT=3", 12, `a ";" is missing before "COUNT=3"`},
		{"FREQ=DAILY 3", 12, `a ";" is missing before "3"`},

		{"FREQ=DAILY;INTERVAL=0", 21, "INTERVAL: 0 is out of range, it goes from 1 to 1000000000"},
		{"FREQ=DAILY;INTERVAL=-1", 21, `INTERVAL: "-1" is not a number`},
		{"FREQ=DAILY;INTERVAL=", 21, "INTERVAL: a value is missing"},
		{"FREQ=DAILY;INTERVAL=1.5", 21, `"1.5" is not a number`},
		{"FREQ=DAILY;COUNT=0", 18, "COUNT: 0 is out of range, it goes from 1 to 1000000"},
		{"FREQ=DAILY;COUNT=-1", 18, `COUNT: "-1" is not a number`},
		{"FREQ=DAILY;COUNT=99999999999999999999", 18, "COUNT: 99999999999999999999 is out of range"},
		{"FREQ=DAILY;COUNT=3;UNTIL=20260401", 12, "COUNT and UNTIL exclude each other"},
		{"FREQ=SECONDLY;INTERVAL=7;BYHOUR=9;COUNT=1000001", 41, "COUNT: 1000001 is out of range, it goes from 1 to 1000000"},

		{strings.Repeat("RRULE:FREQ=MONTHLY;BYDAY=MO;BYSETPOS=1;COUNT=60000\n", 5), 0, "takes too long to compute, all its lines together; use fewer RRULE lines, UNTIL instead of COUNT"},

		{"FREQ=DAILY;BYMONTH=0", 20, "BYMONTH: 0 is out of range, it goes from 1 to 12"},
		{"FREQ=DAILY;BYMONTH=13", 20, "BYMONTH: 13 is out of range"},
		{"FREQ=DAILY;BYMONTH=-1", 20, `BYMONTH: "-1" is not a number`},
		{"FREQ=DAILY;BYMONTH=1,,2", 22, "BYMONTH: a value is missing"},
		{"FREQ=MONTHLY;BYMONTHDAY=0", 25, "BYMONTHDAY: 0 is out of range, it goes from 1 to 31 or from -31 to -1"},
		{"FREQ=MONTHLY;BYMONTHDAY=1,32", 27, "BYMONTHDAY: 32 is out of range"},
		{"FREQ=MONTHLY;BYMONTHDAY=-32", 25, "BYMONTHDAY: -32 is out of range"},
		{"FREQ=YEARLY;BYYEARDAY=367", 23, "BYYEARDAY: 367 is out of range"},
		{"FREQ=YEARLY;BYWEEKNO=54", 22, "BYWEEKNO: 54 is out of range"},
		{"FREQ=YEARLY;BYWEEKNO=+", 22, "BYWEEKNO: a value is missing"},
		{"FREQ=DAILY;BYHOUR=24", 19, "BYHOUR: 24 is out of range, it goes from 0 to 23"},
		{"FREQ=DAILY;BYMINUTE=60", 21, "BYMINUTE: 60 is out of range"},
		{"FREQ=DAILY;BYSECOND=60", 21, "BYSECOND: 60 is a leap second"},
		{"FREQ=DAILY;BYSECOND=61", 21, "BYSECOND: 61 is out of range"},
		{"FREQ=DAILY;BYHOUR=9;BYSETPOS=0", 30, "BYSETPOS: 0 is out of range"},
		{"FREQ=DAILY;BYHOUR=9;BYSETPOS=367", 30, "BYSETPOS: 367 is out of range"},
		{"FREQ=WEEKLY;BYDAY=XX", 19, `BYDAY: unknown weekday "XX"`},
		{"FREQ=WEEKLY;BYDAY=MO,", 22, `BYDAY: unknown weekday ""`},
		{"FREQ=WEEKLY;BYDAY=UM", 19, `BYDAY: unknown weekday "UM"`},
		{"FREQ=WEEKLY;BYDAY=M", 19, `BYDAY: unknown weekday "M"`},
		{"FREQ=MONTHLY;BYDAY=0MO", 20, "BYDAY: 0 is out of range"},
		{"FREQ=MONTHLY;BYDAY=54MO", 20, "BYDAY: 54 is out of range"},
		{"FREQ=MONTHLY;BYDAY=6MO", 14, "BYDAY 6 is out of range: a month has at most 5 of a weekday"},
		{"FREQ=YEARLY;BYMONTH=3;BYDAY=-6MO", 23, "BYDAY -6 is out of range"},
		{"FREQ=WEEKLY;WKST=1MO", 18, `WKST: unknown weekday "1MO"`},
		{"FREQ=WEEKLY;WKST=", 18, `WKST: unknown weekday ""`},

		{"FREQ=WEEKLY;BYDAY=1MO", 13, "BYDAY allows numbers only with FREQ=MONTHLY and FREQ=YEARLY, not with WEEKLY"},
		{"FREQ=DAILY;BYDAY=-1MO", 12, "BYDAY allows numbers"},
		{"FREQ=YEARLY;BYWEEKNO=20;BYDAY=1MO", 25, "BYDAY allows no numbers together with BYWEEKNO"},
		{"FREQ=MONTHLY;BYWEEKNO=20", 14, "BYWEEKNO requires FREQ=YEARLY, not MONTHLY"},
		{"FREQ=HOURLY;BYWEEKNO=20", 13, "BYWEEKNO requires FREQ=YEARLY"},
		{"FREQ=DAILY;BYYEARDAY=1", 12, "BYYEARDAY cannot be combined with FREQ=DAILY"},
		{"FREQ=WEEKLY;BYYEARDAY=1", 13, "BYYEARDAY cannot be combined with FREQ=WEEKLY"},
		{"FREQ=MONTHLY;BYYEARDAY=1", 14, "BYYEARDAY cannot be combined with FREQ=MONTHLY"},
		{"FREQ=WEEKLY;BYMONTHDAY=1", 13, "BYMONTHDAY cannot be combined with FREQ=WEEKLY"},
		{"FREQ=DAILY;BYSETPOS=1", 12, "BYSETPOS requires another BY part"},

		{"EXRULE:FREQ=DAILY FREQ=HOURLY", 1, "EXRULE is not supported"},
		{"SUMMARY:x\nRRULE:FREQ=DAILY", 1, `"SUMMARY:x" is not a DTSTART, RRULE, RDATE or EXDATE line`},
		{"RRULE:FREQ=DAILY DTEND:20260301", 18, `"DTEND:20260301" is not a DTSTART, RRULE, RDATE or EXDATE line`},
		{"RRULE:FREQ=DAILY\nCOUNT", 18, `"COUNT" is not a DTSTART, RRULE, RDATE or EXDATE line`},
		{"30 9 FREQ=DAILY", 4, `unexpected "9" after "30"`},
		{"DTSTART:20260301T090000 DTSTART:20260301T090000 FREQ=DAILY", 25, "there are two DTSTART lines"},
		{"DTSTART:20260301,20260302 FREQ=DAILY", 9, "DTSTART is a single date"},
		{"DTSTART: FREQ=DAILY", 9, `"" is not a date`},
		{"DTSTART;TZID=Europe/Paris FREQ=DAILY", 26, `DTSTART: a ":" and a date are missing`},
		{"DTSTART;X=1:20260301 FREQ=DAILY", 9, `DTSTART: unknown parameter "X"`},
		{"DTSTART;VALUE=PERIOD:20260301 FREQ=DAILY", 15, `DTSTART: the VALUE is DATE or DATE-TIME, not "PERIOD"`},
		{"DTSTART;VALUE=DATE:20260301T090000 FREQ=DAILY", 28, "a VALUE=DATE has no time of day"},
		{"DTSTART;VALUE=DATE-TIME:20260301 FREQ=DAILY", 25, "a VALUE=DATE-TIME needs a time of day"},
		{"DTSTART;TZID=Europe/Paris:20260301T090000Z FREQ=DAILY", 42, "a time with a Z is in UTC and has no TZID"},
		{"DTSTART;TZID=Mars/Olympus:20260301T090000 FREQ=DAILY", 14, `there is no time zone "Mars/Olympus"`},
		{"DTSTART;TZID=:20260301T090000 FREQ=DAILY", 14, "the name of a time zone is missing"},
		{"EXDATE;TZID=EST:20260301T090000 FREQ=DAILY", 13, `did you mean "America/New_York"?`},
		{"DTSTART;VALUE=DATE:20260301 FREQ=DAILY;BYHOUR=9", 0, "BYHOUR, BYMINUTE and BYSECOND need a DTSTART with a time of day"},

		{"DTSTART:2026-03-01 FREQ=DAILY", 13, `"2026-03-01" is not a date such as 20260301T090000`},
		{"DTSTART:202603 FREQ=DAILY", 15, `"202603" is not a date`},
		{"DTSTART:20260001 FREQ=DAILY", 13, "the month 0 is out of range, it goes from 1 to 12"},
		{"DTSTART:00000101 FREQ=DAILY", 9, "the year 0 is out of range"},
		{"DTSTART:20260229 FREQ=DAILY", 15, "the day 29 is out of range, it goes from 1 to 28"},
		{"DTSTART:20260301X090000 FREQ=DAILY", 17, `"20260301X090000" is not a date`},
		{"DTSTART:20260301T240000 FREQ=DAILY", 18, "the hour 24 is out of range"},
		{"DTSTART:20260301T096000 FREQ=DAILY", 20, "the minute 60 is out of range"},
		{"DTSTART:20260301T090060 FREQ=DAILY", 22, "the second 60 is out of range"},
		{"DTSTART:20260301T0900 FREQ=DAILY", 22, "is not a date such as"},
		{"DTSTART:20260301T090000X FREQ=DAILY", 24, `unexpected "X" after "20260301T090000"`},
		{"FREQ=DAILY;UNTIL=2026", 22, `"2026" is not a date`},
		{"FREQ=DAILY EXDATE:20260301,", 28, `"" is not a date`},
		{"FREQ=DAILY RDATE:20260301/P1D", 26, "is not a date such as"},

		{"FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30", 0, "the schedule never fires"},
		{"FREQ=HOURLY;INTERVAL=2;BYHOUR=9", 0, "the schedule never fires"}, // It begins at an even hour.
		{"FREQ=MINUTELY;INTERVAL=15;BYMINUTE=1", 0, "the schedule never fires"},
		{"FREQ=SECONDLY;INTERVAL=2;BYSECOND=1", 0, "the schedule never fires"},
		{"FREQ=SECONDLY;INTERVAL=86400;BYHOUR=9", 0, "the schedule never fires"},
		{"FREQ=DAILY;INTERVAL=7;BYDAY=TU", 0, "the schedule never fires"}, // It begins on a Sunday.
		{"FREQ=MONTHLY;INTERVAL=12;BYMONTH=2", 0, "the schedule never fires"},
		{"FREQ=DAILY;BYHOUR=9;BYSETPOS=2", 0, "the schedule never fires"},
		{"FREQ=WEEKLY;BYDAY=MO,TU;BYSETPOS=3", 0, "the schedule never fires"},
		{"FREQ=HOURLY;BYMINUTE=1,2;BYSETPOS=3,-3", 0, "the schedule never fires"},
		{"FREQ=YEARLY;BYYEARDAY=1;BYMONTH=2", 0, "the schedule never fires"},
		{"FREQ=DAILY;UNTIL=20260228", 0, "the schedule never fires"},
		{"FREQ=DAILY;COUNT=1;BYHOUR=12 EXDATE:20260301T120000", 0, "the schedule never fires"},
	} {
		begin := time.Now()
		_, err := parseOnlyRRule(c.text, Options{Start: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)})
		took := time.Since(begin)
		var e *Error
		switch {
		case !errors.As(err, &e):
			t.Errorf("%.60q: error %v, want %q", c.text, err, c.message)
		case e.Field != "schedule" || e.Column != c.column || !strings.Contains(e.Message, c.message):
			t.Errorf("%.60q: %s, column %d, %q; want schedule, column %d, %q", c.text, e.Field, e.Column, e.Message, c.column, c.message)
		default:
			if _, err := Parse(e.Example, Options{Start: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)}); err != nil {
				t.Errorf("%.60q: the example %q is refused: %v", c.text, e.Example, err)
			}
		}
		if took > 200*time.Millisecond {
			t.Errorf("%.60q: it took %v to refuse", c.text, took)
		}
	}
}

func TestRRuleNeedsStart(t *testing.T) {
	_, err := Parse("FREQ=DAILY", Options{})
	const want = `schedule: a calendar rule needs a start: give it a DTSTART line or starts_at; ` +
		`for example "DTSTART:20260302T090000 RRULE:FREQ=WEEKLY;BYDAY=MO,WE;BYHOUR=9"`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := Parse(rruleStartExample, Options{}); err != nil {
		t.Errorf("the example is refused: %v", err)
	}
	for _, year := range []int{-5, 2500, 200000} {
		if _, err := Parse("FREQ=DAILY", Options{Start: time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)}); err == nil {
			t.Errorf("a start in the year %d is accepted", year)
		}
	}
}

func TestRRuleZone(t *testing.T) {
	const text = "DTSTART;TZID=Europe/Paris:20260301T090000 FREQ=DAILY"
	for _, c := range []struct{ timezone, field, message string }{
		{"", "", ""},
		{"Europe/Paris", "", ""},
		{"Europe/Berlin", "schedule", `DTSTART names the time zone "Europe/Paris" itself, but the timezone is "Europe/Berlin"`},
	} {
		_, err := Parse(text, Options{Timezone: c.timezone})
		var e *Error
		if c.field == "" && err != nil || c.field != "" && (!errors.As(err, &e) || e.Field != c.field || e.Column != 14 || e.Message != c.message) {
			t.Errorf("in %q: %v, want %s: %s", c.timezone, err, c.field, c.message)
		}
	}
	var e *Error
	if _, err := Parse("DTSTART:20260301T090000 FREQ=DAILY", Options{Timezone: "EST"}); !errors.As(err, &e) || e.Field != "timezone" {
		t.Errorf("in EST: %v", err)
	}
}

func TestRRuleNowRefusesPast(t *testing.T) {
	now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		rule    string
		now     time.Time
		message string // "" means that it is accepted
	}{
		{"FREQ=DAILY;COUNT=10", time.Time{}, ""},
		{"FREQ=DAILY;COUNT=10", now, "is over"},
		{"FREQ=DAILY;UNTIL=20260501", time.Time{}, ""},
		{"FREQ=DAILY;UNTIL=20260501", now, "is over"},
		{"FREQ=DAILY;UNTIL=20260601", now, ""},
		{"FREQ=DAILY;UNTIL=20260501 RDATE:20300101T000000", now, ""},
		{"FREQ=YEARLY;INTERVAL=45", now, ""},
		{"FREQ=YEARLY;INTERVAL=46", now, "nothing in the next 45 years"},
		{"FREQ=YEARLY;INTERVAL=46", time.Time{}, ""},
		{"FREQ=YEARLY;INTERVAL=500", now, "is over"},
		{"FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30", now, "never fires"},
	} {
		_, err := Parse(fmt.Sprintf("DTSTART:20260301T090000 %s", c.rule), Options{Now: c.now})
		if (err == nil) != (c.message == "") || err != nil && !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s, now %v: %v, want %q", c.rule, c.now, err, c.message)
		}
	}
}
