package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// wantEnded expects a job to have left the live tables, and still to be found.
func (f *fixture) wantEnded(t tb, doing string, job belfry.Job, want belfry.JobStatus) {
	t.Helper()
	live := f.count(t, `SELECT (SELECT count(*) FROM jobs WHERE id = ?) + (SELECT count(*) FROM plans WHERE job_id = ?)`, job.ID, job.ID)
	if live != 0 || f.count(t, `SELECT count(*) FROM ended WHERE id = ?`, job.ID) != 1 {
		t.Errorf("%s: %d rows of the job are in the live tables", doing, live)
	}
	got := f.found(t, job)
	if got.State != belfry.JobEnded || got.Status != want || got.Spec != job.Spec || string(got.Payload) != string(job.Payload) || got.Name != job.Name ||
		got.Revision != job.Revision || got.NextRunAt != nil || got.EndedAt == nil || got.EndedAt.After(f.Now()) || !cmp.Equal(got.Tags, job.Tags) || !near(got.CreatedAt, job.CreatedAt, time.Millisecond) {
		t.Errorf("%s: the job that is over is %+v, wants it %s", doing, got, want)
	}
}

// wantLive expects a job not to be over.
func (f *fixture) wantLive(t tb, doing string, job belfry.Job) {
	t.Helper()
	if got := f.found(t, job); got.State == belfry.JobEnded {
		t.Errorf("%s: the job is over", doing)
	}
}

// retire walks over all one-offs, and says how many are over.
func (f *fixture) retire(t tb, limit int) (retired int) {
	t.Helper()
	var after belfry.ID
	for {
		n, next, err := f.Archive(ctx, f.all(), after, limit)
		if err != nil {
			t.Fatalf("retire: %v", err)
		}
		if retired += n; next.IsZero() {
			return retired
		}
		if next.Compare(after) <= 0 {
			t.Fatalf("after %s the walk goes on after %s", after, next)
		}
		after = next
	}
}

func TestAOneOffLeavesWhenItsRunIsOver(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.worker(t)
		for _, tt := range []struct {
			name string
			end  func(run *belfry.Run)
			want belfry.JobStatus
		}{
			{"succeeded", func(run *belfry.Run) { f.accepted(t, run, belfry.OutcomeSucceeded) }, belfry.StatusCompleted},
			{"cancelled while running", func(run *belfry.Run) {
				f.cancel(t, run.Namespace, run.ID)
				f.accepted(t, run, belfry.OutcomeCancelled)
			}, belfry.StatusCancelled},
			{"cancelled while ready", func(run *belfry.Run) {
				f.accepted(t, run, belfry.OutcomeInterrupted)
				f.cancel(t, run.Namespace, run.ID)
			}, belfry.StatusCancelled},
			{"cancelled and lost", func(run *belfry.Run) {
				f.cancel(t, run.Namespace, run.ID)
				f.backdate(t, time.Hour, "runs", "cancel_requested_at", "")
				f.reap(t, 0)
			}, belfry.StatusCancelled},
			{"discarded", func(run *belfry.Run) {
				f.accepted(t, run, belfry.OutcomeFailed)
				f.discard(t, run.Namespace, run.ID)
			}, belfry.StatusFailed},
			{"redriven", func(run *belfry.Run) {
				f.accepted(t, run, belfry.OutcomeFailed)
				f.redrive(t, run.Namespace, store.Redrive{Run: run.ID})
				f.accepted(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)
			}, belfry.StatusCompleted},
			{"redriven and cancelled", func(run *belfry.Run) {
				f.accepted(t, run, belfry.OutcomeFailed)
				f.redrive(t, run.Namespace, store.Redrive{Run: run.ID})
				f.cancel(t, run.Namespace, run.ID)
			}, belfry.StatusCancelled},
		} {
			job := f.once(t, 5, named("report"), withRetries(0), inNamespace("ours"), withTags("a", "b"))
			if fired := f.fireInto(t, slots(worker, 1), f.step(t, job)); len(fired.Claimed) == 1 {
				f.wantLive(t, tt.name, job)
				tt.end(fired.Claimed[0])
			}
			f.wantEnded(t, tt.name, job, tt.want)
			if got := f.found(t, job); got.LastRunAt == nil || !got.LastRunAt.Equal(f.minutesAgo(5)) {
				t.Errorf("%s: it ran at %v last", tt.name, got.LastRunAt)
			}
			if n := f.retire(t, 10); n != 0 {
				t.Errorf("%s: %d jobs were left to retire", tt.name, n)
			}
		}
	})
}

