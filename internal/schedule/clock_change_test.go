package schedule

import (
	"testing"
	"time"
)

// cronClockChanges says what happens to wall times that the clock skips or repeats.
// A time without a date is on the day of the one before; "same" means that
// leaving out skipped times changes nothing.
var cronClockChanges = []struct {
	id, expr, zone, after string
	run                   string // next occurrences
	skip                  string // next occurrences with SkipGap
	why                   string
}{

	{"ny-gap-1", "30 2 * * *", "America/New_York", "2026-03-07 12:00:00",
		"2026-03-08 07:00, 2026-03-09 06:30, 2026-03-10 06:30",
		"2026-03-09 06:30, 2026-03-10 06:30, 2026-03-11 06:30",
		"fixed time inside the gap"},
	{"ny-gap-2", "0 2 * * *", "America/New_York", "2026-03-07 12:00:00",
		"2026-03-08 07:00, 2026-03-09 06:00, 2026-03-10 06:00",
		"2026-03-09 06:00, 2026-03-10 06:00, 2026-03-11 06:00",
		"first skipped minute"},
	{"ny-gap-4", "0 3 * * *", "America/New_York", "2026-03-07 12:00:00",
		"2026-03-08 07:00, 2026-03-09 07:00, 2026-03-10 07:00",
		"same",
		"first minute after the gap is ordinary"},
	{"ny-gap-6", "0,30 2 * * *", "America/New_York", "2026-03-07 12:00:00",
		"2026-03-08 07:00, 2026-03-09 06:00, 06:30",
		"2026-03-09 06:00, 06:30, 2026-03-10 06:00",
		"two skipped times merge into one firing"},
	{"ny-gap-7", "0 2,3 * * *", "America/New_York", "2026-03-07 12:00:00",
		"2026-03-08 07:00, 2026-03-09 06:00, 07:00",
		"same",
		"shifted time meets a regular one: one firing"},
	{"ny-gap-8", "30 2,3 * * *", "America/New_York", "2026-03-07 12:00:00",
		"2026-03-08 07:00, 07:30, 2026-03-09 06:30, 07:30",
		"2026-03-08 07:30, 2026-03-09 06:30, 07:30, 2026-03-10 06:30",
		"fixed list: make-up and the regular 03:30"},
	{"ny-gap-9", "30 2 8 3 *", "America/New_York", "2026-03-07 12:00:00",
		"2026-03-08 07:00, 2027-03-08 07:30",
		"2027-03-08 07:30, 2028-03-08 07:30",
		"once a year, in the gap"},
	{"ny-gap-11", "30 2 * * *", "America/New_York", "2026-03-08 06:59:59",
		"2026-03-08 07:00",
		"2026-03-09 06:30",
		"one second before the transition"},
	{"ny-gap-12", "30 2 * * *", "America/New_York", "2026-03-08 07:00:00",
		"2026-03-09 06:30",
		"same",
		"strictly after: the make-up is not returned twice"},
	{"ny-gap-13", "30 * * * *", "America/New_York", "2026-03-08 05:00:00",
		"2026-03-08 05:30, 06:30, 07:30, 08:30",
		"same",
		"hourly keeps its 60 min cadence, no extra 03:00"},
	{"ny-gap-14", "*/15 * * * *", "America/New_York", "2026-03-08 06:40:00",
		"2026-03-08 06:45, 07:00, 07:15, 07:30",
		"same",
		"15 min cadence straight through"},
	{"ny-gap-15", "*/15 2 * * *", "America/New_York", "2026-03-08 05:00:00",
		"2026-03-08 07:00, 2026-03-09 06:00, 06:15",
		"2026-03-09 06:00, 06:15, 06:30",
		"step inside a skipped hour: one make-up"},
	{"ny-gap-17", "0 */2 * * *", "America/New_York", "2026-03-08 04:00:00",
		"2026-03-08 05:00, 07:00, 08:00, 10:00",
		"2026-03-08 05:00, 08:00, 10:00, 12:00",
		"2-hourly: 02:00 is not covered, made up"},
	{"ny-ovl-1", "30 1 * * *", "America/New_York", "2026-10-31 12:00:00",
		"2026-11-01 05:30, 2026-11-02 06:30, 2026-11-03 06:30",
		"same",
		"fixed: first instant only"},
	{"ny-ovl-4", "30 1 * * *", "America/New_York", "2026-11-01 05:45:00",
		"2026-11-02 06:30, 2026-11-03 06:30",
		"same",
		"asked between the two 01:30s: tomorrow"},
	{"ny-ovl-5", "0 2 * * *", "America/New_York", "2026-10-31 12:00:00",
		"2026-11-01 07:00, 2026-11-02 07:00",
		"same",
		"02:00 exists once (EST)"},
	{"ny-ovl-6", "30 * * * *", "America/New_York", "2026-11-01 04:45:00",
		"2026-11-01 05:30, 06:30, 07:30, 08:30",
		"same",
		"hourly: both 01:30s"},
	{"ny-ovl-7", "*/15 * * * *", "America/New_York", "2026-11-01 05:40:00",
		"2026-11-01 05:45, 06:00, 06:15, 06:30",
		"same",
		"15 min cadence straight through"},
	{"ny-ovl-8", "*/15 1 * * *", "America/New_York", "2026-11-01 04:00:00",
		"2026-11-01 05:00, 05:15, 05:30, 05:45, 06:00, 06:15, 06:30, 06:45, 2026-11-02 06:00",
		"same",
		"step in the minute: both passes"},
	{"ny-ovl-9", "0,15,30,45 1 * * *", "America/New_York", "2026-11-01 04:00:00",
		"2026-11-01 05:00, 05:15, 05:30, 05:45, 2026-11-02 06:00",
		"same",
		"same set as a list: fixed, first pass only"},
	{"lhi-gap-1", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03 00:00:00",
		"2026-10-03 15:30, 2026-10-04 15:15, 2026-10-05 15:15",
		"2026-10-04 15:15, 2026-10-05 15:15, 2026-10-06 15:15",
		"half-hour gap 02:00-02:30"},
	{"lhi-gap-3", "0 * * * *", "Australia/Lord_Howe", "2026-10-03 14:00:00",
		"2026-10-03 14:30, 15:30, 16:00",
		"2026-10-03 14:30, 16:00, 17:00",
		"hourly, 30 min gap: 02:00 not covered by 02:30"},
	{"lhi-ovl-1", "45 1 * * *", "Australia/Lord_Howe", "2026-04-04 00:00:00",
		"2026-04-04 14:45, 2026-04-05 15:15, 2026-04-06 15:15",
		"same",
		"01:30-02:00 repeats"},
	{"lhi-ovl-3", "*/15 * * * *", "Australia/Lord_Howe", "2026-04-04 14:20:00",
		"2026-04-04 14:30, 14:45, 15:00, 15:15",
		"same",
		"cadence straight through"},
	{"apia-1", "0 12 * * *", "Pacific/Apia", "2011-12-29 12:00:00",
		"2011-12-29 22:00, 2011-12-30 10:00, 22:00, 2011-12-31 22:00",
		"2011-12-29 22:00, 2011-12-30 22:00, 2011-12-31 22:00, 2012-01-01 22:00",
		"daily job: the lost day is made up at 00:00"},
	{"apia-2", "0 0 30 12 *", "Pacific/Apia", "2011-12-01 00:00:00",
		"2011-12-30 10:00, 2012-12-29 10:00",
		"2012-12-29 10:00, 2013-12-29 10:00",
		"a date that does not exist"},
	{"apia-3", "0 0 31 12 *", "Pacific/Apia", "2011-12-01 00:00:00",
		"2011-12-30 10:00, 2012-12-30 10:00",
		"same",
		"first instant after the gap is ordinary"},
	{"apia-4", "0 * * * *", "Pacific/Apia", "2011-12-30 08:30:00",
		"2011-12-30 09:00, 10:00, 11:00",
		"same",
		"hourly is covered"},
	{"casa-1", "30 2 * * *", "Africa/Casablanca", "2026-02-14 12:00:00",
		"2026-02-15 01:30, 2026-02-16 02:30, 2026-02-17 02:30",
		"same",
		"overlap in February"},
	{"casa-2", "30 2 * * *", "Africa/Casablanca", "2026-03-21 12:00:00",
		"2026-03-22 02:00, 2026-03-23 01:30, 2026-03-24 01:30",
		"2026-03-23 01:30, 2026-03-24 01:30, 2026-03-25 01:30",
		"gap in March"},
	{"sao-1", "0 0 * * *", "America/Sao_Paulo", "2018-11-03 12:00:00",
		"2018-11-04 03:00, 2018-11-05 02:00, 2018-11-06 02:00",
		"2018-11-05 02:00, 2018-11-06 02:00, 2018-11-07 02:00",
		"midnight does not exist"},
	{"sao-2", "30 23 * * *", "America/Sao_Paulo", "2018-02-16 12:00:00",
		"2018-02-17 01:30, 2018-02-18 01:30, 2018-02-19 02:30, 2018-02-20 02:30",
		"same",
		"23:30 twice, date goes back"},
	{"sao-3", "0 */6 * * *", "America/Sao_Paulo", "2018-11-03 12:00:00",
		"2018-11-03 15:00, 21:00, 2018-11-04 03:00, 08:00",
		"2018-11-03 15:00, 21:00, 2018-11-04 08:00, 14:00",
		"6-hourly incl. missing midnight"},
	{"dub-1", "30 1 * * *", "Europe/Dublin", "2026-03-28 12:00:00",
		"2026-03-29 01:00, 2026-03-30 00:30, 2026-03-31 00:30",
		"2026-03-30 00:30, 2026-03-31 00:30, 2026-04-01 00:30",
		"negative DST in tzdata, same wall clock"},
	{"dub-2", "30 1 * * *", "Europe/Dublin", "2026-10-24 12:00:00",
		"2026-10-25 00:30, 2026-10-26 01:30, 2026-10-27 01:30",
		"same",
		"negative DST overlap"},
	{"ktm-1", "45 5 * * *", "Asia/Kathmandu", "2026-06-01 00:00:00",
		"2026-06-02 00:00, 2026-06-03 00:00",
		"same",
		"+05:45, no DST"},
	{"mon-1", "0 0 * * *", "Africa/Monrovia", "1972-01-06 12:00:00",
		"1972-01-07 00:44:30, 1972-01-08 00:00",
		"1972-01-08 00:00, 1972-01-09 00:00",
		"gap of 44 min 30 s: not on a minute"},
	{"ny-2099", "30 2 * * *", "America/New_York", "2099-03-07 12:00:00",
		"2099-03-08 07:00, 2099-03-09 06:30, 2099-03-10 06:30",
		"2099-03-09 06:30, 2099-03-10 06:30, 2099-03-11 06:30",
		"far future, rule-based tz"},
	{"ldn-2200", "0 9 1 1 *", "Europe/London", "2199-06-01 00:00:00",
		"2200-01-01 09:00",
		"same",
		"year 2200"},
	{"bln-ovl", "0 */2 * * *", "Europe/Berlin", "2026-10-24 20:30:00",
		"2026-10-24 22:00, 2026-10-25 00:00, 01:00, 03:00",
		"same",
		"02:00 repeats: 2-hourly fires at both"},
	{"cha-3", "39 3 * * *", "Pacific/Chatham", "2026-04-04 14:00:00",
		"2026-04-05 14:54, 2026-04-06 14:54",
		"same",
		"asked at the transition itself"},
	{"leap31-2", "*/30 * * * *", "Europe/Berlin", "2028-12-30 22:45:00",
		"2028-12-30 23:00, 23:30, 2028-12-31 00:00, 00:30",
		"same",
		"31 December of a leap year, embedded tzdata"},
}

