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

// everybody is how many nodes believe that they own every shard.
const everybody = 3

// TestEverybodyOwnsEverything has three nodes fire everything on one database that
// forgets history after five seconds: only the walls around an occurrence keep it
// from running twice. What is forgotten cannot be asked for, so the ledger alone
// is the judge.
func TestEverybodyOwnsEverything(t *testing.T) {
	t.Parallel()
	span := 20 * time.Second
	if long {
		span = 5 * time.Minute
	}
	url := pgtest.Database(t, nil)
	var bases []string
	for range everybody {
		bases = append(bases, ownAll(t, url))
	}
	d := newDriver(t, func() string { return bases[rand.IntN(len(bases))] })
	recurring := []askedJob{d.every(1, "/ok", quick(nil)), d.every(1, "/ok", quick(nil)), d.every(2, "/ok", quick(nil))}
	d.flood(200, span)
	if firing := query[int](t, url, `SELECT count(DISTINCT fired_by) FROM belfry.history`); firing != everybody {
		t.Errorf("%d nodes fire, not %d", firing, everybody)
	}
	for _, j := range recurring {
		d.stop(j)
	}
	h := d.history()
	eventually(t, "everything is delivered", time.Minute, func() bool {
		h = d.history()
		h.Jobs, h.Runs = acknowledged(h.Asked), fromLedger(h.Deliveries)
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
	h.Deliveries = d.sink.all()
	h.Runs = fromLedger(h.Deliveries)
	for _, f := range check(h) {
		t.Error(f)
	}
	t.Logf("%d jobs, %d triggers; %d runs, %d deliveries, the latest %v late",
		len(h.Asked), len(h.Triggers), len(h.Runs), len(h.Deliveries), d.sink.worst(h.Asked))
}

// ownAll runs a node in this process that believes that it owns every shard.
func ownAll(t *testing.T, url string) (base string) {
	t.Helper()
	c := node.Defaults()
	c.Listen, c.DatabaseURL, c.OwnAll = "127.0.0.1:0", url, true
	c.AllowTargets, c.Retention, c.DrainTimeout = []string{"127.0.0.1/32"}, 5*time.Second, 5*time.Second
	var said output
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
			t.Logf("a node's last words:\n%s", said.tail(4000))
		}
	})
	return "http://" + n.Addr().String()
}

// flood asks for so many quick one-off jobs a second, due within the next
// seconds, and triggers one in ten of them. All must be acknowledged.
func (d *driver) flood(perSecond int, span time.Duration) {
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
			if err != nil {
				d.tb.Errorf("a request went wrong without a fault: %v", err)
			}
		})
	}
}

// acknowledged is the jobs that must be there.
func acknowledged(asked []askedJob) []toldJob {
	var jobs []toldJob
	for _, j := range asked {
		if j.ID != "" {
			jobs = append(jobs, toldJob{ID: j.ID, Name: j.Name})
		}
	}
	return jobs
}
