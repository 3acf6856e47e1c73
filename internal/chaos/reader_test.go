//go:build unix

package chaos

import (
	"strings"
	"sync"
	"time"
)

// readers is how many requests read the final state at once.
const readers = 8

// read adds to a history what a node tells: every job and every run.
func (h *history) read(base string) error {
	jobs, err := pages[toldJob](base, "/api/v1/jobs?limit=500")
	if err != nil {
		return err
	}
	h.Jobs, h.Runs = jobs, nil
	var mu sync.Mutex
	var reading sync.WaitGroup
	next := make(chan string)
	for range readers {
		reading.Go(func() {
			for id := range next {
				runs, failed := runsOf(base, id)
				mu.Lock()
				h.Runs = append(h.Runs, runs...)
				if failed != nil {
					err = failed
				}
				mu.Unlock()
			}
		})
	}
	for _, job := range jobs {
		next <- job.ID
	}
	close(next)
	reading.Wait()
	return err
}

// settles waits until everything that was asked for is done, checks it, and gives
// the final history. What waiting cannot mend fails at once.
func (d *driver) settles(limit time.Duration, faults bool) history {
	d.tb.Helper()
	for start := time.Now(); ; time.Sleep(500 * time.Millisecond) {
		h := d.history()
		h.Faults = faults
		err := h.read(d.at())
		if err == nil {
			h.Deliveries = d.sink.all() // a run may have been delivered since
			findings := check(h)
			if len(findings) == 0 {
				return h
			}
			if over := time.Since(start) > limit; over || hopeless(findings) {
				d.tb.Fatalf("%d promises are broken after %v:\n%s", len(findings), time.Since(start), digest(findings))
			}
		} else if time.Since(start) > limit {
			d.tb.Fatalf("the state cannot be read: %v", err)
		}
	}
}

// hopeless reports whether there is a finding that waiting cannot mend.
func hopeless(findings []finding) bool {
	for _, f := range findings {
		if !f.pending() {
			return true
		}
	}
	return false
}

// digest is the first of some findings.
func digest(findings []finding) string {
	var lines []string
	for _, f := range findings[:min(len(findings), 10)] {
		lines = append(lines, f.String())
	}
	return strings.Join(lines, "\n")
}
