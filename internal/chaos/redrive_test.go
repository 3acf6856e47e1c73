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
	if long {
		kills, rounds = 10, 10
	}
	d := newDriver(t, anyOf(nodes))
	var slow, quickly, given []askedJob
	for range rounds {
		first := d.die(each, "/fail/1")
		started, told := time.Now(), d.decide("redrive", spec{"error": "500"}, spec{"rate": rate})
		if told.Matched != each || told.Done != each || told.More || told.LastAt == nil {
			t.Errorf("a redrive of %d dead letters says %+v", each, told)
		}
		d.killSome(nodes, kills)
		d.paced(first, started, rate)

		second, third := d.die(each, "/fail/1"), d.die(each, "/cut/1")
		d.decideUnderKills(nodes, "redrive", spec{"error": "500"}, spec{"rate": 1000})
		d.decideUnderKills(nodes, "discard", spec{"error": "EOF"}, nil)
		slow, quickly, given = append(slow, first...), append(quickly, second...), append(given, third...)
	}
	h := d.settles(2*time.Minute, true)
	d.noDeadLetters()
	redriven := append(slow, quickly...)
	for _, r := range h.of(redriven) {
		if r.Status != "succeeded" || r.Attempts[0].Outcome != "failed" {
			t.Errorf("a run that was redriven is %+v", r)
		}
		lost := 0
		for _, a := range r.Attempts[1:] {
			if a.Outcome == "lost" {
				lost++
			}
		}
		if good := d.sink.good(r.ID); good < 1 || good > 1+lost || r.Attempt != 2+lost {
			t.Errorf("a run that was redriven was answered well %d times, with %d workers lost, at attempt %d", good, lost, r.Attempt)
		}
	}
	for _, r := range h.of(given) {
		if r.Status != "discarded" || r.Attempt != 1 || d.sink.sent(r.ID) != 1 {
			t.Errorf("a run that was discarded is %+v", r)
		}
	}
	d.stands(redriven, "completed")
	d.stands(given, "failed")
	report(t, h, rounds*kills)
}

// die asks for one-offs whose only attempt fails, and waits until they are dead.
func (d *driver) die(n int, path string) (jobs []askedJob) {
	d.tb.Helper()
	for i := range n {
		s := quick(spec{"max_retries": 0, "timeout_seconds": 60}) // a lost worker is noticed before
		if i%2 == 0 {
			s["idempotency_key_template"] = "invoice-{{job_id}}-{{date}}"
		}
		jobs = append(jobs, d.soon(0, path, s))
	}
	d.mu.Lock()
	for i := range d.asked {
		if slices.ContainsFunc(jobs, func(j askedJob) bool { return j.ID == d.asked[i].ID }) {
			d.asked[i].Redriven = path != "/cut/1"
		}
	}
	d.mu.Unlock()
	for _, j := range jobs {
		eventually(d.tb, "a run that fails is dead", time.Minute, func() bool {
			runs, err := runsOf(d.at(), j.ID)
			return err == nil && len(runs) == 1 && runs[0].Status == "dead"
		})
	}
	return jobs
}

// toldDecision is what came of an order about dead letters.
type toldDecision struct {
	Matched int        `json:"matched"`
	Done    int        `json:"done"`
	More    bool       `json:"more"`
	LastAt  *time.Time `json:"last_at"`
}

// decide gives an order about dead letters that must be carried out.
func (d *driver) decide(verb string, filter, more spec) (told toldDecision) {
	d.tb.Helper()
	if err := ask(d.at(), "POST", "/api/v1/dead-letters/"+verb, order(filter, more), &told); err != nil {
		d.tb.Fatalf("%s dead letters: %v", verb, err)
	}
	return told
}

func order(filter, more spec) spec {
	body := spec{"filter": filter}
	for name, value := range more {
		body[name] = value
	}
	return body
}

// decideUnderKills gives an order again and again, and kills the node that has it,
// until nothing is left to decide.
func (d *driver) decideUnderKills(nodes []*process, verb string, filter, more spec) {
	d.tb.Helper()
	for tries := 0; ; tries++ {
		var counted toldDecision
		err := ask(d.at(), "POST", "/api/v1/dead-letters/"+verb, order(filter, spec{"dry_run": true}), &counted)
		if err == nil && counted.Matched == 0 {
			return
		}
		if tries > 50 {
			d.tb.Fatalf("there are %+v dead letters left after %d orders (%v)", counted, tries, err)
		}
		victim := nodes[rand.IntN(len(nodes))]
		var asking sync.WaitGroup
		at := victim.at()
		asking.Go(func() { ask(at, "POST", "/api/v1/dead-letters/"+verb, order(filter, more), &toldDecision{}) })
		if tries < 3 {
			time.Sleep(time.Duration(rand.IntN(15)) * time.Millisecond)
			victim.kill()
		}
		asking.Wait()
		if tries < 3 {
			victim.start()
		}
	}
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

// paced waits until the runs of the jobs have begun again, and wants them to have
// done so not faster than at the rate.
func (d *driver) paced(jobs []askedJob, from time.Time, rate float64) {
	d.tb.Helper()
	var again []time.Time
	for _, j := range jobs {
		eventually(d.tb, "a run that was redriven begins", time.Minute, func() bool { return len(d.sink.of(j.ID)) > 1 })
		again = append(again, d.sink.of(j.ID)[1].Arrived)
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
	left, err := pages[toldRun](d.at(), "/api/v1/dead-letters?limit=500")
	if err != nil || len(left) > 0 {
		d.tb.Errorf("%d dead letters are left (%v)", len(left), err)
	}
}

// stands waits until each of the jobs has a status.
func (d *driver) stands(jobs []askedJob, status string) {
	d.tb.Helper()
	for _, j := range jobs {
		var told toldJob
		eventually(d.tb, "a job is "+status, 2*time.Minute, func() bool {
			return ask(d.at(), "GET", "/api/v1/jobs/"+j.ID, nil, &told) == nil && told.Status == status
		})
	}
}
