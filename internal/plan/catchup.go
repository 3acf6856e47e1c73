package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

const (
	defaultRunAllWindow = 30 * time.Minute // how old a missed occurrence may be to still run with run_all
	defaultLargeCatchUp = 10               // catch-up runs at once that cause no event
	lateTolerance       = time.Minute      // how late is late rather than missed where it is unknown since when a scheduler runs
	maxCounted          = 100_000          // count of a skip whose occurrences were not counted further: there were at least that many
	maxGaps             = 100              // clock changes that one decision records: those of 50 years
)

// alwaysRuns reports whether the job is a one-off that runs however late.
func (p *Policy) alwaysRuns() bool { return p.MissedWindow != belfry.MissedSkip && p.oneOff() }

// CatchUpWindow is how old a missed occurrence may be to still run; zero: no limit.
func (p *Policy) CatchUpWindow() time.Duration {
	switch {
	case p.CatchUpSeconds > 0:
		return time.Duration(p.CatchUpSeconds) * time.Second
	case p.defaults.CatchUpWindow > 0:
		return p.defaults.CatchUpWindow
	case p.MissedWindow == belfry.MissedRunAll:
		return defaultRunAllWindow
	}
	return 0
}

// catchUpCutoff is the instant before which a missed occurrence, jitter included, is
// too old to run; zero: none is.
func (p *Policy) catchUpCutoff(now time.Time) time.Time {
	window := p.CatchUpWindow()
	if window == 0 {
		return time.Time{}
	}
	return now.Add(-window)
}

// catchUpLimit is how many missed occurrences may run for a job that has had that many
// scheduled runs.
func (p *Policy) catchUpLimit(made int64) int {
	switch {
	case p.MissedWindow == belfry.MissedSkip, p.Spent(made):
		return 0
	case p.MissedWindow != belfry.MissedRunAll:
		return 1
	case p.MaxRuns > 0:
		return int(min(int64(p.MissedLimit()), int64(p.MaxRuns)-made))
	}
	return p.MissedLimit()
}

// catchUp decides missed occurrences, at least one, of which the newest catchUpLimit
// plus one must be known. The newest run, as many as the policy allows and none from
// before the cutoff; they wait for each other. The others are skipped, for the given
// reason or because there were too many.
func (step *Step) catchUp(missed occurrences, cutoff time.Time, reason belfry.Reason, now time.Time) {
	p := step.Policy
	n := min(p.catchUpLimit(step.Seen.RunsMade), len(missed.newest))
	for n > 0 && step.readyAt(missed.newest[len(missed.newest)-n]).Before(cutoff) {
		n--
	}
	step.skipMissed(missed.withoutNewest(n), cutoff, reason)
	step.Runs = slices.Grow(step.Runs, n)
	for _, at := range missed.newest[len(missed.newest)-n:] {
		step.run(at)
		if p.MissedWindow == belfry.MissedRunAll {
			step.Runs[len(step.Runs)-1].Queue = NoQueueLimit
		}
	}
	step.addCatchUpEvent(n, now)
}

// skipMissed skips missed occurrences, perhaps none. With run_all, those after the
// cutoff are skipped because there were too many.
func (step *Step) skipMissed(missed occurrences, cutoff time.Time, reason belfry.Reason) {
	p := step.Policy
	switch {
	case missed.count == 0:
	case p.MissedWindow != belfry.MissedRunAll, step.readyAt(missed.latest()).Before(cutoff):
		step.skip(missed, reason)
	case !step.readyAt(missed.first).Before(cutoff):
		step.skip(missed, belfry.ReasonMaxMissed)
	default:
		old := p.dueBefore(step.Seen, cutoff, 1)
		step.skip(old, reason)
		step.skip(p.occurrencesFrom(p.next(old.latest()), missed.latest(), 1), belfry.ReasonMaxMissed)
	}
}

func (step *Step) readyAt(at time.Time) time.Time { return step.Policy.ReadyAt(step.Seen.JobID, at) }

