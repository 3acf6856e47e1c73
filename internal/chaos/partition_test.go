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

// TestPartitionedNodeDoesNoHarm lets one of two nodes lose the database
// under load, twice: first nothing passes any more, and what the node had sent
// arrives when another one has long taken its shards; then its connections are
// closed.
func TestPartitionedNodeDoesNoHarm(t *testing.T) {
	t.Parallel()
	spans := []time.Duration{7 * time.Second}
	if longRun {
		spans = []time.Duration{2 * time.Second, 7 * time.Second, 15 * time.Second, 30 * time.Second}
	}
	url := pgtest.Database(t, nil)
	proxy := pgtest.NewProxy(t, url)
	nodes := []*process{onPostgres(t, url), onPostgres(t, proxy.URL())}
	awaitShardOwners(t, url, nodes...)
	d := newDriver(t, func() string {
		if rand.IntN(20) == 0 {
			return nodes[1].address()
		}
		return nodes[0].address()
	})
	every := []requestedJob{d.every(1, "/ok", quick(nil)), d.every(1, "/ok", quick(nil)), d.every(1, "/slow/300", quick(spec{"overlap": "skip"}))}
	loading, stopLoad := context.WithCancel(t.Context())
	var load sync.WaitGroup
	load.Go(func() { d.load(loading, 50, 3*time.Second, rand.New(rand.NewPCG(2, 2))) })
	defer load.Wait()
	defer stopLoad()
	faults := 0
	for _, span := range spans {
		for _, fault := range []func(){proxy.Stall, proxy.Cut} {
			_, before, _ := d.counts()
			eventually(t, "the load is under way", time.Minute, func() bool { _, now, _ := d.counts(); return now > before+100 })
			fault()
			faults++
			time.Sleep(span)
			proxy.Heal()
			awaitShardOwners(t, url, nodes...)
		}
	}
	stopLoad()
	load.Wait()
	for _, j := range every {
		d.stop(j)
	}
	h := d.awaitClean(2*time.Minute, true)
	report(t, h, faults)
}
