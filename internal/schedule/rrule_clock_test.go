package schedule

import (
	"testing"
	"time"
)

// What clock changes do to calendar rules. In New York the clock jumps from 02:00
// to 03:00 on 8 March 2026 at 07:00 UTC, and back from 02:00 to 01:00 on
// 1 November 2026 at 06:00 UTC.
var calendarChanges = []struct {
	why, start, rule, after string
	run                     string // next occurrences
	skip                    string // next occurrences with SkipGap
}{
	{"a fixed time in the gap fires at its end", "20260301T023000", "FREQ=DAILY", "2026-03-07 12:00",
		"2026-03-08 07:00, 2026-03-09 06:30", "2026-03-09 06:30, 2026-03-10 06:30"},
	{"and is counted", "20260307T023000", "FREQ=DAILY;COUNT=3", "2026-03-01 00:00",
		"2026-03-07 07:30, 2026-03-08 07:00, 2026-03-09 06:30, never",
		"2026-03-07 07:30, 2026-03-09 06:30, 2026-03-10 06:30, never"},
	{"two skipped times are one occurrence and count twice", "20260307T020000", "FREQ=DAILY;BYMINUTE=0,30;COUNT=5", "2026-03-01 00:00",
		"2026-03-07 07:00, 07:30, 2026-03-08 07:00, 2026-03-09 06:00, never",
		"2026-03-07 07:00, 07:30, 2026-03-09 06:00, 06:30, 2026-03-10 06:00, never"},
	{"a skipped time and the one after it are one occurrence", "20260307T020000", "FREQ=DAILY;BYHOUR=2,3", "2026-03-08 00:00",
		"2026-03-08 07:00, 2026-03-09 06:00", "2026-03-08 07:00, 2026-03-09 06:00"},
	{"an hourly rule keeps its pace", "20260307T003000", "FREQ=HOURLY", "2026-03-08 05:00",
		"2026-03-08 05:30, 06:30, 07:30, 08:30", "2026-03-08 05:30, 06:30, 07:30, 08:30"},
	{"and fires as often as COUNT says", "20260308T003000", "FREQ=HOURLY;COUNT=4", "2026-03-01 00:00",
		"2026-03-08 05:30, 06:30, 07:30, 08:30, never", "2026-03-08 05:30, 06:30, 07:30, 08:30, never"},
	{"also with positions in the hour", "20260307T000000", "FREQ=HOURLY;BYMINUTE=10,20,30;BYSETPOS=2", "2026-03-08 05:00",
		"2026-03-08 05:20, 06:20, 07:20, 08:20", "2026-03-08 05:20, 06:20, 07:20, 08:20"},
	{"every two hours nothing covers the skipped one", "20260308T000000", "FREQ=HOURLY;INTERVAL=2", "2026-03-08 04:00",
		"2026-03-08 05:00, 07:00, 08:00, 10:00", "2026-03-08 05:00, 08:00, 10:00, 12:00"},
	{"every quarter of an hour from 2 to 3 is made up once", "20260301T000000", "FREQ=MINUTELY;INTERVAL=15;BYHOUR=2", "2026-03-08 05:00",
		"2026-03-08 07:00, 2026-03-09 06:00, 06:15", "2026-03-09 06:00, 06:15, 06:30"},
	{"COUNT is right where the clock jumps in the middle of a day", "20260304T000000", "FREQ=DAILY;INTERVAL=2;BYHOUR=0,12;COUNT=7", "2026-03-06 00:00",
		"2026-03-06 05:00, 17:00, 2026-03-08 05:00, 16:00, 2026-03-10 04:00, never",
		"2026-03-06 05:00, 17:00, 2026-03-08 05:00, 16:00, 2026-03-10 04:00, never"},
	{"a yearly rule in the gap", "20250308T023000", "FREQ=YEARLY", "2026-01-01 00:00",
		"2026-03-08 07:00, 2027-03-08 07:30", "2027-03-08 07:30, 2028-03-08 07:30"},
	{"a position in a set with a skipped day time", "20260301T023000", "FREQ=MONTHLY;BYDAY=SU;BYSETPOS=2", "2026-03-01 00:00",
		"2026-03-08 07:00, 2026-04-12 06:30", "2026-04-12 06:30, 2026-05-10 06:30"},

	{"a fixed time shown twice fires the first time", "20261030T013000", "FREQ=DAILY", "2026-11-01 00:00",
		"2026-11-01 05:30, 2026-11-02 06:30", "2026-11-01 05:30, 2026-11-02 06:30"},
	{"also when asked between the two", "20261030T013000", "FREQ=DAILY", "2026-11-01 05:45",
		"2026-11-02 06:30", "2026-11-02 06:30"},
	{"and is counted once", "20261031T013000", "FREQ=DAILY;COUNT=3", "2026-10-01 00:00",
		"2026-10-31 05:30, 2026-11-01 05:30, 2026-11-02 06:30, never", "2026-10-31 05:30, 2026-11-01 05:30, 2026-11-02 06:30, never"},
	{"an hourly rule fires both times", "20261101T003000", "FREQ=HOURLY", "2026-11-01 04:00",
		"2026-11-01 04:30, 05:30, 06:30, 07:30", "2026-11-01 04:30, 05:30, 06:30, 07:30"},
	{"and as often as COUNT says", "20261101T003000", "FREQ=HOURLY;COUNT=4", "2026-11-01 00:00",
		"2026-11-01 04:30, 05:30, 06:30, 07:30, never", "2026-11-01 04:30, 05:30, 06:30, 07:30, never"},
	{"a rule that begins just before the clock goes back misses nothing", "20261101T014500", "FREQ=MINUTELY;INTERVAL=15", "2026-11-01 00:00",
		"2026-11-01 05:45, 06:00, 06:15", "2026-11-01 05:45, 06:00, 06:15"},

	{"UNTIL on the wall clock may be skipped", "20260305T021500", "FREQ=DAILY;UNTIL=20260308T023000", "2026-03-07 12:00",
		"2026-03-08 07:00, never", "never"},
	{"and cuts by the wall clock", "20260305T024500", "FREQ=DAILY;UNTIL=20260308T023000", "2026-03-07 00:00",
		"2026-03-07 07:45, never", "2026-03-07 07:45, never"},
	{"UNTIL in UTC cuts by the instant", "20260305T024500", "FREQ=DAILY;UNTIL=20260308T070000Z", "2026-03-07 12:00",
		"2026-03-08 07:00, never", "never"},
	{"UNTIL between the two showings", "20261101T013000", "FREQ=HOURLY;UNTIL=20261101T060000Z", "2026-11-01 00:00",
		"2026-11-01 05:30, never", "2026-11-01 05:30, never"},

	{"an EXDATE removes one of two skipped times", "20260301T020000", "FREQ=DAILY;BYMINUTE=0,30 EXDATE:20260308T023000", "2026-03-08 00:00",
		"2026-03-08 07:00, 2026-03-09 06:00", "2026-03-09 06:00, 06:30"},
	{"or both", "20260301T020000", "FREQ=DAILY;BYMINUTE=0,30 EXDATE:20260308T023000,20260308T020000", "2026-03-08 00:00",
		"2026-03-09 06:00, 06:30", "2026-03-09 06:00, 06:30"},
	{"or what the clock shows when they fire", "20260301T023000", "FREQ=DAILY EXDATE:20260308T030000", "2026-03-08 00:00",
		"2026-03-09 06:30", "2026-03-09 06:30"},
	{"or the instant", "20260301T023000", "FREQ=DAILY EXDATE:20260308T070000Z", "2026-03-08 00:00",
		"2026-03-09 06:30", "2026-03-09 06:30"},
	{"a skipped EXDATE leaves the time after the gap alone", "20260301T030000", "FREQ=DAILY EXDATE:20260308T023000", "2026-03-08 00:00",
		"2026-03-08 07:00", "2026-03-08 07:00"},
	{"an EXDATE removes both showings", "20261101T003000", "FREQ=HOURLY EXDATE:20261101T013000", "2026-11-01 05:00",
		"2026-11-01 07:30", "2026-11-01 07:30"},
	{"an EXDATE in UTC only one", "20261101T003000", "FREQ=HOURLY EXDATE:20261101T053000Z", "2026-11-01 05:00",
		"2026-11-01 06:30", "2026-11-01 06:30"},
	{"a skipped RDATE fires at the end of the gap", "20260301T120000", "FREQ=DAILY RDATE:20260308T023000", "2026-03-08 00:00",
		"2026-03-08 07:00, 16:00", "2026-03-08 16:00, 2026-03-09 16:00"},
	{"unless an EXDATE takes it away", "20260301T120000", "FREQ=DAILY RDATE:20260308T023000 EXDATE:20260308T023000", "2026-03-08 00:00",
		"2026-03-08 16:00", "2026-03-08 16:00"},
	{"an RDATE shown twice fires the first time", "20261030T003000", "FREQ=DAILY RDATE:20261101T013000", "2026-11-01 00:00",
		"2026-11-01 04:30, 05:30, 2026-11-02 05:30", "2026-11-01 04:30, 05:30, 2026-11-02 05:30"},

	{"DTSTART may be skipped", "20260308T023000", "FREQ=DAILY", "2026-03-01 00:00",
		"2026-03-08 07:00, 2026-03-09 06:30", "2026-03-09 06:30"},
	{"and covered", "20260308T023000", "FREQ=HOURLY", "2026-03-01 00:00", "2026-03-08 07:30, 08:30", "2026-03-08 07:30, 08:30"},
	{"or not", "20260308T023000", "FREQ=HOURLY;INTERVAL=2", "2026-03-01 00:00", "2026-03-08 07:00, 08:30, 10:30", "2026-03-08 08:30, 10:30"},
	{"DTSTART may be the second showing", "20261101T063000Z", "FREQ=DAILY", "2026-11-01 00:00",
		"2026-11-01 06:30, 2026-11-02 06:30", "2026-11-01 06:30, 2026-11-02 06:30"},
	{"and then an RDATE is too", "20261101T063000Z", "FREQ=DAILY RDATE:20261101T014500", "2026-11-01 00:00",
		"2026-11-01 06:30, 06:45, 2026-11-02 06:30", "2026-11-01 06:30, 06:45, 2026-11-02 06:30"},
}

