package plan

import (
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// maxCounted is the count of a skip of which only so much is known that there were
// at least so many.
const maxCounted = 100_000

// maxGaps is how many clock changes a decision looks back to: those of 50 years.
const maxGaps = 100

// due is the occurrences of a plan whose time has come: the first one not yet
// decided, the last two, and how many there are.
type due struct {
	job                     belfry.ID
	first, previous, latest time.Time
	count                   int64
	atLeast                 bool // there may be more in between
}

// dueBefore finds what is due before an instant, jitter included, beginning with
// the plan's own occurrence, which counts in any case. It looks back from the
// end, whatever the number. Jitter ends before the next occurrence, so that only
// the last one can have passed without being due.
func (p *Policy) dueBefore(seen Plan, end time.Time) due {
	first := seen.NominalAt
	found, older, atLeast := newest(p.Rule, first, end.Add(-1), 3)
	if n := len(found); n > 0 && p.JitterSeconds > 0 && !p.ReadyAt(seen.JobID, found[n-1]).Before(end) {
		found = found[:n-1]
	}
	d := due{seen.JobID, first, first, first, 1 + older + int64(len(found)), atLeast}
	for _, at := range found {
		d.previous, d.latest = d.latest, at
	}
	return d
}

// isDue reports whether the time of a plan's occurrence has come, jitter included.
func (p *Policy) isDue(seen Plan, now time.Time) bool {
	return !seen.NominalAt.IsZero() && !p.ReadyAt(seen.JobID, seen.NominalAt).After(now)
}

// missed is the skip of all but the latest; none if that is the only one.
func (d due) missed() []Skip {
	if d.count == 1 {
		return nil
	}
	return d.skip(d.previous, d.count-1, belfry.ReasonMissed)
}

// all is the skip of all of them.
func (d due) all(reason belfry.Reason) []Skip { return d.skip(d.latest, d.count, reason) }

func (d due) skip(to time.Time, count int64, reason belfry.Reason) []Skip {
	if d.atLeast {
		count = maxCounted
	}
	id := belfry.RunID(d.job, belfry.KindScheduled, d.first, belfry.ID{})
	return []Skip{{ID: id, From: d.first, To: to, Count: count, Reason: reason}}
}

// besides is a record of something other than an occurrence of the rule. Its id
// cannot meet that of a run at the same instant.
func besides(job belfry.ID, at time.Time, count int64, reason belfry.Reason) Skip {
	id := belfry.RunID(job, belfry.Kind(reason), at, belfry.ID{})
	return Skip{ID: id, From: at, To: at, Count: count, Reason: reason}
}

// occurs reports whether a skip is one of occurrences, and not a record beside
// them.
func (k Skip) occurs() bool { return k.Reason != belfry.ReasonDSTGap && k.Reason != belfry.ReasonMoved }

// gaps records the wall times that the clock skipped after a plan's mark and until
// an instant, for a policy that does not make up for them. Every mark that passes
// a gap must come with its record, and no gap may be recorded twice.
func (p *Policy) gaps(seen Plan, until time.Time) (skips []Skip) {
	if !p.SkipsGap() {
		return nil
	}
	after := seen.mark()
	if b, ok := p.Rule.(*bounded); ok {
		after, until = b.clip(after, until)
	}
	list := schedule.Skipped(p.whole(), after, until)
	for _, g := range list[max(len(list)-maxGaps, 0):] {
		skips = append(skips, besides(seen.JobID, g.At, g.Count, belfry.ReasonDSTGap))
	}
	return skips
}

// mark is the instant up to which everything is decided.
func (p Plan) mark() time.Time {
	if p.FiredFor.IsZero() {
		return p.JobID.Time()
	}
	return p.FiredFor
}
