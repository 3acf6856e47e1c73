//go:build unix

package chaos

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/pgtest"
)

// TestRedrivenRunsAreNeitherLostNorDoubled has people decide about dead letters while
// nodes are killed: some runs fail once and are redriven, at a rate or at once, and
// others are discarded.
func TestRedrivenRunsAreNeitherLostNorDoubled(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		redriveUnderKills(t, onSQLite(t, t.TempDir()))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		url := pgtest.Database(t, nil)
		redriveUnderKills(t, onPostgres(t, url), onPostgres(t, url))
	})
}

func redriveUnderKills(t *testing.T, nodes ...*process) {
	const (
		each = 100
		rate = 40
	)
	kills, rounds := 2, 1
	if longRun {
		kills, rounds = 10, 10
	}
	d := newDriver(t, anyOf(nodes))
	var slow, quickly, given []requestedJob
	for range rounds {
		first := d.createDead(each, "/fail/1")
		started, result := time.Now(), d.bulkDead("redrive", spec{"error": "500"}, spec{"rate": rate})
		if result.Matched != each || result.Done != each || result.More || result.LastAt == nil {
			t.Errorf("a redrive of %d dead letters says %+v", each, result)
		}
		d.killSome(nodes, kills)
		d.wantPaced(first, started, rate)

		second, third := d.createDead(each, "/fail/1"), d.createDead(each, "/cut/1")
		d.bulkDeadUnderKills(nodes, "redrive", spec{"error": "500"}, spec{"rate": 1000})
		d.bulkDeadUnderKills(nodes, "discard", spec{"error": "EOF"}, nil)
		slow, quickly, given = append(slow, first...), append(quickly, second...), append(given, third...)
	}
	h := d.awaitClean(2*time.Minute, true)
	d.noDeadLetters()
	redriven := append(slow, quickly...)
	for _, r := range h.runsOf(redriven) {
		if r.Status != "succeeded" || r.Attempts[0].Outcome != "failed" {
			t.Errorf("a run that was redriven is %+v", r)
		}
		lost := 0
		for _, a := range r.Attempts[1:] {
			if a.Outcome == "lost" {
				lost++
			}
		}
		if good := d.receiver.successes(r.ID); good < 1 || good > 1+lost || r.Attempt != 2+lost {
			t.Errorf("a run that was redriven was answered well %d times, with %d workers lost, at attempt %d", good, lost, r.Attempt)
		}
	}
	for _, r := range h.runsOf(given) {
		if r.Status != "discarded" || r.Attempt != 1 || d.receiver.attemptsOf(r.ID) != 1 {
			t.Errorf("a run that was discarded is %+v", r)
		}
	}
	d.wantStatus(redriven, "completed")
	d.wantStatus(given, "failed")
	report(t, h, rounds*kills)
}

// createDead creates one-offs whose only attempt fails, and waits until they are dead.
func (d *driver) createDead(n int, path string) (jobs []requestedJob) {
	d.tb.Helper()
	for i := range n {
		s := quick(spec{"max_retries": 0, "timeout_seconds": 60}) // a lost worker is noticed before
		if i%2 == 0 {
			s["idempotency_key_template"] = "invoice-{{job_id}}-{{date}}"
		}
		jobs = append(jobs, d.onceIn(0, path, s))
	}
	d.mu.Lock()
	for i := range d.requested {
		if slices.ContainsFunc(jobs, func(j requestedJob) bool { return j.ID == d.requested[i].ID }) {
			d.requested[i].Redriven = path != "/cut/1"
		}
	}
	d.mu.Unlock()
	for _, j := range jobs {
		eventually(d.tb, "a run that fails is dead", time.Minute, func() bool {
			runs, err := runsOf(d.node(), j.ID)
			return err == nil && len(runs) == 1 && runs[0].Status == "dead"
		})
	}
	return jobs
}

// bulkResult is the result of a bulk request about dead letters.
type bulkResult struct {
	Matched int        `json:"matched"`
	Done    int        `json:"done"`
	More    bool       `json:"more"`
	LastAt  *time.Time `json:"last_at"`
}

