package scheduler

import (
	"container/heap"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// entry is a plan in memory, without what the wheel keeps beside it: the job
// and the instant. Jobs with an equal subject share it.
type entry struct {
	subject       *plan.Subject
	version       int64
	nominal, decidedUntil int64 // microseconds; noMark: none
	runsMade          int64
	shard         int32
}

const notDecided = -1 << 63

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

// item is an entry whose instant has come.
type dueItem struct {
	job  belfry.ID
	at   time.Time
	rank int64
	entry
}

// backlog holds due items by lane, lowest rank first. The plans are the queue:
// what the workers cannot take yet stays here, and in the store.
type backlog struct {
	lanes map[string]*itemHeap
	known map[belfry.ID]int64 // version of each item's plan
}

func newBacklog() *backlog {
	return &backlog{lanes: map[string]*itemHeap{}, known: map[belfry.ID]int64{}}
}

func (b *backlog) push(it dueItem) {
	lane := it.subject.Lane()
	if b.lanes[lane] == nil {
		b.lanes[lane] = &itemHeap{}
	}
	heap.Push(b.lanes[lane], it)
	b.known[it.job] = it.version
}

// anyRank is above every rank.
const maxRank = math.MaxInt64

// pop takes up to n items of a lane whose rank is below the given one. Items that a
// newer plan has overtaken are dropped.
func (b *backlog) pop(lane string, n int, below int64) []dueItem {
	q := b.lanes[lane]
	var out []dueItem
	for q != nil && len(out) < n && q.Len() > 0 && (*q)[0].rank < below {
		it := heap.Pop(q).(dueItem)
		if b.known[it.job] == it.version {
			delete(b.known, it.job)
			out = append(out, it)
		}
	}
	if q != nil && q.Len() == 0 {
		delete(b.lanes, lane)
	}
	return out
}

func (b *backlog) len() int { return len(b.known) }

// ranked is a heap of items.
type itemHeap []dueItem

func (r itemHeap) Len() int           { return len(r) }
func (r itemHeap) Less(i, j int) bool { return r[i].rank < r[j].rank }
func (r itemHeap) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *itemHeap) Push(x any)        { *r = append(*r, x.(dueItem)) }
func (r *itemHeap) Pop() any {
	old := *r
	it := old[len(old)-1]
	*r = old[:len(old)-1]
	return it
}

// subjects shares what equal jobs have in common.
type subjects struct {
	defaults plan.Defaults
	known    map[subjectKey]*plan.Subject
	invalid      map[subjectKey]error
}

type subjectKey struct {
	namespace, name, spec string
	revision              int
}

// maxSubjects bounds what is remembered for sharing; entries keep what they use.
const maxSubjects = 100_000

func newSubjects(d plan.Defaults) *subjects {
	return &subjects{defaults: d, known: map[subjectKey]*plan.Subject{}, invalid: map[subjectKey]error{}}
}

// of gives the subject of a due plan. An error is fresh the first time that a
// spec turns out to be one that this program cannot read.
func (s *subjects) get(d store.Due) (subject *plan.Subject, fresh bool, err error) {
	key := subjectKey{d.Namespace, d.Name, d.Spec, d.Revision}
	if subject := s.known[key]; subject != nil {
		return subject, false, nil
	}
	if err, known := s.invalid[key]; known {
		return nil, false, err
	}
	policy, err := s.compile(d.Spec)
	if len(s.known)+len(s.invalid) >= maxSubjects {
		clear(s.known)
		clear(s.invalid)
	}
	if err != nil {
		s.invalid[key] = err
		return nil, true, err
	}
	subject = &plan.Subject{Namespace: d.Namespace, Name: d.Name, Revision: d.Revision, Policy: policy}
	s.known[key] = subject
	return subject, false, nil
}

// compile reads the text of a spec. One that makes the parser panic is one that
// cannot be read.
func (s *subjects) compile(text string) (policy *plan.Policy, err error) {
	defer recoverPanic(&err)
	var spec belfry.Spec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return nil, fmt.Errorf("its spec cannot be read: %w", err)
	}
	return s.defaults.Compile(spec)
}
