//go:build unix

package chaos

import (
	"slices"
	"sync"
	"time"
)

// archiveLimit is the time in which an ended one-off is archived,
// whoever was killed at that moment.
const archiveLimit = 2 * time.Minute

// wantArchived waits until every one-off is archived, except for those with a dead
// letter, and expects each to be found by its id.
func (d *driver) wantArchived(h history) {
	d.tb.Helper()
	start := time.Now()
	stay := map[string]bool{}
	for _, r := range h.Runs {
		stay[r.Job] = stay[r.Job] || r.Status == "dead"
	}
	once := map[string]bool{}
	for _, j := range h.Requested {
		once[j.Name] = j.Every == 0
	}
	var left, first int
	eventually(d.tb, "the ended one-offs are archived", archiveLimit, func() bool {
		jobs, err := pages[apiJob](d.node(), "/api/v1/jobs?limit=500")
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
	gone := slices.DeleteFunc(slices.Clone(h.Jobs), func(j apiJob) bool { return !once[j.Name] || stay[j.ID] })
	d.wantListed(gone, "completed")
	d.tb.Logf("%d one-offs have left; the last %d after %v", len(gone), first, took)
}

// wantListed expects each of the jobs to be listed with a status.
func (d *driver) wantListed(jobs []apiJob, status string) {
	d.tb.Helper()
	next := make(chan apiJob)
	var reading sync.WaitGroup
	for range readers {
		reading.Go(func() {
			for j := range next {
				var result apiJob
				if err := request(d.node(), "GET", "/api/v1/jobs/"+j.ID, nil, &result); err != nil || result.Name != j.Name || result.Status != status {
					runs, _ := runsOf(d.node(), j.ID)
					d.tb.Errorf("%q, which has ended, is shown as %+v (%v), with the runs %+v", j.Name, result, err, runs)
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
