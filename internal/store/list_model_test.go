package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// listModel is a store with jobs that are up to all sorts of things.
type listModel struct {
	f        *fixture
	worker   belfry.ID
	jobs     []belfry.Job
	triggers []belfry.ID // pending triggers
	names    map[string]bool
	failing  map[belfry.ID]bool
}

func TestListsMatchTheirFilters(t *testing.T) {
	t.Parallel()
	for _, b := range backends[:2] {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			f := open(t, b)
			rapid.Check(t, func(t *rapid.T) {
				f.deleteAll(t)
				w := &listModel{f: f, worker: f.registerWorker(t), names: map[string]bool{}}
				for range rapid.IntRange(1, 12).Draw(t, "jobs") {
					w.add(t)
				}
				failures := f.failures(t, f.Now().Add(-time.Hour))
				if _, err := f.SetFailing(ctx, failures); err != nil {
					t.Fatal(err)
				}
				w.failing = map[belfry.ID]bool{}
				for _, failure := range failures {
					w.failing[failure.JobID] = true
				}
				for _, status := range statuses { // each along an index of its own
					filter := w.filter(t)
					filter.Status = status
					w.wantJobs(t, filter, rapid.IntRange(1, 5).Draw(t, "limit"))
					w.wantJobs(t, belfry.JobFilter{Status: status}, rapid.IntRange(1, 5).Draw(t, "limit"))
				}
				for _, state := range runStates {
					w.wantRuns(t, belfry.JobRunFilter{Status: state}, rapid.IntRange(1, 5).Draw(t, "limit"))
					filter := w.period(t)
					filter.Status = state
					w.wantRuns(t, filter, rapid.IntRange(1, 5).Draw(t, "limit"))
				}
				checkInvariants(t, f)
			})
		})
	}
}

var (
	statuses = []belfry.JobStatus{
		"", belfry.StatusScheduled, belfry.StatusQueued, belfry.StatusRunning, belfry.StatusPaused, belfry.StatusCompleted, belfry.StatusFailed,
		belfry.StatusCancelled, belfry.StatusFailing, "unheard of",
	}
	runStates = []belfry.RunStatus{
		"", belfry.RunReady, belfry.RunRunning, belfry.RunRetry, belfry.RunWaiting, belfry.RunSucceeded, belfry.RunDead, belfry.RunSkipped,
		belfry.RunCancelled, belfry.RunDiscarded, "unheard of",
	}
	namespaces = []string{belfry.DefaultNamespace, "theirs"}
	queues     = []string{belfry.DefaultQueue, "bulk", "büro"}
	handlers   = []string{"send", "invoice"}
	tags       = []string{"a", "b", "team:ä", "a,b", `"q"`, "x y"}
	letters    = []rune(`aAbBäÄжЖéÉ%_\'"*? ß😀`)
)

// wantJobs expects the pages of a list to have what passes the filter, in the
// order of ids.
func (w *listModel) wantJobs(t *rapid.T, filter belfry.JobFilter, limit int) {
	for _, namespace := range namespaces {
		var want []belfry.Job
		for _, made := range w.jobs {
			job, err := w.f.Job(ctx, made.Namespace, made.ID)
			if job.State == belfry.JobEnded && filter.Status == "" {
				continue // archived jobs are listed only by status
			}
			if err == nil && job.Namespace == namespace && matches(job, filter) && (filter.Status != belfry.StatusFailing || w.failing[job.ID]) {
				want = append(want, job)
			}
		}
		slices.SortFunc(want, func(a, b belfry.Job) int { return b.ID.Compare(a.ID) })
		got := w.f.listJobs(t, namespace, filter, limit)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), asStored); diff != "" {
			t.Errorf("%+v in %s, pages of %d (-want +got):\n%s", filter, namespace, limit, diff)
		}
	}
}

