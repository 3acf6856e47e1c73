package control

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
	"github.com/belfry-sh/belfry/internal/secret"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/validate"
)

// Patch returns what a job is edited to, given its masked manifest without a status.
// It must be pure, and may be called again.
type Patch func(current belfry.Manifest) validate.Input

// Edit changes a job. Runs that were fired keep the revision that they were fired from;
// the number grows if the spec or the payload differ. If nothing differs nothing is
// written. Masked secrets in the payload stay what they are. Another schedule, time
// zone, start or end, or another treatment of clock changes applies from now on: what
// is due by the old one still runs, or is recorded as skipped if the job is paused. A
// job that has ended is a Conflict.
//
// If match is not empty, not "*" and not the Version of the job, the error is Changed.
func (c *Control) Edit(ctx context.Context, namespace, ref, match string, patch Patch) (belfry.Job, error) {
	return c.patchJob(ctx, belfry.AuditEdit, namespace, ref, match, patch, nil)
}

// DiffEdit validates what Edit would do, and writes nothing.
func (c *Control) DiffEdit(ctx context.Context, namespace, ref, match string, patch Patch) (diff belfry.JobDiff, err error) {
	_, err = c.patchJob(ctx, belfry.AuditEdit, namespace, ref, match, patch, &diff)
	return diff, err
}

// Put makes a job what the input declares. By name it creates the job if there is none,
// or only one that has ended, and reports that; by id the job must exist, and keeps its
// name if the input has none. An empty status leaves an existing job paused or not.
// Otherwise it is like Edit. With a match there must be a job.
func (c *Control) Put(ctx context.Context, namespace, ref, match string, input validate.Input) (job belfry.Job, created bool, err error) {
	return c.put(ctx, namespace, ref, match, input, nil)
}

// DiffPut validates what Put would do, and writes nothing.
func (c *Control) DiffPut(ctx context.Context, namespace, ref, match string, input validate.Input) (diff belfry.JobDiff, err error) {
	_, _, err = c.put(ctx, namespace, ref, match, input, &diff)
	return diff, err
}

// maxPuts bounds how often a put starts again because another request created or
// deleted a job of the same name meanwhile.
const maxPuts = 5

func (c *Control) put(ctx context.Context, namespace, ref, match string, input validate.Input, diff *belfry.JobDiff) (job belfry.Job, created bool, err error) {
	if _, err := belfry.ParseID(ref); err == nil {
		job, err := c.patchJob(ctx, belfry.AuditEdit, namespace, ref, match, replaceBy(input), diff)
		return job, false, err
	}
	name := strings.TrimSpace(ref)
	if own := strings.TrimSpace(input.Name); own != "" && own != name {
		input.Errors = append(slices.Clone(input.Errors), belfry.FieldError{Field: "name", Message: "is not the name that the job is put under; leave it out, or rename the job by an edit"})
	}
	if name == "" {
		input.Errors = append(slices.Clone(input.Errors), belfry.FieldError{Field: "name", Message: "must not be blank"})
	}
	input.Name = name
	if name == "" || validate.Name(name) != "" {
		_, err := c.newJob(ctx, namespace, belfry.ID{}, input, c.now())
		return belfry.Job{}, false, err
	}
	for range maxPuts {
		job, created, err = c.putByName(ctx, namespace, match, input, diff)
		if code := belfry.CodeOf(err); err == nil || code != belfry.NotFound && code != belfry.Conflict {
			break
		}
	}
	return job, created, err
}

func (c *Control) putByName(ctx context.Context, namespace, match string, input validate.Input, diff *belfry.JobDiff) (job belfry.Job, created bool, err error) {
	id, err := c.idByName(ctx, namespace, input.Name)
	switch {
	case err == nil:
		job, err = c.patchJob(ctx, belfry.AuditEdit, namespace, id.String(), match, replaceBy(input), diff)
		if belfry.CodeOf(err) != belfry.Conflict || !c.hasEnded(ctx, namespace, id) {
			return job, false, err
		}
	case !isNotFound(err):
		return belfry.Job{}, false, err
	}
	// There is none, or one that has ended and does not need its name any more.
	if match != "" {
		return belfry.Job{}, false, belfry.Errorf(belfry.Changed, "there is no job named %q any more", input.Name)
	}
	job, err = c.create(ctx, namespace, input, Key{}, diff)
	return job, err == nil, err
}

