package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestRRuleEquivalentTexts(t *testing.T) {
	for _, text := range []string{
		"DTSTART;TZID=Europe/Paris:20260302T090000\nRRULE:FREQ=WEEKLY;BYDAY=MO,WE;COUNT=3",
		"DTSTART;TZID=Europe/Paris:20260302T090000\r\nRRULE:FREQ=WEEKLY;BYDAY=MO,WE;COUNT=3\r\n",
		"DTSTART;TZID=Europe/Paris:20260302T090000 RRULE:FREQ=WEEKLY;BYDAY=MO,WE;COUNT=3",
		"  RRULE:FREQ=WEEKLY;BYDAY=MO,WE;COUNT=3\t DTSTART;TZID=Europe/Paris:20260302T090000  ",
		"DTSTART;TZID=Europe/Paris:20260302T090000 FREQ=WEEKLY;BYDAY=MO,WE;COUNT=3",
		"DTSTART;TZID=Europe/Paris:20260302T090000 COUNT=3;FREQ=WEEKLY;BYDAY=MO,WE",
		"DTSTART;TZID=Europe/Paris:20260302T090000\nFREQ=WEEKLY;BYDAY=MO,WE;COUNT=3;",
		"FREQ=WEEKLY;BYDAY=MO,WE;COUNT=3\nDTSTART;TZID=Europe/Paris:20260302T090000",
		"dtstart;tzid=Europe/Paris:20260302t090000\nrrule:freq=weekly;byday=mo,we;count=3",
		"DTSTART;VALUE=DATE-TIME;TZID=\"Europe/Paris\":20260302T090000\nRRULE:FREQ=WEEKLY;BYDAY=WE,MO,WE;COUNT=3",
		"DTSTART;TZID=Eu\r\n rope/Paris:202603\r\n\t02T090000\r\nRRULE:FREQ=WEE\r\n KLY;BYDAY=MO,WE;COUNT=3",
		"DTSTART;TZID=Europe/Paris:20260302T090000\n  RRULE: FREQ=WEEKLY; BYDAY=MO, WE ;COUNT=3",
		"DTSTART;TZID=Europe/Paris:20260302T090000\nRRULE:FREQ=WEEKLY;COUNT=2\nRRULE:FREQ=WEEKLY;BYDAY=WE;COUNT=1",
		"DTSTART;TZID=Europe/Paris:20260302T090000\nRRULE:FREQ=DAILY;COUNT=8\n" +
			"EXDATE:20260303T090000,20260305T090000\nEXDATE;TZID=America/New_York:20260306T030000\nEXDATE:20260307T080000Z,20260308T080000Z",
		"DTSTART;TZID=Europe/Paris:20260302T090000\nRRULE:FREQ=DAILY;COUNT=1\n" +
			"RDATE:20260304T090000,20260301T090000\nRDATE;TZID=Asia/Tokyo:20260309T170000,20260309T170000\nRDATE:20260302T070000Z",
	} {
		expectRRule(t, text, Options{}, "2026-01-01 00:00", "2026-03-02 08:00, 2026-03-04 08:00, 2026-03-09 08:00, never")
	}
}

func TestRRuleDTSTART(t *testing.T) {
	start := time.Date(2026, 3, 1, 8, 30, 15, 999, time.UTC)
	for _, c := range []struct {
		text, timezone, next string
	}{
		{"FREQ=DAILY", "", "2026-03-01 08:30:15, 2026-03-02 08:30:15"},
		{"FREQ=DAILY", "Europe/Paris", "2026-03-01 08:30:15, 2026-03-02 08:30:15"},
		{"FREQ=DAILY;BYHOUR=9", "Europe/Paris", "2026-03-01 08:30:15"},
		{"FREQ=DAILY;BYHOUR=10;BYMINUTE=0;BYSECOND=0", "Europe/Paris", "2026-03-01 09:00, 2026-03-02 09:00"},
		{"DTSTART:20260305T100000 FREQ=DAILY", "Europe/Paris", "2026-03-05 09:00"},
		{"DTSTART:20260305T100000Z FREQ=DAILY", "Europe/Paris", "2026-03-05 10:00"},
		{"DTSTART:20260305T100000Z FREQ=DAILY", "", "2026-03-05 10:00"},
		{"DTSTART:20260305T100000 FREQ=DAILY", "", "2026-03-05 10:00"},
		{"DTSTART;VALUE=DATE:20260305 FREQ=DAILY", "Europe/Paris", "2026-03-04 23:00"},
		{"DTSTART:20260305 FREQ=DAILY", "Europe/Paris", "2026-03-04 23:00"},
		{"DTSTART:20260305T100000 FREQ=WEEKLY;BYDAY=MO", "", "2026-03-09 10:00"}, // a Thursday
		{"DTSTART:20260131T100000 FREQ=MONTHLY", "", "2026-01-31 10:00, 2026-03-31 10:00, 2026-05-31 10:00"},
		{"DTSTART:20240229T100000 FREQ=YEARLY", "", "2024-02-29 10:00, 2028-02-29 10:00"},
		{"DTSTART:18990101T000000 FREQ=YEARLY;INTERVAL=100", "", "1999-01-01 00:00, 2099-01-01 00:00"},
	} {
		o := Options{Timezone: c.timezone, Start: start}
		after := "1970-01-01 00:00"
		expectRRule(t, c.text, o, after, c.next)
	}
}

