// Package plan decides which occurrences of a job become runs, which are skipped and
// why, and when the job is due next. All of it is pure: planning a new job, firing,
// catching up, pausing and resuming each return a Step that a store applies all or
// nothing.
package plan

import (
	"encoding/json"
	"math"
	"time"

	"github.com/belfry-sh/belfry"
)

// Plan is when a job is due next. Every change of a plan is a compare-and-set on its
// version.
type Plan struct {
	JobID       belfry.ID
	Shard       int
	Version     int64
	NextAt      time.Time // NominalAt plus jitter; zero: nothing is planned, or the job is paused
	NominalAt   time.Time // the first occurrence that is not decided; zero: none is left
	FiredFor    time.Time // high-water mark: everything is decided up to here, the latest occurrence or a later edit
	RunsMade    int64     // for occurrences; triggers do not count
	Once        bool      // the rule is a single instant
	ZoneVersion string    // release of the time-zone data that NominalAt was computed with
}

// decidedUntil is the instant up to which everything is decided.
func (p Plan) decidedUntil() time.Time {
	if p.FiredFor.IsZero() {
		return p.JobID.Time()
	}
	return p.FiredFor
}

// notBefore keeps NextAt out of the past, so that a scheduler that only loads what
// is ahead finds the plan.
func (p Plan) notBefore(now time.Time) Plan {
	if !p.NextAt.IsZero() && p.NextAt.Before(now) {
		p.NextAt = now
	}
	return p
}

// Subject is what a decision needs to know of a job besides its plan.
type Subject struct {
	Namespace string
	Name      string // of the job; only if the policy's keys use it
	Revision  int
	Policy    *Policy
}

// Lane is the lane of the job's runs.
func (s Subject) Lane() string { return s.Policy.laneOf(s.Namespace) }

// key is the idempotency key of a run; empty without a template.
func (s Subject) key(job belfry.ID, at time.Time) string {
	if s.Policy.Keys == nil {
		return ""
	}
	return s.Policy.Keys.Render(job, s.Name, at.In(s.Policy.zone))
}

// Step is one decision about one job. It is applied only if the plan still has the
// version that was seen.
type Step struct {
	Subject
	Seen  Plan
	Next  Plan // Version is ignored: applying a step adds one
	Due   bool // it decides Seen.NominalAt: not applied before Seen.NextAt by the store's clock
	Runs  []Run
	Skips []Skip
	Event *belfry.Event // recorded with the decision; nil: none

	CatchUps int // how many of Runs are of missed occurrences

	// NextIfSkipped replaces Next if runs of a job with max_runs become skips, which do
	// not count; they are to be subtracted from its RunsMade. Nil: Next holds.
	NextIfSkipped *Plan

	Epoch int64 // of the owner's term; evidence only
}

// IsSimple reports whether the step makes one run of one due occurrence and nothing else,
// as most steps do. Stores apply many such steps at once.
func (s *Step) IsSimple() bool {
	if !s.Due || len(s.Runs) != 1 || len(s.Skips) > 0 || s.Event != nil {
		return false
	}
	r := &s.Runs[0]
	return r.Kind == belfry.KindScheduled && r.Trigger.IsZero() && r.Key == "" && r.Payload == nil
}

// Run is a run to create.
type Run struct {
	ID          belfry.ID
	Kind        belfry.RunKind
	Trigger     belfry.ID // the trigger it consumes; zero for scheduled runs
	ScheduledAt time.Time
	ReadyAt     time.Time
	Serial      bool            // while the job has a live run it waits, or becomes a skip
	Queue       int             // how many runs may wait; if that many already do, it becomes a skip
	Key         string          // from the job's template; empty without one
	Payload     json.RawMessage // replaces the payload of the job if set
}

// Skip records occurrences that do not run: the first, the last and how many. A note
// records something else: with ReasonDSTGap a gap, at its end, and the number of wall
// times in it; with ReasonZoneChange and ReasonCancelled an instant for which an
// occurrence was planned.
type Skip struct {
	ID     belfry.ID
	From   time.Time
	To     time.Time
	Count  int64 // maxCounted, or less for a schedule of many rules, may mean "at least that many"
	Reason belfry.Reason
	Detail string // what happened, if the reason does not say it all
	Note   bool
}

// Trigger is a request for a run that is not scheduled.
type Trigger struct {
	ID        belfry.ID
	Namespace string
	JobID     belfry.ID
	Shard     int
	Kind      belfry.RunKind
	At        time.Time
	ReadyAt   time.Time // when it was requested, by the store's clock; the run does not start before
	Payload   json.RawMessage
}

// RunID is the id of the run that the trigger becomes.
func (t Trigger) RunID() belfry.ID { return belfry.RunID(t.JobID, t.Kind, t.At, t.ID) }

// NoQueueLimit is the Queue of a run that waits however many others do.
const NoQueueLimit = math.MaxInt32

// MaxRank is above every rank.
const MaxRank = math.MaxInt64

// Rank orders the ready runs of a lane, lowest first: the time at which they became
// ready, shifted by their priority, see Policy.Weight.
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
