package store_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// letters walks through all pages of the dead letters that pass a filter.
func (f *fixture) letters(t tb, namespace string, filter belfry.DeadFilter, limit int) (all []belfry.DeadLetter) {
	t.Helper()
	page := store.Page{Limit: limit}
	for {
		some, err := f.ListDeadLetters(ctx, namespace, filter, page)
		if err != nil || len(some) > limit {
			t.Fatalf("a page of %d has %d dead letters (%v)", limit, len(some), err)
		}
		if len(some) == 0 {
			return all
		}
		all = append(all, some...)
		last := some[len(some)-1]
		page.After.At, page.After.ID = *last.FinishedAt, last.ID
	}
}

// died makes a dead letter by the error that its only attempt ended with, so many
// minutes ago.
func (f *fixture) died(t tb, minutes int, text string, changes ...func(*belfry.Job)) *belfry.Run {
	t.Helper()
	run := f.started(t, append([]func(*belfry.Job){withRetries(0)}, changes...)...)
	r := result(run, belfry.OutcomeFailed)
	r.Error, r.HTTPStatus, r.Output = text, 500, "what it said"
	f.finish(t, r)
	f.exec(t, `UPDATE dead SET died_at = ? WHERE id = ?`, f.minutesAgo(minutes), run.ID)
	return run
}

func ids(letters []belfry.DeadLetter) (out []belfry.ID) {
	for _, d := range letters {
		out = append(out, d.ID)
	}
	return out
}

func TestDeadLettersAreListedTheLatestFirst(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		var want []belfry.ID
		for i := range 6 {
			run := f.died(t, 10+i/2, fmt.Sprint("failure ", i), named(fmt.Sprint("job ", i)), withPayload(fmt.Sprint(i)))
			want = append(want, run.ID)
			if i%2 == 1 && want[i-1].Compare(want[i]) < 0 { // two died at the same instant
				want[i-1], want[i] = want[i], want[i-1]
			}
		}
		f.died(t, 1, "theirs", inNamespace("theirs"))
		for limit := 1; limit <= 7; limit++ {
			if got := ids(f.letters(t, namespace, belfry.DeadFilter{}, limit)); !slices.Equal(got, want) {
				t.Errorf("pages of %d give %v, wants %v", limit, got, want)
			}
		}
		for _, d := range f.letters(t, namespace, belfry.DeadFilter{}, 10) {
			alone, err := f.DeadLetter(ctx, namespace, d.ID)
			if err != nil || len(alone.Attempts) != 1 || len(alone.Payload) == 0 || alone.Attempts[0].Output != "what it said" {
				t.Errorf("the dead letter alone is %+v (%v)", alone, err)
			}
			if d.Payload != nil || d.Attempts != nil {
				t.Errorf("a listed dead letter has the payload %s and the attempts %+v", d.Payload, d.Attempts)
			}
			same := cmpopts.IgnoreFields(belfry.DeadLetter{}, "Payload", "Run.Attempts", "Run.Spec")
			if diff := cmp.Diff(alone, d, same, asStored); diff != "" {
				t.Errorf("a dead letter differs from itself (-alone +listed):\n%s", diff)
			}
		}
		if got, err := f.ListDeadLetters(ctx, namespace, belfry.DeadFilter{}, store.Page{}); err != nil || len(got) != 0 {
			t.Errorf("asked for none, got %d (%v)", len(got), err)
		}
	})
}

