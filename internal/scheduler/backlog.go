package scheduler

import (
	"cmp"
	"math"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
)

// entry is a plan in memory, without the job and the instant, which the wheel keeps.
// Jobs with equal specs share one subject.
type entry struct {
	subject               *plan.Subject
	version               int64
	nominal, decidedUntil int64 // microseconds
	runsMade              int64
	shard                 int32
}

const notDecided = math.MinInt64 // an entry.decidedUntil without a high-water mark

func newEntry(subject *plan.Subject, p plan.Plan) entry {
	e := entry{subject: subject, version: p.Version, nominal: p.NominalAt.UnixMicro(), decidedUntil: notDecided, runsMade: p.RunsMade, shard: int32(p.Shard)}
	if !p.FiredFor.IsZero() {
		e.decidedUntil = p.FiredFor.UnixMicro()
	}
	return e
}

func (e entry) plan(job belfry.ID, at time.Time) plan.Plan {
	p := plan.Plan{
		JobID: job, Shard: int(e.shard), Version: e.version, NextAt: at,
		NominalAt: time.UnixMicro(e.nominal).UTC(), RunsMade: e.runsMade,
	}
	if e.decidedUntil != notDecided {
		p.FiredFor = time.UnixMicro(e.decidedUntil).UTC()
	}
	return p
}

type dueItem struct {
	job  belfry.ID
	at   time.Time
	rank int64
	entry
}

// compare is the order in which items are fired. Those of one rank are in the order of
// their jobs, in which they lie in the store: a batch is written to few pages.
func (it *dueItem) compare(other *dueItem) int {
	if it.rank != other.rank {
		return cmp.Compare(it.rank, other.rank)
	}
	return it.job.Compare(other.job)
}

// backlog holds due items by lane, lowest rank first. Items for which workers have no
// capacity yet stay here, and as plans in the store.
type backlog struct {
	lanes map[string]*itemQueue
	known map[belfry.ID]int64 // version of each item's plan, also of those that are being fired
}

func newBacklog() *backlog {
	return &backlog{lanes: map[string]*itemQueue{}, known: map[belfry.ID]int64{}}
}

func (b *backlog) push(it dueItem) {
	lane := it.subject.Lane()
	q := b.lanes[lane]
	if q == nil {
		q = &itemQueue{}
		b.lanes[lane] = q
	}
	q.push(it)
	b.known[it.job] = it.version
}

// pop takes up to n items of a lane whose rank is below the given one, until they are
// released or put back. Items whose plan has a newer version are dropped.
func (b *backlog) pop(lane string, n int, below int64) []dueItem {
	q := b.lanes[lane]
	if q == nil {
		return nil
	}
	out := make([]dueItem, 0, min(n, q.len()))
	for first := q.first(); len(out) < n && first != nil && first.rank < below; first = q.first() {
		if it := q.pop(); b.known[it.job] == it.version {
			out = append(out, it)
		}
	}
	if q.len() == 0 {
		delete(b.lanes, lane)
	}
	return out
}

// release forgets an item that was fired, or is not going to be.
func (b *backlog) release(it dueItem) {
	if b.known[it.job] == it.version {
		delete(b.known, it.job)
	}
}

// putBack returns an item that was not fired, unless its plan has a newer version.
func (b *backlog) putBack(it dueItem) {
	if b.known[it.job] == it.version {
		b.push(it)
	}
}

// empty reports whether no item waits to be fired.
func (b *backlog) empty() bool { return len(b.lanes) == 0 }

// heads is the first item of each lane, and how many there are about. Items whose plan has
// a newer version are dropped.
func (b *backlog) heads() map[string]head {
	ranks := make(map[string]head, len(b.lanes))
	for lane, q := range b.lanes {
		first := q.first()
		for ; first != nil && b.known[first.job] != first.version; first = q.first() {
			q.pop()
		}
		if first == nil {
			delete(b.lanes, lane)
			continue
		}
		ranks[lane] = head{first.rank, q.len()}
	}
	return ranks
}
