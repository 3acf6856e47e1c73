//go:build unix

package chaos

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/node"
	"github.com/belfry-sh/belfry/internal/pgtest"
)

// ownAllNodes is how many nodes own every shard.
const ownAllNodes = 3

// TestEveryNodeOwnsEveryShard has three nodes fire everything on one database that
// forgets history after five seconds: only the walls around an occurrence keep it
// from running twice. Deleted history cannot be read, so the receiver alone
// is the judge.
func TestEveryNodeOwnsEveryShard(t *testing.T) {
	t.Parallel()
	span := 20 * time.Second
	if longRun {
		span = 5 * time.Minute
	}
	url := pgtest.Database(t, nil)
	var bases []string
	for range ownAllNodes {
		bases = append(bases, ownAll(t, url))
	}
	d := newDriver(t, func() string { return bases[rand.IntN(len(bases))] })
	recurring := []requestedJob{d.every(1, "/ok", quick(nil)), d.every(1, "/ok", quick(nil)), d.every(2, "/ok", quick(nil))}
	d.loadBurst(200, span)
	if firing := query[int](t, url, `SELECT count(DISTINCT fired_by) FROM belfry.history`); firing != ownAllNodes {
		t.Errorf("%d nodes fire, not %d", firing, ownAllNodes)
	}
	for _, j := range recurring {
		d.stop(j)
	}
	h := d.history()
	eventually(t, "everything is delivered", time.Minute, func() bool {
		h = d.history()
		h.Jobs, h.Runs = acknowledgedJobs(h.Requested), runsOfDeliveries(h.Deliveries)
		for _, f := range check(h) {
			if !f.pending() {
				t.Fatal(f)
			}
		}
		return len(check(h)) == 0
	})
	eventually(t, "history is forgotten", time.Minute, func() bool {
		return query[int](t, url, `SELECT count(*) FROM belfry.runs`) == 0 && query[int](t, url, `SELECT count(*) FROM belfry.history`) == 0
	})
	h.Deliveries = d.receiver.all()
	h.Runs = runsOfDeliveries(h.Deliveries)
	for _, f := range check(h) {
		t.Error(f)
	}
	t.Logf("%d jobs, %d triggers; %d runs, %d deliveries, the latest %v late",
		len(h.Requested), len(h.Triggers), len(h.Runs), len(h.Deliveries), d.receiver.maxLateness(h.Requested))
}

// ownAll runs a node in this process that believes that it owns every shard.
func ownAll(t *testing.T, url string) (base string) {
	t.Helper()
	c := node.Defaults()
	c.Listen, c.DatabaseURL, c.OwnAll = "127.0.0.1:0", url, true
	c.AllowTargets, c.Retention, c.DrainTimeout = []string{"127.0.0.1/32"}, 5*time.Second, 5*time.Second
	var said processOutput
	n, err := node.New(t.Context(), c, slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("a node ended with: %v", err)
		}
		if t.Failed() {
			t.Logf("a node's output:\n%s", said.tail(4000))
		}
	})
	return "http://" + n.Addr().String()
}

// loadBurst creates that many quick one-off jobs per second, due within the next
// seconds, and triggers one in ten of them. All must be acknowledged,
// but for triggers of jobs that have ended.
func (d *driver) loadBurst(perSecond int, span time.Duration) {
	var asking sync.WaitGroup
	defer asking.Wait()
	room := make(chan struct{}, 64)
	start := time.Now()
	for i := range int(span.Seconds() * float64(perSecond)) {
		time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(perSecond))))
		room <- struct{}{}
		asking.Go(func() {
			defer func() { <-room }()
			due := time.Duration(rand.Int64N(int64(3 * time.Second)))
			j, err := d.once(time.Now().Add(due), "/ok", quick(spec{"timeout_seconds": 60}))
			if err == nil && i%10 == 0 {
				err = d.trigger(j)
			}
			if jobEnded(err) && time.Now().After(j.At) { // its run was over before the trigger came
				return
			}
			if err != nil {
				d.tb.Errorf("a request went wrong without a fault: %v", err)
			}
		})
	}
}

// acknowledgedJobs is the jobs that must exist.
func acknowledgedJobs(requested []requestedJob) []apiJob {
	var jobs []apiJob
	for _, j := range requested {
		if j.ID != "" {
			jobs = append(jobs, apiJob{ID: j.ID, Name: j.Name})
		}
	}
	return jobs
}