func replaceBy(input validate.Input) Patch {
	return func(current belfry.Manifest) validate.Input {
		replacement := input
		if replacement.Name == "" {
			replacement.Name = current.Name
		}
		return replacement
	}
}

func (c *Control) hasEnded(ctx context.Context, namespace string, id belfry.ID) bool {
	job, err := c.store.Job(ctx, namespace, id)
	return err == nil && job.State == belfry.JobEnded
}

// patchJob changes a job, or with diff only says what would change.
func (c *Control) patchJob(ctx context.Context, action belfry.AuditAction, namespace, ref, match string, patch Patch, diff *belfry.JobDiff) (belfry.Job, error) {
	quota, err := c.Quota(ctx, namespace)
	if err != nil {
		return belfry.Job{}, err
	}
	tried := false // with an outcome that may be unknown
	job, err := c.editJob(ctx, action, namespace, ref, func(job parsedJob, now time.Time) (edit, error) {
		stale := checkVersion(job.Job, match)
		if stale != nil && !tried {
			return nil, stale
		}
		current := masked(job.Job).Manifest
		current.Tags, current.Status = slices.Clone(current.Tags), ""
		to, errors := c.validator(namespace, quota, now).Edit(job.Job, patch(current))
		if len(errors) > 0 {
			return nil, invalidJob(errors)
		}
		if err := requireCommands(ctx, to.Manifest.Type); err != nil {
			return nil, err
		}
		if after := (belfry.Job{Namespace: namespace, Manifest: to.Manifest}); !sameJSON(job.Payload, after.Payload) {
			if err := c.checkSecrets(ctx, after, nil); err != nil {
				return nil, err
			}
		}
		return func(job parsedJob, p plan.Plan, now time.Time) (*store.Change, error) {
			change, err := c.change(job, p, to, false, now)
			switch {
			case err != nil:
				return nil, err
			case diff != nil && change == nil:
				*diff = belfry.JobDiff{Result: belfry.DiffUnchanged, Changes: []belfry.FieldChange{}, Job: masked(job.Job)}
				return nil, nil
			case diff != nil:
				after := planned(change.Job, change.Step.Next)
				*diff = belfry.JobDiff{Result: belfry.DiffUpdated, Changes: changedFields(job.Job, after), Job: masked(after)}
				return nil, nil
			case change != nil && stale != nil:
				return nil, stale
			}
			tried = tried || change != nil
			return change, nil
		}, nil
	})
	if err == nil && diff != nil && diff.Job.Name != job.Name {
		err = c.checkNameFree(ctx, namespace, diff.Job.Name, job.ID)
	}
	return job, err
}

// checkVersion returns a Changed error if a job is not the version that a request
// names.
func checkVersion(job belfry.Job, match string) error {
	if match == "" || match == "*" || match == Version(job) {
		return nil
	}
	return belfry.Errorf(belfry.Changed, "the job has changed since it was read; read it again")
}

type parsedJob struct {
	belfry.Job
	subject plan.Subject
	err     error // why the schedule cannot be parsed; the subject then has no further occurrence
}

// edit is store.Edit for a job that was parsed before.
type edit func(job parsedJob, p plan.Plan, now time.Time) (*store.Change, error)

// maxEdits bounds how often an edit starts again because another request changed the job
// meanwhile.
const maxEdits = 10

