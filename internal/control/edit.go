package control

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
	"github.com/belfry-sh/belfry/internal/store"
)

// Patch changes a draft of a job as it is, and says what is wrong with what it
// was asked for. It must be pure, and may be called again.
type Patch func(d *Draft) []belfry.FieldError

// Edit changes a job. Runs that were fired keep the revision that they were fired
// from; the number grows if spec or payload differ. If nothing differs nothing is
// written. Masked secrets in the payload stay what they are. A new schedule, time
// zone, start or end, or another way through clock changes, holds from now on: what
// is due by the old rule still runs, or is recorded as skipped if the job is
// paused. A job that has ended is a Conflict.
//
// If match is not empty and not the Version of the job, the error is Changed.
//
// What the patch leaves alone may follow what it changes: a job that is no longer
// for a worker loses its handler, a schedule that names its own time zone replaces
// the one before, and a list of delays goes with its backoff.
func (c *Control) Edit(ctx context.Context, namespace string, id belfry.ID, match string, patch Patch) (belfry.Job, error) {
	return c.patch(ctx, "edit a job", namespace, id, match, func(d *Draft) []belfry.FieldError {
		before := d.Spec
		faults := patch(d)
		s := &d.Spec
		if s.Handler == before.Handler && !strings.EqualFold(s.Type, before.Type) && !strings.EqualFold(s.Type, belfry.TypeWorker) {
			s.Handler = ""
		}
		if _, named := namedZone(strings.TrimSpace(s.Schedule)); named && s.Timezone == before.Timezone && s.Schedule != before.Schedule {
			s.Timezone = ""
		}
		follow(s, before)
		return faults
	})
}

// Replace makes a job what a draft says, as Edit does. An empty name leaves the
// job its own.
func (c *Control) Replace(ctx context.Context, namespace string, id belfry.ID, match string, d Draft) (belfry.Job, error) {
	return c.patch(ctx, "replace a job", namespace, id, match, replacement(d, nil))
}

// replacement puts a draft, which may have faults, in the place of another.
func replacement(d Draft, faults []belfry.FieldError) Patch {
	return func(now *Draft) []belfry.FieldError {
		name, paused := now.Name, now.Paused
		*now = d
		if d.Name == "" {
			now.Name = name
		}
		if d.KeepPaused {
			now.Paused = paused
		}
		return faults
	}
}

func (c *Control) patch(ctx context.Context, doing, namespace string, id belfry.ID, match string, patch Patch) (belfry.Job, error) {
	tried := false // with an outcome that may be unknown
	return c.edit(ctx, doing, namespace, id, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		stale := matches(job, match)
		if stale != nil && !tried {
			return nil, stale
		}
		d := DraftOf(job)
		faults := patch(&d)
		done, more := c.examiner(now).edited(d, job)
		if faults = merge(faults, more); len(faults) > 0 {
			return nil, refused(faults)
		}
		change, err := c.changed(job, p, done, now)
		if err == nil && change != nil && stale != nil {
			return nil, stale
		}
		tried = tried || change != nil
		return change, err
	})
}

// matches gives a Changed error if a job is not as it was seen.
func matches(job belfry.Job, match string) error {
	if match == "" || match == Version(job) {
		return nil
	}
	return belfry.Errorf(belfry.Changed, "the job has changed since it was read; read it again")
}

// edit has the store change a job, at a time as it is stored.
func (c *Control) edit(ctx context.Context, doing, namespace string, id belfry.ID, edit store.Edit) (job belfry.Job, err error) {
	err = insist(ctx, doing, func() error {
		job, err = c.store.EditJob(ctx, namespace, id, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
			return edit(job, p, now.UTC().Truncate(time.Microsecond))
		})
		return err
	})
	return job, err
}

// changed is what takes a job to a draft that was examined; nil if it is there.
func (c *Control) changed(job belfry.Job, p plan.Plan, to passed, now time.Time) (*store.Change, error) {
	after := job
	after.Name, after.Tags, after.Spec, after.State, after.UpdatedAt = to.Name, to.Tags, to.Spec, to.state(), now
	if !sameJSON(job.Payload, to.Payload) {
		after.Payload = to.Payload
		after.Revision = job.Revision + 1
	}
	if !sameSpec(after.Spec, job.Spec) {
		after.Revision = job.Revision + 1
	}
	if after.Revision == job.Revision && after.Name == job.Name && after.State == job.State && slices.Equal(after.Tags, job.Tags) {
		return nil, nil
	}
	step, err := c.stepTo(job, p, to, now)
	if err != nil {
		return nil, err
	}
	return &store.Change{Job: after, Step: step}, nil
}

// stepTo takes the plan of a job along to a draft that was examined: to another
// rule, another number of runs or another jitter, and into or out of a pause.
func (c *Control) stepTo(job belfry.Job, p plan.Plan, to passed, now time.Time) (plan.Step, error) {
	subject, err := c.subjectOf(job)
	toggled := to.Paused != (job.State == belfry.JobPaused)
	retimed := to.Spec.MaxRuns != job.MaxRuns || to.Spec.JitterSeconds != job.JitterSeconds
	if err != nil {
		if to.policy == nil && (toggled || retimed) {
			return plan.Step{}, err
		}
		subject.Policy = unreadableRule(job.Spec) // to be replaced, or not asked
	}
	policy := to.policy
	if policy == nil && retimed {
		if policy, err = c.defaults.Compile(to.Spec); err != nil {
			return plan.Step{}, belfry.Errorf(belfry.Internal, "read the schedule of job %s: %w", job.ID, err)
		}
	}
	step := plan.Step{Subject: subject, Seen: p, Next: p}
	switch {
	case to.policy != nil && !sameInstant(policy.Rule, subject.Policy.Rule), to.Spec.MaxRuns != job.MaxRuns && (p.NominalAt.IsZero() || policy.Spent(p.RunsMade)):
		step = plan.Edit(subject, policy, p, to.Paused, now)
		if at, once := schedule.Once(policy.Rule); once && step.Next.NominalAt.IsZero() {
			return step, refused([]belfry.FieldError{{Field: "schedule", Message: at.Format(time.RFC3339Nano) +
				" is not after " + step.Next.FiredFor.UTC().Format(time.RFC3339Nano) + ", up to which the job has run already"}})
		}
		return step, nil
	case toggled && to.Paused:
		step = plan.Pause(subject, p, now)
	case toggled:
		step = plan.Resume(subject, p, to.catchUp, now)
	}
	if policy != nil {
		step = plan.Retime(step, policy, now)
	}
	return step, nil
}

// sameInstant reports whether two rules are the same one-off, however it is
// written.
func sameInstant(a, b schedule.Rule) bool {
	at, once := schedule.Once(a)
	other, too := schedule.Once(b)
	return once && too && at.Equal(other)
}

// subjectOf gives what a decision needs to know of a job.
func (c *Control) subjectOf(job belfry.Job) (plan.Subject, error) {
	subject := plan.Subject{Namespace: job.Namespace, Name: job.Name, Revision: job.Revision}
	policy, err := c.defaults.Compile(job.Spec)
	if err != nil {
		return subject, belfry.Errorf(belfry.Internal, "read the schedule of job %s: %w", job.ID, err)
	}
	subject.Policy = policy
	return subject, nil
}

// unreadableRule is the policy of a spec whose schedule cannot be read: it names
// no occurrence beyond the one that is planned already.
func unreadableRule(spec belfry.Spec) *plan.Policy { return &plan.Policy{Spec: spec, Rule: ended{}} }

// ended is a rule without any further occurrence.
type ended struct{}

func (ended) Next(time.Time) time.Time { return time.Time{} }
