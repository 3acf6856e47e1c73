//go:build unix

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/pgtest"
)

// TestSIGTERMOfAWorkerLosesNothing replaces workers under load, one by one, as a
// deployment does.
func TestSIGTERMOfAWorkerLosesNothing(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		replaceWorkers(t, onSQLite(t, t.TempDir()))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		replaceWorkers(t, onPostgres(t, pgtest.Database(t, nil)))
	})
}

func replaceWorkers(t *testing.T, server *process) {
	const drain = 4 * time.Second
	generations := 3
	if longRun {
		generations = 40
	}
	d := newWorkDriver(t, server.address)
	next := func(i int) *process {
		return goWorker(t, workerOptions{Server: server.address(), Name: fmt.Sprint("generation ", i), Slots: 60, Drain: drain})
	}
	current := next(0)
	loading, stopLoad := context.WithCancel(t.Context())
	var load sync.WaitGroup
	load.Go(func() { d.load(loading, 50, time.Second, rand.New(rand.NewPCG(4, 4))) })
	defer load.Wait()
	defer stopLoad()
	var short, hanging []requestedJob
	var longest time.Duration
	for i := 1; i <= generations; i++ {
		short = append(short, d.createHeld(10, "/slow/2000", nil)...)
		if i == 1 || longRun {
			hanging = append(hanging, d.createHeld(10, "/hang/1", nil)...)
		}
		since := time.Now()
		gone := current.term()
		current = next(i)
		select {
		case <-gone:
		case <-time.After(time.Minute):
			t.Fatal("a worker was still there a minute after SIGTERM")
		}
		longest = max(longest, time.Since(since))
	}
	stopLoad()
	load.Wait()
	h := d.awaitClean(time.Minute, true)
	wantCauses(t, h)
	for _, r := range h.runsOf(short) {
		if r.Status != "succeeded" || r.Attempt != 1 {
			t.Errorf("a handler of two seconds that ran at SIGTERM is %+v", r)
		}
	}
	for _, r := range h.runsOf(hanging) {
		if r.Status != "succeeded" || r.Attempt < 2 || r.Attempts[0].Outcome != "interrupted" {
			t.Errorf("a handler that hung at SIGTERM is %+v", r)
		}
	}
	outcomes := h.outcomes()
	if outcomes["lost"] > 0 {
		t.Errorf("a worker went and left attempts behind: %v", outcomes)
	}
	current.drain(time.Minute)
	t.Logf("%d workers were replaced, within %v each; attempts that did not succeed: %v", generations, longest, outcomes)
	report(t, h, generations)
}
