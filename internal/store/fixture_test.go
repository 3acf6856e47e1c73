package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
	"github.com/belfry-sh/belfry/internal/store"
)

// everyMinute has an occurrence a minute, so that a plan with an instant an hour
// ago has sixty to decide.
const everyMinute = "* * * * *"

// lane is that of a job which says nothing about it.
const lane = belfry.DefaultQueue + "/" + belfry.TypeHTTP

// usualLanes are the same lane in the namespaces of the tests.
var usualLanes = []string{lane, belfry.BuiltinLane("ours", lane), belfry.BuiltinLane("theirs", lane), belfry.BuiltinLane("other", lane)}

// owner fires in tests where it does not matter who does.
var owner = belfry.NewID(time.Now())

// idCounter counts the ids that were drawn, so that each is younger than the one before.
var idCounter atomic.Int64

func newID() belfry.ID {
	return belfry.NewID(time.Now().Add(time.Duration(idCounter.Add(1)) * time.Millisecond))
}

var ctx = context.Background()

func (f *fixture) allShards() []int {
	out := make([]int, f.Shards())
	for i := range out {
		out[i] = i
	}
	return out
}

// minutesAgo is a whole minute before the test began, and so an occurrence of
// everyMinute.
func (f *fixture) minutesAgo(n int) time.Time { return f.origin.Add(-time.Duration(n) * time.Minute) }

// job makes a job whose first undecided occurrence is at the given instant.
func (f *fixture) job(at time.Time, changes ...func(*belfry.Job)) store.NewJob {
	now := f.Now()
	job := belfry.Job{
		ID: newID(), Namespace: belfry.DefaultNamespace, Revision: 1, State: belfry.JobActive,
		Manifest: belfry.Manifest{Spec: belfry.DefaultSpec(), Payload: json.RawMessage(`{"hello": "world"}`)}, CreatedAt: now, UpdatedAt: now,
	}
	job.Type, job.Schedule, job.Timezone = belfry.TypeHTTP, everyMinute, "UTC"
	for _, change := range changes {
		change(&job)
	}
	return store.NewJob{Job: job, Plan: plan.Plan{
		JobID: job.ID, Shard: belfry.ShardOf(job.ID, f.Shards()), Version: 1,
		NextAt: at, NominalAt: at, Once: isInstant(job.Schedule), ZoneVersion: schedule.ZoneVersion(),
	}}
}

// isInstant reports whether a schedule is a single instant, in the form that this
// suite gives it.
func isInstant(text string) bool {
	_, err := time.Parse(time.RFC3339, text)
	return err == nil
}

// Changes of a job about to be made.
func withName(name string) func(*belfry.Job) { return func(j *belfry.Job) { j.Name = name } }

func withNamespace(name string) func(*belfry.Job) { return func(j *belfry.Job) { j.Namespace = name } }

func withQueue(name string) func(*belfry.Job) { return func(j *belfry.Job) { j.Queue = name } }

func withRetries(n int) func(*belfry.Job) {
	return func(j *belfry.Job) { j.MaxRetries = belfry.Some(n) }
}

func withPayload(text string) func(*belfry.Job) {
	return func(j *belfry.Job) { j.Payload = json.RawMessage(text) }
}

func withSchedule(text string) func(*belfry.Job) { return func(j *belfry.Job) { j.Schedule = text } }

func withTimeout(seconds int) func(*belfry.Job) {
	return func(j *belfry.Job) { j.TimeoutSeconds = seconds }
}

func withTags(tags ...string) func(*belfry.Job) { return func(j *belfry.Job) { j.Tags = tags } }

func withKeys(template string) func(*belfry.Job) {
	return func(j *belfry.Job) { j.IdempotencyKeyTemplate = template }
}

func withHandler(handler string) func(*belfry.Job) {
	return func(j *belfry.Job) { j.Type, j.Handler = belfry.TypeWorker, handler }
}

func allowParallel(j *belfry.Job) { j.Overlap = belfry.OverlapParallel }

func withQueueLimit(most int) func(*belfry.Job) {
	return func(j *belfry.Job) { j.Overlap, j.MaxQueued = belfry.OverlapQueue, most }
}

func withPriority(p belfry.Priority) func(*belfry.Job) {
	return func(j *belfry.Job) { j.Priority = p }
}

func withRetention(days int) func(*belfry.Job) {
	return func(j *belfry.Job) { j.RetentionDays = days }
}

func withBase(seconds float64) func(*belfry.Job) {
	return func(j *belfry.Job) { j.RetryBaseSeconds = belfry.Some(seconds) }
}

// jobSeq gives the jobs one by one.
func jobSeq(jobs ...store.NewJob) iter.Seq2[store.NewJob, error] {
	return func(yield func(store.NewJob, error) bool) {
		for _, job := range jobs {
			if !yield(job, nil) {
				return
			}
		}
	}
}

