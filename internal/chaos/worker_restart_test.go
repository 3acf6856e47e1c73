//go:build unix

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/pgtest"
)

// TestWorkersSurviveAServerRestart ends the server under its workers, with SIGKILL and
// with SIGTERM, and starts it again at the same address. Handlers that end meanwhile
// keep their results; those that go on are none the wiser.
func TestWorkersSurviveAServerRestart(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		outliveServer(t, onSQLite(t, t.TempDir(), "--listen", fixedAddress(t)))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		outliveServer(t, onPostgres(t, pgtest.Database(t, nil), "--listen", fixedAddress(t)))
	})
}

func outliveServer(t *testing.T, server *process) {
	rounds := 1
	if longRun {
		rounds = 10
	}
	d := newWorkDriver(t, server.address)
	var workers []*process
	for _, name := range []string{"a", "b"} {
		workers = append(workers, goWorker(t, workerOptions{Server: server.address(), Name: name, Slots: 60}))
	}
	every := d.every(1, "/ok", quick(spec{"timeout_seconds": 60}))
	loading, stopLoad := context.WithCancel(t.Context())
	var load sync.WaitGroup
	load.Go(func() { d.load(loading, 30, 2*time.Second, rand.New(rand.NewPCG(3, 3))) })
	defer load.Wait()
	defer stopLoad()
	var held []requestedJob
	for i := range 2 * rounds {
		end, how := server.kill, "SIGKILL"
		if i%2 == 1 {
			end, how = func() { server.drain(time.Minute) }, "SIGTERM"
		}
		meanwhile := d.createHeld(15, fmt.Sprintf("/gate/meanwhile%d", i), nil)
		throughout := d.createHeld(15, fmt.Sprintf("/gate/throughout%d", i), nil)
		since := time.Now()
		end()
		took := time.Since(since)
		d.receiver.open(fmt.Sprintf("meanwhile%d", i))
		d.wantEndedAs(meanwhile, 1, "succeeded")
		time.Sleep(time.Duration(1+i%4) * time.Second)
		server.start()
		back := time.Now()
		d.receiver.open(fmt.Sprintf("throughout%d", i))
		d.awaitSuccess(meanwhile)
		waited := time.Since(back)
		d.awaitSuccess(throughout)
		d.receiver.awaitDelivery(t, healLimit, d.start(1, "/ok", 60)...)
		t.Logf("%s took %v; results that had waited were accepted %v after the server was back, new work began within %v", how, took, waited, time.Since(back))
		held = append(append(held, meanwhile...), throughout...)
	}
	stopLoad()
	load.Wait()
	d.stop(every)
	h := d.awaitClean(healLimit, true)
	wantCauses(t, h)
	wantUndisturbed(t, h, held)
	for _, w := range workers {
		w.drain(time.Minute)
	}
	report(t, h, 2*rounds)
}

// awaitSuccess waits until the runs of the jobs are settled.
func (d *driver) awaitSuccess(jobs []requestedJob) {
	d.tb.Helper()
	for _, j := range jobs {
		eventually(d.tb, "the result of a handler is accepted", healLimit, func() bool {
			runs, err := runsOf(d.node(), j.ID)
			return err == nil && len(runs) == 1 && runs[0].Status == "succeeded"
		})
	}
}

// wantUndisturbed expects the runs of the jobs to have succeeded at their first
// attempt, and no attempt to have been taken from a worker.
func wantUndisturbed(t *testing.T, h history, jobs []requestedJob) {
	t.Helper()
	runs := h.runsOf(jobs)
	again := slices.DeleteFunc(runs, func(r apiRun) bool { return r.Status == "succeeded" && r.Attempt == 1 })
	if len(again) > 0 {
		t.Errorf("%d of %d runs that went on without the server were disturbed, as %+v", len(again), len(jobs), again[0])
	}
	outcomes := h.outcomes()
	if outcomes["lost"] > 0 || outcomes["timed_out"] > 0 {
		t.Errorf("attempts were taken from healthy workers: %v", outcomes)
	}
	t.Logf("%d runs went on without the server; attempts that did not succeed: %v", len(jobs), outcomes)
}

// outcomes counts how the attempts that did not succeed have ended.
func (h *history) outcomes() map[string]int {
	outcomes := map[string]int{}
	for _, r := range h.Runs {
		for _, a := range r.Attempts {
			outcomes[a.Outcome]++
		}
	}
	return outcomes
}

// fixedAddress finds a free address that no other process gets by chance while its
// server is down: its port is below the ephemeral range.
func fixedAddress(tb testing.TB) string {
	tb.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))
		if listener, err := net.Listen("tcp", address); err == nil {
			listener.Close()
			return address
		}
	}
	tb.Fatal("no port is free")
	return ""
}
