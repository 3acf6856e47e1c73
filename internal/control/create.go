package control

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/validate"
)

// Create stores a new job with its first plan. Invalid input is refused with all its
// errors; a name that is taken is a Conflict.
func (c *Control) Create(ctx context.Context, namespace string, input validate.Input, k Key) (belfry.Job, error) {
	if response, err := c.cached(ctx, namespace, k); err != nil || response != nil {
		return decodeJob(response, err)
	}
	return c.create(ctx, namespace, input, k, nil)
}

// DiffCreate validates what Create would do, and writes nothing.
func (c *Control) DiffCreate(ctx context.Context, namespace string, input validate.Input) (diff belfry.JobDiff, err error) {
	_, err = c.create(ctx, namespace, input, Key{}, &diff)
	return diff, err
}

// create stores a new job, or with diff only says what it would be.
func (c *Control) create(ctx context.Context, namespace string, input validate.Input, k Key, diff *belfry.JobDiff) (belfry.Job, error) {
	now := c.now()
	id := belfry.NewID(now)
	created, err := c.newJob(ctx, namespace, id, input, now)
	if err != nil {
		return belfry.Job{}, err
	}
	job := masked(created.Job)
	if diff != nil {
		*diff = belfry.JobDiff{Result: belfry.DiffCreated, Changes: createdFields(created.Job, input), Job: job}
		if err := c.checkNameFree(ctx, namespace, job.Name, belfry.ID{}); err != nil {
			return job, err
		}
		return job, c.checkRoom(ctx, namespace, usageOf(created.Job))
	}
	request := k.request(namespace, func() ([]byte, error) { return json.Marshal(job) })
	ctx, audit := c.audited(ctx, jobEntry(belfry.AuditCreate, namespace, id, job.Name))
	if audit != nil {
		audit.SetChange(auditChange(createdFields(created.Job, input)))
	}
	err = retryUnknown(ctx, "create a job", func() error {
		return c.store.CreateJobs(ctx, func(yield func(store.NewJob, error) bool) { yield(created, nil) }, request)
	})
	if err != nil {
		return decodeJob(k.duplicate(err))
	}
	return job, nil
}

// checkNameFree returns the Conflict of a name that another job has.
func (c *Control) checkNameFree(ctx context.Context, namespace, name string, own belfry.ID) error {
	if name == "" {
		return nil
	}
	id, err := c.idByName(ctx, namespace, name)
	var job belfry.Job
	if err == nil && id != own {
		job, err = c.store.Job(ctx, namespace, id)
	}
	switch {
	case id == own || isNotFound(err) || err == nil && job.State == belfry.JobEnded:
		return nil
	case err != nil:
		return err
	}
	return store.NameTaken("job", name)
}

// newJob is the job that input declares, with its first plan.
func (c *Control) newJob(ctx context.Context, namespace string, id belfry.ID, input validate.Input, now time.Time) (created store.NewJob, err error) {
	quota, err := c.Quota(ctx, namespace)
	if err != nil {
		return created, err
	}
	err = c.computing.do(ctx, func() error {
		r, errors := c.validator(namespace, quota, now).Create(id, input)
		if len(errors) > 0 {
			return invalidJob(errors)
		}
		created = c.planJob(namespace, id, r, now)
		return requireCommands(ctx, r.Manifest.Type)
	})
	if err == nil {
		err = c.checkSecrets(ctx, created.Job, nil)
	}
	return created, err
}

// requireCommands returns a Forbidden error if a job is of type command and who asks may not choose
// what such a job executes.
func requireCommands(ctx context.Context, kind string) error {
	if kind != belfry.TypeCommand {
		return nil
	}
	return auth.RequireCommands(ctx)
}

// planJob is a valid job with its first plan.
func (c *Control) planJob(namespace string, id belfry.ID, r validate.Result, now time.Time) store.NewJob {
	created := store.NewJob{
		Job: belfry.Job{
			ID: id, Namespace: namespace, Manifest: r.Manifest, Revision: 1, State: stateOf(r.Paused), CreatedAt: now, UpdatedAt: now,
		},
		Plan: plan.First(id, belfry.ShardOf(id, c.store.Shards()), r.Policy, now),
	}
	if r.Paused {
		created.Plan.NextAt = time.Time{}
	}
	if next := created.Plan.NextAt; !next.IsZero() {
		created.Job.NextRunAt = &next
	}
	created.Job.Status = belfry.StatusOf(created.Job.State, created.Job.NextRunAt, now, belfry.LiveRuns{}, "")
	return created
}

func stateOf(paused bool) belfry.JobState {
	if paused {
		return belfry.JobPaused
	}
	return belfry.JobActive
}