// editJob has the store change a job, at a time as it is stored. What takes time, above
// all to parse schedules, is done by prepare before the store locks anything; it is
// prepared again if the job has changed meanwhile. The job that it returns is masked.
func (c *Control) editJob(ctx context.Context, action belfry.AuditAction, namespace, ref string, prepare func(job parsedJob, now time.Time) (edit, error)) (belfry.Job, error) {
	id, err := c.resolve(ctx, namespace, ref)
	if err != nil {
		return belfry.Job{}, err
	}
	for range maxEdits {
		seen, err := c.store.Job(ctx, namespace, id)
		if err == nil && seen.State == belfry.JobEnded {
			err = store.JobEnded()
		}
		if err != nil {
			return belfry.Job{}, err
		}
		var parsed parsedJob
		var change edit
		err = c.computing.do(ctx, func() (err error) {
			parsed = c.parse(seen)
			change, err = prepare(parsed, c.now())
			return err
		})
		if err != nil {
			return belfry.Job{}, err
		}
		write, audit := c.audited(ctx, jobEntry(action, namespace, id, seen.Name))
		job, err := retryRead(ctx, string(action)+" a job", func() (belfry.Job, error) {
			return c.store.EditJob(write, namespace, id, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
				audit.Set()
				if Version(job) != Version(seen) {
					return nil, errKeepsChanging
				}
				parsed.Job = job
				to, err := change(parsed, p, now.UTC().Truncate(time.Microsecond))
				if to != nil && audit != nil {
					audit.SetChange(auditChange(auditedFields(job, to.Job)))
				}
				return to, err
			})
		})
		if !errors.Is(err, errKeepsChanging) {
			return masked(job), err
		}
	}
	return belfry.Job{}, errKeepsChanging
}

var errKeepsChanging = belfry.Errorf(belfry.Conflict, "other requests keep changing the job; try again")

func (c *Control) parse(job belfry.Job) parsedJob {
	policy, err := c.defaults.Compile(job.Spec)
	if err != nil {
		policy, err = &plan.Policy{Spec: job.Spec, Rule: emptyRule{}}, belfry.Errorf(belfry.Conflict, "this server cannot use the schedule of the job; edit it: %v", err)
	}
	return parsedJob{job, plan.Subject{Namespace: job.Namespace, Name: job.Name, Revision: job.Revision, Policy: policy}, err}
}

// recompile is the policy of a job by a spec that has the same schedule.
func (c *Control) recompile(job parsedJob, spec belfry.Spec) (*plan.Policy, error) {
	if job.err != nil {
		return nil, job.err
	}
	return c.defaults.CompileRule(spec, job.subject.Policy.Unbounded)
}

// change is what takes a job to a valid manifest; nil if nothing differs. With catchUp
// the occurrences during a pause that ends count as missed.
func (c *Control) change(job parsedJob, p plan.Plan, to validate.Result, catchUp bool, now time.Time) (*store.Change, error) {
	after := job.Job
	after.Name, after.Tags, after.State, after.UpdatedAt = to.Manifest.Name, to.Manifest.Tags, stateOf(to.Paused), now
	if !sameJSON(job.Payload, to.Manifest.Payload) {
		after.Payload = to.Manifest.Payload
		after.Revision = job.Revision + 1
	}
	if !sameSpec(to.Manifest.Spec, job.Spec.WithDefaults()) {
		after.Spec = to.Manifest.Spec
		after.Revision = job.Revision + 1
	}
	same := after.Revision == job.Revision && after.Name == job.Name && after.State == job.State && slices.Equal(after.Tags, job.Tags)
	replan := to.Replan && !to.Paused && p.NominalAt.IsZero()
	if same && !replan {
		return nil, nil
	}
	step, err := c.stepTo(job, p, to, catchUp, now)
	if err != nil {
		return nil, err
	}
	if replan && step.Next.NominalAt.IsZero() && to.Policy == nil {
		policy, err := c.recompile(job, to.Manifest.Spec)
		if err != nil {
			return nil, err
		}
		if step = plan.Edit(step.Subject, policy, p, false, now); same && step.Next.NominalAt.IsZero() {
			return nil, nil // nothing is left to run
		}
	}
	return &store.Change{Job: after, Step: step}, nil
}