func TestAOneOffStaysWhileAnythingOfItIsLeft(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.worker(t)
		start := func(changes ...func(*belfry.Job)) (belfry.Job, *belfry.Run) {
			t.Helper()
			job := f.once(t, 5, append([]func(*belfry.Job){withRetries(0)}, changes...)...)
			return job, f.fireInto(t, slots(worker, 1), f.step(t, job)).Claimed[0]
		}
		dead, run := start()
		f.accepted(t, run, belfry.OutcomeFailed)
		retried, run := start(withRetries(5))
		f.accepted(t, run, belfry.OutcomeFailed)
		wished, run := start()
		wish := f.trigger(t, wished, "")
		f.accepted(t, run, belfry.OutcomeSucceeded)
		beside, run := start(parallel)
		other := f.wish(beside, "")
		f.fireWishes(t, beside, other)
		f.accepted(t, run, belfry.OutcomeSucceeded)
		paused, run := start()
		f.edit(t, paused, pause(t))
		f.accepted(t, run, belfry.OutcomeSucceeded)
		f.edit(t, f.once(t, 5, named("gone")), remove(t))
		recurring := f.created(t, 5)
		f.edit(t, recurring, abandon(t))
		planned := f.once(t, -60)
		jobs := map[string]belfry.Job{"dead": dead, "retried": retried, "wished for": wished, "beside another": beside, "paused": paused, "recurring": recurring, "planned": planned}
		if n := f.retire(t, 2); n != 0 {
			t.Errorf("%d jobs were retired, wants none", n)
		}
		for doing, job := range jobs {
			f.wantLive(t, doing, job)
		}

		f.fire(t, plan.Fire(subject(t, namespace, 1, wished.Spec), f.plan(t, wished.ID), []plan.Trigger{wish}))
		f.settleAll(t)
		f.edit(t, paused, resume(t))
		f.retire(t, 2)
		for _, doing := range []string{"retried", "wished for", "beside another", "paused"} {
			f.wantEnded(t, doing, jobs[doing], belfry.StatusCompleted)
		}
		for _, doing := range []string{"dead", "recurring", "planned"} {
			f.wantLive(t, doing, jobs[doing])
		}
	})
}

func TestACancelledOneOffIsOver(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.once(t, -60, named("report"))
		f.edit(t, job, abandon(t))
		f.retire(t, 10)
		f.wantEnded(t, "cancelled before its time", job, belfry.StatusCancelled)
		if got := f.found(t, job); got.LastRunAt != nil {
			t.Errorf("a job that never ran ran at %v", got.LastRunAt)
		}
		if runs := f.jobRuns(t, job); len(runs) != 1 || runs[0].Reason != belfry.ReasonCancelled {
			t.Errorf("its history is %+v", runs)
		}
	})
}

