package control

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// Note says in a sentence what a change of the clock has to do with a run or a
// skip, by the rule of the revision that it was fired from. It is empty for most,
// and also if it cannot be found out.
func (c *Control) Note(ctx context.Context, run belfry.Run) string {
	switch {
	case run.Kind != belfry.KindScheduled:
		return ""
	case run.Reason == belfry.ReasonZoneChange:
		return "a newer zone database moved what was planned for this instant to another one"
	}
	spec, err := c.specOf(ctx, run)
	if err != nil {
		return ""
	}
	policy, err := c.defaults.Compile(spec)
	if err != nil {
		return ""
	}
	at := run.ScheduledAt
	switch {
	case run.Reason == belfry.ReasonDSTGap:
		return schedule.NoteSkipped(policy.Whole, at.Add(-time.Second), at)
	case policy.Rule.Next(at.Add(-time.Microsecond)).Equal(at):
		return schedule.Note(policy.Whole, schedule.OccurrenceAt(policy.Whole, at))
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
