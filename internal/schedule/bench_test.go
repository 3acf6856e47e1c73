package schedule

import (
	"testing"
	"time"
)

var benchmarkRules = []struct{ name, expr, zone string }{
	{"every minute", "* * * * *", "America/New_York"},
	{"every 15 minutes UTC", "*/15 * * * *", "UTC"},
	{"daily", "30 2 * * *", "America/New_York"},
	{"weekdays", "0 9 * * MON-FRI", "Europe/Berlin"},
	{"last workday", "0 18 LW * *", "Europe/London"},
	{"yearly", "0 0 1 1 *", "Australia/Lord_Howe"},
	{"leap day", "0 0 29 2 *", "America/New_York"},
	{"every second", "* * * * * *", "Europe/Paris"},
	{"business hours", "*/5 9-17 * * MON-FRI", "Asia/Kolkata"},
	{"every 90 seconds", "@every 90s", "Europe/Paris"},
	{"monthly interval", "R/2020-01-31T09:00:00/P1M", "Europe/Paris"},
	{"mixed interval", "R/2020-01-31T09:00:00/P1DT12H", "Europe/Paris"},
}

// rareRules are accepted rules of which the next occurrence is far away.
var rareRules = []struct{ name, expr, zone, after string }{
	{"fifth Tuesday of February", "0 0 * 2 TUE#5", "America/New_York", "2056-03-01 00:00"},
	{"Friday 29 February", "0 0 29 2 */5", "America/New_York", "2072-03-01 00:00"},
	{"nearly always skipped", "30 2 */7 3 0", "America/New_York", "2026-03-09 00:00"},
	{"last year of all", "0 0 0 1 1 * 2499", "Africa/Casablanca", "1970-01-01 00:00"},
	{"nothing left", "0 0 29 2 *", "Africa/Casablanca", "2499-01-01 00:00"},
}

func BenchmarkNextRare(b *testing.B) {
	for _, c := range rareRules {
		rule := mustParse(b, c.expr, Options{Timezone: c.zone, SkipGap: true})
		after := utc(b, c.after)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				rule.Next(after)
			}
		})
	}
}

// BenchmarkNext follows rules through the years from 2026 to 2036.
func BenchmarkNext(b *testing.B) {
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	to := from.AddDate(10, 0, 0)
	for _, c := range benchmarkRules {
		rule := mustParse(b, c.expr, Options{Timezone: c.zone, Start: from})
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			at := from
			for b.Loop() {
				if at = rule.Next(at); at.After(to) {
					at = from
				}
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	for _, expr := range []string{"*/15 * * * *", "0 9 15W * FRI#2", "0 0 31 2 *"} {
		b.Run(expr, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = parse(expr, Options{Timezone: "America/New_York"})
			}
		})
	}
}

func TestNextAllocatesNothing(t *testing.T) {
	for _, c := range benchmarkRules {
		rule := mustParse(t, c.expr, Options{Timezone: c.zone, Start: time.Unix(0, 0)})
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		if n := testing.AllocsPerRun(1000, func() { at = rule.Next(at) }); n != 0 {
			t.Errorf("%s allocates %v times", c.name, n)
		}
	}
}

// BenchmarkParseShared reads a text that is in use already.
func BenchmarkParseShared(b *testing.B) {
	o := Options{Timezone: "America/New_York"}
	rule := mustParse(b, "0 9 * * MON-FRI", o)
	b.ReportAllocs()
	for b.Loop() {
		if again, err := Parse("0 9 * * MON-FRI", o); err != nil || again != rule {
			b.Fatal(again, err)
		}
	}
}

func BenchmarkPreview(b *testing.B) {
	rule := mustParse(b, "30 2 * * *", Options{Timezone: "America/New_York"})
	for b.Loop() {
		Preview(b.Context(), rule, time.Unix(1_772_000_000, 0), time.Time{}, time.Time{}, 100)
	}
}

func BenchmarkDescribe(b *testing.B) {
	rule := mustParse(b, "*/15 9-17 13 * 5", Options{Timezone: "America/New_York"})
	for b.Loop() {
		Describe(rule)
	}
}

func BenchmarkWarnings(b *testing.B) {
	for _, text := range []string{"30 2 * * *", "* * * * * *"} {
		rule := mustParse(b, text, Options{Timezone: "America/New_York"})
		b.Run(text, func(b *testing.B) {
			for b.Loop() {
				Warnings(rule, time.Unix(1_772_000_000, 0))
			}
		})
	}
}

var benchmarkRRules = []struct{ name, start, rule string }{
	{"weekly", "20260302T090000", "FREQ=WEEKLY;BYDAY=MO,WE"},
	{"monthly last workday", "20260302T090000", "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1"},
	{"yearly by week", "20260302T090000", "FREQ=YEARLY;BYWEEKNO=1,20,53;BYDAY=MO"},
	{"minutely ten years on", "20160302T090000", "FREQ=MINUTELY;INTERVAL=7"},
	{"hourly in office hours", "20260302T090000", "FREQ=HOURLY;INTERVAL=3;BYHOUR=9,10,11,12,13,14,15,16,17;BYDAY=MO,TU,WE,TH,FR"},
	{"secondly", "20260302T090000", "FREQ=SECONDLY"},
	{"daily 10000 times", "20260102T090000", "FREQ=DAILY;COUNT=10000"},
	{"minutely 1000000 times", "20260102T090000", "FREQ=MINUTELY;COUNT=1000000"},
	{"leap day on a Tuesday", "20260302T090000", "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=TU"},
	{"a second a day later", "20260302T090000", "FREQ=SECONDLY;INTERVAL=86401;BYHOUR=9;BYMINUTE=0;BYSECOND=0,1"},
	{"set", "20260302T090000", "FREQ=DAILY EXDATE:20260303T090000,20260304T090000 RRULE:FREQ=MONTHLY;BYDAY=2TU;BYHOUR=12 RDATE:20270101T000000"},
}