func TestAJobThatIsOverCanBeLookedAtAndNothingElse(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.worker(t)
		job := f.once(t, 5, named("report"), inNamespace("ours"), withTags("a"), ofWorker("send"), inQueue("bulk"))
		edited := f.edit(t, job, revise(t, withTimeout(9)))
		step := f.step(t, edited)
		run := f.fireInto(t, store.FreeSlots{Worker: worker, Lanes: []string{step.Lane()}, Free: 1}, step).Claimed[0]
		f.accepted(t, run, belfry.OutcomeSucceeded)
		f.wantEnded(t, "edited and run", edited, belfry.StatusCompleted)

		if id, err := f.JobIDByName(ctx, "ours", "report"); err != nil || id != job.ID {
			t.Errorf("by its name it is %s (%v)", id, err)
		}
		if runs := f.jobRuns(t, job); len(runs) != 1 || runs[0].ID != run.ID || f.run(t, "ours", run.ID).Status != belfry.RunSucceeded {
			t.Errorf("its runs are %+v", runs)
		}
		if got := f.decided(t, job, f.minutesAgo(5)); len(got) != 1 {
			t.Errorf("of its instant %v was decided", got)
		}
		if got := f.revisions(t, job, 0, 10); len(got) != 1 || got[0].Spec != job.Spec {
			t.Errorf("its revisions are %+v", got)
		}
		_, err := f.EditJob(ctx, "ours", job.ID, func(belfry.Job, plan.Plan, time.Time) (*store.Change, error) {
			t.Error("a job that is over was offered for an edit")
			return nil, nil
		})
		wantOver(t, "edit", err)
		wantOver(t, "trigger", f.Trigger(ctx, f.one(job), nil))
		if n := f.count(t, `SELECT count(*) FROM triggers`); n != 0 {
			t.Errorf("%d wishes are there", n)
		}
		_, err = f.Job(ctx, "theirs", job.ID)
		wantCode(t, "find it from another namespace", err, belfry.NotFound)
		_, err = f.JobIDByName(ctx, "theirs", "report")
		wantCode(t, "find its name from another namespace", err, belfry.NotFound)
		_, err = f.EditJob(ctx, "theirs", job.ID, pause(t))
		wantCode(t, "edit it from another namespace", err, belfry.NotFound)

		for name, tt := range map[string]struct {
			filter belfry.JobFilter
			want   int
		}{
			"no filter":            {belfry.JobFilter{}, 0},
			"completed":            {belfry.JobFilter{Status: belfry.StatusCompleted}, 1},
			"failed":               {belfry.JobFilter{Status: belfry.StatusFailed}, 0},
			"cancelled":            {belfry.JobFilter{Status: belfry.StatusCancelled}, 0},
			"scheduled":            {belfry.JobFilter{Status: belfry.StatusScheduled}, 0},
			"completed, all of it": {belfry.JobFilter{Status: belfry.StatusCompleted, Type: belfry.TypeWorker, Handler: "send", Queue: "bulk", Tags: []string{"a"}, Search: "EPO"}, 1},
			"completed, other tag": {belfry.JobFilter{Status: belfry.StatusCompleted, Tags: []string{"b"}}, 0},
		} {
			list := f.listed(t, "ours", tt.filter, 10)
			if len(list) != tt.want {
				t.Errorf("%s: %d jobs are listed, wants %d", name, len(list), tt.want)
			}
			for _, got := range list {
				if diff := cmp.Diff(f.found(t, job), got, asStored); diff != "" {
					t.Errorf("%s: the job differs from itself (-found +listed):\n%s", name, diff)
				}
			}
		}
	})
}

// wantOver expects the answer to somebody who would change a job that is over.
func wantOver(t tb, doing string, err error) {
	t.Helper()
	wantCode(t, doing, err, belfry.Conflict)
	if err != nil && !strings.Contains(err.Error(), "has ended") {
		t.Errorf("%s: %q does not say why", doing, err)
	}
}

func TestTheNameOfAJobThatIsOverIsFree(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.worker(t)
		end := func() belfry.Job {
			t.Helper()
			job := f.once(t, 5, named("report"))
			f.accepted(t, f.fireInto(t, slots(worker, 1), f.step(t, job)).Claimed[0], belfry.OutcomeSucceeded)
			return job
		}
		named := func() belfry.ID {
			t.Helper()
			id, err := f.JobIDByName(ctx, namespace, "report")
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		first := end()
		f.backdate(t, time.Minute, "ended", "ended_at", "")
		second := end()
		if got := named(); got != second.ID {
			t.Errorf("the name is that of %s, wants the one that ended last", got)
		}
		live := f.once(t, -60, func(j *belfry.Job) { j.Name = "report" })
		if got := named(); got != live.ID {
			t.Errorf("the name is that of %s, wants the one that is alive", got)
		}
		f.edit(t, live, remove(t))
		if got := named(); got != second.ID {
			t.Errorf("after the deletion the name is that of %s", got)
		}
		f.wantEnded(t, "the first", first, belfry.StatusCompleted)
	})
}