func TestCalendarRulesAtClockChanges(t *testing.T) {
	for _, c := range calendarChanges {
		t.Run(c.why, func(t *testing.T) {
			text := "DTSTART:" + c.start + " " + c.rule
			o := Options{Timezone: "America/New_York"}
			expectCalendar(t, text, o, c.after, c.run)
			if o.SkipGap = true; c.skip == "never" {
				// Nothing but the past is left of it, which is no reason to refuse it.
				c.after = "2026-03-08 00:00"
			}
			expectCalendar(t, text, o, c.after, c.skip)
		})
	}
}

func TestOverlapOptionDecidesAboutCalendarRules(t *testing.T) {
	for _, c := range []struct {
		rule    string
		overlap DSTOverlap
		want    string
	}{
		{"FREQ=DAILY", DSTFirst, "2026-11-01 05:30, 2026-11-02 06:30"},
		{"FREQ=DAILY", DSTBoth, "2026-11-01 05:30, 06:30, 2026-11-02 06:30"},
		{"FREQ=DAILY;COUNT=4", DSTBoth, "2026-11-01 05:30, 06:30, 2026-11-02 06:30, never"},
		{"FREQ=HOURLY", DSTFirst, "2026-11-01 04:30, 05:30, 07:30"},
		{"FREQ=HOURLY", DSTBoth, "2026-11-01 04:30, 05:30, 06:30, 07:30"},
		{"FREQ=WEEKLY;BYDAY=SA RDATE:20261101T014500", DSTBoth, "2026-11-01 05:45, 06:45, 2026-11-07 06:30"},
		{"FREQ=WEEKLY;BYDAY=SA RDATE:20261101T014500", DSTAuto, "2026-11-01 05:45, 2026-11-07 06:30"},
	} {
		o := Options{Timezone: "America/New_York", Overlap: c.overlap}
		expectCalendar(t, "DTSTART:20261031T013000 RRULE:"+c.rule, o, "2026-11-01 04:00", c.want)
	}
}

