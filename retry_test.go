package belfry

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDelaysDoubleUpToTheCap(t *testing.T) {
	r := Retry{Max: 9, Backoff: BackoffExponential, Base: 5 * time.Second, Cap: 30 * time.Minute}
	for _, tt := range []struct {
		failures int
		want     time.Duration
	}{
		{1, 5 * time.Second},
		{2, 10 * time.Second},
		{3, 20 * time.Second},
		{9, 1280 * time.Second},
		{10, 30 * time.Minute},
		{11, 30 * time.Minute},
		{63, 30 * time.Minute},
		{64, 30 * time.Minute},
		{65, 30 * time.Minute},
		{2000, 30 * time.Minute},
		{math.MaxInt, 30 * time.Minute},
		{0, 5 * time.Second},
		{-1, 5 * time.Second},
		{math.MinInt, 5 * time.Second},
	} {
		if got := r.Delay(jobA, tt.failures); got != tt.want {
			t.Errorf("after %d failures: got %v, want %v", tt.failures, got, tt.want)
		}
	}
}

// backoffs are all the ways to wait.
var backoffs = []Backoff{BackoffImmediate, BackoffFixed, BackoffLinear, BackoffExponential, BackoffList}

func TestEveryBackoffGrowsInItsWay(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		backoff Backoff
		delays  Delays
		want    []time.Duration // after the first failure, the second and so on
	}{
		{BackoffImmediate, "", []time.Duration{0, 0, 0, 0, 0, 0}},
		{BackoffFixed, "", []time.Duration{5 * s, 5 * s, 5 * s, 5 * s, 5 * s, 5 * s}},
		{BackoffLinear, "", []time.Duration{5 * s, 10 * s, 15 * s, 20 * s, 25 * s, 30 * s, 32 * s, 32 * s}},
		{BackoffExponential, "", []time.Duration{5 * s, 10 * s, 20 * s, 32 * s, 32 * s, 32 * s}},
		{"of a newer version", "", []time.Duration{5 * s, 10 * s, 20 * s, 32 * s}},
		{BackoffList, "1,60,0,0.5,7200", []time.Duration{s, 60 * s, 0, s / 2, 7200 * s, 7200 * s, 7200 * s}},
		{BackoffList, "3", []time.Duration{3 * s, 3 * s, 3 * s}},
		{BackoffList, "", []time.Duration{0, 0}},
	} {
		r := Retry{Max: 9, Backoff: tt.backoff, Base: 5 * s, Cap: 32 * s, Delays: tt.delays}
		for i, want := range tt.want {
			if got := r.Delay(jobA, i+1); got != want {
				t.Errorf("%s %s after %d failures: got %v, want %v", tt.backoff, tt.delays, i+1, got, want)
			}
		}
		for _, failures := range []int{0, -1, math.MinInt} {
			if got := r.Delay(jobA, failures); got != tt.want[0] {
				t.Errorf("%s %s after %d failures: got %v, want the first, %v", tt.backoff, tt.delays, failures, got, tt.want[0])
			}
		}
		if got, last := r.Delay(jobA, math.MaxInt), tt.want[len(tt.want)-1]; got != last {
			t.Errorf("%s %s after endless failures: got %v, want %v", tt.backoff, tt.delays, got, last)
		}
	}
}

func TestJitterIsAPartOfEveryBackoffsDelay(t *testing.T) {
	for _, backoff := range backoffs {
		plain := Retry{Backoff: backoff, Base: 100 * time.Second, Cap: time.Hour, Delays: "100,300"}
		spread := plain
		spread.Jitter = 0.25
		differs := false
		for failures := 1; failures < 30; failures++ {
			want, got := plain.Delay(jobA, failures), spread.Delay(jobA, failures)
			if got < want*3/4 || got > want*5/4 {
				t.Errorf("%s after %d failures: got %v, want %v give or take a quarter", backoff, failures, got, want)
			}
			differs = differs || got != want
		}
		if differs == (backoff == BackoffImmediate) {
			t.Errorf("%s: its delays are spread: %v", backoff, differs)
		}
	}
}

