package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// wantKey expects a run to have its key wherever it is found.
func (f *fixture) wantKey(t tb, run belfry.ID, job belfry.Job, want string) {
	t.Helper()
	got := []belfry.Run{f.run(t, job.Namespace, run)}
	list, err := f.ListRuns(ctx, job.Namespace, belfry.RunFilter{}, store.Page{Limit: 1000})
	if err != nil {
		t.Fatalf("list runs: %v", err)
	}
	for _, r := range append(f.jobRuns(t, job), list.Runs...) {
		if r.ID == run {
			got = append(got, r)
		}
	}
	if len(got) != 3 {
		t.Errorf("the run %s was found %d times, wants 3", run, len(got))
	}
	for _, r := range got {
		if r.Key() != want {
			t.Errorf("the %s run has the key %q, wants %q", r.Status, r.Key(), want)
		}
	}
}

func TestAKeyIsTheSameInEveryAttemptAndPlace(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for _, last := range []belfry.Outcome{belfry.OutcomeSucceeded, belfry.OutcomeFailed} {
			job := f.created(t, 5, named("report & "+string(last)), withKeys("r-{{name}}-{{unix}}"), withRetries(1), withBase(0))
			step := f.decide(t, f.due(t))[0]
			id, want := step.Runs[0].ID, fmt.Sprintf("r-report%%20&%%20%s-%d", last, f.minutesAgo(5).Unix())
			f.fire(t, step)
			f.wantKey(t, id, job, want)
			worker := f.worker(t)
			try := func(attempt int) *belfry.Run {
				t.Helper()
				run := f.claimOne(t, worker)
				if run.ID != id || run.Attempt != attempt || run.Key() != want || run.JobName != job.Name {
					t.Errorf("attempt %d of %q has the key %q, wants %q", run.Attempt, run.JobName, run.Key(), want)
				}
				f.wantKey(t, id, job, want)
				return run
			}
			f.accepted(t, try(1), belfry.OutcomeInterrupted)
			try(2) // and is lost
			f.silent(t, worker, time.Hour)
			worker = f.worker(t)
			f.reap(t, time.Minute)
			// What the job becomes does not change what its run is.
			f.edit(t, job, revise(t, withKeys("other")))
			f.accepted(t, try(3), belfry.OutcomeFailed)
			f.wantKey(t, id, job, want)
			f.backdate(t, time.Hour, "runs", "ready_at", "state = 'retry'")
			if _, _, err := f.Promote(ctx, f.all(), 10); err != nil {
				t.Fatal(err)
			}
			f.accepted(t, try(4), last)
			if state := f.state(t, id); state != map[belfry.Outcome]belfry.RunStatus{"succeeded": "succeeded", "failed": "dead"}[last] {
				t.Errorf("the run is %s", state)
			}
			f.wantKey(t, id, job, want)
			f.edit(t, job, remove(t))
		}
	})
}

func TestARunThatIsClaimedWhileItIsFiredHasItsKey(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.worker(t)
		for _, tt := range []struct{ template, want string }{
			{"", ""}, {"all", "all"}, {"{{date}}/{{name}}", f.minutesAgo(5).Format(time.DateOnly) + "/n%C3%A9"},
		} {
			job := f.created(t, 5, named("né"), withKeys(tt.template))
			fired := f.fireInto(t, slots(worker, 1), f.decide(t, f.due(t))[0])
			if len(fired.Claimed) != 1 || fired.Claimed[0].TemplateKey != tt.want {
				t.Fatalf("template %q: claimed %+v, wants the key %q", tt.template, fired.Claimed, tt.want)
			}
			run := fired.Claimed[0]
			f.wantKey(t, run.ID, job, run.Key())
			f.accepted(t, run, belfry.OutcomeSucceeded)
			f.wantKey(t, run.ID, job, run.Key())
			f.edit(t, job, remove(t))
		}
	})
}

