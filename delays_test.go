package belfry

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// anyDelays draws a list of delays.
func anyDelays(t *rapid.T) Delays {
	list, err := NewDelays(rapid.SliceOfN(rapid.Float64Range(0, MaxDelay.Seconds()), 0, MaxDelays).Draw(t, "delays"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestAListOfDelaysIsKeptAsItWasGiven(t *testing.T) {
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

func TestDelaysAreWrittenPlainly(t *testing.T) {
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

func TestABadListOfDelaysIsRefused(t *testing.T) {
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
		`[1, -2]`: "a list of delays has -2", `"1,2"`: "cannot unmarshal", `[1, "2"]`: "cannot unmarshal", `{}`: "cannot unmarshal",
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
func TestAListThatCannotBeReadHasNoDelayThere(t *testing.T) {
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
