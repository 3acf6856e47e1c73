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

func TestADatabaseOutageLosesNothing(t *testing.T) {
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
	if long {
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
	spread(t, server.URL(), nodes...)
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
	d.sink.reached(t, time.Minute, running...)

	if err := stop(); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(down)
	d.sink.open("down")
	for _, n := range nodes {
		saysDown(t, n)
	}
	time.Sleep(time.Until(end))
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	for _, n := range nodes {
		eventually(t, "a node is ready again", healLimit, func() bool { return ask(n.at(), "GET", "/readyz", nil, nil) == nil })
	}
	ready := time.Since(back)
	_, before, _ := d.counts()
	eventually(t, "jobs can be created again", healLimit, func() bool { _, now, _ := d.counts(); return now > before+50 })
	stopLoad()
	load.Wait()
	d.stop(every)
	h := d.settles(healLimit, true)
	if healed := time.Since(back); healed > healLimit {
		t.Errorf("everything was settled only %v after the database was back", healed)
	}
	t.Logf("ready again after %v, everything settled after %v", ready, time.Since(back))
	notRobbed(t, h, running)
	report(t, h, 1)
}

// start has n callbacks begin that may not be tried again.
func (d *driver) start(n int, path string, timeoutSeconds int) (jobs []askedJob) {
	d.tb.Helper()
	for range n {
		jobs = append(jobs, d.soon(0, path, quick(spec{"timeout_seconds": timeoutSeconds, "max_retries": 0})))
	}
	return jobs
}

// saysDown wants a node without a database to say so: to those who ask whether it
// is ready, and to those who want something. It is alive nevertheless.
func saysDown(t *testing.T, n *process) {
	t.Helper()
	for _, request := range []struct {
		method, path string
		body         any
	}{
		{"GET", "/readyz", nil},
		{"GET", "/api/v1/jobs", nil},
		{"POST", "/api/v1/jobs", spec{"schedule": "0 0 1 1 *", "payload": spec{"url": "http://127.0.0.1:1/"}}},
	} {
		eventually(t, request.method+" "+request.path+" tells of the outage", 8*time.Second, func() bool {
			var no *refusal
			err := ask(n.at(), request.method, request.path, request.body, new(any))
			if !errors.As(err, &no) || no.status != 503 {
				return false
			}
			if no.contentType != "application/problem+json" || !strings.Contains(no.detail, "database") {
				t.Errorf("%s %s: a problem without a reason: %q of type %q", request.method, request.path, no.detail, no.contentType)
			}
			return true
		})
	}
	if !alive(n.at(), 5*time.Second) {
		t.Error("a node without a database says that it is not alive")
	}
}

// notRobbed wants the callbacks that ran through the outage to have succeeded at
// their first attempt, and no attempt at all to have been taken from a worker.
func notRobbed(t *testing.T, h history, running []askedJob) {
	t.Helper()
	for _, r := range h.of(running) {
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
