package schedule

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestNextIsStrictlyLater asks rules of every form from everywhere: just before,
// at and after occurrences and changes of the clock, and from the ends of time.
func TestNextIsStrictlyLater(t *testing.T) {
	random := rand.New(rand.NewPCG(23, 24))
	for range 3000 {
		rule, text, o := randomRule(t, random)
		asked := []time.Time{{}, time.Unix(-1<<62, 0), time.Unix(1<<62, 999_999_999), time.Unix(horizon-1, 0), time.Unix(horizon, 0), o.Start}
		z, _ := loadZone(o.Timezone)
		for range 10 {
			p := z.periods[random.IntN(len(z.periods))]
			asked = append(asked, time.Unix(p.start, 0), time.Unix(p.start-1, 999_999_999), time.Unix(random.Int64N(horizon), random.Int64N(1e9)))
		}
		for _, after := range asked {
			next := rule.Next(after)
			if next.IsZero() {
				continue
			}
			if !next.After(after) || next.Location() != time.UTC || next.Unix() >= horizon {
				t.Fatalf("%s %+v: after %v comes %v", text, o, after, next)
			}
			// Nothing lies between: the answer is the same from anywhere in between.
			between := after
			if gap := next.Sub(after); gap > 1 {
				between = after.Add(time.Duration(random.Int64N(int64(gap))))
			}
			for _, at := range []time.Time{between, next.Add(-1)} {
				if again := rule.Next(at); !again.Equal(next) {
					t.Fatalf("%s %+v: after %v comes %v, but after %v comes %v", text, o, after, next, at, again)
				}
			}
			if later := rule.Next(next); !later.IsZero() && !later.After(next) {
				t.Fatalf("%s %+v: after %v comes %v", text, o, next, later)
			}
		}
	}
}