func matches(job belfry.Job, f belfry.JobFilter) bool {
	for _, tag := range f.Tags {
		if !slices.Contains(job.Tags, tag) {
			return false
		}
	}
	return store.HasStatus(job, f.Status) && (f.Type == "" || job.Type == f.Type) &&
		(f.Handler == "" || job.Handler == f.Handler) && (f.Queue == "" || job.Queue == f.Queue) &&
		strings.Contains(strings.ToLower(job.Name), strings.ToLower(f.Search))
}

// period draws a filter by time whose limits are often instants of runs.
func (w *listModel) period(t *rapid.T) (f belfry.JobRunFilter) {
	instants := []time.Time{{}}
	for _, job := range w.jobs {
		for _, r := range w.f.jobRuns(t, job) {
			instants = append(instants, r.ScheduledAt, r.ScheduledAt.Add(time.Microsecond), r.ScheduledAt.Add(-time.Microsecond))
		}
	}
	f.Since, f.Until = rapid.SampledFrom(instants).Draw(t, "since"), rapid.SampledFrom(instants).Draw(t, "until")
	return f
}

func passes(r belfry.Run, f belfry.JobRunFilter) bool {
	return (f.Status == "" || r.Status == f.Status) && !r.ScheduledAt.Before(f.Since) && (f.Until.IsZero() || r.ScheduledAt.Before(f.Until))
}

// wantRuns expects the pages of lists to have the runs of all jobs, in the order of ids,
// and those of each job.
func (w *listModel) wantRuns(t *rapid.T, filter belfry.JobRunFilter, limit int) {
	fails := func(r belfry.Run) bool { return !passes(r, filter) }
	for _, namespace := range namespaces {
		var all []belfry.Run
		for _, job := range w.jobs {
			if job.Namespace != namespace {
				continue
			}
			runs := w.f.jobRuns(t, job)
			all = append(all, runs...)
			want := slices.DeleteFunc(runs, fails)
			got, _, err := w.f.JobRuns(ctx, namespace, job.ID, filter, store.Page{Limit: 1000})
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), asStored); diff != "" || err != nil {
				t.Errorf("%+v of a job: %v (-want +got):\n%s", filter, err, diff)
			}
		}
		for _, id := range w.triggers {
			if slices.ContainsFunc(all, func(r belfry.Run) bool { return r.ID == id }) {
				continue // it was recorded when its job was deleted
			}
			if run, err := w.f.Run(ctx, namespace, id); err == nil {
				all = append(all, run)
			}
		}
		want := slices.DeleteFunc(all, fails)
		slices.SortFunc(want, func(a, b belfry.Run) int { return b.ID.Compare(a.ID) })
		got := w.f.listRuns(t, namespace, belfry.RunFilter{JobRunFilter: filter}, limit)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), asStored); diff != "" {
			t.Errorf("%+v in %s, pages of %d (-want +got):\n%s", filter, namespace, limit, diff)
		}
	}
}

// add makes a job and lets something happen to it.
func (w *listModel) add(t *rapid.T) {
	at := w.f.minutesAgo(rapid.IntRange(3, 30).Draw(t, "due for minutes"))
	changes := []func(*belfry.Job){
		withName(w.name(t)), withNamespace(pick(t, namespaces, "namespace")), withQueue(pick(t, queues, "queue")), withRetries(0),
		withTags(rapid.SliceOfN(rapid.SampledFrom(tags), 0, 3).Draw(t, "tags")...),
	}
	if rapid.Bool().Draw(t, "for a worker") {
		changes = append(changes, withHandler(pick(t, handlers, "handler")))
	}
	fate := pick(t, scenarios, "fate")
	if fate.once {
		changes = append(changes, withSchedule(at.Format(time.RFC3339)))
	}
	job := w.f.job(at, append(changes, fate.changes...)...)
	if fate.ended {
		job.Plan.NextAt, job.Plan.NominalAt = time.Time{}, time.Time{}
	}
	w.f.createJobs(t, job)
	w.jobs = append(w.jobs, job.Job)
	if fate.apply != nil {
		fate.apply(w, t, job.Job)
	}
}

// name draws a name that is not taken, or none.
func (w *listModel) name(t *rapid.T) string {
	name := rapid.StringOfN(rapid.SampledFrom(letters), 0, 6, -1).Draw(t, "name")
	if w.names[name] {
		return ""
	}
	w.names[name] = true
	return name
}

