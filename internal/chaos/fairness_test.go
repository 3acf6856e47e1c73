//go:build unix

package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/pgtest"
)

// TestLowPriorityIsNotStarved keeps a remote worker busier than it can be with
// runs of a high priority, all fired by one of two nodes, and wants those of a low
// one, fired by the other node, to begin when they have aged, and not much earlier.
func TestLowPriorityIsNotStarved(t *testing.T) {
	t.Parallel()
	const (
		ageing = 10 * time.Second
		least  = ageing * 8 / 9 // between high, which is 9, and low, which is 1
		slots  = 4
		takes  = 100 * time.Millisecond
	)
	url := pgtest.Database(t, nil)
	aged := []string{"--priority-ageing", ageing.String()}
	nodes := []*process{onPostgres(t, url, aged...), onPostgres(t, url, aged...)}
	owners := awaitShardOwners(t, url, nodes...)
	d := newWorkDriver(t, nodes[0].address)
	goWorker(t, workerOptions{Server: nodes[0].address(), Name: "busy", Slots: slots})

	// So many a second take the worker more than a second. Without a run that waits, one of a
	// low priority would rightly begin at once.
	path := fmt.Sprintf("/slow/%d", takes.Milliseconds())
	high := d.ownedBy(url, owners, 0, int(time.Second/takes)*slots*12/10, func() requestedJob {
		return d.every(1, path, quick(spec{"priority": "high", "timeout_seconds": 120, "overlap": "parallel"}))
	})
	d.receiver.awaitDelivery(t, time.Minute, high...)
	eventually(t, "runs of a high priority wait for the worker", time.Minute, func() bool {
		all := d.receiver.all()
		last := all[len(all)-1]
		return last.Arrived.Sub(last.ScheduledAt) > time.Second
	})
	low := d.ownedBy(url, owners, 1, 3, func() requestedJob {
		return d.onceIn(2*time.Second, path, quick(spec{"priority": "low", "timeout_seconds": 120}))
	})
	d.receiver.awaitDelivery(t, 3*time.Minute, low...)
	var longest time.Duration // as long as the worker is behind, and least: what is fair is the order
	for _, j := range low {
		longest = max(longest, d.wantFairWait(j, high, least))
	}
	t.Logf("%d runs of low priority waited for %v at most, with an ageing of %v", len(low), longest, ageing)
}

// wantFairWait expects the run of a job to have started before the runs of others that
// were due more than that much later, and after those that were due earlier. It returns
// how long it waited.
func (d *driver) wantFairWait(j requestedJob, others []requestedJob, later time.Duration) time.Duration {
	d.tb.Helper()
	const slack = 1500 * time.Millisecond // for the order of several at once
	begun, turn := d.receiver.deliveriesOf(j.ID)[0].Arrived, j.At.Add(later)
	crowd := map[string]bool{}
	for _, other := range others {
		crowd[other.ID] = true
	}
	unfair, before := 0, 0
	for _, seen := range d.receiver.all() {
		switch {
		case !crowd[seen.Job]:
		case seen.Arrived.Before(begun) && seen.ScheduledAt.After(turn.Add(slack)):
			unfair++
		case seen.Arrived.After(begun) && seen.ScheduledAt.Before(turn.Add(-slack)):
			before++
		}
	}
	if unfair > 0 || before > 0 {
		d.tb.Errorf("%d runs that were due after the turn of a run of low priority began before it, and %d that were due before its turn after it; it began %v after it was due", unfair, before, begun.Sub(j.At))
	}
	return begun.Sub(j.At)
}

// ownedBy creates jobs until so many belong to shards of a node, and takes back the
// others.
func (d *driver) ownedBy(url string, owners map[int]int, node, n int, more func() requestedJob) (mine []requestedJob) {
	d.tb.Helper()
	for tries := 0; len(mine) < n; tries++ {
		if tries > 20*n+100 {
			d.tb.Fatalf("of %d jobs only %d belong to node %d", tries, len(mine), node)
		}
		j := more()
		if owners[query[int](d.tb, url, `SELECT shard FROM belfry.plans WHERE job_id = $1::uuid`, j.ID)] == node {
			mine = append(mine, j)
		} else if err := request(d.node(), "DELETE", "/api/v1/jobs/"+j.ID+"?runs=cancel", nil, nil); err != nil {
			d.tb.Fatalf("delete a job: %v", err)
		}
	}
	return mine
}
