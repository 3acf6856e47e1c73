package explain

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
	"github.com/belfry-sh/belfry/internal/store"
)

// instant is an instant of a job by the schedule that applied to it, and what is said
// about it so far.
type instant struct {
	*explainer
	at     time.Time
	spec   belfry.Spec
	policy *plan.Policy // of the spec; nil if its schedule cannot be parsed
	format timeFormat

	occurs         bool // the schedule names the instant
	previous, next time.Time

	out belfry.Explanation
}

// unrecorded explains an instant that has no record.
func (t *instant) unrecorded(ctx context.Context) (belfry.Explanation, error) {
	if t.policy == nil {
		t.out.Decision = belfry.DecisionUnknown
		t.out.Sentence = fmt.Sprintf("It is unknown what the job does at %s: this server cannot parse its schedule %q.", t.format.full(t.at), t.spec.Schedule)
		return t.out, nil
	}
	var verdict string
	var err error
	switch {
	case !t.at.After(t.job.CreatedAt):
		t.out.Decision, verdict = belfry.DecisionNone, "is before the job was created, at "+t.format.seconds(t.job.CreatedAt)+"."
	case !t.occurs:
		t.out.Decision, verdict = belfry.DecisionNone, t.notScheduled()
	case !t.plan.NominalAt.IsZero() && !t.at.Before(t.plan.NominalAt):
		t.out.Decision, verdict = t.upcoming()
	case t.job.State == belfry.JobDeleted && t.at.After(t.job.UpdatedAt),
		!t.plan.JobID.IsZero() && t.plan.NominalAt.IsZero() && t.at.After(t.plan.FiredFor):
		t.out.Decision, verdict = belfry.DecisionNone, t.notPlanned()
	default:
		t.out.Decision, verdict, err = t.pruned(ctx)
	}
	t.out.Sentence = t.format.full(t.at) + " " + verdict
	return t.out, err
}

// notScheduled is about an instant that the schedule does not name.
func (t *instant) notScheduled() string {
	if t.policy.Unbounded.Next(t.at.Add(-1)).Equal(t.at) {
		if t.at.Before(t.spec.StartsAt) {
			return "does not run: it is before starts_at, which is " + t.format.short(t.spec.StartsAt) + "."
		}
		return "does not run: it is after ends_at, which is " + t.format.short(t.spec.EndsAt) + "."
	}
	if gap := t.skippedGap(); gap != "" {
		return gap
	}
	if once, is := schedule.Once(t.policy.Rule); is {
		return "is not the instant of the job, which runs once, at " + t.format.short(once) + "."
	}
	rule := t.spec.Schedule
	if t.spec.Resolved != "" {
		rule += " (" + t.spec.Resolved + ")"
	}
	verdict := fmt.Sprintf("is not an occurrence of %s in %s; ", rule, t.format.zone)
	switch {
	case t.previous.IsZero() && t.next.IsZero():
		return verdict + "there is none at all."
	case t.previous.IsZero():
		return verdict + "the first is " + t.format.short(t.next) + "."
	case t.next.IsZero():
		return verdict + "the last is " + t.format.short(t.previous) + "."
	}
	verdict += "the nearest are " + t.format.short(t.previous) + " and " + t.format.short(t.next) + "."
	const wall = time.DateOnly + time.TimeOnly
	if t.previous.In(t.format.zone).Format(wall) == t.at.In(t.format.zone).Format(wall) { // the second time that the clock shows it
		verdict += t.clockNote(t.previous)
	}
	return verdict
}

// pruned is about a past occurrence without a record: mostly it was pruned, but while a
// job was cancelled there was none.
func (t *instant) pruned(ctx context.Context) (belfry.Decision, string, error) {
	runs, _, err := t.store.JobRuns(ctx, t.job.Namespace, t.job.ID, belfry.JobRunFilter{}, store.Page{After: store.Position{At: t.at}, Limit: maxRequested})
	if err != nil {
		return "", "", err
	}
	if i := slices.IndexFunc(runs, func(r belfry.Run) bool { return r.Kind == belfry.KindScheduled }); i >= 0 && runs[i].Reason == belfry.ReasonCancelled {
		return belfry.DecisionNone, "did not run: the job was cancelled at that time, and nothing was planned.", nil
	}
	kept := "as long as the server is configured to"
	if days := t.spec.RetentionDays; days > 0 {
		kept = "for " + count(days, "day") + " (retention_days)"
	}
	if t.spec.MaxRuns > 0 {
		return belfry.DecisionUnknown, fmt.Sprintf("has no record: the job had used all its runs by then (max_runs: %d), or the record was pruned, since history is kept %s.",
			t.spec.MaxRuns, kept), nil
	}
	return belfry.DecisionUnknown, "was decided, but its record was pruned: history is kept " + kept + ".", nil
}

