//go:build unix

package chaos

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// receiver is the server that the jobs call. It records every delivery before it
// responds, and responds as the path says:
//
//	/ok          200
//	/slow/n      200 after n milliseconds
//	/fail/n      500 to the first n deliveries of a run, then 200
//	/until/a     500 until gate a is opened, then 200
//	/cut/n       the connection is closed on the first n, then 200
//	/hang/n      nothing to the first n until the caller gives up, then 200
//	/gate/a/b    nothing to the first until gate a is opened, nothing to the second
//	             until gate b is, and so on, then 200
//	/ended       records how a worker's handler ended, which it reports last
type receiver struct {
	*httptest.Server

	mu         sync.Mutex // guards the fields below
	deliveries []*delivery
	byRun      map[string]int
	gates      map[string]chan struct{}
	closing    chan struct{}
}

func newReceiver(tb testing.TB) *receiver {
	l := &receiver{byRun: map[string]int{}, gates: map[string]chan struct{}{}, closing: make(chan struct{})}
	l.Server = httptest.NewServer(l)
	tb.Cleanup(func() {
		close(l.closing)
		l.Close()
	})
	return l
}

func (l *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/ended" {
		l.ended(w, r)
		return
	}
	d, nth, err := l.record(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	defer l.over(d)
	behaviour, argument, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	n, _ := strconv.Atoi(argument)
	status := http.StatusOK
	switch behaviour {
	case "slow":
		if !wait(l, r, time.After(time.Duration(n)*time.Millisecond)) {
			return
		}
	case "fail":
		if nth <= n {
			status = http.StatusInternalServerError
		}
	case "until":
		select {
		case <-l.gateOf(argument):
		default:
			status = http.StatusInternalServerError
		}
	case "cut":
		if nth <= n {
			panic(http.ErrAbortHandler)
		}
	case "hang":
		if nth <= n && !wait(l, r, make(chan int)) {
			return
		}
	case "gate":
		if names := strings.Split(argument, "/"); nth <= len(names) && !wait(l, r, l.gateOf(names[nth-1])) {
			return
		}
	}
	l.mu.Lock()
	d.Answered = status
	l.mu.Unlock()
	w.WriteHeader(status)
}

func (l *receiver) over(d *delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d.Over, d.OverAt = true, time.Now()
}

// wait reports whether the event came before the caller went away.
func wait[T any](l *receiver, r *http.Request, event <-chan T) bool {
	select {
	case <-event:
		return true
	case <-r.Context().Done():
	case <-l.closing:
	}
	return false
}

// record adds a delivery and returns its number among those of its run. An invalid one
// is refused, which makes its run fail.
func (l *receiver) record(r *http.Request) (d *delivery, nth int, err error) {
	d = &delivery{
		Run:     r.Header.Get("Belfry-Run-Id"),
		Job:     r.Header.Get("Belfry-Job-Id"),
		Key:     r.Header.Get("Idempotency-Key"),
		Worker:  r.Header.Get(headerBy),
		Arrived: time.Now(),
	}
	if d.Attempt, err = strconv.Atoi(r.Header.Get("Belfry-Attempt")); err != nil {
		return nil, 0, fmt.Errorf("read the attempt: %w", err)
	}
	if d.ScheduledAt, err = time.Parse(time.RFC3339Nano, r.Header.Get("Belfry-Scheduled-At")); err != nil {
		return nil, 0, fmt.Errorf("read the scheduled instant: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deliveries = append(l.deliveries, d)
	l.byRun[d.Run]++
	return d, l.byRun[d.Run], nil
}

// The headers of the deliveries of a worker's handler.
const (
	headerBy    = "Chaos-Worker"
	headerEnded = "Chaos-Ended"
)

// ended records how a handler ended. One that did not report its start is refused.
func (l *receiver) ended(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range slices.Backward(l.deliveries) {
		if d.Run == r.Header.Get("Belfry-Run-Id") && strconv.Itoa(d.Attempt) == r.Header.Get("Belfry-Attempt") && d.Worker == r.Header.Get(headerBy) {
			d.Ended, d.EndedAt = r.Header.Get(headerEnded), time.Now()
			return
		}
	}
	http.Error(w, "this attempt never began", http.StatusBadRequest)
}

// gateOf is a channel that open closes.
func (l *receiver) gateOf(name string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gates[name] == nil {
		l.gates[name] = make(chan struct{})
	}
	return l.gates[name]
}

func (l *receiver) open(name string) { close(l.gateOf(name)) }

// all is a copy of everything noted so far.
func (l *receiver) all() []delivery {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]delivery, len(l.deliveries))
	for i, d := range l.deliveries {
		all[i] = *d
	}
	return all
}

// deliveriesOf returns the deliveries of a job.
func (l *receiver) deliveriesOf(job string) []delivery {
	var mine []delivery
	for _, d := range l.all() {
		if d.Job == job {
			mine = append(mine, d)
		}
	}
	return mine
}

// awaitDelivery waits until every one of the jobs was delivered at least once.
func (l *receiver) awaitDelivery(tb testing.TB, limit time.Duration, jobs ...requestedJob) {
	tb.Helper()
	eventually(tb, fmt.Sprintf("%d jobs are delivered", len(jobs)), limit, func() bool {
		seen := map[string]bool{}
		for _, d := range l.all() {
			seen[d.Job] = true
		}
		for _, j := range jobs {
			if !seen[j.ID] {
				return false
			}
		}
		return true
	})
}

// attemptsOf counts the deliveries of a run.
func (l *receiver) attemptsOf(run string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byRun[run]
}

// successes counts the deliveries of a run that were answered with success.
func (l *receiver) successes(run string) int {
	n := 0
	for _, d := range l.all() {
		if d.Run == run && d.Answered/100 == 2 {
			n++
		}
	}
	return n
}

// waiting counts the deliveries of the jobs whose caller still waits for an answer.
func (l *receiver) waiting(jobs []requestedJob) int {
	n := 0
	for _, j := range jobs {
		for _, d := range l.deliveriesOf(j.ID) {
			if !d.Over {
				n++
			}
		}
	}
	return n
}

// maxLateness is the lateness of the latest first delivery of the jobs.
func (l *receiver) maxLateness(jobs []requestedJob) time.Duration {
	mine := map[string]bool{}
	for _, j := range jobs {
		mine[j.ID] = true
	}
	var worst time.Duration
	for _, d := range l.all() {
		if mine[d.Job] && d.Attempt == 1 {
			worst = max(worst, d.Arrived.Sub(d.ScheduledAt))
		}
	}
	return worst
}