func TestCronClockChanges(t *testing.T) {
	for _, c := range cronClockChanges {
		t.Run(c.id, func(t *testing.T) {
			expectChain(t, c.expr, Options{Timezone: c.zone}, c.after, c.run, c.why)
			if c.skip == "same" {
				c.skip = c.run
			}
			expectChain(t, c.expr, Options{Timezone: c.zone, SkipGap: true}, c.after, c.skip, c.why)
		})
	}
}

func TestCronDSTOverlapOption(t *testing.T) {
	const zone, before = "America/New_York", "2026-11-01 04:00"
	for _, c := range []struct {
		expr    string
		overlap DSTOverlap
		want    string
	}{
		{"30 1 * * *", DSTAuto, "2026-11-01 05:30, 2026-11-02 06:30"},
		{"30 1 * * *", DSTFirst, "2026-11-01 05:30, 2026-11-02 06:30"},
		{"30 1 * * *", DSTBoth, "2026-11-01 05:30, 06:30, 2026-11-02 06:30"},
		{"*/30 1 * * *", DSTAuto, "2026-11-01 05:00, 05:30, 06:00, 06:30, 2026-11-02 06:00"},
		{"*/30 1 * * *", DSTFirst, "2026-11-01 05:00, 05:30, 2026-11-02 06:00"},
		{"*/30 1 * * *", DSTBoth, "2026-11-01 05:00, 05:30, 06:00, 06:30, 2026-11-02 06:00"},
	} {
		expectChain(t, c.expr, Options{Timezone: zone, Overlap: c.overlap}, before, c.want, "")
	}
}

