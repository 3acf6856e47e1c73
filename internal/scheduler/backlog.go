package scheduler

import (
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

// before is the order in which items are fired. Those of one rank are in the order of
// their jobs, in which they lie in the store: a batch is written to few pages.
func (it *dueItem) before(other *dueItem) bool {
	if it.rank != other.rank {
		return it.rank < other.rank
	}
	return it.job.Compare(other.job) < 0
}

// backlog holds due items by lane, lowest rank first. Items for which workers have no
// capacity yet stay here, and as plans in the store.
type backlog struct {
	lanes map[string]*itemHeap
	known map[belfry.ID]int64 // version of each item's plan, also of those that are being fired
}

func newBacklog() *backlog {
	return &backlog{lanes: map[string]*itemHeap{}, known: map[belfry.ID]int64{}}
}

func (b *backlog) push(it dueItem) {
	lane := it.subject.Lane()
	if b.lanes[lane] == nil {
		b.lanes[lane] = &itemHeap{}
	}
	b.lanes[lane].push(it)
	b.known[it.job] = it.version
}

// pop takes up to n items of a lane whose rank is below the given one, until they are
// released or put back. Items whose plan has a newer version are dropped.
func (b *backlog) pop(lane string, n int, below int64) []dueItem {
	q := b.lanes[lane]
	var out []dueItem
	if q != nil {
		out = make([]dueItem, 0, min(n, len(*q)))
	}
	for q != nil && len(out) < n && len(*q) > 0 && (*q)[0].rank < below {
		it := q.pop()
		if b.known[it.job] == it.version {
			out = append(out, it)
		}
	}
	if q != nil && len(*q) == 0 {
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

// heads is the first item of each lane, and how many there are about. Items whose plan has a newer version are dropped.
func (b *backlog) heads() map[string]head {
	ranks := make(map[string]head, len(b.lanes))
	for lane, q := range b.lanes {
		for len(*q) > 0 && b.known[(*q)[0].job] != (*q)[0].version {
			q.pop()
		}
		if len(*q) == 0 {
			delete(b.lanes, lane)
			continue
		}
		ranks[lane] = head{(*q)[0].rank, len(*q)}
	}
	return ranks
}

// itemHeap has the item that comes before all others first. Unlike container/heap it
// allocates nothing for an item.
type itemHeap []dueItem

func (h *itemHeap) push(it dueItem) {
	list := append(*h, it)
	i := len(list) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !it.before(&list[parent]) {
			break
		}
		list[i] = list[parent]
		i = parent
	}
	list[i] = it
	*h = list
}

func (h *itemHeap) pop() dueItem {
	list := *h
	first, last := list[0], list[len(list)-1]
	list[len(list)-1] = dueItem{}
	list = list[:len(list)-1]
	i := 0
	for child := 1; child < len(list); child = 2*i + 1 {
		if child+1 < len(list) && list[child+1].before(&list[child]) {
			child++
		}
		if !list[child].before(&last) {
			break
		}
		list[i] = list[child]
		i = child
	}
	if len(list) > 0 {
		list[i] = last
	}
	*h = list
	return first
}
