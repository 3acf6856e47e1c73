package scheduler

import (
	"encoding/json"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
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

// heads is the lowest rank of each lane. Items whose plan has a newer version are dropped.
func (b *backlog) heads() map[string]int64 {
	ranks := make(map[string]int64, len(b.lanes))
	for lane, q := range b.lanes {
		for len(*q) > 0 && b.known[(*q)[0].job] != (*q)[0].version {
			q.pop()
		}
		if len(*q) == 0 {
			delete(b.lanes, lane)
			continue
		}
		ranks[lane] = (*q)[0].rank
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

// subjects caches compiled subjects, which jobs with equal specs share. It is safe for
// concurrent use: to parse a schedule may take milliseconds, so whoever reads plans for
// the loop compiles them first, and the loop finds them here.
type subjects struct {
	defaults plan.Defaults
	mu       sync.Mutex
	compiled map[subjectKey]*compiledSubject
}

type subjectKey struct {
	namespace, name, spec string
	revision              int
}

// compiledSubject is a subject, or why its spec cannot be read.
type compiledSubject struct {
	subject *plan.Subject
	err     error
	known   bool // the error was returned before
}

// maxSubjects bounds the cache; entries keep the subjects that they use.
const maxSubjects = 100_000

func newSubjects(d plan.Defaults) *subjects {
	return &subjects{defaults: d, compiled: map[subjectKey]*compiledSubject{}}
}

// get returns the subject of a due plan. With an error, first reports whether it is the
// first one about that spec.
func (s *subjects) get(d store.Due) (subject *plan.Subject, first bool, err error) {
	c := s.find(d)
	s.mu.Lock()
	defer s.mu.Unlock()
	first = c.err != nil && !c.known
	c.known = true
	return c.subject, first, c.err
}

// find returns the compiled subject of a due plan, and compiles it if it is new.
func (s *subjects) find(d store.Due) *compiledSubject {
	key := subjectKey{d.Namespace, d.Name, d.Spec, d.Revision}
	s.mu.Lock()
	c := s.compiled[key]
	s.mu.Unlock()
	if c != nil {
		return c
	}
	c = &compiledSubject{}
	var policy *plan.Policy
	if policy, c.err = s.compile(d.Spec); c.err == nil {
		c.subject = &plan.Subject{Namespace: d.Namespace, Name: d.Name, Revision: d.Revision, Policy: policy}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if earlier := s.compiled[key]; earlier != nil {
		return earlier
	}
	if len(s.compiled) >= maxSubjects {
		clear(s.compiled)
	}
	s.compiled[key] = c
	return c
}

// compile reads the text of a spec. A panic of the parser is an error too.
func (s *subjects) compile(text string) (policy *plan.Policy, err error) {
	defer recoverPanic(&err)
	var spec belfry.Spec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return nil, fmt.Errorf("the spec cannot be read: %w", err)
	}
	return s.defaults.Compile(spec)
}