func TestCronGapTimesAreCoveredOneByOne(t *testing.T) {
	// The clock jumps from 02:00 to 02:30. It skips 02:05, which 02:35 covers, and
	// 02:10, which nothing covers.
	expectChain(t, "5,10,35 * * * *", Options{Timezone: "Australia/Lord_Howe"}, "2026-10-03 15:00",
		"2026-10-03 15:05, 15:30, 15:35, 16:05", "")
}

func TestCronFullRangeIsIntervalLike(t *testing.T) {
	o := Options{Timezone: "America/New_York"}
	expectChain(t, "0-59 1 * * *", o, "2026-11-01 05:58", "2026-11-01 05:59, 06:00, 06:01", "both passes")
	expectChain(t, "0-58 1 * * *", o, "2026-11-01 05:57", "2026-11-01 05:58, 2026-11-02 06:00", "first pass only")
}

func TestCronLastYearRepeatsInDSTOverlap(t *testing.T) {
	// The second 01:45 is the last occurrence of all, and lies before the wall time
	// at which the question is asked.
	expectChain(t, "0 */45 1 1 11 * 2026", Options{Timezone: "America/New_York"}, "2026-11-01 05:50",
		"2026-11-01 06:00, 06:45, never", "")
}

// What clock changes do to calendar rules. In New York the clock jumps from 02:00
// to 03:00 on 8 March 2026 at 07:00 UTC, and back from 02:00 to 01:00 on
// 1 November 2026 at 06:00 UTC.
var rruleClockChanges = []struct {
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

func TestRRuleClockChanges(t *testing.T) {
	for _, c := range rruleClockChanges {
		t.Run(c.why, func(t *testing.T) {
			text := "DTSTART:" + c.start + " " + c.rule
			o := Options{Timezone: "America/New_York"}
			expectRRule(t, text, o, c.after, c.run)
			if o.SkipGap = true; c.skip == "never" {
				// Nothing but the past is left of it, which is no reason to refuse it.
				c.after = "2026-03-08 00:00"
			}
			expectRRule(t, text, o, c.after, c.skip)
		})
	}
}

func TestRRuleDSTOverlapOption(t *testing.T) {
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
		expectRRule(t, "DTSTART:20261031T013000 RRULE:"+c.rule, o, "2026-11-01 04:00", c.want)
	}
}