// decodeJob decodes a cached job. It passes an error on.
func decodeJob(response []byte, err error) (belfry.Job, error) {
	job, err := decodeResponse[belfry.Job](response, err)
	job.State = stateOf(job.Status == belfry.StatusPaused)
	return job, err
}

// MaxImportErrors is how many field errors an import reports; it reads no further after
// that many.
const MaxImportErrors = 100

// Line is one job of an import. Place says where it is, as in "line 17" or "[16]", and
// precedes the fields of its errors.
type Line struct {
	Place string
	Input validate.Input
}

// Import creates many jobs, all or none, and returns their ids in the order of the
// lines. It takes the lines one by one and keeps none of them. They are taken again
// from the first if the database lost the answer: the sequence must be repeatable. An
// error of the sequence is returned as it is. The errors of all lines are reported, up
// to MaxImportErrors. A dry run validates the lines and writes nothing.
func (c *Control) Import(ctx context.Context, namespace string, lines iter.Seq2[Line, error], k Key, dryRun bool) (belfry.ImportResult, error) {
	quota, err := c.Quota(ctx, namespace)
	if err != nil {
		return belfry.ImportResult{}, err
	}
	b := &batch{control: c, namespace: namespace, lines: lines, quota: quota, now: c.now()}
	if dryRun {
		return b.dryRun(ctx)
	}
	if response, err := c.cached(ctx, namespace, k); err != nil || response != nil {
		return decodeImport(response, err)
	}
	request := k.request(namespace, func() (response []byte, _ error) {
		for _, id := range b.ids[:b.taken] {
			response = append(response, id[:]...)
		}
		return response, nil
	})
	entry := jobEntry(belfry.AuditImport, namespace, belfry.ID{}, "")
	entry.ID = belfry.NewID(b.now) // the same instant as in the ids of the jobs, which finds it for each of them
	write, audit := c.audited(ctx, entry)
	err = retryUnknown(ctx, "import jobs", func() error {
		err := c.store.CreateJobs(write, b.audited(audit, b.jobs(ctx)), request)
		if b.err != nil {
			return nil // Nothing was written, whatever the store made of it.
		}
		return err
	})
	switch {
	case b.err != nil:
		return belfry.ImportResult{}, b.err
	case err != nil:
		return decodeImport(k.duplicate(err))
	}
	return belfry.ImportResult{Created: len(b.ids), JobIDs: append([]belfry.ID{}, b.ids...)}, nil
}

// decodeImport decodes a cached response: the ids one after another.
func decodeImport(response []byte, err error) (belfry.ImportResult, error) {
	const size = len(belfry.ID{})
	if err == nil && len(response)%size != 0 {
		err = belfry.Errorf(belfry.Internal, badResponse+": %d bytes are no ids", len(response))
	}
	if err != nil {
		return belfry.ImportResult{}, err
	}
	result := belfry.ImportResult{Created: len(response) / size, JobIDs: []belfry.ID{}}
	for id := range slices.Chunk(response, size) {
		result.JobIDs = append(result.JobIDs, belfry.ID(id))
	}
	return result, nil
}

type batch struct {
	control   *Control
	namespace string
	lines     iter.Seq2[Line, error]
	quota     belfry.Quota
	now       time.Time
	ids       []belfry.ID // of the lines so far; the same in every pass
	taken     int         // lines in this pass
	err       error       // why nothing is created
	secrets   []belfry.Secret
}

// jobs yields the jobs of the lines. After the first error it yields none, but still
// validates the lines; the error comes last.
func (b *batch) jobs(ctx context.Context) iter.Seq2[store.NewJob, error] {
	return func(yield func(store.NewJob, error) bool) {
		b.taken, b.err = 0, nil
		v := b.control.validator(b.namespace, b.quota, b.now)
		jobs := make([]store.NewJob, 0, chunkLines) // of one chunk; their memory is used again
		var errors []belfry.FieldError
		for lines, err := range b.chunks() {
			var wrong []belfry.FieldError
			if err == nil {
				jobs, wrong, err = b.validate(ctx, v, lines, jobs[:0])
			}
			if b.err = err; err != nil {
				break
			}
			if errors = append(errors, wrong...); len(errors) >= MaxImportErrors {
				break
			}
			for i := range jobs {
				if len(errors) == 0 && !yield(jobs[i], nil) {
					return
				}
			}
		}
		switch {
		case b.err != nil:
		case len(errors) >= MaxImportErrors:
			b.err = invalid(fmt.Sprintf("many of the jobs are not valid; none was created, and these are the first %d errors", MaxImportErrors), errors[:MaxImportErrors])
		default:
			b.err = invalid("some of the jobs are not valid; none was created", errors)
		}
		if b.err != nil {
			yield(store.NewJob{}, b.err)
		}
	}
}

