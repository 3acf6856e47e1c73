//go:build unix

package chaos

import (
	"slices"
	"sync"
	"time"
)

// retireLimit is the time in which a one-off that is over leaves the live jobs,
// whoever was killed at that moment.
const retireLimit = 2 * time.Minute

// retires waits until every one-off has left the live jobs, but for those with a dead
// letter, and wants each to be found all the same.
func (d *driver) retires(h history) {
	d.tb.Helper()
	start := time.Now()
	stay := map[string]bool{}
	for _, r := range h.Runs {
		stay[r.Job] = stay[r.Job] || r.Status == "dead"
	}
	once := map[string]bool{}
	for _, j := range h.Asked {
		once[j.Name] = j.Every == 0
	}
	var left, first int
	eventually(d.tb, "the one-offs that are over leave the live jobs", retireLimit, func() bool {
		jobs, err := pages[toldJob](d.at(), "/api/v1/jobs?limit=500")
		if err != nil {
			return false
		}
		left = 0
		for _, j := range jobs {
			if once[j.Name] && !stay[j.ID] {
				left++
			}
		}
		first = max(first, left)
		return left == 0
	})
	took := time.Since(start)
	gone := slices.DeleteFunc(slices.Clone(h.Jobs), func(j toldJob) bool { return !once[j.Name] || stay[j.ID] })
	d.found(gone, "completed")
	d.tb.Logf("%d one-offs have left; the last %d after %v", len(gone), first, took)
}

// found wants each of the jobs to be told of, with a status.
func (d *driver) found(jobs []toldJob, status string) {
	d.tb.Helper()
	next := make(chan toldJob)
	var reading sync.WaitGroup
	for range readers {
		reading.Go(func() {
			for j := range next {
				var told toldJob
				if err := ask(d.at(), "GET", "/api/v1/jobs/"+j.ID, nil, &told); err != nil || told.Name != j.Name || told.Status != status {
					runs, _ := runsOf(d.at(), j.ID)
					d.tb.Errorf("%q, which is over, is told of as %+v (%v), with the runs %+v", j.Name, told, err, runs)
				}
			}
		})
	}
	for _, j := range jobs {
		next <- j
	}
	close(next)
	reading.Wait()
}