func TestRRuleGapTimesAreCoveredOneByOne(t *testing.T) {
	// The clock jumps from 02:00 to 02:30. It skips 02:05, which 02:35 covers, and
	// 02:10, which nothing covers.
	for _, rule := range []string{
		"FREQ=HOURLY;BYMINUTE=5,10,35", "FREQ=MINUTELY;BYMINUTE=5,10,35", "FREQ=HOURLY;BYMINUTE=5,10,35;BYSETPOS=1,2,3",
	} {
		expectRRule(t, "DTSTART;TZID=Australia/Lord_Howe:20261001T000000 "+rule, Options{}, "2026-10-03 15:00",
			"2026-10-03 15:05, 15:30, 15:35, 16:05")
	}
}

func TestRRuleSkippedDay(t *testing.T) {
	const start = "DTSTART;TZID=Pacific/Apia:20111228T120000 " // There was no 30 December 2011.
	expectRRule(t, start+"RRULE:FREQ=DAILY;COUNT=4", Options{}, "2011-12-01 00:00",
		"2011-12-28 22:00, 2011-12-29 22:00, 2011-12-30 10:00, 22:00, never")
	expectRRule(t, start+"RRULE:FREQ=DAILY;COUNT=4", Options{SkipGap: true}, "2011-12-01 00:00",
		"2011-12-28 22:00, 2011-12-29 22:00, 2011-12-30 22:00, 2011-12-31 22:00, never")
	expectRRule(t, start+"RRULE:FREQ=SECONDLY", Options{}, "2011-12-30 09:59:58",
		"2011-12-30 09:59:59, 10:00:00, 10:00:01")
}

func TestRRuleHorizon(t *testing.T) {
	o := Options{Timezone: "America/New_York", Start: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	expectRRule(t, "FREQ=DAILY", o, "2499-12-30 13:00", "2499-12-31 12:00, never")
	expectRRule(t, "FREQ=DAILY;UNTIL=99991231T235959Z", o, "2499-12-30 13:00", "2499-12-31 12:00, never")
	expectRRule(t, "FREQ=DAILY;COUNT=1000000", o, "2499-12-30 13:00", "2499-12-31 12:00, never")
	expectRRule(t, "FREQ=YEARLY;INTERVAL=1000000000", o, "2000-01-01 00:00", "2026-01-01 12:00, never")
}