func TestRRuleUntilAndCount(t *testing.T) {
	for _, c := range []struct{ text, next string }{
		{"FREQ=DAILY;UNTIL=20260303", "2026-03-01 08:00, 2026-03-02 08:00, 2026-03-03 08:00, never"}, // the whole day
		{"FREQ=DAILY;UNTIL=20260303T085959", "2026-03-01 08:00, 2026-03-02 08:00, never"},
		{"FREQ=DAILY;UNTIL=20260303T090000", "2026-03-01 08:00, 2026-03-02 08:00, 2026-03-03 08:00, never"},
		{"FREQ=DAILY;UNTIL=20260303T080000Z", "2026-03-01 08:00, 2026-03-02 08:00, 2026-03-03 08:00, never"},
		{"FREQ=DAILY;UNTIL=20260303T075959Z", "2026-03-01 08:00, 2026-03-02 08:00, never"},
		{"FREQ=DAILY;COUNT=2 EXDATE:20260301T090000", "2026-03-02 08:00, never"}, // It is counted all the same.
		{"FREQ=DAILY;COUNT=2 RDATE:20260301T080000", "2026-03-01 08:00, 2026-03-02 08:00, never"},
		{"FREQ=DAILY;COUNT=1 RDATE:20260301T090000,20300101T000000", "2026-03-01 08:00, 2029-12-31 23:00, never"},
		{"FREQ=DAILY;COUNT=1 RDATE:20300101T000000 EXDATE:20300101T000000", "2026-03-01 08:00, never"},
		{"FREQ=DAILY;COUNT=1 RRULE:FREQ=HOURLY;COUNT=2", "2026-03-01 08:00, 09:00, never"},
	} {
		expectRRule(t, "DTSTART:20260301T090000\nRRULE:"+c.text, Options{Timezone: "Europe/Paris"}, "2026-01-01 00:00", c.next)
	}
}

// Four times of the rule are in a gap and fire once, at its end, as the one after it does.
// The first is the last one of the count.
func TestRRuleCountEndsInAGap(t *testing.T) {
	const rule = "DTSTART:20260329T001800Z\nRRULE:FREQ=WEEKLY;BYHOUR=1,2,3;BYMINUTE=0,15,20,30;COUNT=1\n"
	o := Options{Timezone: "Europe/Dublin"}
	start := time.Date(2026, 3, 24, 0, 0, 0, 0, time.UTC)
	if got, want := mustParse(t, rule, o).Next(start), time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC); !got.Equal(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	later := time.Date(2026, 4, 2, 8, 0, 0, 0, time.UTC)
	if got := mustParse(t, rule+"EXDATE:20260329T010000\nRDATE:20260402T090000", o).Next(start); !got.Equal(later) {
		t.Errorf("got %v, want %v: the only one was removed", got, later)
	}
}

func TestRRuleManyDates(t *testing.T) {
	var dates []string
	for day := range 400 {
		dates = append(dates, time.Date(2026, 1, 1+day, 0, 0, 0, 0, time.UTC).Format("20060102"))
	}
	text := "DTSTART;VALUE=DATE:20260101\nRRULE:FREQ=DAILY\nEXDATE;VALUE=DATE:" + strings.Join(dates, ",")
	expectRRule(t, text, Options{}, "2025-01-01 00:00", "2027-02-05 00:00, 2027-02-06 00:00")
}

