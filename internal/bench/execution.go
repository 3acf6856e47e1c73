package bench

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
)

// execution is one call of a handler, or one callback.
type execution struct {
	run belfry.ID
	at  time.Time // by the clock of the store
}

// recorder records executions. The zero value is empty.
type recorder struct {
	mu   sync.Mutex
	runs []belfry.ID
	at   []int64 // Unix time in microseconds, by the clock of this machine
}

func (r *recorder) add(run belfry.ID, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs, r.at = append(r.runs, run), append(r.at, at.UnixMicro())
}

// reserve takes the memory for so many executions, so that it does not grow meanwhile.
func (r *recorder) reserve(n int) {
	r.runs, r.at = make([]belfry.ID, n), make([]int64, n)
	for i := range n {
		r.runs[i][0], r.at[i] = 1, 1 // memory that was never written is not resident
	}
	r.runs, r.at = r.runs[:0], r.at[:0]
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.runs)
}

// executions are those so far, by the clock of the store.
func (r *recorder) executions(skew time.Duration) []execution {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]execution, len(r.runs))
	for i := range out {
		out[i] = execution{r.runs[i], time.UnixMicro(r.at[i]).Add(skew)}
	}
	return out
}

// occurrence is a run as the history has it.
type occurrence struct {
	run, job    belfry.ID
	scheduledAt time.Time
	dueAt       time.Time // with jitter
	firedAt     time.Time
	settledAt   time.Time // zero: it is not settled
	succeeded   bool
}

func newOccurrence(r belfry.Run) occurrence {
	o := occurrence{run: r.ID, job: r.JobID, scheduledAt: r.ScheduledAt, dueAt: r.ReadyAt, firedAt: r.FiredAt, succeeded: r.Status == belfry.RunSucceeded}
	if r.FinishedAt != nil {
		o.settledAt = *r.FinishedAt
	}
	return o
}

// Quality is how correct and how punctual the runs were.
type Quality struct {
	Lag        Percentiles `json:"lag_ms"`
	Early      int         `json:"early"`      // runs that were fired or executed before they were due
	Duplicates int         `json:"duplicates"` // executions of a run, and records of an occurrence, after the first
	Missing    int         `json:"missing"`    // occurrences that were not executed, or are not in the history as succeeded
}

// OK reports whether every occurrence ran once and not before its time.
func (q Quality) OK() bool { return q.Early == 0 && q.Duplicates == 0 && q.Missing == 0 }

// Percentiles of delays, in milliseconds.
type Percentiles struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func percentiles(delays []time.Duration) (p Percentiles) {
	if len(delays) == 0 {
		return p
	}
	slices.Sort(delays)
	at := func(share float64) float64 {
		return milliseconds(delays[max(0, int(math.Ceil(share*float64(len(delays))))-1)])
	}
	return Percentiles{at(0.5), at(0.95), at(0.99), at(1)}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// assess compares what was due with what the history has and what was executed. The clocks
// of store and process are equal up to the tolerance.
func assess(expected int, history []occurrence, executions []execution, tolerance time.Duration) (q Quality) {
	type key struct {
		job belfry.ID
		at  int64
	}
	first := make(map[belfry.ID]time.Time, len(executions))
	for _, e := range executions {
		if at, again := first[e.run]; again {
			q.Duplicates++
			first[e.run] = slices.MinFunc([]time.Time{at, e.at}, time.Time.Compare)
		} else {
			first[e.run] = e.at
		}
	}
	lags := make([]time.Duration, 0, len(history))
	seen := make(map[key]bool, len(history))
	done := 0
	for _, o := range history {
		k := key{o.job, o.scheduledAt.UnixMicro()}
		if seen[k] {
			q.Duplicates++
			continue
		}
		seen[k] = true
		at, executed := first[o.run]
		if o.firedAt.Before(o.dueAt) || executed && at.Before(o.dueAt.Add(-tolerance)) {
			q.Early++
		}
		if executed && o.succeeded {
			done++
		}
		lags = append(lags, o.firedAt.Sub(o.dueAt))
	}
	q.Missing, q.Lag = max(0, expected-done), percentiles(lags)
	return q
}

// last is the latest of the instants that f returns.
func last(history []occurrence, f func(occurrence) time.Time) (at time.Time) {
	for _, o := range history {
		if t := f(o); cmp.Compare(t.UnixNano(), at.UnixNano()) > 0 || at.IsZero() {
			at = t
		}
	}
	return at
}