func parseBenchmarkRRule(t testing.TB, start, rule string) Rule {
	t.Helper()
	r, err := parseRRuleSet("DTSTART:"+start+"\nRRULE:"+rule, Options{Timezone: "America/New_York"})
	if err != nil {
		t.Fatalf("%s: %v", rule, err)
	}
	return r
}

// BenchmarkRRuleNext follows rules through the years from 2026 to 2036.
func BenchmarkRRuleNext(b *testing.B) {
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	to := from.AddDate(10, 0, 0)
	for _, c := range benchmarkRRules {
		rule := parseBenchmarkRRule(b, c.start, c.rule)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			at := from
			for b.Loop() {
				if at = rule.Next(at); at.IsZero() || at.After(to) {
					at = from
				}
			}
		})
	}
}

func BenchmarkRRuleParse(b *testing.B) {
	for _, c := range benchmarkRRules {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				parseBenchmarkRRule(b, c.start, c.rule)
			}
		})
	}
}

func TestRRuleNextAllocatesNothing(t *testing.T) {
	for _, c := range benchmarkRRules {
		rule := parseBenchmarkRRule(t, c.start, c.rule)
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		if n := testing.AllocsPerRun(1000, func() { at = rule.Next(at) }); n != 0 {
			t.Errorf("%s allocates %v times", c.name, n)
		}
	}
}

// The slowest rules of one line that came to mind are accepted.
func TestRareRRulesAreInBudget(t *testing.T) {
	for _, rule := range []string{
		"FREQ=SECONDLY;INTERVAL=86399;BYHOUR=9;BYMINUTE=0;BYSECOND=0",
		"FREQ=SECONDLY;INTERVAL=86401;BYHOUR=9;BYMINUTE=0;BYSECOND=0",
		"FREQ=SECONDLY;INTERVAL=86399;BYHOUR=9;BYMINUTE=0;BYSECOND=0;BYMONTHDAY=2;BYMONTH=3",
		"FREQ=SECONDLY;INTERVAL=7;BYHOUR=9;BYMINUTE=0;BYSECOND=0;BYDAY=MO",
		"FREQ=SECONDLY;INTERVAL=7;BYHOUR=0,7,14,21;BYMINUTE=0,7,14,21,28,35,42,49,56;BYSECOND=0,7,14,21,28,35,42,49,56;BYDAY=TU,WE,TH,FR,SA,SU,MO",
		"FREQ=MINUTELY;INTERVAL=1439;BYHOUR=9;BYMINUTE=0;BYDAY=MO;BYMONTHDAY=2",
		"FREQ=HOURLY;INTERVAL=25;BYHOUR=9;BYMONTHDAY=2;BYMONTH=3",
		"FREQ=DAILY;INTERVAL=11;BYMONTHDAY=2;BYMONTH=3;BYDAY=MO",
		"FREQ=WEEKLY;INTERVAL=53;BYMONTH=3",
		"FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR,SA,SU;BYMONTH=3;BYSETPOS=7",
		"FREQ=MONTHLY;BYMONTHDAY=31;BYDAY=MO;BYSETPOS=1,366",
		"FREQ=YEARLY;INTERVAL=7;BYMONTH=2;BYMONTHDAY=29;BYDAY=TU,WE,TH,FR,SA,SU,MO",
		"FREQ=YEARLY;BYDAY=53MO;BYYEARDAY=366",
		"FREQ=DAILY;BYHOUR=0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23;BYMINUTE=0,30;BYSETPOS=48",
		"FREQ=DAILY;COUNT=1000000",
		"FREQ=SECONDLY;COUNT=1000000",
		"FREQ=SECONDLY;INTERVAL=61;BYSECOND=0,30;COUNT=100000",
		"FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1,1;COUNT=100000",
		"FREQ=DAILY;INTERVAL=2;BYDAY=MO,TU,WE,TH,FR;COUNT=1000000",
		"FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE;COUNT=1000000",
		"FREQ=HOURLY;BYDAY=MO,TU,WE,TH,FR;COUNT=1000000",
		"FREQ=SECONDLY;INTERVAL=100000;BYHOUR=9;COUNT=100000",
		"FREQ=DAILY;BYHOUR=1,2,3,4,5;BYSETPOS=2,3,4;COUNT=1000000",
	} {
		for _, zone := range []string{"UTC", "America/New_York"} {
			r, err := parseRRuleSet("DTSTART:20260302T090000 "+rule, Options{Timezone: zone})
			if err != nil {
				t.Errorf("%s: %v", rule, err)
				continue
			}
			set := r.(*rruleSet)
			t.Logf("%-60.60s %6d steps to read, %5d to find an occurrence", rule, set.readSteps, set.nextSteps)
			if err := set.checkSteps(maxReadSteps, maxNextSteps); err != nil {
				t.Errorf("%s in %s: %v", rule, zone, err)
			}
		}
	}
}

func BenchmarkNewest(b *testing.B) {
	end := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	for _, text := range []string{"* * * * * *", "*/5 * * * *", "0 9 * * MON-FRI", "@every 1s", "FREQ=SECONDLY", "FREQ=MINUTELY;INTERVAL=15"} {
		rule := mustParse(b, text, Options{Timezone: "America/New_York", Start: end.AddDate(-1, 0, 0)})
		b.Run(text, func(b *testing.B) {
			for b.Loop() {
				Newest(rule, end.AddDate(0, 0, -40), end, 100)
			}
		})
	}
}
