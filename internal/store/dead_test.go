package store_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// listDeadLetters reads all pages of the dead letters that pass a filter.
func (f *fixture) listDeadLetters(t tb, namespace string, filter belfry.DeadFilter, limit int) (all []belfry.DeadLetter) {
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

// deadRunWithError makes a dead letter by the error that its only attempt ended with, so many
// minutes ago.
func (f *fixture) deadRunWithError(t tb, minutes int, text string, changes ...func(*belfry.Job)) *belfry.Run {
	t.Helper()
	run := f.startRun(t, append([]func(*belfry.Job){withRetries(0)}, changes...)...)
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
			run := f.deadRunWithError(t, 10+i/2, fmt.Sprint("failure ", i), withName(fmt.Sprint("job ", i)), withPayload(fmt.Sprint(i)))
			want = append(want, run.ID)
			if i%2 == 1 && want[i-1].Compare(want[i]) < 0 { // two died at the same instant
				want[i-1], want[i] = want[i], want[i-1]
			}
		}
		f.deadRunWithError(t, 1, "theirs", withNamespace("theirs"))
		for limit := 1; limit <= 7; limit++ {
			if got := ids(f.listDeadLetters(t, namespace, belfry.DeadFilter{}, limit)); !slices.Equal(got, want) {
				t.Errorf("pages of %d give %v, wants %v", limit, got, want)
			}
		}
		for _, d := range f.listDeadLetters(t, namespace, belfry.DeadFilter{}, 10) {
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
		job := f.createJob(t, 5, withNamespace("ours"), withName("report"), withRetries(1), withBase(0), withKeys("k-{{unix}}"), withPayload(`{"a":  1}`), withTimeout(77))
		f.fire(t, f.step(t, job))
		worker := f.registerWorker(t)
		first := f.claimOne(t, worker)
		f.finishAs(t, first, belfry.OutcomeTimedOut)
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
		f.wantRecent(t, "the death", got.FinishedAt)
		want := belfry.DeadLetter{
			Run: belfry.Run{
				ID: last.ID, JobID: job.ID, Namespace: "ours", Revision: 1, Kind: belfry.KindScheduled, Status: belfry.RunDead, ScheduledAt: last.ScheduledAt,
				ReadyAt: last.ReadyAt, FiredAt: last.FiredAt, Attempt: 2, StartedAt: last.StartedAt, FinishedAt: got.FinishedAt, WorkerID: worker,
				HTTPStatus: 502, Output: "try later", Error: "no upstream", Reason: belfry.ReasonOutOfRetries, TemplateKey: last.TemplateKey, Spec: job.Spec,
				Attempts: got.Attempts,
			},
			Fingerprint: belfry.Fingerprint(r),
		}
		want.JobName, want.JobRevision, want.Payload = "report", 2, job.Payload
		wantEqual(t, "the dead letter", got, want)
		if got.Key() != last.Key() {
			t.Errorf("the key is %s, wants %s", got.Key(), last.Key())
		}
		if len(got.Attempts) != 2 || got.Attempts[0].Outcome != belfry.OutcomeTimedOut || got.Attempts[1].Output != "try later" || got.Attempts[1].Error != "no upstream" {
			t.Errorf("the attempts are %+v", got.Attempts)
		}
		for doing, ask := range map[string]struct {
			namespace string
			id        belfry.ID
		}{"of another namespace": {"theirs", last.ID}, "that never was": {"ours", newID()}, "that is alive": {namespace, f.startRun(t).ID}} {
			_, err := f.DeadLetter(ctx, ask.namespace, ask.id)
			wantCode(t, "a dead letter "+doing, err, belfry.NotFound)
		}
		f.edit(t, f.getJob(t, job), deleteJob(t))
		if got, err := f.DeadLetter(ctx, "ours", last.ID); err != nil || got.Spec != job.Spec || string(got.Payload) != string(job.Payload) {
			t.Errorf("the dead letter of a deleted job is %+v (%v)", got, err)
		}
		other := f.createJob(t, -60, withRetries(0))
		trigger := f.newTrigger(other, `"instead"`)
		f.recordAndFire(t, other, trigger)
		f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeFailed)
		if got, err := f.DeadLetter(ctx, other.Namespace, trigger.RunID()); err != nil || string(got.Payload) != `"instead"` || got.Kind != belfry.KindManual {
			t.Errorf("the dead letter of a trigger is %+v (%v)", got, err)
		}
	})
}

func TestDeadLettersAreFilteredAndGrouped(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		a := f.deadRunWithError(t, 50, "refused by 10.0.0.1")
		b := f.deadRunWithError(t, 40, "refused by 10.0.0.2")
		c := f.deadRunWithError(t, 30, "Größe 100% zu GROSS_x")
		poison := f.poisonRun(t)
		f.exec(t, `UPDATE dead SET died_at = ? WHERE id = ?`, f.minutesAgo(20), poison.ID)
		f.deadRunWithError(t, 45, "refused by 10.0.0.1", withNamespace("theirs"))
		kind := f.listDeadLetters(t, namespace, belfry.DeadFilter{JobID: a.JobID}, 10)[0].Fingerprint
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
				if got := ids(f.listDeadLetters(t, namespace, tt.filter, limit)); !slices.Equal(got, tt.want) {
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