func TestCoveringIsDecidedTimeByTimeInCalendarRules(t *testing.T) {
	// The clock jumps from 02:00 to 02:30. It skips 02:05, which 02:35 covers, and
	// 02:10, which nothing covers.
	for _, rule := range []string{
		"FREQ=HOURLY;BYMINUTE=5,10,35", "FREQ=MINUTELY;BYMINUTE=5,10,35", "FREQ=HOURLY;BYMINUTE=5,10,35;BYSETPOS=1,2,3",
	} {
		expectCalendar(t, "DTSTART;TZID=Australia/Lord_Howe:20261001T000000 "+rule, Options{}, "2026-10-03 15:00",
			"2026-10-03 15:05, 15:30, 15:35, 16:05")
	}
}

func TestWholeDaysMayBeSkipped(t *testing.T) {
	const start = "DTSTART;TZID=Pacific/Apia:20111228T120000 " // There was no 30 December 2011.
	expectCalendar(t, start+"RRULE:FREQ=DAILY;COUNT=4", Options{}, "2011-12-01 00:00",
		"2011-12-28 22:00, 2011-12-29 22:00, 2011-12-30 10:00, 22:00, never")
	expectCalendar(t, start+"RRULE:FREQ=DAILY;COUNT=4", Options{SkipGap: true}, "2011-12-01 00:00",
		"2011-12-28 22:00, 2011-12-29 22:00, 2011-12-30 22:00, 2011-12-31 22:00, never")
	expectCalendar(t, start+"RRULE:FREQ=SECONDLY", Options{}, "2011-12-30 09:59:58",
		"2011-12-30 09:59:59, 10:00:00, 10:00:01")
}

func TestNoOccurrenceBeyondTheHorizon(t *testing.T) {
	o := Options{Timezone: "America/New_York", Start: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	expectCalendar(t, "FREQ=DAILY", o, "2499-12-30 13:00", "2499-12-31 12:00, never")
	expectCalendar(t, "FREQ=DAILY;UNTIL=99991231T235959Z", o, "2499-12-30 13:00", "2499-12-31 12:00, never")
	expectCalendar(t, "FREQ=DAILY;COUNT=1000000", o, "2499-12-30 13:00", "2499-12-31 12:00, never")
	expectCalendar(t, "FREQ=YEARLY;INTERVAL=1000000000", o, "2000-01-01 00:00", "2026-01-01 12:00, never")
}
