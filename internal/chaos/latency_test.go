//go:build unix

package chaos

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/pgtest"
)

const (
	promisedLag = 100 * time.Millisecond
	allowedLag  = 5 * promisedLag // on a machine that does other things as well
	rounds      = 5               // of which one has to be on time throughout: a machine may stall
)

func TestOneOffIn300Milliseconds(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		d := newDriver(t, onSQLite(t, t.TempDir()).address)
		lag := d.wantOnTime(func(int) requestedJob { return d.onceIn(300*time.Millisecond, "/ok", quick(nil)) })
		h := d.awaitClean(time.Minute, false)
		t.Logf("%d jobs, the latest of the best round %v late", len(h.Requested), lag)
	})
	t.Run("postgres, created on two nodes", func(t *testing.T) {
		url := pgtest.Database(t, nil)
		nodes := []*process{onPostgres(t, url), onPostgres(t, url)}
		owners := awaitShardOwners(t, url, nodes...)
		creator := map[string]int{} // by job: the node that created it
		var d *driver
		turn := 0
		d = newDriver(t, func() string { return nodes[turn%len(nodes)].address() })
		lag := d.wantOnTime(func(int) requestedJob {
			turn++
			j := d.onceIn(300*time.Millisecond, "/ok", quick(nil))
			creator[j.ID] = turn % len(nodes)
			return j
		})
		h := d.awaitClean(time.Minute, false)
		foreign := 0
		for job, node := range creator {
			if owners[query[int](t, url, `SELECT shard FROM belfry.plans WHERE job_id = $1::uuid UNION ALL SELECT shard FROM belfry.ended WHERE id = $1::uuid`, job)] != node {
				foreign++
			}
		}
		if foreign < len(creator)/10 {
			t.Errorf("only %d of %d jobs were created on a node that does not own them", foreign, len(creator))
		}
		t.Logf("%d jobs, %d of them created on a node that does not own them, the latest of the best round %v late", len(h.Requested), foreign, lag)
	})
}

// wantOnTime creates rounds of forty jobs, 25 ms apart, until all of a round were
// delivered within the allowed lag, and returns the largest lag of that round.
func (d *driver) wantOnTime(ask func(i int) requestedJob) time.Duration {
	d.tb.Helper()
	for round := range rounds {
		var jobs []requestedJob
		for i := range 40 {
			jobs = append(jobs, ask(i))
			time.Sleep(25 * time.Millisecond)
		}
		d.receiver.awaitDelivery(d.tb, time.Minute, jobs...)
		lag := d.receiver.maxLateness(jobs)
		if lag <= allowedLag {
			return lag
		}
		d.tb.Logf("round %d: the latest job was %v late", round+1, lag)
	}
	d.tb.Fatalf("in none of %d rounds were all jobs delivered within %v", rounds, allowedLag)
	return 0
}

// awaitShardOwners waits until the nodes, which were started in this order, share the
// shards, and returns the owner of each.
func awaitShardOwners(tb testing.TB, url string, nodes ...*process) (owners map[int]int) {
	tb.Helper()
	eventually(tb, "the shards are spread over the nodes", time.Minute, func() bool {
		names := queryAll[string](tb, url, `SELECT owner::text FROM belfry.leases WHERE name LIKE 'node/%' AND expires_at > clock_timestamp() ORDER BY owner`)
		if len(names) != len(nodes) {
			return false
		}
		owners = map[int]int{}
		has := map[int]bool{}
		for i, name := range names {
			for _, shard := range queryAll[int](tb, url, `SELECT substr(name, 7)::integer FROM belfry.leases
				WHERE name LIKE 'shard/%' AND expires_at > clock_timestamp() AND owner = $1::uuid`, name) {
				owners[shard], has[i] = i, true
			}
		}
		return len(owners) == query[int](tb, url, `SELECT value::integer FROM belfry.settings WHERE name = 'shards'`) && len(has) == len(nodes)
	})
	return owners
}