func (t *instant) notPlanned() string {
	verdict := "does not run"
	if !t.at.After(t.now) {
		verdict = "did not run"
	}
	if t.policy.Spent(t.plan.RunsMade) {
		return fmt.Sprintf("%s: the job has used all its runs (max_runs: %d).", verdict, t.spec.MaxRuns)
	}
	if t.job.State == belfry.JobDeleted {
		return verdict + ": the job was deleted at " + t.format.seconds(t.job.UpdatedAt) + "."
	}
	return verdict + ": the job was cancelled, and nothing is planned until it is resumed."
}

func (t *instant) upcoming() (belfry.Decision, string) {
	_, once := schedule.Once(t.policy.Rule)
	starts := t.policy.ReadyAt(t.job.ID, t.at)
	future := starts.After(t.now)
	paused := t.job.State == belfry.JobPaused
	switch {
	case paused && once:
		return belfry.DecisionPaused, "is planned, but the job is paused: it runs when the job is resumed, however late."
	case paused && future:
		return belfry.DecisionPaused, "is planned, but the job is paused: it will be skipped unless the job is resumed before then."
	case paused:
		return belfry.DecisionPaused, "became due in a pause that has not ended: it will be skipped when the job is resumed, unless the resume catches up (catch_up)."
	case t.job.Quarantined != "" && future:
		return belfry.DecisionQuarantined, "is planned, but the job cannot be fired: " + quote(t.job.Quarantined) + "."
	case t.job.Quarantined != "":
		return belfry.DecisionQuarantined, "is due, but the job cannot be fired: " + quote(t.job.Quarantined) + "."
	case t.spentBefore():
		return belfry.DecisionNone, fmt.Sprintf("will not run: the job will have used all its runs by then, unless some are skipped (max_runs: %d).", t.spec.MaxRuns)
	case future && starts.Equal(t.at):
		return belfry.DecisionPlanned, "is planned: the job is due then." + t.clockNote(t.at)
	case future:
		return belfry.DecisionPlanned, "is planned: its run may start at " + t.format.seconds(starts) + " (jitter_seconds)." + t.clockNote(t.at)
	}
	return belfry.DecisionDue, fmt.Sprintf("has been due for %s and is about to be decided; due jobs are fired as fast as workers can take them.", duration(t.now.Sub(starts)))
}

// spentBefore reports whether the runs that are left precede the instant.
func (t *instant) spentBefore() bool {
	const enough = 10_000 // occurrences that are worth counting
	left := int64(t.spec.MaxRuns) - t.plan.RunsMade
	if t.spec.MaxRuns == 0 || left > enough {
		return false
	}
	list, _ := t.policy.Between(t.plan.NominalAt, t.at.Add(-1), int(left))
	return int64(len(list)) >= left
}

// gap is about wall times that did not exist. The record is at the instant at which the
// clock was set forward, which need not be an occurrence.
func (t *instant) gap(skip belfry.Run) string {
	note := count(skip.SkippedCount, "time") + " of the schedule did not exist that day"
	if t.policy != nil {
		if exact := skippedAt(t.policy.Unbounded, skip.ScheduledAt); exact != "" {
			note = exact
		}
	}
	return t.setForward(note)
}

// skippedGap is about wall times that will not exist, or that have no record, if the
// clock is set forward at the instant; empty otherwise, or if the job runs them.
func (t *instant) skippedGap() string {
	if t.at.Before(t.spec.StartsAt) || !t.spec.EndsAt.IsZero() && t.at.After(t.spec.EndsAt) {
		return ""
	}
	if note := skippedAt(t.policy.Unbounded, t.at); note != "" {
		return t.setForward(note)
	}
	return ""
}

// skippedAt lists the wall times of a rule that the clock skips at an instant.
func skippedAt(rule schedule.Rule, at time.Time) string {
	return schedule.NoteSkipped(rule, at.Add(-time.Second), at)
}

// setForward is a note about wall times that the clock skips, with the field by which
// they do not run.
func (t *instant) setForward(note string) string {
	verb, policy := "is", "dst_gap: skip"
	if !t.at.After(t.now) {
		verb = "was"
	}
	if t.spec.DSTGap == "" {
		policy = "dst_gap follows missed_window: skip"
	}
	return fmt.Sprintf("is when the clock %s set forward: %s (%s).", verb, note, policy)
}

// clockNote says how a clock change affects an occurrence; empty for most.
func (t *instant) clockNote(at time.Time) string {
	if note := schedule.Note(t.policy.Unbounded, schedule.OccurrenceAt(t.policy.Unbounded, at)); note != "" {
		return " The clock changes: " + note + "."
	}
	return ""
}
