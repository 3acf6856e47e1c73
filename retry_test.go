package belfry

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestRetryDelayDoublesUpToTheCap(t *testing.T) {
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

func TestRetryDelayOfEachBackoff(t *testing.T) {
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

func TestRetryJitterOfEachBackoff(t *testing.T) {
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

func TestRetryWithoutBaseOrCapHasNoDelay(t *testing.T) {
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

func TestRetryDelayStaysWithinItsBounds(t *testing.T) {
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
func TestRetryJitterSpreadsRunsEvenly(t *testing.T) {
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

func TestRetryJitterDiffersBetweenFailures(t *testing.T) {
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
func TestRetryDelaysStayTheSameForEver(t *testing.T) {
	r := DefaultSpec().Retry()
	for failures, want := range []time.Duration{4544 * time.Millisecond, 7708 * time.Millisecond, 20984 * time.Millisecond} {
		if got := r.Delay(jobA, failures+1); got != want {
			t.Errorf("after %d failures: got %v, want %v", failures+1, got, want)
		}
	}
}

// anyDelays draws a list of delays.
func anyDelays(t *rapid.T) Delays {
	list, err := NewDelays(rapid.SliceOfN(rapid.Float64Range(0, MaxDelay.Seconds()), 0, MaxDelays).Draw(t, "delays"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestDelaysRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seconds := rapid.SliceOfN(rapid.Float64Range(0, MaxDelay.Seconds()), 0, MaxDelays).Draw(t, "seconds")
		list, err := NewDelays(seconds)
		if err != nil || !slices.Equal(list.Seconds(), seconds) {
			t.Fatalf("%v became %q with %v, %v", seconds, list, list.Seconds(), err)
		}
		text, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		var numbers []float64
		if err := json.Unmarshal(text, &numbers); err != nil || !slices.Equal(numbers, seconds) {
			t.Fatalf("the JSON %s is %v, %v", text, numbers, err)
		}
		var back Delays
		if err := json.Unmarshal(text, &back); err != nil || back != list {
			t.Fatalf("%s was read as %q, %v", text, back, err)
		}
	})
}

func TestDelaysText(t *testing.T) {
	for _, tt := range []struct {
		seconds []float64
		want    Delays
	}{
		{nil, ""},
		{[]float64{0}, "0"},
		{[]float64{5, 60, 3600}, "5,60,3600"},
		{[]float64{0.25, 604800, 1e-7}, "0.25,604800,0.0000001"},
	} {
		if got, err := NewDelays(tt.seconds); got != tt.want || err != nil {
			t.Errorf("%v: got %q, %v, want %q", tt.seconds, got, err, tt.want)
		}
	}
}

func TestInvalidDelaysAreRefused(t *testing.T) {
	for _, tt := range []struct {
		seconds []float64
		says    string
	}{
		{[]float64{5, -1}, "has -1, and a delay is from 0 to 604800 seconds"},
		{[]float64{604800.5}, "has 604800.5, and a delay is from 0 to 604800 seconds"},
		{[]float64{math.NaN()}, "has NaN"},
		{[]float64{math.Inf(1)}, "has +Inf"},
		{make([]float64, MaxDelays+1), "has 101 delays, the most is 100"},
	} {
		if got, err := NewDelays(tt.seconds); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%.40v: got %q, %v, want %q", tt.seconds, got, err, tt.says)
		}
	}
	for text, says := range map[string]string{
		`[1, -2]`: "has -2", `"1,2"`: "must be an array of seconds", `[1, "2"]`: "must be an array of seconds", `{}`: "must be an array of seconds",
	} {
		before := Delays("7")
		got := before
		if err := json.Unmarshal([]byte(text), &got); err == nil || !strings.Contains(err.Error(), says) || got != before {
			t.Errorf("%s was read as %q, %v, want %q", text, got, err, says)
		}
	}
}

// What is stored by hand, or by another version, must not stop a run from being
// settled.
func TestUnreadableDelaysAreZero(t *testing.T) {
	for list, want := range map[Delays][]time.Duration{
		"":        {0, 0},
		"x":       {0, 0},
		"1,x,3":   {time.Second, 0, 3 * time.Second, 3 * time.Second},
		"1,,nan":  {time.Second, 0, 0, 0},
		"2.5,1.5": {2500 * time.Millisecond, 1500 * time.Millisecond, 1500 * time.Millisecond},
	} {
		for i, delay := range want {
			if got := (Retry{Backoff: BackoffList, Delays: list}).Delay(jobA, i+1); got != delay {
				t.Errorf("%q after %d failures: got %v, want %v", list, i+1, got, delay)
			}
		}
	}
}

func TestApplyErrorOfAHandler(t *testing.T) {
	broken := errors.New("the disk is full")
	failed := Result{Outcome: OutcomeFailed}
	for _, tt := range []struct {
		name string
		err  error
		want Result
	}{
		{"a plain failure", broken, failed},
		{"a snooze", Snooze(90 * time.Second), Result{Outcome: OutcomeSnoozed, RetryAfterSeconds: 90}},
		{"a snooze for a part of a second", Snooze(250 * time.Millisecond), Result{Outcome: OutcomeSnoozed, RetryAfterSeconds: 0.25}},
		{"a snooze for no time", Snooze(0), Result{Outcome: OutcomeSnoozed}},
		{"a snooze until before", Snooze(-time.Second), Result{Outcome: OutcomeSnoozed}},
		{"a permanent failure", Permanent(broken), Result{Outcome: OutcomeFailed, Permanent: true}},
		{"a delay", RetryAfter(broken, time.Minute), Result{Outcome: OutcomeFailed, RetryAfterSeconds: 60}},
		{"a delay before now", RetryAfter(broken, -time.Minute), Result{Outcome: OutcomeFailed, RetryAfterSeconds: 0.001}},
		{"at once", RetryAfter(broken, 0), Result{Outcome: OutcomeFailed, RetryAfterSeconds: 0.001}},
		{"wrapped", fmt.Errorf("upload: %w", RetryAfter(broken, time.Minute)), Result{Outcome: OutcomeFailed, RetryAfterSeconds: 60}},
		{"joined with another", errors.Join(broken, Permanent(broken)), Result{Outcome: OutcomeFailed, Permanent: true}},
		{"the outer one counts", Permanent(RetryAfter(broken, time.Minute)), Result{Outcome: OutcomeFailed, Permanent: true}},
		{"nothing", nil, failed},
		{"nothing permanent", Permanent(nil), failed},
		{"nothing to try again", RetryAfter(nil, time.Minute), failed},
	} {
		got := failed
		got.ApplyError(tt.err)
		if got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestRetryErrorsWrapTheFailure(t *testing.T) {
	broken := errors.New("the disk is full")
	for _, err := range []error{Permanent(broken), RetryAfter(broken, time.Minute)} {
		if err.Error() != broken.Error() || !errors.Is(err, broken) {
			t.Errorf("got %v, want %v", err, broken)
		}
	}
	if got := Snooze(90 * time.Second).Error(); got != "snoozed for 1m30s" {
		t.Errorf("got %q", got)
	}
}

func TestSettleFollowsTheErrorOfAHandler(t *testing.T) {
	policy := Retry{Max: 3, Base: 10 * time.Second, Cap: time.Minute}
	broken := errors.New("the disk is full")
	for _, tt := range []struct {
		err  error
		want Settlement
	}{
		{broken, Settlement{State: RunRetry, Delay: 10 * time.Second, Counts: AttemptCounts{Failures: 1}}},
		{Snooze(time.Hour), Settlement{State: RunRetry, Delay: time.Hour}},
		{Snooze(1000 * time.Hour), Settlement{State: RunRetry, Delay: MaxDelay}},
		{RetryAfter(broken, time.Hour), Settlement{State: RunRetry, Delay: time.Hour, Counts: AttemptCounts{Failures: 1}}},
		{Permanent(broken), Settlement{State: RunDead, Reason: ReasonPermanent, Counts: AttemptCounts{Failures: 1}}},
	} {
		r := Result{Outcome: OutcomeFailed}
		r.ApplyError(tt.err)
		if got := Settle(jobA, AttemptCounts{}, policy, r); got != tt.want {
			t.Errorf("%v: got %+v, want %+v", tt.err, got, tt.want)
		}
	}
}