func (f *fixture) createJobs(t tb, jobs ...store.NewJob) {
	t.Helper()
	if err := f.CreateJobs(ctx, jobSeq(jobs...), nil); err != nil {
		t.Fatalf("create %d jobs: %v", len(jobs), err)
	}
}

// createJob makes one job that has been due for so many minutes.
func (f *fixture) createJob(t tb, minutes int, changes ...func(*belfry.Job)) belfry.Job {
	t.Helper()
	job := f.job(f.minutesAgo(minutes), changes...)
	f.createJobs(t, job)
	return job.Job
}

// getJob reads a job back.
func (f *fixture) getJob(t tb, job belfry.Job) belfry.Job {
	t.Helper()
	got, err := f.Job(ctx, job.Namespace, job.ID)
	if err != nil {
		t.Fatalf("find job %s: %v", job.ID, err)
	}
	return got
}

func subject(t tb, namespace string, revision int, spec belfry.Spec) plan.Subject {
	t.Helper()
	policy, err := plan.Compile(spec)
	if err != nil {
		t.Fatalf("compile %q: %v", spec.Schedule, err)
	}
	return plan.Subject{Namespace: namespace, Revision: revision, Policy: policy}
}

// due is what is due now, earliest first.
func (f *fixture) due(t tb) []store.Due {
	t.Helper()
	found, err := f.PlansByJob(ctx, f.upcoming(t, store.AllUntil(f.Now(), f.allShards(), 100_000)))
	if err != nil {
		t.Fatalf("look for what is due: %v", err)
	}
	slices.SortFunc(found, func(a, b store.Due) int { return a.Plan.NextAt.Compare(b.Plan.NextAt) }) // as a backlog is
	return found
}

// decide turns what is due into steps: one run for the first undecided
// occurrence of each job.
func (f *fixture) decide(t tb, due []store.Due) []plan.Step {
	t.Helper()
	steps := make([]plan.Step, len(due))
	subjects := map[string]plan.Subject{}
	for i, d := range due {
		s, ok := subjects[d.Spec]
		if !ok {
			spec, err := store.DecodeSpec(d.Spec)
			if err != nil {
				t.Fatalf("read the stored spec %q: %v", d.Spec, err)
			}
			s = subject(t, "", 0, spec)
			subjects[d.Spec] = s
		}
		s.Namespace, s.Name, s.Revision = d.Namespace, d.Name, d.Revision
		steps[i] = plan.Decide(s, d.Plan, time.Time{}, f.Now())
	}
	return steps
}

// step decides the first undecided occurrence of one job, due or not.
func (f *fixture) step(t tb, job belfry.Job) plan.Step {
	t.Helper()
	s := subject(t, job.Namespace, job.Revision, job.Spec)
	s.Name = job.Name
	return plan.Decide(s, f.plan(t, job.ID), time.Time{}, f.Now())
}

// fire applies the steps, and expects all of them to apply.
func (f *fixture) fire(t tb, steps ...plan.Step) store.FireResult {
	t.Helper()
	return f.fireInto(t, store.FreeSlots{}, steps...)
}

func (f *fixture) fireInto(t tb, slots store.FreeSlots, steps ...plan.Step) store.FireResult {
	t.Helper()
	fired, err := f.Fire(ctx, owner, steps, slots)
	if err != nil {
		t.Fatalf("fire %d steps: %v", len(steps), err)
	}
	if len(fired.Applied) != len(steps) {
		t.Fatalf("fired %d steps, got %d answers", len(steps), len(fired.Applied))
	}
	for i, applied := range fired.Applied {
		if !applied {
			t.Fatalf("step %d of %d, for job %s, was left out", i+1, len(steps), steps[i].Seen.JobID)
		}
	}
	return fired
}

// slots is the demand of a worker that serves the usual lane.
func slots(worker belfry.ID, free int) store.FreeSlots {
	return store.FreeSlots{Worker: worker, Lanes: usualLanes, Free: free}
}

// fireDue fires the first undecided occurrence of every job that is due.
func (f *fixture) fireDue(t tb) store.FireResult {
	t.Helper()
	return f.fire(t, f.decide(t, f.due(t))...)
}

// registerWorker registers a fresh worker.
func (f *fixture) registerWorker(t tb) belfry.ID {
	t.Helper()
	id := newID()
	f.heartbeat(t, belfry.Heartbeat{WorkerID: id, Node: "here", Slots: 10, Lanes: []string{lane}, Register: true})
	return id
}

func (f *fixture) heartbeat(t tb, b belfry.Heartbeat) belfry.HeartbeatReply {
	t.Helper()
	reply, err := f.Heartbeat(ctx, b)
	if err != nil {
		t.Fatalf("heartbeat: %v", err)
	}
	return reply
}