func TestRetireRepairsWhatWasLeft(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.worker(t)
		var jobs []belfry.Job
		for range 7 {
			job := f.once(t, 5)
			f.edit(t, job, pause(t))
			f.accepted(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)
			jobs = append(jobs, job)
		}
		if n := f.retire(t, 3); n != 0 {
			t.Errorf("%d paused jobs were retired", n)
		}
		f.exec(t, `UPDATE jobs SET state = 'active'`)
		if n, _, err := f.Archive(ctx, nil, belfry.ID{}, 10); n != 0 || err != nil {
			t.Errorf("%d jobs of no shard were retired (%v)", n, err)
		}
		byShard := 0
		for shard := range f.Shards() {
			n, _, err := f.Archive(ctx, []int{shard}, belfry.ID{}, 100)
			if err != nil {
				t.Fatal(err)
			}
			byShard += n
		}
		if byShard != len(jobs) || f.retire(t, 3) != 0 {
			t.Errorf("%d jobs were retired, wants %d", byShard, len(jobs))
		}
		for _, job := range jobs {
			f.wantEnded(t, "repaired", job, belfry.StatusCompleted)
		}
	})
}

func TestAJobThatIsOverIsForgottenInTime(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		const keep = 10 * 24 * time.Hour
		worker := f.worker(t)
		end := func(changes ...func(*belfry.Job)) belfry.Job {
			t.Helper()
			job := f.once(t, 5, changes...)
			job = f.edit(t, job, revise(t, withTimeout(9)))
			f.accepted(t, f.fireInto(t, slots(worker, 1), f.step(t, job)).Claimed[0], belfry.OutcomeSucceeded)
			return job
		}
		usual, short, long := end(), end(withRetention(1)), end(withRetention(100))
		age := func(by time.Duration) {
			f.backdate(t, by, "ended", "ended_at retain_until", "")
			f.backdate(t, by, "history", "settled_at retain_until", "")
			f.backdate(t, by, "revisions", "replaced_at", "")
			if _, err := f.Prune(ctx, keep); err != nil {
				t.Fatal(err)
			}
		}
		gone := func(doing string, job belfry.Job) {
			t.Helper()
			_, err := f.Job(ctx, namespace, job.ID)
			wantCode(t, doing, err, belfry.NotFound)
			if n := f.count(t, `SELECT count(*) FROM revisions WHERE job_id = ?`, job.ID); n != 0 {
				t.Errorf("%s: %d revisions are left", doing, n)
			}
		}
		age(3 * 24 * time.Hour)
		gone("a short retention", short)
		f.wantEnded(t, "the usual retention", usual, belfry.StatusCompleted)
		age(15 * 24 * time.Hour)
		gone("the usual retention", usual)
		f.wantEnded(t, "a long retention", long, belfry.StatusCompleted)
		if runs := f.jobRuns(t, long); len(runs) != 1 || len(f.revisions(t, long, 0, 5)) != 1 {
			t.Errorf("the job with a long retention has the runs %+v", runs)
		}
		age(100 * 24 * time.Hour)
		gone("a long retention", long)
	})
}

func TestAJobThatIsOverCanBeForgotten(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.worker(t)
		for _, history := range []bool{false, true} {
			job := f.once(t, 5, named("report"))
			job = f.edit(t, job, revise(t, withTimeout(9)))
			run := f.fireInto(t, slots(worker, 1), f.step(t, job)).Claimed[0]
			f.accepted(t, run, belfry.OutcomeSucceeded)

			wantCode(t, "forget it from another namespace", f.DeleteEnded(ctx, "theirs", job.ID, history), belfry.NotFound)
			if err := f.DeleteEnded(ctx, job.Namespace, job.ID, history); err != nil {
				t.Fatal(err)
			}
			_, err := f.Job(ctx, job.Namespace, job.ID)
			wantCode(t, "find what is forgotten", err, belfry.NotFound)
			_, err = f.JobIDByName(ctx, job.Namespace, job.Name)
			wantCode(t, "find it by its name", err, belfry.NotFound)
			wantCode(t, "forget it again", f.DeleteEnded(ctx, job.Namespace, job.ID, history), belfry.NotFound)
			if n := f.count(t, `SELECT count(*) FROM revisions WHERE job_id = ?`, job.ID); n != 0 {
				t.Errorf("%d of its revisions are left", n)
			}
			if _, err := f.Prune(ctx, time.Hour); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Run(ctx, job.Namespace, run.ID); (err != nil) != history {
				t.Errorf("its run, with its history %v: %v", history, err)
			}
		}
		live := f.once(t, -60)
		wantCode(t, "forget a job that is not over", f.DeleteEnded(ctx, live.Namespace, live.ID, true), belfry.NotFound)
	})
}