// filter draws a filter that often lets something pass.
func (w *listModel) filter(t *rapid.T) (f belfry.JobFilter) {
	some := func(what string) bool { return rapid.IntRange(0, 3).Draw(t, what+"?") == 0 }
	if some("type") {
		f.Type = pick(t, []string{belfry.TypeHTTP, belfry.TypeWorker, "odd"}, "type")
	}
	if some("handler") {
		f.Handler = pick(t, append(handlers, "odd"), "handler")
	}
	if some("queue") {
		f.Queue = pick(t, append(queues, "odd"), "queue")
	}
	if some("tags") {
		f.Tags = rapid.SliceOfN(rapid.SampledFrom(append(tags, "odd")), 1, 2).Draw(t, "tags")
	}
	if some("search") {
		f.Search = rapid.StringOfN(rapid.SampledFrom(letters), 1, 2, -1).Draw(t, "search")
		if name := []rune(pick(t, w.jobs, "job").Name); len(name) > 0 && rapid.Bool().Draw(t, "part of a name") {
			from := rapid.IntRange(0, len(name)-1).Draw(t, "from")
			part := name[from:rapid.IntRange(from+1, len(name)).Draw(t, "to")]
			f.Search = strings.Map(func(r rune) rune {
				if rapid.Bool().Draw(t, "upper") {
					return unicode.ToUpper(r)
				}
				return unicode.ToLower(r)
			}, string(part))
		}
	}
	return f
}

// scenario is what happens to a job once it is there.
type scenario struct {
	name    string
	once    bool // it has one occurrence
	ended   bool // it has none
	changes []func(*belfry.Job)
	apply   func(w *listModel, t *rapid.T, job belfry.Job)
}

func (f scenario) String() string { return f.name }

