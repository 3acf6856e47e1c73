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

// due is some occurrences in a row: the first, the newest, and how many there are.
type due struct {
	first   time.Time
	newest  []time.Time // oldest first; at least two if there are two
	count   int64
	atLeast bool // there may be more in between
}

// span is the occurrences from the first, which counts in any case, to an instant,
// and of them the newest n, at least two. It looks back from the end, whatever the
// number.
func (p *Policy) span(first, until time.Time, n int) due {
	found, older, atLeast := newest(p.Rule, first, until, max(n, 2))
	d := due{first: first, newest: found, count: 1 + older + int64(len(found)), atLeast: atLeast}
	if older == 0 && !atLeast {
		d.newest = append([]time.Time{first}, found...)
	}
	return d
}

// dueBefore is what of a plan is due before an instant, jitter included, and of it
// the newest n. Jitter ends before the next occurrence, so that only the last one
// can have passed without being due.
func (p *Policy) dueBefore(seen Plan, end time.Time, n int) due {
	d := p.span(seen.NominalAt, end.Add(-1), max(n, 2)+1)
	if d.count > 1 && p.JitterSeconds > 0 && !p.ReadyAt(seen.JobID, d.latest()).Before(end) {
		d.newest, d.count = d.newest[:len(d.newest)-1], d.count-1
	}
	return d
}

// latest is the last of them.
func (d due) latest() time.Time { return d.newest[len(d.newest)-1] }

// but is all of them but the newest n, of which so many must be known and one more;
// none if there are no others.
func (d due) but(n int) due {
	d.newest, d.count = d.newest[:len(d.newest)-n], d.count-int64(n)
	return d
}

// isDue reports whether the time of a plan's occurrence has come, jitter included.
func (p *Policy) isDue(seen Plan, now time.Time) bool {
	return !seen.NominalAt.IsZero() && !p.ReadyAt(seen.JobID, seen.NominalAt).After(now)
}

// skip records all of them as not run.
func (step *Step) skip(d due, reason belfry.Reason) {
	if d.count == 0 {
		return
	}
	if d.atLeast {
		d.count = maxCounted
	}
	id := belfry.RunID(step.Seen.JobID, belfry.KindScheduled, d.first, belfry.ID{})
	step.Skips = append(step.Skips, Skip{ID: id, From: d.first, To: d.latest(), Count: d.count, Reason: reason})
}

// besides is a record of something other than an occurrence of the rule. Its id
// cannot meet that of a run at the same instant.
func newNote(job belfry.ID, at time.Time, count int64, reason belfry.Reason) Skip {
	id := belfry.RunID(job, belfry.RunKind(reason), at, belfry.ID{})
	return Skip{ID: id, From: at, To: at, Count: count, Reason: reason, Note: true}
}

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
	list := schedule.SkippedGaps(p.unbounded(), after, until)
	for _, g := range list[max(len(list)-maxGaps, 0):] {
		skips = append(skips, newNote(seen.JobID, g.At, g.Count, belfry.ReasonDSTGap))
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
