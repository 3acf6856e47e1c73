// Package plan decides time: which occurrences of a job become runs, which are
// skipped and why, and when to look at the job next. Everything in it is pure;
// planning a new job, firing, catching up, pausing and resuming all come down
// to a Step that a store applies all or nothing.
package plan

import (
	"encoding/json"
	"math"
	"time"

	"github.com/belfry-sh/belfry"
)

// Plan is when a job is next looked at. Every change of a plan is a
// compare-and-set on its version.
type Plan struct {
	JobID       belfry.ID
	Shard       int
	Version     int64
	NextAt      time.Time // when to look next: that occurrence with its jitter; zero: not planned
	NominalAt   time.Time // the first occurrence not yet decided; zero: none is left
	FiredFor    time.Time // high-water mark: all is decided up to here, which is the latest occurrence or a later edit
	RunsMade    int64     // for occurrences; triggers do not count
	Once        bool      // the rule is a single instant
	ZoneVersion string    // zone database that computed NominalAt
}

// Subject is what a decision needs to know of a job beside its plan.
type Subject struct {
	Namespace string
	Name      string // of the job; only what the policy's keys need
	Revision  int
	Policy    *Policy
}

// Lane is where the job's runs go.
func (s Subject) Lane() string { return s.Policy.Spec.Lane(s.Namespace) }

// key is the idempotency key of a run; empty without a template.
func (s Subject) key(job belfry.ID, at time.Time) string {
	if s.Policy.Keys == nil {
		return ""
	}
	return s.Policy.Keys.Render(job, s.Name, at.In(s.Policy.zone))
}

// Step is one decision about one job, applied only if the plan is still as it
// was seen.
type Step struct {
	Subject
	Seen  Plan
	Next  Plan // Version is ignored: applying a step adds one
	Due   bool // decides Seen.NominalAt: refused before Seen.NextAt by the store's clock
	Runs  []Run
	Skips []Skip
	Event *belfry.Event // to be told of with the decision; nil: nothing
	Epoch int64         // of the owner's term; evidence only
}

// Run is a run to be made.
type Run struct {
	ID          belfry.ID
	Kind        belfry.RunKind
	Trigger     belfry.ID // the trigger it consumes; zero for scheduled runs
	ScheduledAt time.Time
	ReadyAt     time.Time
	Serial      bool            // while the job has a live run it waits, or becomes a skip
	Queue       int             // how many may wait: if so many do already, and if none may, it becomes a skip
	Key         string          // by the job's template; empty without one
	Payload     json.RawMessage // replaces the job's own if set
}

// Skip records occurrences that do not run: the first, the last and how many. One
// that stands beside them is of something else: with ReasonDSTGap of a gap, at its
// end, and the number of wall times in it; with ReasonMoved and ReasonCancel of an
// instant at which an occurrence was planned once.
type Skip struct {
	ID     belfry.ID
	From   time.Time
	To     time.Time
	Count  int64 // 100,000 may stand for "at least so many"
	Reason belfry.Reason
	Note   bool
}

// Trigger is a wish for a run that is not scheduled.
type Trigger struct {
	ID        belfry.ID
	Namespace string
	JobID     belfry.ID
	Shard     int
	Kind      belfry.RunKind
	At        time.Time
	ReadyAt   time.Time // when it was asked for, by the store's clock; the run does not start before
	Payload   json.RawMessage
}

// RunID is the id of the run that the trigger becomes.
func (t Trigger) RunID() belfry.ID { return belfry.RunID(t.JobID, t.Kind, t.At, t.ID) }

// Unbounded is the queue of a run that waits however many do.
const NoQueueLimit = math.MaxInt32

// Rank orders the ready runs of a lane, lowest first: by when they became ready,
// and how much later their priority makes that seem, see Policy.Weight.
func Rank(readyAt time.Time, weight int64) int64 { return readyAt.UnixMicro() + weight }

// First is the earliest occurrence that the step decides; zero if it decides
// none.
func (s *Step) First() time.Time {
	var first time.Time
	note := func(t time.Time) {
		if first.IsZero() || t.Before(first) {
			first = t
		}
	}
	for _, r := range s.Runs {
		if r.Kind == belfry.KindScheduled {
			note(r.ScheduledAt)
		}
	}
	for _, k := range s.Skips {
		if !k.Note {
			note(k.From)
		}
	}
	return first
}