func (f *fixture) claim(t tb, worker belfry.ID, limit int, lanes ...string) []*belfry.Run {
	t.Helper()
	if len(lanes) == 0 {
		lanes = usualLanes
	}
	runs, err := f.Claim(ctx, belfry.Claim{WorkerID: worker, Lanes: lanes, Limit: limit})
	if err != nil {
		t.Fatalf("claim %d runs: %v", limit, err)
	}
	if len(runs) > max(limit, 0) {
		t.Fatalf("claimed %d runs, asked for %d", len(runs), limit)
	}
	return runs
}

// claimOne claims the only run there is.
func (f *fixture) claimOne(t tb, worker belfry.ID) *belfry.Run {
	t.Helper()
	runs := f.claim(t, worker, 2)
	if len(runs) != 1 {
		t.Fatalf("claimed %d runs, wants 1", len(runs))
	}
	return runs[0]
}

// startRun gives a run of a new job that a new worker holds.
func (f *fixture) startRun(t tb, changes ...func(*belfry.Job)) *belfry.Run {
	t.Helper()
	job := f.createJob(t, 5, changes...)
	f.fire(t, f.step(t, job))
	return f.claimOne(t, f.registerWorker(t))
}

// result says how the attempt that holds a run ended.
func result(run *belfry.Run, outcome belfry.Outcome) belfry.Result {
	r := belfry.Result{Namespace: run.Namespace, RunID: run.ID, Attempt: run.Attempt, Token: run.Token, Outcome: outcome}
	if outcome != belfry.OutcomeSucceeded {
		r.Error = "it went wrong"
	}
	return r
}

func (f *fixture) finish(t tb, results ...belfry.Result) []belfry.Verdict {
	t.Helper()
	verdicts, err := f.Finish(ctx, results)
	if err != nil {
		t.Fatalf("finish %d results: %v", len(results), err)
	}
	if len(verdicts) != len(results) {
		t.Fatalf("finished %d results, got %d verdicts", len(results), len(verdicts))
	}
	return verdicts
}

// finishAs finishes a run and expects the result to decide the attempt.
func (f *fixture) finishAs(t tb, run *belfry.Run, outcome belfry.Outcome) {
	t.Helper()
	if got := f.finish(t, result(run, outcome))[0]; got != belfry.VerdictAccepted {
		t.Fatalf("the result %s of attempt %d is %s, wants accepted", outcome, run.Attempt, got)
	}
}

func (f *fixture) reap(t tb, silence time.Duration) int {
	t.Helper()
	reaped, err := f.Reap(ctx, silence, 1000)
	if err != nil {
		t.Fatalf("reap: %v", err)
	}
	return len(reaped)
}

func (f *fixture) run(t tb, namespace string, id belfry.ID) belfry.Run {
	t.Helper()
	run, err := f.Run(ctx, namespace, id)
	if err != nil {
		t.Fatalf("find run %s: %v", id, err)
	}
	return run
}

func (f *fixture) jobRuns(t tb, job belfry.Job) []belfry.Run {
	t.Helper()
	runs, _, err := f.JobRuns(ctx, job.Namespace, job.ID, belfry.JobRunFilter{}, store.Page{Limit: 1000})
	if err != nil {
		t.Fatalf("list the runs of job %s: %v", job.ID, err)
	}
	return runs
}

// edit changes a job and its plan.
func (f *fixture) edit(t tb, job belfry.Job, edit store.Edit) belfry.Job {
	t.Helper()
	got, err := f.EditJob(ctx, job.Namespace, job.ID, edit)
	if err != nil {
		t.Fatalf("edit job %s: %v", job.ID, err)
	}
	return got
}

// wantCode expects an error of the given kind.
func wantCode(t tb, doing string, err error, want belfry.Code) {
	t.Helper()
	var known *belfry.Error
	if !errors.As(err, &known) || known.Code != want {
		t.Errorf("%s: got error %v, wants %s", doing, err, want)
	}
}

// needSeveralNodes skips a test that needs several nodes where there can be one only.
func (f *fixture) needSeveralNodes(t *testing.T) {
	t.Helper()
	if f.reopen == nil {
		t.Skip("one process has this database to itself")
	}
}

// asStored compares jobs and runs by what is stored of them.
var asStored = cmp.Options{
	cmpopts.IgnoreUnexported(belfry.Run{}),
	cmpopts.EquateComparable(belfry.Optional[int]{}, belfry.Optional[float64]{}),
}

// near reports whether two instants are so close.
// wantEqual compares what is stored of two values. An empty list may be nil.
func wantEqual[T any](t tb, what string, got, want T, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, append(options, asStored, cmpopts.EquateEmpty())...); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", what, diff)
	}
}

// wantRecent expects an instant of the last seconds.
func (f *fixture) wantRecent(t tb, what string, at *time.Time) {
	t.Helper()
	if at == nil || !near(*at, f.Now(), 20*time.Second) {
		t.Errorf("%s was at %v, wants about %v", what, at, f.Now())
	}
}

func near(a, b time.Time, tolerance time.Duration) bool { return a.Sub(b).Abs() <= tolerance }
