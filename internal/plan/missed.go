package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
)

// usualWindow is how late an occurrence may be to be made up for where each is.
const defaultRunAllWindow = 30 * time.Minute

// usualCatchUp is how many runs of a catch-up are nothing to tell of.
const defaultLargeCatchUp = 10

// lately is how late an occurrence may be that counts as late rather than missed for
// somebody who does not know since when anybody was in charge.
const lateTolerance = time.Minute

// certain tells whether the job is a one-off that runs however late.
func (p *Policy) alwaysRuns() bool { return p.MissedWindow != belfry.MissedSkip && p.oneOff() }

// CatchUpWindow is how old a missed occurrence may be to be made up for; zero: as
// old as it likes.
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

// oldest is the instant before which an occurrence, jitter included, is too old to
// be made up for; zero: none is.
func (p *Policy) catchUpCutoff(now time.Time) time.Time {
	window := p.CatchUpWindow()
	if window == 0 {
		return time.Time{}
	}
	return now.Add(-window)
}

// mostMadeUp is how many runs may make up for missed occurrences after so many
// scheduled ones.
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

// makeUp decides occurrences that were missed, at least one, of which the newest
// mostMadeUp are known and one more. The newest run, as many as the policy allows
// and none that is older than the oldest may be; they follow one after another. The
// others are skipped, for the given reason or because there were too many.
func (step *Step) catchUp(d occurrences, oldest time.Time, reason belfry.Reason, now time.Time) {
	p := step.Policy
	n := min(p.catchUpLimit(step.Seen.RunsMade), len(d.newest))
	for n > 0 && step.readyAt(d.newest[len(d.newest)-n]).Before(oldest) {
		n--
	}
	step.skipMissed(d.withoutNewest(n), oldest, reason)
	step.Runs = slices.Grow(step.Runs, n)
	for _, at := range d.newest[len(d.newest)-n:] {
		step.run(at)
		if p.MissedWindow == belfry.MissedRunAll {
			step.Runs[len(step.Runs)-1].Queue = NoQueueLimit
		}
	}
	step.addCatchUpEvent(n, now)
}

// leaveOut skips missed occurrences, perhaps none. Where each is made up for, those
// that are not too old are left out because there were too many.
func (step *Step) skipMissed(d occurrences, oldest time.Time, reason belfry.Reason) {
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
		step.skip(p.occurrencesFrom(p.next(old.latest()), d.latest(), 1), belfry.ReasonMaxMissed)
	}
}

func (step *Step) readyAt(at time.Time) time.Time { return step.Policy.ReadyAt(step.Seen.JobID, at) }

// tellOf adds an event to a catch-up of so many runs if that is more than usual.
func (step *Step) addCatchUpEvent(n int, now time.Time) {
	usual := step.Policy.defaults.LargeCatchUp
	if usual == 0 {
		usual = defaultLargeCatchUp
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