func TestADeadLetterHasAllThatItTakesToDecide(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.created(t, 5, inNamespace("ours"), named("report"), withRetries(1), withBase(0), withKeys("k-{{unix}}"), withPayload(`{"a":  1}`), withTimeout(77))
		f.fire(t, f.step(t, job))
		worker := f.worker(t)
		first := f.claimOne(t, worker)
		f.accepted(t, first, belfry.OutcomeTimedOut)
		f.promoteAll(t)
		last := f.claimOne(t, worker)
		r := result(last, belfry.OutcomeFailed)
		r.Error, r.HTTPStatus, r.Output = "no upstream", 502, "try later"
		f.finish(t, r)
		// What the job becomes does not change what its run was.
		f.edit(t, job, revise(t, func(j *belfry.Job) { j.TimeoutSeconds, j.Payload = 5, json.RawMessage(`2`) }))

		got, err := f.DeadLetter(ctx, "ours", last.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got.ID != last.ID || got.JobID != job.ID || got.JobName != "report" || got.Namespace != "ours" || got.Revision != 1 || got.Status != belfry.RunDead ||
			got.Reason != belfry.ReasonOutOfRetries || got.Attempt != 2 || got.Error != "no upstream" || got.HTTPStatus != 502 ||
			string(got.Payload) != string(job.Payload) || got.Fingerprint != belfry.Fingerprint(r) || got.Key() != last.Key() ||
			!got.ScheduledAt.Equal(last.ScheduledAt) || got.FinishedAt == nil || !near(*got.FinishedAt, f.Now(), 20*time.Second) || got.Spec != job.Spec {
			t.Errorf("the dead letter is %+v", got)
		}
		if len(got.Attempts) != 2 || got.Attempts[0].Outcome != belfry.OutcomeTimedOut || got.Attempts[1].Output != "try later" || got.Attempts[1].Error != "no upstream" {
			t.Errorf("the attempts are %+v", got.Attempts)
		}
		for doing, ask := range map[string]struct {
			namespace string
			id        belfry.ID
		}{"of another namespace": {"theirs", last.ID}, "that never was": {"ours", newID()}, "that is alive": {namespace, f.started(t).ID}} {
			_, err := f.DeadLetter(ctx, ask.namespace, ask.id)
			wantCode(t, "a dead letter "+doing, err, belfry.NotFound)
		}
		f.edit(t, f.found(t, job), remove(t))
		if got, err := f.DeadLetter(ctx, "ours", last.ID); err != nil || got.Spec != job.Spec || string(got.Payload) != string(job.Payload) {
			t.Errorf("the dead letter of a deleted job is %+v (%v)", got, err)
		}
		asked := f.created(t, -60, withRetries(0))
		wish := f.wish(asked, `"instead"`)
		f.fireWishes(t, asked, wish)
		f.accepted(t, f.claimOne(t, worker), belfry.OutcomeFailed)
		if got, err := f.DeadLetter(ctx, asked.Namespace, wish.RunID()); err != nil || string(got.Payload) != `"instead"` || got.Kind != belfry.KindManual {
			t.Errorf("the dead letter that was asked for is %+v (%v)", got, err)
		}
	})
}

func TestDeadLettersAreFilteredAndGrouped(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		a := f.died(t, 50, "refused by 10.0.0.1")
		b := f.died(t, 40, "refused by 10.0.0.2")
		c := f.died(t, 30, "Größe 100% zu GROSS_x")
		poison := f.poisoned(t)
		f.exec(t, `UPDATE dead SET died_at = ? WHERE id = ?`, f.minutesAgo(20), poison.ID)
		f.died(t, 45, "refused by 10.0.0.1", inNamespace("theirs"))
		kind := f.letters(t, namespace, belfry.DeadFilter{JobID: a.JobID}, 10)[0].Fingerprint
		all := []belfry.ID{poison.ID, c.ID, b.ID, a.ID}
		for _, tt := range []struct {
			name   string
			filter belfry.DeadFilter
			want   []belfry.ID
		}{
			{"none", belfry.DeadFilter{}, all},
			{"job", belfry.DeadFilter{JobID: b.JobID}, []belfry.ID{b.ID}},
			{"another job", belfry.DeadFilter{JobID: newID()}, nil},
			{"since", belfry.DeadFilter{Since: f.minutesAgo(40)}, []belfry.ID{poison.ID, c.ID, b.ID}},
			{"until", belfry.DeadFilter{Until: f.minutesAgo(40)}, []belfry.ID{a.ID}},
			{"between", belfry.DeadFilter{Since: f.minutesAgo(45), Until: f.minutesAgo(25)}, []belfry.ID{c.ID, b.ID}},
			{"error", belfry.DeadFilter{Error: "REFUSED"}, []belfry.ID{b.ID, a.ID}},
			{"error in other letters", belfry.DeadFilter{Error: "gross_X"}, []belfry.ID{c.ID}},
			{"error with letters of a pattern", belfry.DeadFilter{Error: "0% Z"}, []belfry.ID{c.ID}},
			{"a pattern is no pattern", belfry.DeadFilter{Error: "refused%10"}, nil},
			{"another error", belfry.DeadFilter{Error: "unheard of"}, nil},
			{"fingerprint", belfry.DeadFilter{Fingerprint: kind}, []belfry.ID{b.ID, a.ID}},
			{"reason", belfry.DeadFilter{Reason: belfry.ReasonPoison}, []belfry.ID{poison.ID}},
			{"all at once", belfry.DeadFilter{JobID: a.JobID, Since: f.minutesAgo(60), Until: f.minutesAgo(1), Error: "10.0", Fingerprint: kind, Reason: belfry.ReasonOutOfRetries}, []belfry.ID{a.ID}},
			{"what contradicts itself", belfry.DeadFilter{JobID: a.JobID, Reason: belfry.ReasonPoison}, nil},
		} {
			for _, limit := range []int{1, 2, 10} {
				if got := ids(f.letters(t, namespace, tt.filter, limit)); !slices.Equal(got, tt.want) {
					t.Errorf("%s, pages of %d: got %v, wants %v", tt.name, limit, got, tt.want)
				}
			}
			groups, err := f.GroupDeadLetters(ctx, namespace, tt.filter, 10)
			count := 0
			for _, g := range groups {
				count += g.Count
			}
			if err != nil || count != len(tt.want) {
				t.Errorf("%s: the groups have %d dead letters (%v), wants %d", tt.name, count, err, len(tt.want))
			}
		}
		groups, err := f.GroupDeadLetters(ctx, namespace, belfry.DeadFilter{}, 10)
		if err != nil || len(groups) != 3 {
			t.Fatalf("there are %d groups (%v), wants 3", len(groups), err)
		}
		want := belfry.DeadGroup{
			Fingerprint: kind, Count: 2, Jobs: 2, Error: "refused by 10.0.0.2", HTTPStatus: 500, FirstAt: f.minutesAgo(50), LastAt: f.minutesAgo(40), LatestRunID: b.ID,
		}
		if diff := cmp.Diff(want, groups[0], cmpopts.EquateApproxTime(0)); diff != "" {
			t.Errorf("the largest group differs (-want +got):\n%s", diff)
		}
		if some, err := f.GroupDeadLetters(ctx, namespace, belfry.DeadFilter{}, 1); err != nil || len(some) != 1 || some[0].Fingerprint != kind {
			t.Errorf("the largest group alone is %+v (%v)", some, err)
		}
	})
}

