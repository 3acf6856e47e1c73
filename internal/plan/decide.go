package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// First plans a new job. A one-off whose instant has passed is due at once.
func First(job belfry.ID, shard int, p *Policy, now time.Time) Plan {
	out := Plan{JobID: job, Shard: shard, Version: 1, ZoneVersion: schedule.ZoneVersion()}
	if at, once := schedule.Once(p.Rule); once {
		return p.plan(out, at).notBefore(now)
	}
	return p.plan(out, p.next(now))
}

// Decide decides a plan that is due at now. A scheduler has been running without a
// break since the given instant. Occurrences that were due before it, jitter
// included, were missed, and the missed-window policy decides about all of them. An
// occurrence after it is only late, and runs. A one-off always runs, unless its
// policy is skip.
func Decide(s Subject, seen Plan, since, now time.Time) Step {
	step := Step{Subject: s, Seen: seen, Next: seen, Due: true}
	p, at, end := s.Policy, seen.NominalAt, earlier(since, now)
	if !p.alwaysRuns() && seen.NextAt.Before(end) {
		d := p.dueBefore(seen, end, p.catchUpLimit(seen.RunsMade)+1)
		step.catchUp(d, p.catchUpCutoff(now), belfry.ReasonMissed, now)
		at = d.latest()
	} else {
		step.run(at)
	}
	step.advanceTo(at)
	step.planNext()
	return step
}

// decideDue decides everything that is due, for a caller that does not know since when
// a scheduler has been running: by the missed-window policy, except that the latest
// occurrence runs if it became due within lateTolerance. Something must be due.
func (step *Step) decideDue(now time.Time) {
	p, seen, recent := step.Policy, step.Seen, now.Add(-lateTolerance)
	d := p.dueBefore(seen, now.Add(1), p.catchUpLimit(seen.RunsMade)+1)
	at := d.latest()
	if p.alwaysRuns() || p.MissedWindow == belfry.MissedSkip && !step.readyAt(at).Before(recent) {
		step.skip(d.withoutNewest(1), belfry.ReasonMissed)
		step.run(at)
	} else {
		step.catchUp(d, earlier(p.catchUpCutoff(now), recent), belfry.ReasonMissed, now)
	}
	step.Next.FiredFor = at
}

func (step *Step) run(at time.Time) {
	job, p := step.Seen.JobID, step.Policy
	step.Runs = append(step.Runs, Run{
		ID:          belfry.RunID(job, belfry.KindScheduled, at, belfry.ID{}),
		Kind:        belfry.KindScheduled,
		ScheduledAt: at,
		ReadyAt:     p.ReadyAt(job, at),
		Serial:      p.Serial(),
		Queue:       p.QueueLimit(),
		Key:         step.key(job, at),
	})
	step.Next.RunsMade++
}

// advanceTo moves the high-water mark to an occurrence that the step decided, and
// records the wall times that the clock skipped before it.
func (step *Step) advanceTo(at time.Time) {
	step.Skips = append(step.Skips, step.Policy.gaps(step.Seen, at)...)
	step.Next.FiredFor = at
}

// planNext plans the first occurrence after the high-water mark.
func (step *Step) planNext() {
	step.Next.ZoneVersion = schedule.ZoneVersion()
	at := step.Policy.next(step.Next.FiredFor)
	if step.Policy.MaxRuns > 0 && len(step.Runs) > 0 {
		next := step.Policy.planAt(step.Next, at)
		step.NextIfSkipped = &next
	}
	step.Next = step.Policy.plan(step.Next, at)
}

// Fire turns triggers of one job into runs. The plan only gets its next version.
// Backfill runs of a serial job wait for each other, however many there are.
func Fire(s Subject, seen Plan, triggers []Trigger) Step {
	step := Step{Subject: s, Seen: seen, Next: seen}
	for _, t := range triggers {
		queue, at := s.Policy.QueueLimit(), t.At
		switch t.Kind {
		case belfry.KindBackfill:
			queue = NoQueueLimit
		case belfry.KindManual:
			if !t.ReadyAt.IsZero() {
				at = earlier(at, t.ReadyAt) // The node that stored it may believe the store's clock to be ahead.
			}
		}
		step.Runs = append(step.Runs, Run{
			ID:          t.RunID(),
			Kind:        t.Kind,
			Trigger:     t.ID,
			ScheduledAt: at,
			ReadyAt:     later(at, t.ReadyAt),
			Serial:      s.Policy.Serial(),
			Queue:       queue,
			Payload:     t.Payload,
			Key:         s.key(t.JobID, at),
		})
	}
	return step
}

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
	step.CatchUps = n
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

// isDue includes jitter.
func (p *Policy) isDue(seen Plan, now time.Time) bool {
	return !seen.NominalAt.IsZero() && !p.ReadyAt(seen.JobID, seen.NominalAt).After(now)
}

func (step *Step) skip(d occurrences, reason belfry.Reason) {
	if d.count == 0 {
		return
	}
	if d.atLeast {
		d.count = min(d.count, maxCounted)
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
