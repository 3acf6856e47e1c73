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

// driver creates jobs and records what was acknowledged. Its methods may be
// called from several goroutines.
type driver struct {
	tb       testing.TB
	receiver *receiver
	node     func() string // address of a node to ask; empty: none is up
	common   spec          // what every job says unless it says otherwise

	mu        sync.Mutex // guards the fields below
	names     int
	requested []requestedJob
	triggers  []requestedTrigger
}

func newDriver(tb testing.TB, at func() string) *driver {
	return &driver{tb: tb, receiver: newReceiver(tb), node: at}
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

// once creates a job at an instant that calls the path.
func (d *driver) once(at time.Time, path string, s spec) (requestedJob, error) {
	at = at.Truncate(time.Microsecond)
	return d.create(requestedJob{At: at}, at.UTC().Format(time.RFC3339Nano), path, s)
}

// onceIn is once for a job that must be acknowledged. While the node says that it cannot, as
// one on a machine with too much to do may, further jobs are created until one is.
func (d *driver) onceIn(in time.Duration, path string, s spec) requestedJob {
	d.tb.Helper()
	for start := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		j, err := d.once(time.Now().Add(in), path, s)
		if err == nil {
			return j
		}
		if time.Since(start) > healLimit {
			d.tb.Fatalf("create a job: %v", err)
		}
	}
}

// every creates a job that recurs every n seconds, a divisor of 60. It must be
// acknowledged, and stop must be called for it before the end.
func (d *driver) every(n int, path string, s spec) requestedJob {
	d.tb.Helper()
	j, err := d.create(requestedJob{Every: time.Duration(n) * time.Second}, fmt.Sprintf("*/%d * * * * *", n), path, s)
	if err != nil {
		d.tb.Fatalf("create a recurring job: %v", err)
	}
	return j
}

func (d *driver) create(j requestedJob, schedule, path string, s spec) (requestedJob, error) {
	d.mu.Lock()
	d.names++
	j.Name = fmt.Sprintf("job %d", d.names)
	d.mu.Unlock()
	body := spec{"name": j.Name, "schedule": schedule, "payload": spec{"url": d.receiver.URL + path}}
	maps.Copy(body, d.common)
	maps.Copy(body, s)
	j.Retries, _ = body["max_retries"].(int)
	j.OneAtATime = body["overlap"] != "parallel"
	j.Queues = body["overlap"] == "queue"
	j.CatchesUp = body["missed_window"] == "run_all"
	j.ByWorker = body["type"] == "worker"
	var result apiJob
	err := request(d.node(), "POST", "/api/v1/jobs", body, &result)
	if err == nil {
		j.ID = result.ID
		if result.NextRunAt != nil {
			j.From = *result.NextRunAt
		}
	} else if !outcomeUnknown(err) {
		d.tb.Errorf("create %q: %v", j.Name, err)
		return j, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != errDown {
		d.requested = append(d.requested, j)
	}
	return j, err
}

// trigger triggers a job.
func (d *driver) trigger(j requestedJob) error {
	var result struct {
		RunID string `json:"run_id"`
	}
	err := request(d.node(), "POST", "/api/v1/jobs/"+j.ID+"/trigger", nil, &result)
	if err == errDown || j.Every == 0 && jobEnded(err) {
		return err
	}
	if err != nil && !outcomeUnknown(err) {
		d.tb.Errorf("trigger %q: %v", j.Name, err)
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.triggers = append(d.triggers, requestedTrigger{Job: j.ID, Run: result.RunID})
	return err
}

// clockSlack is how far a node's idea of the database's clock may be off.
const clockSlack = 50 * time.Millisecond

// stop pauses a recurring job that keeps up, which bounds the occurrences that it
// has. A pause decides one occurrence that is due, not several, so those after the
// latest that was seen decided are left open.
func (d *driver) stop(j requestedJob) {
	d.tb.Helper()
	var latest time.Time
	eventually(d.tb, "a recurring job has caught up", time.Minute, func() bool {
		latest = d.latest(j)
		return time.Since(latest) < 2*j.Every
	})
	eventually(d.tb, "a job is paused", time.Minute, func() bool {
		err := request(d.node(), "PATCH", "/api/v1/jobs/"+j.ID, spec{"status": "paused"}, nil)
		if err != nil && !outcomeUnknown(err) {
			d.tb.Fatalf("pause a job: %v", err)
		}
		return err == nil
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.requested {
		if d.requested[i].ID == j.ID {
			d.requested[i].Until, d.requested[i].End = latest.Add(1), time.Now().Add(clockSlack)
		}
	}
}

// latest is the latest occurrence of a job that is decided; zero: none is known.
func (d *driver) latest(j requestedJob) time.Time {
	var runs []apiRun
	err := request(d.node(), "GET", "/api/v1/jobs/"+j.ID+"/runs?limit=1", nil, &runs)
	switch {
	case err != nil || len(runs) == 0:
		return time.Time{}
	case runs[0].SkippedTo != nil:
		return *runs[0].SkippedTo
	}
	return runs[0].ScheduledAt
}

// load creates one-off jobs that are due within span, so many per second, until ctx
// ends: most call a quick target, some a slow or failing one. One in eight is
// triggered as well, and another when it is due, about when its run is over.
func (d *driver) load(ctx context.Context, perSecond int, span time.Duration, random *rand.Rand) {
	var requests sync.WaitGroup
	defer requests.Wait()
	slots := make(chan struct{}, 64)
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
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		requests.Go(func() {
			defer func() { <-slots }()
			j, err := d.once(time.Now().Add(due), path, quick(nil))
			if err == nil && triggered {
				d.trigger(j)
			}
			if err == nil && late {
				requests.Go(func() { // without a place: it mostly waits
					time.Sleep(time.Until(j.At) + after)
					d.trigger(j)
				})
			}
		})
	}
}

// counts returns how much was requested, and how much of it was acknowledged.
func (d *driver) counts() (requested, acknowledged, triggers int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, j := range d.requested {
		if j.ID != "" {
			acknowledged++
		}
	}
	return len(d.requested), acknowledged, len(d.triggers)
}

// history is what the driver and the receiver know.
func (d *driver) history() history {
	d.mu.Lock()
	defer d.mu.Unlock()
	return history{
		Requested:  append([]requestedJob(nil), d.requested...),
		Triggers:   append([]requestedTrigger(nil), d.triggers...),
		Deliveries: d.receiver.all(),
	}
}
