package control

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// Note says in a sentence what a change of the clock has to do with a run or a
// skip, by the rule of the revision that it was fired from. It is empty for most,
// and also if it cannot be found out.
func (c *Control) Note(ctx context.Context, run belfry.Run) string {
	switch {
	case run.Kind != belfry.KindScheduled:
		return ""
	case run.Reason == belfry.ReasonMoved:
		return "a newer zone database moved what was planned for this instant to another one"
	}
	spec, err := c.specOf(ctx, run)
	if err != nil {
		return ""
	}
	n, err := newNoter(spec)
	if err != nil {
		return ""
	}
	if at := run.ScheduledAt; run.Reason == belfry.ReasonDSTGap {
		return n.left(at.Add(-time.Second), at)
	} else if n.names(n.policy.Rule, at) {
		return n.on(at)
	}
	return ""
}

// specOf is the spec of the revision that a run was fired from.
func (c *Control) specOf(ctx context.Context, run belfry.Run) (belfry.Spec, error) {
	job, err := c.Get(ctx, run.Namespace, run.JobID)
	if err != nil || job.Revision == run.Revision {
		return job.Spec, err
	}
	earlier, err := c.Revisions(ctx, run.Namespace, run.JobID, run.Revision+1, 1)
	if err != nil {
		return belfry.Spec{}, err
	}
	if len(earlier) == 0 || earlier[0].Number != run.Revision {
		return belfry.Spec{}, belfry.Errorf(belfry.NotFound, "the job has no revision %d", run.Revision)
	}
	return earlier[0].Spec, nil
}

// noter says what changes of the clock do to the occurrences of a rule.
type noter struct {
	policy   *plan.Policy
	skipping schedule.Rule // the same rule, if it left out what the clock skips
	zone     *time.Location
}

func newNoter(spec belfry.Spec) (*noter, error) {
	policy, err := plan.Compile(spec)
	if err != nil {
		return nil, err
	}
	n := &noter{policy: policy, skipping: policy.Whole}
	if n.zone, err = schedule.LoadZone(spec.Timezone); err != nil {
		return nil, err
	}
	o := plan.Options(spec)
	o.SkipGap = true
	if rule, err := schedule.Parse(plan.Text(spec), o); err == nil {
		n.skipping = rule
	}
	return n, nil
}

// names reports whether a rule has an occurrence at an instant.
func (n *noter) names(rule schedule.Rule, at time.Time) bool {
	return rule.Next(at.Add(-time.Microsecond)).Equal(at)
}

// on is about an occurrence.
func (n *noter) on(at time.Time) string {
	o := schedule.OccurrenceAt(n.policy.Whole, at)
	clock := timeOfDay(at.In(n.zone))
	var notes []string
	if o.MovedCount > 0 {
		then := "runs at " + clock
		switch _, once := schedule.Once(n.policy.Whole); {
		case !once && n.names(n.skipping, at):
			then = "merged into the run at " + clock
		case o.MovedCount > 1:
			then = "runs once, at " + clock
		}
		notes = append(notes, n.missing(o.Moved, o.MovedCount, at)+": "+then)
	}
	switch o.Repeat {
	case schedule.RepeatOnly:
		notes = append(notes, clock+" comes twice: runs the first time")
	case schedule.RepeatAgain:
		notes = append(notes, "second "+clock)
	}
	return strings.Join(notes, "; ")
}

// left is about wall times that are left out, after an instant and until another.
func (n *noter) left(after, until time.Time) string {
	var notes []string
	for _, g := range schedule.Skipped(n.policy.Whole, after, until) {
		walls := []schedule.Wall{g.First, g.Last}
		notes = append(notes, n.missing(walls[:min(g.Count, 2)], g.Count, until)+": left out")
	}
	return strings.Join(notes, "; ")
}

// missing says that wall times do not exist, to somebody who looks at the day of an
// instant. It is given so many of them, and the last one unless there are a lot.
func (n *noter) missing(walls []schedule.Wall, count int64, seen time.Time) string {
	first, last := walls[0].Time(), walls[len(walls)-1].Time()
	text := timeOfDay(first)
	switch {
	case count == 2:
		text += " and " + timeOfDay(last)
	case count > 2 && (len(walls) == 2 || count == int64(len(walls))):
		text = fmt.Sprintf("%s to %s (%d times)", text, timeOfDay(last), count)
	case count > 2:
		text = fmt.Sprintf("%s and %d later times", text, count-1)
	}
	verb, day := "does", "that day"
	if count > 1 {
		verb = "do"
	}
	if y, m, d := seen.In(n.zone).Date(); first.Year() != y || first.Month() != m || first.Day() != d {
		day = "on " + first.Format("2 January 2006")
	}
	return fmt.Sprintf("%s %s not exist %s", text, verb, day)
}

func timeOfDay(t time.Time) string {
	if t.Second() != 0 {
		return t.Format("15:04:05")
	}
	return t.Format("15:04")
}