// audited yields the jobs, and then records how many there are.
func (b *batch) audited(audit *store.Audit, jobs iter.Seq2[store.NewJob, error]) iter.Seq2[store.NewJob, error] {
	return func(yield func(store.NewJob, error) bool) {
		jobs(yield)
		if audit.Set(); audit == nil || b.taken == 0 {
			return
		}
		e := audit.Entry
		e.Count, e.Object.ID, e.Object.LastID = b.taken, b.ids[0].String(), b.ids[b.taken-1]
		audit.Set(e)
	}
}

// chunkLines is how many lines are validated in one turn. Most are in less than
// shortCompute.
const chunkLines = 16

// chunks gives the lines, some at a time.
func (b *batch) chunks() iter.Seq2[[]Line, error] {
	return func(yield func([]Line, error) bool) {
		chunk := make([]Line, 0, chunkLines)
		for line, err := range b.lines {
			if err != nil {
				if len(chunk) == 0 || yield(chunk, nil) {
					yield(nil, err)
				}
				return
			}
			if chunk = append(chunk, line); len(chunk) < chunkLines {
				continue
			}
			if !yield(chunk, nil) {
				return
			}
			clear(chunk)
			chunk = chunk[:0]
		}
		if len(chunk) > 0 {
			yield(chunk, nil)
		}
	}
}

// validate appends the jobs of lines up to the first that is wrong, and returns what is
// wrong.
func (b *batch) validate(ctx context.Context, v *validate.Validator, lines []Line, jobs []store.NewJob) (_ []store.NewJob, wrong []belfry.FieldError, err error) {
	err = b.control.computing.do(ctx, func() error {
		for _, line := range lines {
			id := b.nextID()
			r, errors := v.Create(id, line.Input)
			if err := requireCommands(ctx, r.Manifest.Type); err != nil {
				return err
			}
			if len(wrong) == 0 && len(errors) == 0 {
				jobs = append(jobs, b.control.planJob(b.namespace, id, r, b.now))
			}
			for _, e := range errors {
				if e.Field != "" && e.Field[0] != '[' {
					e.Field = "." + e.Field
				}
				e.Field = line.Place + e.Field
				wrong = append(wrong, e)
			}
		}
		return nil
	})
	for i := 0; i < len(jobs) && err == nil && len(wrong) == 0; i++ {
		err = b.control.checkSecrets(ctx, jobs[i].Job, &b.secrets)
		if missing, ok := errors.AsType[*belfry.Error](err); ok && missing.Code == belfry.Invalid {
			for _, e := range missing.Fields {
				wrong = append(wrong, belfry.FieldError{Field: lines[i].Place + "." + e.Field, Message: e.Message})
			}
			err = nil
		}
	}
	return jobs, wrong, err
}

// dryRun validates the lines and that their names are free.
func (b *batch) dryRun(ctx context.Context) (belfry.ImportResult, error) {
	var more belfry.Usage
	names := map[string]bool{}
	var taken error // the first Conflict; invalid lines are reported before it
	for job, err := range b.jobs(ctx) {
		if err != nil {
			return belfry.ImportResult{}, err
		}
		own := usageOf(job.Job)
		more = belfry.Usage{Jobs: more.Jobs + own.Jobs, StoredBytes: more.StoredBytes + own.StoredBytes}
		switch name := job.Job.Name; {
		case name == "" || taken != nil:
		case names[name]:
			taken = store.NameTaken("job", name)
		default:
			names[name] = true
			taken = b.control.checkNameFree(ctx, b.namespace, name, belfry.ID{})
		}
	}
	if taken == nil {
		taken = b.control.checkRoom(ctx, b.namespace, more)
	}
	return belfry.ImportResult{Created: b.taken, JobIDs: []belfry.ID{}}, taken
}

// nextID is the id of the next line. Ids ascend, so that neighbours in an import are
// neighbours in the database and in lists.
func (b *batch) nextID() belfry.ID {
	if b.taken == len(b.ids) {
		id := belfry.NewID(b.now)
		if b.taken > 0 {
			id = idAfter(b.ids[b.taken-1], id)
		}
		b.ids = append(b.ids, id)
	}
	b.taken++
	return b.ids[b.taken-1]
}

// idAfter is an id a random step after another. The step is taken from the end of a
// fresh id and is small compared with what the random bits can hold.
func idAfter(id, fresh belfry.ID) belfry.ID {
	const random = 1<<62 - 1 // the bits after the variant
	low := binary.BigEndian.Uint64(id[8:])&random + 1 + uint64(binary.BigEndian.Uint32(fresh[12:]))
	if low > random { // The next millisecond has room.
		high := binary.BigEndian.Uint64(id[:8])
		version := high & 0xf000
		binary.BigEndian.PutUint64(id[:8], (high>>16+1)<<16|version)
	}
	binary.BigEndian.PutUint64(id[8:], 1<<63|low&random)
	return id
}