// addCatchUpEvent adds an event if there are more catch-up runs than usual.
func (step *Step) addCatchUpEvent(n int, now time.Time) {
	if n <= cmp.Or(step.Policy.defaults.LargeCatchUp, defaultLargeCatchUp) {
		return
	}
	first, last := step.Runs[0].ScheduledAt, step.Runs[n-1].ScheduledAt
	step.Event = &belfry.Event{
		ID:        belfry.RunID(step.Seen.JobID, belfry.RunKind(belfry.EventLargeCatchUp), last, belfry.ID{}),
		Namespace: step.Namespace,
		JobID:     step.Seen.JobID,
		Kind:      belfry.EventLargeCatchUp,
		At:        now,
		Message:   fmt.Sprintf("%d runs catch up on missed occurrences from %s to %s", n, first.UTC().Format(time.RFC3339), last.UTC().Format(time.RFC3339)),
		Count:     int64(n),
	}
}

// occurrences is consecutive occurrences: the first, the newest, and their number.
type occurrences struct {
	first   time.Time
	newest  []time.Time // oldest first; at least two if there are two
	count   int64
	atLeast bool // there may be more in between
}

// occurrencesFrom is the occurrences from the first, which is always included, until an
// instant, with the newest n of them, at least two. It searches back from the end, so
// that its cost does not depend on their number.
func (p *Policy) occurrencesFrom(first, until time.Time, n int) occurrences {
	found, older, atLeast := newest(p.Rule, first, until, max(n, 2))
	d := occurrences{first: first, newest: found, count: 1 + older + int64(len(found)), atLeast: atLeast}
	if older == 0 && !atLeast {
		d.newest = append([]time.Time{first}, found...)
	}
	return d
}

// dueBefore is the occurrences of a plan that are due before an instant, jitter
// included, with the newest n of them. Jitter ends before the next occurrence, so only
// the last one can be past without being due.
func (p *Policy) dueBefore(seen Plan, end time.Time, n int) occurrences {
	d := p.occurrencesFrom(seen.NominalAt, end.Add(-1), max(n, 2)+1)
	if d.count > 1 && p.JitterSeconds > 0 && !p.ReadyAt(seen.JobID, d.latest()).Before(end) {
		d.newest, d.count = d.newest[:len(d.newest)-1], d.count-1
	}
	return d
}

func (d occurrences) latest() time.Time { return d.newest[len(d.newest)-1] }

// withoutNewest drops the newest n. At least n+1 must be known, unless there are no
// more than n.
func (d occurrences) withoutNewest(n int) occurrences {
	d.newest, d.count = d.newest[:len(d.newest)-n], d.count-int64(n)
	return d
}

// isDue reports whether the occurrence of a plan is due, jitter included.
func (p *Policy) isDue(seen Plan, now time.Time) bool {
	return !seen.NominalAt.IsZero() && !p.ReadyAt(seen.JobID, seen.NominalAt).After(now)
}

// skip records occurrences that do not run.
func (step *Step) skip(d occurrences, reason belfry.Reason) {
	if d.count == 0 {
		return
	}
	if d.atLeast {
		d.count = maxCounted
	}
	id := belfry.RunID(step.Seen.JobID, belfry.KindScheduled, d.first, belfry.ID{})
	step.Skips = append(step.Skips, Skip{ID: id, From: d.first, To: d.latest(), Count: d.count, Reason: reason})
}

// newNote is a record of something other than an occurrence. Its id differs from that
// of a run at the same instant.
func newNote(job belfry.ID, at time.Time, count int64, reason belfry.Reason) Skip {
	id := belfry.RunID(job, belfry.RunKind(reason), at, belfry.ID{})
	return Skip{ID: id, From: at, To: at, Count: count, Reason: reason, Note: true}
}

// gaps returns notes for the wall times that the clock skipped between a plan's
// high-water mark and an instant, if the policy skips those. Whatever moves the mark
// past a gap must record it, and none may be recorded twice.
func (p *Policy) gaps(seen Plan, until time.Time) (skips []Skip) {
	if !p.SkipsGap() {
		return nil
	}
	after := seen.decidedUntil()
	if b, ok := p.Rule.(*bounded); ok {
		after, until = b.clip(after, until)
	}
	list := schedule.SkippedGaps(p.unbounded(), after, until)
	for _, g := range list[max(len(list)-maxGaps, 0):] {
		skips = append(skips, newNote(seen.JobID, g.At, g.Count, belfry.ReasonDSTGap))
	}
	return skips
}