func TestAPolicyWithoutADelayHasNone(t *testing.T) {
	for name, r := range map[string]Retry{
		"no base":      {Cap: time.Hour, Jitter: 0.25},
		"no cap":       {Base: time.Second, Jitter: 0.25},
		"neither":      {},
		"negative":     {Base: -time.Second, Cap: time.Hour},
		"negative cap": {Base: time.Second, Cap: -time.Hour, Jitter: 0.25},
	} {
		for _, failures := range []int{0, 1, 2, 100, 1025, 1 << 40} {
			if got := r.Delay(jobA, failures); got != 0 {
				t.Errorf("%s, after %d failures: got %v", name, failures, got)
			}
		}
	}
}

func TestDelaysStayWithinTheirBounds(t *testing.T) {
	const century = 100 * 365 * 24 * time.Hour
	rapid.Check(t, func(t *rapid.T) {
		limit := time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(century)).Draw(t, "cap"))
		r := Retry{
			Base:   time.Duration(rapid.Int64Range(1, int64(limit)).Draw(t, "base")),
			Cap:    limit,
			Jitter: rapid.Float64Range(0, 0.25).Draw(t, "jitter"),
		}
		run := ID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "run"))
		failures := rapid.OneOf(rapid.IntRange(1, 100), rapid.IntRange(1, math.MaxInt)).Draw(t, "failures")

		plain := Retry{Base: r.Base, Cap: r.Cap}.Delay(run, failures)
		if want := min(float64(r.Cap), float64(r.Base)*math.Exp2(float64(failures-1))); math.Abs(float64(plain)-want) > max(1e6, want/1e9) {
			t.Fatalf("without jitter: got %v, want %v", plain, time.Duration(want))
		}
		got := r.Delay(run, failures)
		slack := max(float64(time.Millisecond), float64(plain)/1e9) // of rounding
		if low, high := float64(plain)*(1-r.Jitter)-slack, float64(plain)*(1+r.Jitter)+slack; float64(got) < low || float64(got) > high || got < 0 {
			t.Fatalf("got %v, want %v to %v", got, time.Duration(low), time.Duration(high))
		}
		if again := r.Delay(run, failures); again != got {
			t.Fatalf("the same question was answered with %v and with %v", got, again)
		}
	})
}

// Many runs that fail together must not come back together.
func TestJitterSpreadsRunsEvenly(t *testing.T) {
	const runs, bins = 20_000, 20
	r := Retry{Base: 1000 * time.Second, Cap: time.Hour, Jitter: 0.25}
	for _, failures := range []int{1, 2} {
		plain := r.Base << (failures - 1)
		var count [bins]int
		for i := range runs {
			var run ID
			binary.BigEndian.PutUint32(run[12:], uint32(i)) // neighbours differ in their last bits only
			part := float64(r.Delay(run, failures)-plain*3/4) / float64(plain/2)
			if part < 0 || part > 1 {
				t.Fatalf("a delay of %v is out of bounds", r.Delay(run, failures))
			}
			count[min(int(part*bins), bins-1)]++
		}
		chi := 0.0
		for _, n := range count {
			d := float64(n) - runs/bins
			chi += d * d / (runs / bins)
		}
		if chi > 43.8 { // once in a thousand for 19 degrees of freedom; the input is fixed
			t.Errorf("after %d failures the delays fall into %v", failures, count)
		}
	}
}

func TestJitterDiffersFromFailureToFailure(t *testing.T) {
	r := Retry{Base: time.Hour, Cap: time.Hour, Jitter: 0.25}
	seen := map[time.Duration]bool{}
	for failures := range 50 {
		seen[r.Delay(jobA, failures+1)] = true
	}
	if len(seen) < 49 {
		t.Errorf("50 failures have %d delays", len(seen))
	}
}

// A retry that is planned already must not move when a node is upgraded.
func TestDelaysStayTheSameForEver(t *testing.T) {
	r := DefaultSpec().Retry()
	for failures, want := range []time.Duration{4544 * time.Millisecond, 7708 * time.Millisecond, 20984 * time.Millisecond} {
		if got := r.Delay(jobA, failures+1); got != want {
			t.Errorf("after %d failures: got %v, want %v", failures+1, got, want)
		}
	}
}
