package schedule

import (
	"strings"
	"testing"
	"time"
)

// clockChanges says what happens to wall times that the clock skips or repeats.
// A time without a date is on the day of the one before; "same" means that
// leaving out skipped times changes nothing.
var clockChanges = []struct {
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

func TestClockChanges(t *testing.T) {
	for _, c := range clockChanges {
		t.Run(c.id, func(t *testing.T) {
			expectChain(t, c.expr, Options{Timezone: c.zone}, c.after, c.run, c.why)
			if c.skip == "same" {
				c.skip = c.run
			}
			expectChain(t, c.expr, Options{Timezone: c.zone, SkipGap: true}, c.after, c.skip, c.why)
		})
	}
}

func TestOverlapOptionDecidesAboutRepeatedTimes(t *testing.T) {
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

func TestCoveringIsDecidedTimeByTime(t *testing.T) {
	// The clock jumps from 02:00 to 02:30. It skips 02:05, which 02:35 covers, and
	// 02:10, which nothing covers.
	expectChain(t, "5,10,35 * * * *", Options{Timezone: "Australia/Lord_Howe"}, "2026-10-03 15:00",
		"2026-10-03 15:05, 15:30, 15:35, 16:05", "")
}

func TestWholeRangeIsIntervalLike(t *testing.T) {
	o := Options{Timezone: "America/New_York"}
	expectChain(t, "0-59 1 * * *", o, "2026-11-01 05:58", "2026-11-01 05:59, 06:00, 06:01", "both passes")
	expectChain(t, "0-58 1 * * *", o, "2026-11-01 05:57", "2026-11-01 05:58, 2026-11-02 06:00", "first pass only")
}

func TestLastYearOfARuleStillRepeats(t *testing.T) {
	// The second 01:45 is the last occurrence of all, and lies before the wall time
	// at which the question is asked.
	expectChain(t, "0 */45 1 1 11 * 2026", Options{Timezone: "America/New_York"}, "2026-11-01 05:50",
		"2026-11-01 06:00, 06:45, never", "")
}

// expectChain asks a rule for one occurrence after the other.
func expectChain(t *testing.T, expr string, o Options, after, want, why string) {
	t.Helper()
	rule := mustParse(t, expr, o)
	asked := utc(t, after)
	for _, w := range instants(t, want) {
		got := rule.Next(asked)
		if !got.Equal(w) {
			t.Fatalf("%s in %s (%+v): after %v comes %v, want %v; %s", expr, o.Timezone, o, asked, got, w, why)
		}
		if got.Location() != time.UTC {
			t.Fatalf("%s: %v is not in UTC", expr, got)
		}
		asked = got
	}
}

func mustParse(t testing.TB, expr string, o Options) Rule {
	t.Helper()
	rule, err := Parse(expr, o)
	if err != nil {
		t.Fatalf("parse %q: %v", expr, err)
	}
	return rule
}

// instants reads a list such as "2026-03-08 07:00, 07:30, never".
func instants(t testing.TB, list string) (all []time.Time) {
	t.Helper()
	date := ""
	for entry := range strings.SplitSeq(list, ", ") {
		if entry == "never" {
			all = append(all, time.Time{})
			continue
		}
		if d, clock, ok := strings.Cut(entry, " "); ok {
			date, entry = d, clock
		}
		all = append(all, utc(t, date+" "+entry))
	}
	return all
}

// utc reads an instant such as "2026-03-08 07:00", with or without seconds.
func utc(t testing.TB, text string) time.Time {
	t.Helper()
	if strings.Count(text, ":") == 1 {
		text += ":00"
	}
	at, err := time.Parse(time.DateTime, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}
