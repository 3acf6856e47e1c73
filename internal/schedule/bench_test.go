package schedule

import (
	"testing"
	"time"
)

var benchmarked = []struct{ name, expr, zone string }{
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

// hard are accepted rules of which the next occurrence is far away.
var hard = []struct{ name, expr, zone, after string }{
	{"fifth Tuesday of February", "0 0 * 2 TUE#5", "America/New_York", "2056-03-01 00:00"},
	{"Friday 29 February", "0 0 29 2 */5", "America/New_York", "2072-03-01 00:00"},
	{"nearly always skipped", "30 2 */7 3 0", "America/New_York", "2026-03-09 00:00"},
	{"last year of all", "0 0 0 1 1 * 2499", "Africa/Casablanca", "1970-01-01 00:00"},
	{"nothing left", "0 0 29 2 *", "Africa/Casablanca", "2499-01-01 00:00"},
}

func BenchmarkNextOfHardRules(b *testing.B) {
	for _, c := range hard {
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
	for _, c := range benchmarked {
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
	for _, c := range benchmarked {
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

func BenchmarkOccurrences(b *testing.B) {
	rule := mustParse(b, "30 2 * * *", Options{Timezone: "America/New_York"})
	for b.Loop() {
		Occurrences(rule, time.Unix(1_772_000_000, 0), 100)
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
