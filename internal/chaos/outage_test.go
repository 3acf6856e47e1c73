//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/pgtest"
)

// healLimit is how long after the end of a fault everything due must be moving.
const healLimit = time.Minute

func TestDatabaseOutageLosesNothing(t *testing.T) {
	t.Run("it crashes for 10 seconds", func(t *testing.T) {
		t.Parallel()
		server := pgtest.Durable(t)
		outage(t, server, server.Crash, 10*time.Second)
	})
	// Longer than it takes to give up a worker that is silent.
	t.Run("it is stopped for 25 seconds", func(t *testing.T) {
		t.Parallel()
		server := pgtest.Durable(t)
		outage(t, server, func() error { return server.Stop(false) }, 25*time.Second)
	})
	if longRun {
		t.Run("it crashes for two minutes", func(t *testing.T) {
			t.Parallel()
			server := pgtest.Durable(t)
			outage(t, server, server.Crash, 2*time.Minute)
		})
	}
}

// outage stops the database under load while callbacks run that end during the
// outage, and others that end after it.
func outage(t *testing.T, server *pgtest.Server, stop func() error, down time.Duration) {
	nodes := []*process{onPostgres(t, server.URL()), onPostgres(t, server.URL())}
	awaitShardOwners(t, server.URL(), nodes...)
	d := newDriver(t, anyOf(nodes))
	every := d.every(1, "/ok", quick(nil))
	loading, stopLoad := context.WithCancel(t.Context())
	var load sync.WaitGroup
	load.Go(func() { d.load(loading, 50, 3*time.Second, rand.New(rand.NewPCG(1, uint64(down)))) })
	defer load.Wait()
	defer stopLoad()
	eventually(t, "the load is under way", time.Minute, func() bool { _, acknowledged, _ := d.counts(); return acknowledged > 100 })
	// Some end while the database is down, and their deadline too if that lasts; the
	// others go on until it is back.
	running := d.start(10, "/gate/down", 12)
	running = append(running, d.start(10, fmt.Sprintf("/slow/%d", (down+5*time.Second).Milliseconds()), int((down+time.Minute).Seconds()))...)
	d.receiver.awaitDelivery(t, time.Minute, running...)

	if err := stop(); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(down)
	d.receiver.open("down")
	for _, n := range nodes {
		wantUnavailable(t, n)
	}
	time.Sleep(time.Until(end))
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	for _, n := range nodes {
		eventually(t, "a node is ready again", healLimit, func() bool { return request(n.address(), "GET", "/readyz", nil, nil) == nil })
	}
	ready := time.Since(back)
	_, before, _ := d.counts()
	eventually(t, "jobs can be created again", healLimit, func() bool { _, now, _ := d.counts(); return now > before+50 })
	stopLoad()
	load.Wait()
	d.stop(every)
	h := d.awaitClean(healLimit, true)
	if healed := time.Since(back); healed > healLimit {
		t.Errorf("everything was settled only %v after the database was back", healed)
	}
	t.Logf("ready again after %v, everything settled after %v", ready, time.Since(back))
	wantNotReaped(t, h, running)
	report(t, h, 1)
}

// start has n callbacks begin that may not be tried again.
func (d *driver) start(n int, path string, timeoutSeconds int) (jobs []requestedJob) {
	d.tb.Helper()
	for range n {
		jobs = append(jobs, d.onceIn(0, path, quick(spec{"timeout_seconds": timeoutSeconds, "max_retries": 0})))
	}
	return jobs
}

// wantUnavailable expects a node without a database to report that in its readiness
// check and its API. It is alive nevertheless.
func wantUnavailable(t *testing.T, n *process) {
	t.Helper()
	for _, call := range []struct {
		method, path string
		body         any
	}{
		{"GET", "/readyz", nil},
		{"GET", "/api/v1/jobs", nil},
		{"POST", "/api/v1/jobs", spec{"schedule": "0 0 1 1 *", "payload": spec{"url": "http://127.0.0.1:1/"}}},
	} {
		eventually(t, call.method+" "+call.path+" reports the outage", 8*time.Second, func() bool {
			var problem *apiError
			err := request(n.address(), call.method, call.path, call.body, new(any))
			if !errors.As(err, &problem) || problem.status != 503 {
				return false
			}
			if problem.contentType != "application/problem+json" || !strings.Contains(problem.detail, "database") {
				t.Errorf("%s %s: a problem without a reason: %q of type %q", call.method, call.path, problem.detail, problem.contentType)
			}
			return true
		})
	}
	if !alive(n.address(), 5*time.Second) {
		t.Error("a node without a database says that it is not alive")
	}
}

// wantNotReaped expects the callbacks that ran during the outage to have succeeded at
// their first attempt, and no attempt to have been taken from a worker.
func wantNotReaped(t *testing.T, h history, running []requestedJob) {
	t.Helper()
	for _, r := range h.runsOf(running) {
		if r.Status != "succeeded" || r.Attempt != 1 {
			t.Errorf("a callback that ran through the outage is %+v", r)
		}
	}
	outcomes := map[string]int{}
	for _, r := range h.Runs {
		for _, a := range r.Attempts {
			outcomes[a.Outcome]++
		}
	}
	if outcomes["lost"] > 0 || outcomes["timed_out"] > 0 {
		t.Errorf("attempts were taken from healthy workers: %v", outcomes)
	}
	t.Logf("%d callbacks ran through the outage; attempts that did not succeed: %v", len(running), outcomes)
}
