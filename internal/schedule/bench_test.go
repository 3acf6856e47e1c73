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
}

// BenchmarkNext follows rules through the years from 2026 to 2036.
func BenchmarkNext(b *testing.B) {
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	to := from.AddDate(10, 0, 0)
	for _, c := range benchmarked {
		rule := mustParse(b, c.expr, Options{Timezone: c.zone})
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
				_, _ = Parse(expr, Options{Timezone: "America/New_York"})
			}
		})
	}
}

func TestNextAllocatesNothing(t *testing.T) {
	for _, c := range benchmarked {
		rule := mustParse(t, c.expr, Options{Timezone: c.zone})
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		if n := testing.AllocsPerRun(1000, func() { at = rule.Next(at) }); n != 0 {
			t.Errorf("%s allocates %v times", c.name, n)
		}
	}
}