func TestARedrivenRunKeepsItsPast(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.created(t, 5, inNamespace("ours"), withRetries(1), withBase(0), withKeys("k-{{unix}}"), withPriority(belfry.PriorityHigh), withRetention(3))
		f.fire(t, f.step(t, job))
		worker := f.worker(t)
		first := f.claimOne(t, worker)
		for try := range 2 {
			run := first
			if try > 0 {
				f.promoteAll(t)
				run = f.claimOne(t, worker)
			}
			f.accepted(t, run, belfry.OutcomeFailed)
		}
		f.edit(t, job, revise(t, func(j *belfry.Job) { j.MaxRetries, j.Payload = belfry.Some(9), json.RawMessage(`"new"`) }))
		seen := f.plan(t, job.ID)
		if n := f.redrive(t, "theirs", store.Redrive{Run: first.ID}); n != 0 || f.state(t, first.ID) != belfry.RunDead {
			t.Errorf("another namespace redrove %d", n)
		}
		if n := f.redrive(t, "ours", store.Redrive{Run: first.ID}); n != 1 {
			t.Fatalf("%d were redriven, wants 1", n)
		}
		if n := f.redrive(t, "ours", store.Redrive{Run: first.ID}); n != 0 {
			t.Errorf("%d were redriven again", n)
		}
		if p := f.plan(t, job.ID); p.Version <= seen.Version {
			t.Errorf("the plan is still at version %d: a fire under way would not see the run", p.Version)
		}
		if row := f.live(t, first.ID); row.State != belfry.RunReady || row.Failures != 0 || row.Lost != 0 || row.Attempt != 2 || !near(row.ReadyAt, f.Now(), 20*time.Second) {
			t.Errorf("the redriven run is %+v", row)
		}
		if _, err := f.DeadLetter(ctx, "ours", first.ID); belfry.CodeOf(err) != belfry.NotFound {
			t.Errorf("a redriven run is still a dead letter (%v)", err)
		}
		for attempt := 3; attempt <= 4; attempt++ { // it has all its retries
			run := f.claimOne(t, worker)
			if run.ID != first.ID || run.Attempt != attempt || run.Revision != 1 || run.Spec != job.Spec || run.Key() != first.Key() ||
				string(run.Payload) != string(job.Payload) || !run.ScheduledAt.Equal(first.ScheduledAt) || run.Kind != first.Kind || !run.FiredAt.Equal(first.FiredAt) {
				t.Errorf("the redriven run was claimed as %+v", run)
			}
			f.accepted(t, run, belfry.OutcomeFailed)
			f.promoteAll(t)
		}
		got := f.run(t, "ours", first.ID)
		if got.Status != belfry.RunDead || got.Attempt != 4 || len(got.Attempts) != 4 {
			t.Errorf("the run that died again is %+v", got)
		}
		f.redrive(t, "ours", store.Redrive{Run: first.ID})
		f.accepted(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)
		if got = f.run(t, "ours", first.ID); got.Status != belfry.RunSucceeded || got.Attempt != 5 || len(got.Attempts) != 4 {
			t.Errorf("the run that succeeded at last is %+v", got)
		}
		if n := f.redrive(t, "ours", store.Redrive{Run: first.ID}); n != 0 {
			t.Errorf("a run that succeeded was redriven")
		}
	})
}

