package schedule

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestJitterIsBounded(t *testing.T) {
	random := rand.New(rand.NewPCG(21, 22))
	for range 200_000 {
		id := testID(random.IntN(1 << 24))
		at := time.Unix(random.Int64N(1<<33), random.Int64N(1e9))
		most := time.Duration(random.Int64N(int64(3*time.Hour))) - time.Minute
		gap := time.Duration(random.Int64N(int64(2 * time.Hour)))
		if random.IntN(10) == 0 {
			gap = 0 // nothing comes after it
		}
		j := Jitter(id, at, most, gap)
		switch {
		case j < 0 || j > max(most, 0):
			t.Fatalf("%v is not between 0 and %v", j, most)
		case gap > 0 && j > max(gap-time.Second, 0):
			t.Fatalf("%v reaches into the gap of %v", j, gap)
		case j%time.Microsecond != 0:
			t.Fatalf("%v is not in microseconds", j)
		case j != Jitter(id, at.In(time.FixedZone("", 3600)), most, gap):
			t.Fatal("the location makes a difference")
		case j != Jitter(id, at.Truncate(time.Microsecond), most, gap):
			t.Fatal("nanoseconds make a difference")
		case gap > 0 && j != Jitter(id, at, min(most, gap-time.Second), 0):
			t.Fatal("the gap does more than bound it")
		}
	}
	if j := Jitter([16]byte{}, time.Unix(0, 0), time.Hour, time.Second); j != 0 {
		t.Errorf("once a second there is no room, but it is %v", j)
	}
}

// TestJitterIsEven spreads the occurrences of one job and one occurrence of many
// jobs over ten parts.
func TestJitterIsEven(t *testing.T) {
	const most, n = 10 * time.Second, 50_000
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, jitter := range map[string]func(i int) time.Duration{
		"one job, minute by minute": func(i int) time.Duration {
			return Jitter(testID(1), start.Add(time.Duration(i)*time.Minute), most, time.Minute)
		},
		"one job, day by day":     func(i int) time.Duration { return Jitter(testID(2), start.AddDate(0, 0, i), most, 0) },
		"one midnight, many jobs": func(i int) time.Duration { return Jitter(testID(i), start, most, 0) },
	} {
		var parts [10]int
		var before time.Duration
		same := 0
		for i := range n {
			j := jitter(i)
			parts[min(j/time.Second, 9)]++
			if d := j - before; d > -time.Second && d < time.Second {
				same++
			}
			before = j
		}
		for i, count := range parts {
			if count < n/10*94/100 || count > n/10*106/100 {
				t.Errorf("%s: %d fall on second %d, want about %d", name, count, i, n/10)
			}
		}
		if same < n*17/100 || same > n*21/100 { // 19 % of pairs of independent ones
			t.Errorf("%s: %d of %d neighbours are within a second", name, same, n)
		}
	}
}

// Jitter decides when runs start: it must not change between versions.
func TestJitterNeverChanges(t *testing.T) {
	at := time.Date(2026, 3, 8, 7, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		id   int
		at   time.Time
		want time.Duration
	}{
		{1, at, 24_495_811 * time.Microsecond},
		{2, at, 27_104_556 * time.Microsecond},
		{1, at.Add(time.Second), 59_892_688 * time.Microsecond},
	} {
		if got := Jitter(testID(c.id), c.at, time.Minute, time.Hour); got != c.want {
			t.Errorf("job %d at %v: %v, want %v", c.id, c.at, got, c.want)
		}
	}
}
