package schedule

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestNewestAgreesWithWalking(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	n := 3000
	if raceDetected() {
		n = 500
	}
	for range n {
		rule, text, o := randomRule(t, random)
		from := time.Unix(946_684_800+random.Int64N(1_200_000_000), random.Int64N(2)*500_000_000)
		end := from.Add(time.Duration(random.Int64N(int64([]time.Duration{time.Minute, 48 * time.Hour, 8000 * time.Hour}[random.IntN(3)]))))
		n := random.IntN(20)
		var all []time.Time
		for at := rule.Next(from); !at.IsZero() && !at.After(end) && len(all) < 50_000; at = rule.Next(at) {
			all = append(all, at)
		}
		if len(all) == 50_000 {
			continue
		}
		newest, skipped, atLeast := Newest(rule, from, end, n)
		if want := all[max(len(all)-n, 0):]; !slices.Equal(newest, want) || int(skipped) != len(all)-len(want) || atLeast {
			t.Fatalf("%s %+v: the newest %d from %v to %v are %v, %d skipped, at least %v; want %v, %d skipped",
				text, o, n, from, end, newest, skipped, atLeast, want, len(all)-len(want))
		}
	}
}

func TestNewestOfALongOutage(t *testing.T) {
	end := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		text    string
		from    time.Time
		skipped int64
	}{
		{"* * * * * *", end.AddDate(0, 0, -40), 40*24*60*60 - 100},
		{"@every 1s", end.AddDate(0, 0, -40), 40*24*60*60 - 100},
		{"FREQ=SECONDLY", end.AddDate(0, 0, -40), 40*24*60*60 - 100},
		{"* * * * * *", time.Time{}, end.Unix() - firstInstant - 100},
		{"* * * 1 1 *", end.AddDate(-10, 0, 0), 10*24*60*60 - 100},
	} {
		rule := mustParse(t, c.text, Options{Start: end.AddDate(-1, 0, 0)})
		newest, skipped, atLeast := Newest(rule, c.from, end, 100)
		if len(newest) != 100 || skipped != c.skipped || atLeast {
			t.Errorf("%s: %d newest, %d skipped, at least %v; want 100 and %d", c.text, len(newest), skipped, atLeast, c.skipped)
		}
	}
}

// dull is a rule that only knows Next.
type dull struct{ Rule }

func TestNewestCountsWhatItCannotCompute(t *testing.T) {
	end := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	rule := dull{mustParse(t, "* * * * * *", Options{})}
	for _, c := range []struct {
		seconds int
		skipped int64
		atLeast bool
	}{{5, 0, false}, {10, 0, false}, {11, 1, false}, {100_010, 100_000, false}, {100_011, 100_000, true}, {3_000_000, 100_000, true}} {
		newest, skipped, atLeast := Newest(rule, end.Add(-time.Duration(c.seconds)*time.Second), end, 10)
		if len(newest) != min(c.seconds, 10) || skipped != c.skipped || atLeast != c.atLeast || !newest[len(newest)-1].Equal(end) {
			t.Errorf("%d seconds: %v, %d skipped, at least %v; want %d, %v", c.seconds, newest, skipped, atLeast, c.skipped, c.atLeast)
		}
	}
}

func TestNewestOfNothing(t *testing.T) {
	at := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	rule := mustParse(t, "0 0 1 1 *", Options{})
	for _, from := range []time.Time{at, at.Add(time.Hour), at.Add(-time.Hour)} {
		if newest, skipped, atLeast := Newest(rule, from, at, 5); len(newest) != 0 || skipped != 0 || atLeast {
			t.Errorf("from %v: %v, %d, %v", from, newest, skipped, atLeast)
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
