package bench

import (
	"bytes"
	"math"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
)

// execution is one call of a handler, or one callback.
type execution struct {
	run belfry.ID
	at  int64 // Unix time in microseconds, by the clock of this machine
}

// recorder records executions. The zero value is empty.
type recorder struct {
	mu   sync.Mutex
	list []execution
}

func (r *recorder) add(e execution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, e)
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.list)
}

// reserve takes the memory for so many executions, so that it does not grow meanwhile.
func (r *recorder) reserve(n int) {
	r.list = make([]execution, n)
	for i := range r.list {
		r.list[i].at = 1 // memory that was never written is not resident
	}
	r.list = r.list[:0]
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
		return float64(delays[max(0, int(math.Ceil(share*float64(len(delays))))-1)].Microseconds()) / 1000
	}
	return Percentiles{at(0.5), at(0.95), at(0.99), at(1)}
}

// assess compares what was due with what the history has and what was executed. The clock
// of the store may be ahead of that of the executions by so much.
func assess(expected int, history []occurrence, executions []execution, ahead time.Duration) (q Quality) {
	type key struct {
		job belfry.ID
		at  int64
	}
	first := make(map[belfry.ID]int64, len(executions))
	for _, e := range executions {
		at, again := first[e.run]
		if again {
			q.Duplicates++
			e.at = min(at, e.at)
		}
		first[e.run] = e.at
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
		if o.firedAt.Before(o.dueAt) || executed && at < o.dueAt.Add(-ahead).UnixMicro() {
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

// latest is the last of the instants that f returns; zero without any.
func latest(history []occurrence, f func(occurrence) time.Time) (at time.Time) {
	for _, o := range history {
		if t := f(o); t.After(at) {
			at = t
		}
	}
	return at
}

// cpuTime is the processor time that this process has used; 0 where there is no /proc.
func cpuTime() time.Duration {
	text, _ := os.ReadFile("/proc/self/stat")
	_, text, _ = bytes.Cut(text, []byte(") ")) // after the name of the program
	const tick = 10 * time.Millisecond         // on all Linux systems
	return time.Duration(number(text, 11)+number(text, 12)) * tick
}

// residentMemory is how many bytes of memory this process occupies; 0 where there is no
// /proc.
func residentMemory() int64 {
	text, _ := os.ReadFile("/proc/self/statm")
	return number(text, 1) * int64(os.Getpagesize())
}

// number is a field of a line of numbers, counted from 0.
func number(line []byte, i int) int64 {
	fields := bytes.Fields(line)
	if i >= len(fields) {
		return 0
	}
	n, _ := strconv.ParseInt(string(fields[i]), 10, 64)
	return n
}
