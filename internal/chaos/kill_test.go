//go:build unix

package chaos

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/pgtest"
)

func TestKilledNodesLoseNothing(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		killUnderLoad(t, func() *process { return onSQLite(t, dir) })
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		url := pgtest.Database(t, nil)
		open := func() *process { return onPostgres(t, url) }
		killUnderLoad(t, open, open)
	})
}

// killUnderLoad kills nodes at random moments and starts them again, while jobs
// are created, triggered and fall due, up or down.
func killUnderLoad(t *testing.T, open ...func() *process) {
	kills := 6
	if longRun {
		kills = 90
	}
	seed := time.Now().UnixNano()
	random := rand.New(rand.NewPCG(uint64(seed), 1))
	t.Logf("seed %d", seed)
	var nodes []*process
	for _, start := range open {
		nodes = append(nodes, start())
	}
	d := newDriver(t, anyOf(nodes))
	recurring := []requestedJob{
		d.every(1, "/ok", quick(nil)),
		d.every(1, "/slow/700", quick(spec{"overlap": "skip"})),
		d.every(2, "/slow/1500", quick(spec{"overlap": "skip"})),
		d.every(3, "/fail/1", quick(nil)),
		d.every(1, "/slow/600", quick(spec{"overlap": "queue", "max_queued": 3})),
		d.every(2, "/slow/300", quick(spec{"overlap": "queue", "max_queued": 100, "missed_window": "run_all"})),
		d.every(2, "/fail/1", quick(spec{"overlap": "skip", "missed_window": "run_all", "max_missed": 2})),
	}
	loading, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	load.Go(func() { d.load(loading, 100, 3*time.Second, rand.New(rand.NewPCG(uint64(seed), 2))) })
	for range kills {
		time.Sleep(time.Duration(300+random.IntN(1800)) * time.Millisecond)
		victim := nodes[random.IntN(len(nodes))]
		victim.kill()
		time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
		victim.start()
	}
	stop()
	load.Wait()
	for _, j := range recurring {
		d.stop(j)
	}
	h := d.awaitClean(2*time.Minute, true)
	d.wantArchived(h)
	for _, n := range nodes {
		n.drain(time.Minute)
	}
	if after := len(d.receiver.all()); after != len(h.Deliveries) {
		t.Errorf("%d more deliveries came after everything was settled", after-len(h.Deliveries))
	}
	report(t, h, kills)
}

// anyOf gives the address of one of the nodes that are up.
func anyOf(nodes []*process) func() string {
	return func() string {
		first := rand.IntN(len(nodes))
		for i := range nodes {
			if base := nodes[(first+i)%len(nodes)].address(); base != "" {
				return base
			}
		}
		return ""
	}
}

// report logs what a test has gone through.
func report(t *testing.T, h history, faults int) {
	var again, skips, skipped, dead int
	for _, r := range h.Runs {
		switch {
		case r.skipped():
			skips++
			skipped += int(r.SkippedCount)
		case r.Status == "dead":
			dead++
		}
		if r.Attempt > 1 {
			again++
		}
	}
	unknown := 0
	for _, j := range h.Requested {
		if j.ID == "" {
			unknown++
		}
	}
	t.Logf("%d faults; %d jobs requested, %d of unknown outcome, %d triggers; %d occurrences decided: %d runs, %d of them retried, %d dead, %d skips of %d occurrences; %d deliveries",
		faults, len(h.Requested), unknown, len(h.Triggers), len(h.Runs)-skips+skipped, len(h.Runs)-skips, again, dead, skips, skipped, len(h.Deliveries))
}
