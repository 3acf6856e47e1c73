//go:build unix

package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// driver asks for jobs and remembers what was acknowledged. Its methods may be
// called from several goroutines.
type driver struct {
	tb   testing.TB
	sink *ledger
	at   func() string // address of a node to ask; empty: none is up
	all  spec          // what every job says unless it says otherwise

	mu       sync.Mutex // guards the fields below
	named    int
	asked    []askedJob
	triggers []askedTrigger
}

func newDriver(tb testing.TB, at func() string) *driver {
	return &driver{tb: tb, sink: newLedger(tb), at: at}
}

// spec is what to say of a job beyond its schedule.
type spec map[string]any

// quick is for jobs whose attempts are short and whose retries come soon.
func quick(more spec) spec {
	s := spec{"timeout_seconds": 10, "retry_base_seconds": 0.2, "max_retries": 3, "overlap": "parallel"}
	for name, value := range more {
		s[name] = value
	}
	return s
}

// once asks for a job at an instant that calls the path.
func (d *driver) once(at time.Time, path string, s spec) (askedJob, error) {
	at = at.Truncate(time.Microsecond)
	return d.create(askedJob{At: at}, at.UTC().Format(time.RFC3339Nano), path, s)
}

// soon is once for a job that must be acknowledged.
func (d *driver) soon(in time.Duration, path string, s spec) askedJob {
	d.tb.Helper()
	j, err := d.once(time.Now().Add(in), path, s)
	if err != nil {
		d.tb.Fatalf("create a job: %v", err)
	}
	return j
}

// every asks for a job that recurs every n seconds, a divisor of 60. It must be
// acknowledged, and stop must be called for it before the end.
func (d *driver) every(n int, path string, s spec) askedJob {
	d.tb.Helper()
	j, err := d.create(askedJob{Every: time.Duration(n) * time.Second}, fmt.Sprintf("*/%d * * * * *", n), path, s)
	if err != nil {
		d.tb.Fatalf("create a recurring job: %v", err)
	}
	return j
}

func (d *driver) create(j askedJob, schedule, path string, s spec) (askedJob, error) {
	d.mu.Lock()
	d.named++
	j.Name = fmt.Sprintf("job %d", d.named)
	d.mu.Unlock()
	body := spec{"name": j.Name, "schedule": schedule, "payload": spec{"url": d.sink.URL + path}}
	maps.Copy(body, d.all)
	maps.Copy(body, s)
	j.Retries, _ = body["max_retries"].(int)
	j.OneAtATime = body["overlap"] != "parallel"
	j.Queues = body["overlap"] == "queue"
	j.MakesUp = body["missed_window"] == "run_all"
	j.ByWorker = body["type"] == "worker"
	var told toldJob
	err := ask(d.at(), "POST", "/api/v1/jobs", body, &told)
	if err == nil {
		j.ID = told.ID
		if told.NextRunAt != nil {
			j.From = *told.NextRunAt
		}
	} else if !unknown(err) {
		d.tb.Errorf("create %q: %v", j.Name, err)
		return j, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != errDown {
		d.asked = append(d.asked, j)
	}
	return j, err
}

// trigger asks for a run of a job at once.
func (d *driver) trigger(j askedJob) error {
	var told struct {
		RunID string `json:"run_id"`
	}
	err := ask(d.at(), "POST", "/api/v1/jobs/"+j.ID+"/trigger", nil, &told)
	if err == errDown || j.Every == 0 && ended(err) {
		return err
	}
	if err != nil && !unknown(err) {
		d.tb.Errorf("trigger %q: %v", j.Name, err)
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.triggers = append(d.triggers, askedTrigger{Job: j.ID, Run: told.RunID})
	return err
}

// clockSlack is how far a node's idea of the database's clock may be off.
const clockSlack = 50 * time.Millisecond

// stop pauses a recurring job that keeps up, which bounds the occurrences that it
// has. A pause decides one occurrence that is due, not several, so those after the
// latest that was seen decided are left open.
func (d *driver) stop(j askedJob) {
	d.tb.Helper()
	var latest time.Time
	eventually(d.tb, "a recurring job has caught up", time.Minute, func() bool {
		latest = d.latest(j)
		return time.Since(latest) < 2*j.Every
	})
	eventually(d.tb, "a job is paused", time.Minute, func() bool {
		err := ask(d.at(), "PATCH", "/api/v1/jobs/"+j.ID, spec{"status": "paused"}, nil)
		if err != nil && !unknown(err) {
			d.tb.Fatalf("pause a job: %v", err)
		}
		return err == nil
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.asked {
		if d.asked[i].ID == j.ID {
			d.asked[i].Until, d.asked[i].End = latest.Add(1), time.Now().Add(clockSlack)
		}
	}
}

// latest is the latest occurrence of a job that is decided; zero: none is known.
func (d *driver) latest(j askedJob) time.Time {
	var runs []toldRun
	err := ask(d.at(), "GET", "/api/v1/jobs/"+j.ID+"/runs?limit=1", nil, &runs)
	switch {
	case err != nil || len(runs) == 0:
		return time.Time{}
	case runs[0].SkippedTo != nil:
		return *runs[0].SkippedTo
	}
	return runs[0].ScheduledAt
}

// load asks for one-off jobs that are due within span, so many a second, until ctx
// ends: most call a quick target, some a slow or failing one. One in eight is
// triggered as well, and another when it is due, about when its run is over.
func (d *driver) load(ctx context.Context, perSecond int, span time.Duration, random *rand.Rand) {
	var asking sync.WaitGroup
	defer asking.Wait()
	room := make(chan struct{}, 64)
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		path := []string{"/ok", "/ok", "/ok", "/ok", "/ok", "/slow/200", "/fail/1", "/cut/1"}[random.IntN(8)]
		due := time.Duration(random.Int64N(int64(span)))
		triggered, late := random.IntN(8) == 0, random.IntN(8) == 0
		after := time.Duration(random.Int64N(int64(20 * time.Millisecond)))
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return
		}
		asking.Go(func() {
			defer func() { <-room }()
			j, err := d.once(time.Now().Add(due), path, quick(nil))
			if err == nil && triggered {
				d.trigger(j)
			}
			if err == nil && late {
				asking.Go(func() { // without a place: it mostly waits
					time.Sleep(time.Until(j.At) + after)
					d.trigger(j)
				})
			}
		})
	}
}

// counts says how much was asked for, and how much of it acknowledged.
func (d *driver) counts() (asked, acknowledged, triggers int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, j := range d.asked {
		if j.ID != "" {
			acknowledged++
		}
	}
	return len(d.asked), acknowledged, len(d.triggers)
}

// history is what the driver and the ledger know.
func (d *driver) history() history {
	d.mu.Lock()
	defer d.mu.Unlock()
	return history{
		Asked:      append([]askedJob(nil), d.asked...),
		Triggers:   append([]askedTrigger(nil), d.triggers...),
		Deliveries: d.sink.all(),
	}
}