var scenarios = []scenario{
	{name: "nothing"},
	{name: "paused", apply: func(w *listModel, t *rapid.T, job belfry.Job) { w.f.edit(t, job, pause(t)) }},
	{name: "ready", apply: func(w *listModel, t *rapid.T, job belfry.Job) { w.f.fire(t, w.f.step(t, job)) }},
	{name: "a range of skips", apply: func(w *listModel, t *rapid.T, job belfry.Job) {
		w.f.fire(t, plan.Decide(subject(t, job.Namespace, 1, job.Spec), w.f.plan(t, job.ID), w.f.minutesAgo(1), w.f.Now()))
	}},
	{name: "running", apply: func(w *listModel, t *rapid.T, job belfry.Job) { w.start(t, w.f.step(t, job)) }},
	{name: "several at once", changes: []func(*belfry.Job){allowParallel}, apply: func(w *listModel, t *rapid.T, job belfry.Job) {
		w.f.fire(t, w.f.step(t, job))
		w.start(t, w.f.step(t, job))
		w.f.fire(t, w.f.step(t, job))
	}},
	{name: "one behind another", changes: []func(*belfry.Job){withQueueLimit(3)}, apply: func(w *listModel, t *rapid.T, job belfry.Job) {
		w.start(t, w.f.step(t, job))
		w.f.fire(t, w.f.step(t, job))
		w.f.fire(t, w.f.step(t, job))
	}},
	{name: "cancelled while running", apply: func(w *listModel, t *rapid.T, job belfry.Job) {
		run := w.start(t, w.f.step(t, job))
		w.f.cancel(t, job.Namespace, run.ID)
	}},
	{name: "abandoned", apply: func(w *listModel, t *rapid.T, job belfry.Job) {
		w.f.fire(t, w.f.step(t, job))
		w.f.edit(t, job, cancelJob(t))
	}},
	{name: "running and paused", apply: func(w *listModel, t *rapid.T, job belfry.Job) {
		w.start(t, w.f.step(t, job))
		w.f.edit(t, job, pause(t))
	}},
	{name: "retry", changes: []func(*belfry.Job){withRetries(3)}, apply: func(w *listModel, t *rapid.T, job belfry.Job) {
		w.f.finishAs(t, w.start(t, w.f.step(t, job)), belfry.OutcomeFailed)
	}},
	{name: "succeeded", apply: func(w *listModel, t *rapid.T, job belfry.Job) {
		w.f.finishAs(t, w.start(t, w.f.step(t, job)), belfry.OutcomeSucceeded)
	}},
	{name: "dead", apply: func(w *listModel, t *rapid.T, job belfry.Job) {
		w.f.finishAs(t, w.start(t, w.f.step(t, job)), belfry.OutcomeFailed)
	}},
	{name: "once and succeeded", once: true, apply: func(w *listModel, t *rapid.T, job belfry.Job) {
		w.f.finishAs(t, w.start(t, w.f.step(t, job)), belfry.OutcomeSucceeded)
	}},
	{name: "once and dead", once: true, apply: func(w *listModel, t *rapid.T, job belfry.Job) {
		w.f.finishAs(t, w.start(t, w.f.step(t, job)), belfry.OutcomeFailed)
	}},
	{name: "once and discarded", once: true, apply: func(w *listModel, t *rapid.T, job belfry.Job) {
		run := w.start(t, w.f.step(t, job))
		w.f.finishAs(t, run, belfry.OutcomeFailed)
		w.f.discard(t, job.Namespace, run.ID)
	}},
	{name: "once and cancelled", once: true, apply: func(w *listModel, t *rapid.T, job belfry.Job) {
		step := w.f.step(t, job)
		w.f.fire(t, step)
		w.f.cancel(t, job.Namespace, step.Runs[0].ID)
	}},
	{name: "once and ready", once: true, apply: func(w *listModel, t *rapid.T, job belfry.Job) { w.f.fire(t, w.f.step(t, job)) }},
	{name: "deleted", apply: func(w *listModel, t *rapid.T, job belfry.Job) {
		w.f.fire(t, w.f.step(t, job))
		w.trigger(t, job)
		w.f.edit(t, job, deleteJob(t))
	}},
	{name: "never", ended: true},
	{name: "triggered", ended: true, apply: (*listModel).trigger},
	{name: "triggered while running", changes: []func(*belfry.Job){allowParallel}, apply: func(w *listModel, t *rapid.T, job belfry.Job) {
		w.start(t, w.f.step(t, job))
		w.trigger(t, job)
		w.trigger(t, job)
	}},
	{name: "by hand", ended: true, apply: (*listModel).triggerAndFire},
}

// start fires a step into a worker's hand.
func (w *listModel) start(t *rapid.T, step plan.Step) *belfry.Run {
	fired := w.f.fireInto(t, store.FreeSlots{Worker: w.worker, Lanes: []string{step.Lane()}, Free: 1}, step)
	if len(fired.Claimed) != 1 {
		t.Fatalf("%d runs were claimed, wants 1", len(fired.Claimed))
	}
	return fired.Claimed[0]
}

func (w *listModel) trigger(t *rapid.T, job belfry.Job) {
	w.triggers = append(w.triggers, w.f.trigger(t, job, "").RunID())
}

// triggerAndFire lets triggers of a few instants, in any order, end in either way.
func (w *listModel) triggerAndFire(t *rapid.T, job belfry.Job) {
	for i := range rapid.IntRange(1, 4).Draw(t, "triggers") {
		trigger := w.f.newTrigger(job, fmt.Sprint(i))
		trigger.At = w.f.minutesAgo(rapid.IntRange(1, 3).Draw(t, "minutes ago"))
		if err := w.f.Trigger(ctx, []plan.Trigger{trigger}, nil); err != nil {
			t.Fatalf("trigger: %v", err)
		}
		run := w.start(t, plan.Fire(subject(t, job.Namespace, 1, job.Spec), w.f.plan(t, job.ID), []plan.Trigger{trigger}))
		w.f.finishAs(t, run, pick(t, []belfry.Outcome{belfry.OutcomeSucceeded, belfry.OutcomeFailed}, "outcome"))
	}
}
