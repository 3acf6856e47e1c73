package control

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// undecided tells of an instant of which there is no record.
func (q *inquiry) undecided(ctx context.Context) (err error) {
	if q.policy == nil {
		q.Decision = belfry.DecisionUnknown
		q.Sentence = fmt.Sprintf("It cannot be told what the job does at %s: this server cannot read its schedule %q.", q.words.full(q.At), q.Rule.Schedule)
		return nil
	}
	is, before, after := q.around()
	var what string
	switch {
	case !q.At.After(q.job.CreatedAt):
		q.Decision, what = belfry.DecisionNone, "lies before the job, which was created at "+q.words.moment(q.job.CreatedAt)+"."
	case !is:
		q.Decision, what = belfry.DecisionNone, q.elsewhere(before, after)
	case !q.plan.NominalAt.IsZero() && !q.At.Before(q.plan.NominalAt):
		q.Decision, what = q.ahead()
	case !q.plan.JobID.IsZero() && q.plan.NominalAt.IsZero() && q.At.After(q.plan.FiredFor):
		q.Decision, what = belfry.DecisionNone, q.nothingMore()
	default:
		q.Decision, what, err = q.forgotten(ctx)
	}
	q.Sentence = q.words.full(q.At) + " " + what
	return err
}

// elsewhere tells of an instant that the rule does not name.
func (q *inquiry) elsewhere(before, after time.Time) string {
	s := q.policy.Spec
	if q.policy.Whole.Next(q.At.Add(-1)).Equal(q.At) {
		if q.At.Before(s.StartsAt) {
			return "is not run: it lies before starts_at, which is " + q.words.short(s.StartsAt) + "."
		}
		return "is not run: it lies after ends_at, which is " + q.words.short(s.EndsAt) + "."
	}
	if gap := q.comingGap(); gap != "" {
		return gap
	}
	if once, is := schedule.Once(q.policy.Rule); is {
		return "is not the instant of the job, which runs once, at " + q.words.short(once) + "."
	}
	rule := q.Rule.Schedule
	if q.Rule.Resolved != "" {
		rule += " (" + q.Rule.Resolved + ")"
	}
	what := fmt.Sprintf("is not an occurrence of %s in %s; ", rule, q.words.zone)
	switch {
	case before.IsZero() && after.IsZero():
		return what + "there is none at all."
	case before.IsZero():
		return what + "the first is " + q.words.short(after) + "."
	case after.IsZero():
		return what + "the last is " + q.words.short(before) + "."
	}
	return what + "the ones around it are " + q.words.short(before) + " and " + q.words.short(after) + "." + q.again(before)
}

// forgotten tells of an occurrence that has passed and has no record: mostly it is
// no longer there, but while a job was cancelled there was none.
func (q *inquiry) forgotten(ctx context.Context) (belfry.Decision, string, error) {
	const enough = 100 // runs that nobody scheduled and that may lie between
	runs, err := q.c.Runs(ctx, q.job.Namespace, q.job.ID, RunPage{BeforeAt: q.At, Limit: enough})
	if err != nil {
		return "", "", err
	}
	if i := slices.IndexFunc(runs, func(r belfry.Run) bool { return r.Kind == belfry.KindScheduled }); i >= 0 && runs[i].Reason == belfry.ReasonCancelled {
		return belfry.DecisionNone, "was not run: the job was cancelled then, and nothing was planned.", nil
	}
	keep := "as long as the server is set to"
	if days := q.policy.RetentionDays; days > 0 {
		keep = "for " + number(days, "day") + " (retention_days)"
	}
	if q.policy.MaxRuns > 0 {
		return belfry.DecisionUnknown, fmt.Sprintf("has no record: the job had all its runs by then (max_runs: %d), or it is no longer there, since history is kept %s.",
			q.policy.MaxRuns, keep), nil
	}
	return belfry.DecisionUnknown, "was decided, but its record is no longer there: history is kept " + keep + ".", nil
}

// nothingMore tells why nothing is planned any more.
func (q *inquiry) nothingMore() string {
	was := "is"
	if !q.At.After(q.now) {
		was = "was"
	}
	if q.policy.Spent(q.plan.RunsMade) {
		return fmt.Sprintf("%s not run: the job had all its runs by then (max_runs: %d).", was, q.policy.MaxRuns)
	}
	return was + " not run: the job was cancelled, and nothing is planned until its schedule is edited."
}

// ahead tells of an occurrence that is still to be decided.
func (q *inquiry) ahead() (belfry.Decision, string) {
	_, once := schedule.Once(q.policy.Rule)
	starts := q.policy.ReadyAt(q.job.ID, q.At)
	coming := starts.After(q.now)
	switch {
	case q.job.State == belfry.JobPaused && once:
		return belfry.DecisionPaused, "is planned, but the job is paused: it runs when the job is resumed, however late."
	case q.job.State == belfry.JobPaused && coming:
		return belfry.DecisionPaused, "is planned, but the job is paused: it will be skipped unless the job is resumed before."
	case q.job.State == belfry.JobPaused:
		return belfry.DecisionPaused, "fell into a pause that is not over: it will be skipped when the job is resumed, unless that is asked to make up for it (catch_up)."
	case q.job.Quarantined != "" && coming:
		return belfry.DecisionQuarantined, "is planned, but the job cannot be fired: " + quoted(q.job.Quarantined) + "."
	case q.job.Quarantined != "":
		return belfry.DecisionQuarantined, "is due, but the job cannot be fired: " + quoted(q.job.Quarantined) + "."
	case q.spentBefore():
		return belfry.DecisionNone, fmt.Sprintf("will not be run: the job has all its runs by then, unless some are skipped (max_runs: %d).", q.policy.MaxRuns)
	case coming && starts.Equal(q.At):
		return belfry.DecisionPlanned, "is planned: the job is due then." + q.clock(q.At)
	case coming:
		return belfry.DecisionPlanned, "is planned: its run may start at " + q.words.moment(starts) + " (jitter_seconds)." + q.clock(q.At)
	}
	return belfry.DecisionDue, fmt.Sprintf("is due for %s and about to be decided; what is due is fired as fast as workers can take it.", duration(q.now.Sub(starts)))
}

// spentBefore tells whether the runs that the job may still have come before the
// instant.
func (q *inquiry) spentBefore() bool {
	const enough = 10_000 // occurrences that are worth counting
	if q.policy.MaxRuns == 0 {
		return false
	}
	left := int64(q.policy.MaxRuns) - q.plan.RunsMade
	if left > enough {
		return false
	}
	list, _ := q.policy.Between(q.plan.NominalAt, q.At.Add(-1), int(left))
	return int64(len(list)) >= left
}
