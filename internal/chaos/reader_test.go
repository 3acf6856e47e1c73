//go:build unix

package chaos

import (
	"strings"
	"sync"
	"time"
)

// readers is how many requests read the final state at once.
const readers = 8

// read adds to a history what a node shows: every job and every run.
func (h *history) read(base string) error {
	jobs, err := allJobs(base)
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

// allJobs reads the live jobs, and after them the one-offs that have ended: one that
// ends meanwhile is in one of the lists.
func allJobs(base string) (all []apiJob, err error) {
	seen := map[string]bool{}
	for _, filter := range []string{"", "&status=completed", "&status=failed", "&status=cancelled"} {
		jobs, err := pages[apiJob](base, "/api/v1/jobs?limit=500"+filter)
		if err != nil {
			return nil, err
		}
		for _, job := range jobs {
			if !seen[job.ID] {
				seen[job.ID] = true
				all = append(all, job)
			}
		}
	}
	return all, nil
}

// awaitClean waits until everything that was requested is done, checks it, and returns
// the final history. What is read while things change may contradict itself, so only
// findings of two readings in a row count before the time is up.
func (d *driver) awaitClean(limit time.Duration, faults bool) history {
	d.tb.Helper()
	seen := map[finding]bool{}
	for start := time.Now(); ; time.Sleep(500 * time.Millisecond) {
		h := d.history()
		h.Faults = faults
		if err := h.read(d.node()); err != nil {
			if time.Since(start) > limit {
				d.tb.Fatalf("the state cannot be read: %v", err)
			}
			continue
		}
		h.Deliveries = d.receiver.all() // a run may have been delivered since
		findings := check(h)
		if len(findings) == 0 {
			return h
		}
		proved := false
		now := map[finding]bool{}
		for _, f := range findings {
			now[f] = !f.pending()
			proved = proved || now[f] && seen[f]
		}
		if seen = now; proved || time.Since(start) > limit {
			d.tb.Fatalf("%d promises are broken after %v:\n%s", len(findings), time.Since(start), digest(findings))
		}
	}
}

// digest is the first of some findings.
func digest(findings []finding) string {
	var lines []string
	for _, f := range findings[:min(len(findings), 10)] {
		lines = append(lines, f.String())
	}
	return strings.Join(lines, "\n")
}