func TestARedrivenRunMayHaveAnotherPayloadAndADelay(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		now, later, edited := f.dead(t), f.dead(t), f.dead(t, withPayload(`"own"`))
		n := f.redrive(t, namespace, store.Redrive{Run: now.ID}, store.Redrive{Run: later.ID, After: time.Hour}, store.Redrive{Run: newID()},
			store.Redrive{Run: edited.ID, After: 30 * time.Minute, Payload: json.RawMessage(`{"fixed":  true}`)})
		if n != 3 {
			t.Fatalf("%d were redriven, wants 3", n)
		}
		for id, want := range map[belfry.ID]time.Duration{later.ID: time.Hour, edited.ID: 30 * time.Minute} {
			if row := f.live(t, id); row.State != belfry.RunRetry || !near(row.ReadyAt, f.Now().Add(want), 20*time.Second) {
				t.Errorf("the run is %+v, wants it in %v", row, want)
			}
		}
		worker := f.worker(t)
		if run := f.claimOne(t, worker); run.ID != now.ID {
			t.Errorf("claimed %s, wants the one without a delay", run.ID)
		}
		f.promoteAll(t)
		for _, run := range f.claim(t, worker, 10) {
			want := map[belfry.ID]string{later.ID: string(later.Payload), edited.ID: `{"fixed":  true}`}[run.ID]
			if string(run.Payload) != want || run.Attempt != 2 {
				t.Errorf("attempt %d has the payload %s, wants %s", run.Attempt, run.Payload, want)
			}
			f.accepted(t, run, belfry.OutcomeFailed)
		}
		if d, err := f.DeadLetter(ctx, namespace, edited.ID); err != nil || string(d.Payload) != `{"fixed":  true}` {
			t.Errorf("the payload of the run that died again is %s (%v)", d.Payload, err)
		}
		f.redrive(t, namespace, store.Redrive{Run: edited.ID, Payload: json.RawMessage(`"at last"`)})
		if run := f.claimOne(t, worker); string(run.Payload) != `"at last"` {
			t.Errorf("with a third payload it was claimed with %s", run.Payload)
		}
	})
}

// poisoned gives a run of a new job that lost so many workers that it is dead.
func (f *fixture) poisoned(t tb, changes ...func(*belfry.Job)) *belfry.Run {
	t.Helper()
	run := f.started(t, changes...)
	for lost := 1; ; lost++ {
		f.silent(t, run.WorkerID, time.Hour)
		f.reap(t, time.Minute)
		if lost == belfry.PoisonLimit {
			return run
		}
		run = f.claimOne(t, f.worker(t))
	}
}

func TestARedrivenRunMayLoseItsWorkersAgain(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		run := f.poisoned(t)
		f.redrive(t, namespace, store.Redrive{Run: run.ID})
		if row := f.live(t, run.ID); row.Lost != 0 || row.Attempt != belfry.PoisonLimit {
			t.Errorf("the redriven run is %+v", row)
		}
	})
}

func TestARedrivenRunIsSerialIfItWasWhenItWasFired(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for _, tt := range []struct {
			was, is func(*belfry.Job)
			want    belfry.RunStatus
		}{
			{queued(3), parallel, belfry.RunWaiting},
			{parallel, queued(3), belfry.RunReady},
		} {
			dead := f.dead(t, tt.was)
			job := f.edit(t, belfry.Job{ID: dead.JobID, Namespace: namespace}, revise(t, tt.is))
			f.next(t, job)
			f.redrive(t, namespace, store.Redrive{Run: dead.ID})
			f.wantState(t, "redriven beside another", dead.ID, tt.want)
			f.settleAll(t)
		}
	})
}