// bulkDead makes a bulk request about dead letters, which must succeed.
func (d *driver) bulkDead(verb string, filter, more spec) (result bulkResult) {
	d.tb.Helper()
	if err := request(d.node(), "POST", "/api/v1/dead-letters/"+verb, bulkRequest(filter, more), &result); err != nil {
		d.tb.Fatalf("%s dead letters: %v", verb, err)
	}
	return result
}

func bulkRequest(filter, more spec) spec {
	body := spec{"filter": filter}
	for name, value := range more {
		body[name] = value
	}
	return body
}

// bulkDeadUnderKills repeats a bulk request, and kills the node that serves it, until
// no dead letter is left.
func (d *driver) bulkDeadUnderKills(nodes []*process, verb string, filter, more spec) {
	d.tb.Helper()
	for tries := 0; ; tries++ {
		var counted bulkResult
		err := request(d.node(), "POST", "/api/v1/dead-letters/"+verb, bulkRequest(filter, spec{"dry_run": true}), &counted)
		if err == nil && counted.Matched == 0 {
			return
		}
		if tries > 50 {
			d.tb.Fatalf("there are %+v dead letters left after %d orders (%v)", counted, tries, err)
		}
		victim := nodes[rand.IntN(len(nodes))]
		var asking sync.WaitGroup
		at := victim.address()
		asking.Go(func() { request(at, "POST", "/api/v1/dead-letters/"+verb, bulkRequest(filter, more), &bulkResult{}) })
		if tries < 3 {
			time.Sleep(time.Duration(rand.IntN(15)) * time.Millisecond)
			victim.kill()
		}
		asking.Wait()
		if tries < 3 {
			victim.start()
		}
		if tries < 3 && len(nodes) == 1 {
			d.awaitNoLiveRun()
		}
	}
}

// awaitNoLiveRun waits until all runs are settled. A run that loses three workers in a row is
// poison, and a node that is alone loses its runs whenever it is killed.
func (d *driver) awaitNoLiveRun() {
	d.tb.Helper()
	eventually(d.tb, "no run is live", time.Minute, func() bool {
		for _, status := range []string{"running", "retry", "ready", "running"} { // first a lost one, then as a run goes on
			if runs, err := pages[apiRun](d.node(), "/api/v1/runs?limit=500&status="+status); err != nil || len(runs) > 0 {
				return false
			}
		}
		return true
	})
}

// killSome kills nodes one after another and starts them again.
func (d *driver) killSome(nodes []*process, kills int) {
	for range kills {
		time.Sleep(time.Duration(200+rand.IntN(600)) * time.Millisecond)
		victim := nodes[rand.IntN(len(nodes))]
		victim.kill()
		time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
		victim.start()
	}
}

// wantPaced waits until the runs of the jobs have started again, and expects them not
// to start faster than the rate.
func (d *driver) wantPaced(jobs []requestedJob, from time.Time, rate float64) {
	d.tb.Helper()
	var again []time.Time
	for _, j := range jobs {
		eventually(d.tb, "a run that was redriven begins", time.Minute, func() bool { return len(d.receiver.deliveriesOf(j.ID)) > 1 })
		again = append(again, d.receiver.deliveriesOf(j.ID)[1].Arrived)
	}
	slices.SortFunc(again, time.Time.Compare)
	for i, at := range again {
		if due := from.Add(time.Duration(float64(i) / rate * float64(time.Second))); at.Before(due) {
			d.tb.Errorf("redriven run %d began %v too early for a rate of %v", i, due.Sub(at), rate)
		}
	}
}

// noDeadLetters wants no dead letter to be left.
func (d *driver) noDeadLetters() {
	d.tb.Helper()
	left, err := pages[apiRun](d.node(), "/api/v1/dead-letters?limit=500")
	if err != nil || len(left) > 0 {
		d.tb.Errorf("%d dead letters are left (%v)", len(left), err)
	}
}

// wantStatus waits until each of the jobs has a status.
func (d *driver) wantStatus(jobs []requestedJob, status string) {
	d.tb.Helper()
	for _, j := range jobs {
		var result apiJob
		eventually(d.tb, "a job is "+status, 2*time.Minute, func() bool {
			return request(d.node(), "GET", "/api/v1/jobs/"+j.ID, nil, &result) == nil && result.Status == status
		})
	}
}
