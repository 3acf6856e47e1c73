package bench

import (
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

var due = time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)

func id(n byte) (id belfry.ID) {
	id[15] = n
	return id
}

// ran is a run of job n that succeeded, fired so much after it was due.
func ran(n byte, lag time.Duration) occurrence {
	return occurrence{run: id(100 + n), job: id(n), scheduledAt: due, dueAt: due, firedAt: due.Add(lag), settledAt: due.Add(lag + time.Second), succeeded: true}
}

func executed(n byte, after time.Duration) execution {
	return execution{id(100 + n), due.Add(after).UnixMicro()}
}

func TestAssessFindsEarlyDuplicateAndMissingRuns(t *testing.T) {
	const ms = time.Millisecond
	failed := ran(1, ms)
	failed.succeeded = false
	jittered := ran(1, 400*ms)
	jittered.dueAt = due.Add(500 * ms)
	again := ran(1, 2*ms)
	again.run = id(200)
	nextMinute := again
	nextMinute.scheduledAt = due.Add(time.Minute)
	for _, tt := range []struct {
		name       string
		expected   int
		history    []occurrence
		executions []execution
		ahead      time.Duration
		want       Quality
	}{
		{"nothing was due", 0, nil, nil, 0, Quality{}},
		{"all is well", 2, []occurrence{ran(1, ms), ran(2, ms)}, []execution{executed(2, 2*ms), executed(1, 2*ms)}, 0, Quality{}},
		{"fired before it was due", 1, []occurrence{ran(1, -ms)}, []execution{executed(1, 2*ms)}, 0, Quality{Early: 1}},
		{"executed before it was due", 1, []occurrence{ran(1, ms)}, []execution{executed(1, -ms)}, 0, Quality{Early: 1}},
		{"fired before its jitter was over", 1, []occurrence{jittered}, []execution{executed(1, 501*ms)}, 0, Quality{Early: 1}},
		{"a clock that is behind", 1, []occurrence{ran(1, ms)}, []execution{executed(1, -3*ms)}, 5 * ms, Quality{}},
		{"a clock that is ahead", 1, []occurrence{ran(1, ms)}, []execution{executed(1, 3*ms)}, -5 * ms, Quality{Early: 1}},
		{"executed twice", 1, []occurrence{ran(1, ms)}, []execution{executed(1, 2*ms), executed(1, 9*ms)}, 0, Quality{Duplicates: 1}},
		{"executed twice, at first early", 1, []occurrence{ran(1, ms)}, []execution{executed(1, 9*ms), executed(1, -ms)}, 0, Quality{Early: 1, Duplicates: 1}},
		{"recorded twice", 1, []occurrence{ran(1, ms), again}, []execution{executed(1, 2*ms)}, 0, Quality{Duplicates: 1}},
		{"two occurrences of a job", 1, []occurrence{ran(1, ms), nextMinute}, []execution{executed(1, 2*ms)}, 0, Quality{}},
		{"not recorded", 2, []occurrence{ran(1, ms)}, []execution{executed(1, 2*ms), executed(2, 2*ms)}, 0, Quality{Missing: 1}},
		{"not executed", 1, []occurrence{ran(1, ms)}, nil, 0, Quality{Missing: 1}},
		{"not succeeded", 1, []occurrence{failed}, []execution{executed(1, 2*ms)}, 0, Quality{Missing: 1}},
	} {
		got := assess(tt.expected, tt.history, tt.executions, tt.ahead)
		if got.OK() != (tt.want == Quality{}) {
			t.Errorf("%s: it is OK: %v", tt.name, got.OK())
		}
		got.Lag = Percentiles{}
		if got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// An attempt that was returned is ready again later than its run was fired, which is not early.
func TestRepeatedRunsAreNotEarly(t *testing.T) {
	settled := due.Add(2 * time.Second)
	run := belfry.Run{ID: id(101), JobID: id(1), ScheduledAt: due, ReadyAt: due.Add(time.Second), FiredAt: due.Add(time.Millisecond), FinishedAt: &settled,
		Status: belfry.RunSucceeded, Attempt: 2}
	if q := assess(1, []occurrence{newOccurrence(run)}, []execution{executed(1, time.Second)}, 0); !q.OK() {
		t.Errorf("%+v", q)
	}
}

func TestPercentiles(t *testing.T) {
	var delays []time.Duration
	for i := range 200 {
		delays = append(delays, time.Duration(i+1)*time.Millisecond)
	}
	slices.Reverse(delays)
	if got, want := percentiles(delays), (Percentiles{100, 190, 198, 200}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got, want := percentiles([]time.Duration{1500 * time.Microsecond}), (Percentiles{1.5, 1.5, 1.5, 1.5}); got != want {
		t.Errorf("of one: got %+v, want %+v", got, want)
	}
	if got := percentiles(nil); got != (Percentiles{}) {
		t.Errorf("of none: got %+v", got)
	}
}
