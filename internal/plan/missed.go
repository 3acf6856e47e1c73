package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
)

// usualWindow is how late an occurrence may be to be made up for where each is.
const usualWindow = 30 * time.Minute

// usualCatchUp is how many runs of a catch-up are nothing to tell of.
const usualCatchUp = 10

// lately is how late an occurrence may be that counts as late rather than missed for
// somebody who does not know since when anybody was in charge.
const lately = time.Minute

// certain tells whether the job is a one-off that runs however late.
func (p *Policy) alwaysRuns() bool { return p.MissedWindow != belfry.MissedSkip && p.once() }

// CatchUpWindow is how old a missed occurrence may be to be made up for; zero: as
// old as it likes.
func (p *Policy) CatchUpWindow() time.Duration {
	switch {
	case p.CatchUpSeconds > 0:
		return time.Duration(p.CatchUpSeconds) * time.Second
	case p.defaults.CatchUpWindow > 0:
		return p.defaults.CatchUpWindow
	case p.MissedWindow == belfry.MissedRunAll:
		return usualWindow
	}
	return 0
}

// oldest is the instant before which an occurrence, jitter included, is too old to
// be made up for; zero: none is.
func (p *Policy) oldest(now time.Time) time.Time {
	window := p.CatchUpWindow()
	if window == 0 {
		return time.Time{}
	}
	return now.Add(-window)
}

// mostMadeUp is how many runs may make up for missed occurrences after so many
// scheduled ones.
func (p *Policy) mostMadeUp(made int64) int {
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

// makeUp decides occurrences that were missed, at least one, of which the newest
// mostMadeUp are known and one more. The newest run, as many as the policy allows
// and none that is older than the oldest may be; they follow one after another. The
// others are skipped, for the given reason or because there were too many.
func (step *Step) makeUp(d due, oldest time.Time, reason belfry.Reason, now time.Time) {
	p := step.Policy
	n := min(p.mostMadeUp(step.Seen.RunsMade), len(d.newest))
	for n > 0 && step.readyAt(d.newest[len(d.newest)-n]).Before(oldest) {
		n--
	}
	step.leaveOut(d.but(n), oldest, reason)
	step.Runs = slices.Grow(step.Runs, n)
	for _, at := range d.newest[len(d.newest)-n:] {
		step.run(at)
		if p.MissedWindow == belfry.MissedRunAll {
			step.Runs[len(step.Runs)-1].Queue = NoQueueLimit
		}
	}
	step.tellOf(n, now)
}

// leaveOut skips missed occurrences, perhaps none. Where each is made up for, those
// that are not too old are left out because there were too many.
func (step *Step) leaveOut(d due, oldest time.Time, reason belfry.Reason) {
	p := step.Policy
	switch {
	case d.count == 0:
	case p.MissedWindow != belfry.MissedRunAll, step.readyAt(d.latest()).Before(oldest):
		step.skip(d, reason)
	case !step.readyAt(d.first).Before(oldest):
		step.skip(d, belfry.ReasonMaxMissed)
	default:
		old := p.dueBefore(step.Seen, oldest, 1)
		step.skip(old, reason)
		step.skip(p.span(p.next(old.latest()), d.latest(), 1), belfry.ReasonMaxMissed)
	}
}

func (step *Step) readyAt(at time.Time) time.Time { return step.Policy.ReadyAt(step.Seen.JobID, at) }

// tellOf adds an event to a catch-up of so many runs if that is more than usual.
func (step *Step) tellOf(n int, now time.Time) {
	usual := step.Policy.defaults.LargeCatchUp
	if usual == 0 {
		usual = usualCatchUp
	}
	if n <= usual {
		return
	}
	first, last := step.Runs[0].ScheduledAt, step.Runs[n-1].ScheduledAt
	step.Event = &belfry.Event{
		ID:        belfry.RunID(step.Seen.JobID, belfry.RunKind(belfry.EventLargeCatchUp), last, belfry.ID{}),
		Namespace: step.Namespace,
		JobID:     step.Seen.JobID,
		Kind:      belfry.EventLargeCatchUp,
		At:        now,
		Message:   fmt.Sprintf("%d runs make up for occurrences from %s to %s", n, first.UTC().Format(time.RFC3339), last.UTC().Format(time.RFC3339)),
		Count:     int64(n),
	}
}