func TestARedrivenRunWaitsBehindOthersOfItsJob(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for overlap, change := range map[belfry.Overlap]func(*belfry.Job){"skip": func(*belfry.Job) {}, "queue": queued(1), "parallel": parallel} {
			worker := f.worker(t)
			job := f.created(t, 10, withRetries(0), change)
			var dead []store.Redrive
			for range 3 {
				f.fire(t, f.step(t, job))
				run := f.claimOne(t, worker)
				f.accepted(t, run, belfry.OutcomeFailed)
				dead = append(dead, store.Redrive{Run: run.ID})
			}
			f.fire(t, f.step(t, job))
			held := f.claimOne(t, worker)
			stale := f.step(t, job)
			if n := f.redrive(t, namespace, dead...); n != 3 {
				t.Fatalf("%s: %d were redriven, wants 3", overlap, n)
			}
			if fired := f.tryFire(t, stale); fired.Applied[0] {
				t.Errorf("%s: a step from before the redrive was applied", overlap)
			}
			want := belfry.RunWaiting
			if overlap == "parallel" {
				want = belfry.RunReady
			}
			for _, d := range dead {
				f.wantState(t, string(overlap), d.Run, want)
			}
			f.accepted(t, held, belfry.OutcomeSucceeded)
			if overlap != "parallel" {
				for _, d := range dead {
					run := f.claimOne(t, worker)
					if run.ID != d.Run {
						t.Errorf("%s: %s goes ahead, wants %s", overlap, run.ID, d.Run)
					}
					f.accepted(t, run, belfry.OutcomeSucceeded)
				}
			}
			f.settleAll(t)
		}
		// With nothing alive, one of several goes ahead, and a delay counts.
		job, worker := f.created(t, 10, withRetries(0)), f.worker(t)
		var dead []store.Redrive
		for range 2 {
			f.fire(t, f.step(t, job))
			run := f.claimOne(t, worker)
			f.accepted(t, run, belfry.OutcomeFailed)
			dead = append(dead, store.Redrive{Run: run.ID, After: time.Hour})
		}
		f.redrive(t, namespace, dead...)
		states := []belfry.RunStatus{f.state(t, dead[0].Run), f.state(t, dead[1].Run)}
		slices.Sort(states)
		if !slices.Equal(states, []belfry.RunStatus{belfry.RunRetry, belfry.RunWaiting}) {
			t.Errorf("two that were redriven with a delay are %v", states)
		}
	})
}

func TestADiscardedRunIsHistory(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		run := f.died(t, 30, "no upstream", inNamespace("ours"), withKeys("k-{{unix}}"), withRetention(3))
		before := f.run(t, "ours", run.ID)
		if n := f.discard(t, "theirs", run.ID); n != 0 || f.state(t, run.ID) != belfry.RunDead {
			t.Errorf("another namespace discarded %d", n)
		}
		if n := f.discard(t, "ours", newID(), run.ID); n != 1 {
			t.Fatalf("%d were discarded, wants 1", n)
		}
		if n := f.discard(t, "ours", run.ID) + f.redrive(t, "ours", store.Redrive{Run: run.ID}); n != 0 {
			t.Errorf("what was discarded was found %d times", n)
		}
		got := f.run(t, "ours", run.ID)
		if got.Status != belfry.RunDiscarded || got.Reason != belfry.ReasonOutOfRetries || got.Attempt != 1 || len(got.Attempts) != 1 || got.Attempts[0].Error != "no upstream" ||
			got.Key() != before.Key() || got.FinishedAt == nil || !near(*got.FinishedAt, f.Now(), 20*time.Second) || got.Revision != 1 {
			t.Errorf("the discarded run is %+v", got)
		}
		if list := f.listedRuns(t, "ours", belfry.RunFilter{Status: belfry.RunDiscarded}, 5); len(list) != 1 || list[0].ID != run.ID {
			t.Errorf("the discarded runs are %+v", list)
		}
		if list := f.letters(t, "ours", belfry.DeadFilter{}, 5); len(list) != 0 {
			t.Errorf("%d dead letters are left", len(list))
		}
		if v := f.finish(t, result(run, belfry.OutcomeSucceeded))[0]; v != belfry.VerdictLate {
			t.Errorf("a late success is %s", v)
		}
		f.wantState(t, "after a late success", run.ID, belfry.RunDiscarded)
	})
}

func TestDeadLettersOfDeletedJobsCanStillBeDecided(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		again, given := f.dead(t), f.dead(t)
		for _, run := range []*belfry.Run{again, given} {
			f.edit(t, belfry.Job{ID: run.JobID, Namespace: run.Namespace}, remove(t))
		}
		if n := f.redrive(t, namespace, store.Redrive{Run: again.ID}) + f.discard(t, namespace, given.ID); n != 2 {
			t.Errorf("%d were decided, wants 2", n)
		}
		run := f.claimOne(t, f.worker(t))
		if run.ID != again.ID || string(run.Payload) != string(again.Payload) {
			t.Errorf("claimed %+v", run)
		}
		f.accepted(t, run, belfry.OutcomeSucceeded)
		f.wantState(t, "given up", given.ID, belfry.RunDiscarded)
	})
}