// A rule with COUNT must end where the same rule without it is after so many
// steps, however the days and years between were counted.
func TestRRuleCountAgreesWithNext(t *testing.T) {
	for _, c := range []struct{ zone, rule string }{
		{"UTC", "FREQ=SECONDLY"},
		{"UTC", "FREQ=SECONDLY;INTERVAL=7;BYDAY=MO,TU"},
		{"UTC", "FREQ=SECONDLY;INTERVAL=61;BYSECOND=0,30"},
		{"UTC", "FREQ=SECONDLY;INTERVAL=70;BYHOUR=9,10;BYMONTHDAY=1,2,15"},
		{"UTC", "FREQ=SECONDLY;INTERVAL=90061;BYHOUR=9,10,11,12"},
		{"UTC", "FREQ=MINUTELY;INTERVAL=7;BYHOUR=9,17;BYSECOND=0,1,59"},
		{"UTC", "FREQ=MINUTELY;BYHOUR=9,17;BYSECOND=5,1,59;BYSETPOS=-1,1"},
		{"UTC", "FREQ=HOURLY;INTERVAL=5;BYMINUTE=0,30"},
		{"UTC", "FREQ=HOURLY;INTERVAL=5;BYHOUR=0,1,2,3,4,5,6,7"},
		{"UTC", "FREQ=HOURLY;BYMONTH=3;BYMINUTE=1,2,3;BYSETPOS=2"},
		{"UTC", "FREQ=DAILY"},
		{"UTC", "FREQ=DAILY;BYDAY=MO,TU;BYHOUR=9,11,12"},
		{"UTC", "FREQ=DAILY;INTERVAL=3;BYHOUR=9,11,12"},
		{"UTC", "FREQ=DAILY;BYHOUR=9,11,12;BYSETPOS=1,3"},
		{"UTC", "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,FR;BYMINUTE=0,1,2,3"},
		{"UTC", "FREQ=MONTHLY;BYMONTHDAY=31,-1;BYHOUR=1,2,3,4,5,6"},
		{"UTC", "FREQ=YEARLY;INTERVAL=2;BYWEEKNO=1,53;BYHOUR=1,2,3,4,5,6;BYMINUTE=1,2,3"},
		{"America/New_York", "FREQ=SECONDLY;INTERVAL=60"},
		{"America/New_York", "FREQ=MINUTELY;INTERVAL=30"},
		{"America/New_York", "FREQ=HOURLY"},
		{"America/New_York", "FREQ=DAILY"},
		{"America/New_York", "FREQ=DAILY;BYHOUR=0,2,12;INTERVAL=2"},
		{"Australia/Lord_Howe", "FREQ=MINUTELY;INTERVAL=15"},
		{"Australia/Lord_Howe", "FREQ=WEEKLY;BYDAY=MO,TU,SU"},
	} {
		text := fmt.Sprintf("DTSTART;TZID=%s:20260304T093000\n%s", c.zone, c.rule)
		endless, err := Parse(text, Options{})
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		at := time.Unix(0, 0)
		for n := 1; n <= 3000; n++ {
			at = endless.Next(at)
			if n > 3 && n%499 != 0 && n != 3000 {
				continue
			}
			rule, err := Parse(fmt.Sprintf("%s;COUNT=%d", text, n), Options{})
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if got := rule.Next(at.Add(-1)); !got.Equal(at) {
				t.Errorf("%s;COUNT=%d: before %v comes %v", text, n, at, got)
			}
			if got := rule.Next(at); !got.IsZero() {
				t.Errorf("%s;COUNT=%d: after %v comes %v, want nothing", text, n, at, got)
			}
		}
	}
}

func TestRRuleWeeksAtYearEnds(t *testing.T) {
	for wkst := range 7 {
		for _, week := range []int{1, 2, 51, 52, 53, -1, -2, -51, -52, -53} {
			plain := &referenceRule{
				freq: "YEARLY", interval: 1, wkst: time.Weekday(wkst), by: map[string][]int{"BYWEEKNO": {week}},
				start: time.Date(1880, 1, 1, 0, 0, 0, 0, time.UTC),
			}
			text := fmt.Sprintf("DTSTART:18800101T000000 %s", plain)
			rule, err := Parse(text, Options{})
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			for year := 1890; year < 2110; year++ {
				for _, day := range []int{1, 2, 3, 4, 5, 8, 20, 340, 355, 358, 359, 360, 361, 362, 363, 364, 365, 366} {
					at := time.Date(year, 1, day, 0, 0, 0, 0, time.UTC)
					if got, want := firesAt(rule, at.Unix()), plain.dayFits(at); got != want {
						t.Fatalf("%s: it fires on %s: %v, want %v", text, at.Format(time.DateOnly), got, want)
					}
				}
			}
		}
	}
}

func TestRRuleWeeksAgreeWithISO8601(t *testing.T) {
	rule := &rrule{freq: yearly, wkst: 1}
	for year := 1970; year <= lastYear; year++ {
		first := dayNumber(year, 1, 1)
		kind := yearKind{weekdayOf(first), isLeap(year), isLeap(year - 1), isLeap(year + 1)}
		for _, day := range []int{0, 1, 2, 3, 200, 360, 361, 362, 363, 364} {
			_, week := time.Unix((first+int64(day))*secondsPerDay, 0).UTC().ISOWeek()
			rule.weeks = []int{week}
			if set := rule.byWeek(kind); !set.has(day) {
				t.Fatalf("day %d of %d is not in week %d", day+1, year, week)
			}
		}
	}
}