// stepTo takes the plan of a job to another schedule, another number of runs or another
// jitter, and into or out of a pause.
func (c *Control) stepTo(job parsedJob, p plan.Plan, to validate.Result, catchUp bool, now time.Time) (plan.Step, error) {
	subject, spec := job.subject, to.Manifest.Spec
	toggled := to.Paused != (job.State == belfry.JobPaused)
	retimed := spec.MaxRuns != job.MaxRuns || spec.JitterSeconds != job.JitterSeconds
	if job.err != nil && to.Policy == nil && (toggled || retimed) {
		return plan.Step{}, job.err // Otherwise the policy is replaced, or not used.
	}
	policy := to.Policy
	if policy == nil && retimed {
		var err error
		if policy, err = c.recompile(job, spec); err != nil {
			return plan.Step{}, err
		}
	}
	step := plan.Step{Subject: subject, Seen: p, Next: p}
	rescheduled := to.Policy != nil && !sameInstant(policy.Rule, subject.Policy.Rule)
	resumes := spec.MaxRuns != job.MaxRuns && (p.NominalAt.IsZero() || policy.Spent(p.RunsMade))
	switch {
	case rescheduled || resumes:
		step = plan.Edit(subject, policy, p, to.Paused, now)
		if at, once := schedule.Once(policy.Rule); once && step.Next.NominalAt.IsZero() {
			return step, invalidJob([]belfry.FieldError{{Field: "schedule", Message: at.Format(time.RFC3339Nano) +
				" is not after " + step.Next.FiredFor.UTC().Format(time.RFC3339Nano) + ", up to which the job has run already"}})
		}
		return step, nil
	case toggled && to.Paused:
		step = plan.Pause(subject, p, now)
	case toggled:
		step = plan.Resume(subject, p, catchUp, now)
	}
	if policy != nil {
		step = plan.Retime(step, policy, now)
	}
	return step, nil
}

// sameInstant reports whether two rules are the same one-off, however it is written.
func sameInstant(a, b schedule.Rule) bool {
	at, once := schedule.Once(a)
	other, too := schedule.Once(b)
	return once && too && at.Equal(other)
}

// emptyRule is a rule without any further occurrence.
type emptyRule struct{}

func (emptyRule) Next(time.Time) time.Time { return time.Time{} }

// Revisions returns the revisions of a job, the current one first. The At of a position
// is the number of a revision as microseconds of Unix time.
func (c *Control) Revisions(ctx context.Context, namespace, ref string, p store.Page) ([]belfry.Revision, store.Position, error) {
	id, err := c.resolve(ctx, namespace, ref)
	if err != nil {
		return nil, store.Position{}, err
	}
	var list []belfry.Revision
	before := int(p.After.At.UnixMicro())
	if p.After.At.IsZero() {
		job, err := c.store.Job(ctx, namespace, id)
		if err != nil {
			return nil, store.Position{}, err
		}
		list, before = []belfry.Revision{{Number: job.Revision, Spec: job.Spec, Payload: job.Payload}}, job.Revision
	}
	earlier, err := c.store.Revisions(ctx, namespace, id, before, p.Limit+1-len(list))
	if err != nil {
		return nil, store.Position{}, err
	}
	list, next := cutPage(append(list, earlier...), p.Limit, func(r belfry.Revision) store.Position {
		return store.Position{At: time.UnixMicro(int64(r.Number))}
	})
	for i := range list {
		list[i].Payload = secret.Mask(list[i].Payload)
	}
	return list, next, nil
}

// Rollback gives a job the spec and payload of an earlier revision, as a new revision. A
// cancelled job is planned again.
// It is an edit like any other: a one-off that has passed is refused. The revision that
// the job has changes nothing; NotFound if it never had it.
func (c *Control) Rollback(ctx context.Context, namespace, ref string, r belfry.Rollback) (belfry.Job, error) {
	job, err := c.job(ctx, namespace, ref)
	if err != nil || job.Revision == r.Revision {
		return masked(job), err
	}
	earlier, err := c.store.Revisions(ctx, namespace, job.ID, r.Revision+1, 1)
	if err != nil {
		return belfry.Job{}, err
	}
	if len(earlier) == 0 || earlier[0].Number != r.Revision {
		return belfry.Job{}, belfry.Errorf(belfry.NotFound, "the job has no revision %d; it is at revision %d", r.Revision, job.Revision)
	}
	return c.patchJob(ctx, belfry.AuditRollback, namespace, job.ID.String(), "", func(current belfry.Manifest) validate.Input {
		current.Spec, current.Payload = earlier[0].Spec, earlier[0].Payload
		return validate.Input{Manifest: current, Replan: true}
	}, nil)
}