func TestTheKeyOfAManualRunIsItsOwn(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.worker(t)
		for _, template := range []string{"", "week-{{week}}"} {
			job := f.created(t, -60, parallel, withKeys(template), withRetries(2))
			wish := f.trigger(t, job, "")
			w := f.wishes(t)[0]
			step := plan.Fire(f.decide(t, []store.Due{w.Due})[0].Subject, w.Due.Plan, []plan.Trigger{w.Trigger})
			f.fire(t, step)
			want := belfry.Run{ID: wish.RunID(), JobID: job.ID, Kind: belfry.KindManual, ScheduledAt: wish.At, TemplateKey: step.Runs[0].Key}
			if (want.TemplateKey == "") != (template == "") {
				t.Fatalf("the template %q gave the key %q", template, want.TemplateKey)
			}
			for attempt := range 3 {
				run := f.claimOne(t, worker)
				if got := run.Key(); got != want.Key() || run.JobName != "" {
					t.Errorf("attempt %d has the key %q, wants %q", attempt+1, got, want.Key())
				}
				f.accepted(t, run, []belfry.Outcome{belfry.OutcomeInterrupted, belfry.OutcomeInterrupted, belfry.OutcomeSucceeded}[attempt])
			}
			f.wantKey(t, wish.RunID(), job, want.Key())
			f.edit(t, job, remove(t))
		}
	})
}

func TestANameIsGivenOnlyToTheTemplateThatAsksForIt(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for _, tt := range []struct{ template, want string }{
			{"", ""}, {"{{date}}", ""}, {"name", ""}, {"{name}", ""}, {"x-{{name}}", "a name"}, {"{{ name }}-{{week}}", "a name"},
		} {
			job := f.created(t, 5, named("a name"), withKeys(tt.template), withPayload(`"{{name}}"`))
			f.trigger(t, job, "")
			overdue, err := f.Overdue(ctx, f.all(), f.Now(), 10)
			if err != nil {
				t.Fatal(err)
			}
			found, err := f.PlansByJob(ctx, []belfry.ID{job.ID})
			if err != nil {
				t.Fatal(err)
			}
			wishes := f.wishes(t)
			for from, due := range map[string][]store.Due{"upcoming": f.due(t), "overdue": overdue, "find": found, "triggers": {wishes[0].Due}} {
				if len(due) != 1 || due[0].Name != tt.want {
					t.Errorf("template %q, %s: got %+v, wants the name %q", tt.template, from, due, tt.want)
				}
			}
			f.edit(t, job, remove(t))
		}
		unnamed := f.created(t, 5, withKeys("x-{{name}}"))
		if due := f.due(t); len(due) != 1 || due[0].Name != "" || due[0].Plan.JobID != unnamed.ID {
			t.Errorf("a job without a name is due as %+v", due)
		}
	})
}

func TestAClaimedRunKnowsTheNameThatItsJobHas(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.created(t, 5, named("old"), withRetries(5))
		f.fire(t, f.step(t, job))
		worker := f.worker(t)
		run := f.claimOne(t, worker)
		f.accepted(t, run, belfry.OutcomeInterrupted)
		f.edit(t, job, revise(t, func(j *belfry.Job) { j.Name, j.TimeoutSeconds = "new", 7 }))
		again := f.claimOne(t, worker)
		if run.JobName != "old" || again.JobName != "new" {
			t.Errorf("the names are %q and %q", run.JobName, again.JobName)
		}
		if again.Revision != 1 || again.Spec != job.Spec || string(again.Payload) != string(job.Payload) {
			t.Errorf("the run of an earlier revision came back as %+v", again)
		}
		f.accepted(t, again, belfry.OutcomeInterrupted)
		f.edit(t, job, remove(t))
		if last := f.claimOne(t, worker); last.Spec != job.Spec || string(last.Payload) != string(job.Payload) {
			t.Errorf("the run of a deleted job came back as %+v", last)
		}
	})
}
