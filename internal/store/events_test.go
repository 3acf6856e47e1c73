package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// listEvents reads all pages of events.
func (f *fixture) listEvents(t tb, namespace string, limit int) (all []belfry.Event) {
	t.Helper()
	page := store.Page{Limit: limit}
	for {
		some, err := f.ListEvents(ctx, namespace, page)
		if err != nil || len(some) > limit {
			t.Fatalf("a page of %d has %d events (%v)", limit, len(some), err)
		}
		if len(some) == 0 {
			return all
		}
		all = append(all, some...)
		page.After.ID = some[len(some)-1].ID
	}
}

func TestALargeCatchUpRaisesOneEvent(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 25, withNamespace("ours"), func(j *belfry.Job) { j.MissedWindow = belfry.MissedRunAll })
		step := plan.Decide(subject(t, "ours", 1, job.Spec), f.plan(t, job.ID), f.Now(), f.Now())
		if step.Event == nil || step.Event.Count < 25 {
			t.Fatalf("the step has the event %+v", step.Event)
		}
		stale := step
		stale.Seen.Version = 9
		if f.tryFire(t, stale); len(f.listEvents(t, "ours", 5)) != 0 {
			t.Error("a step that was not applied raised an event")
		}
		f.fire(t, step)
		f.tryFire(t, step)
		got := f.listEvents(t, "ours", 5)
		if len(got) != 1 || !near(got[0].At, step.Event.At, time.Millisecond) {
			t.Fatalf("the events are %+v, wants one catch-up", got)
		}
		want := *step.Event
		want.At = got[0].At
		if diff := cmp.Diff(want, got[0]); diff != "" {
			t.Errorf("the event differs (-want +got):\n%s", diff)
		}
		if theirs := f.listEvents(t, "theirs", 5); len(theirs) != 0 {
			t.Errorf("another namespace has the events %+v", theirs)
		}
		quiet := f.createJob(t, 5)
		f.fire(t, plan.Decide(subject(t, namespace, 1, quiet.Spec), f.plan(t, quiet.ID), f.Now(), f.Now()))
		if usual := f.listEvents(t, namespace, 5); len(usual) != 0 {
			t.Errorf("a usual step raised %+v", usual)
		}
	})
}

func TestAnEditWithALargeCatchUpRaisesAnEvent(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 25, func(j *belfry.Job) { j.MissedWindow = belfry.MissedRunAll })
		f.edit(t, job, pause(t))
		if got := f.listEvents(t, namespace, 5); len(got) != 1 || got[0].JobID != job.ID || got[0].Kind != belfry.EventLargeCatchUp {
			t.Errorf("the events are %+v, wants the catch-up", got)
		}
	})
}

func TestEventsAreListedLatestFirstAndPruned(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		var want []belfry.ID
		for i := range 7 {
			step := f.step(t, f.createJob(t, 30-i, withQueue(fmt.Sprint(i))))
			at := step.Runs[0].ScheduledAt
			step.Event = &belfry.Event{
				ID: belfry.RunID(step.Seen.JobID, belfry.RunKind(belfry.EventLargeCatchUp), at, belfry.ID{}), Namespace: namespace, JobID: step.Seen.JobID,
				Kind: belfry.EventLargeCatchUp, At: f.minutesAgo(30 - i), Message: fmt.Sprint("event ", i), Count: int64(i),
			}
			f.fire(t, step)
			want = append([]belfry.ID{step.Event.ID}, want...)
		}
		for limit := 1; limit <= 8; limit++ {
			var got []belfry.ID
			for _, e := range f.listEvents(t, namespace, limit) {
				got = append(got, e.ID)
			}
			if !slices.Equal(got, want) {
				t.Errorf("pages of %d give %v, wants %v", limit, got, want)
			}
		}
		f.backdate(t, 100*day, "events", "at", "count < 3")
		if _, err := f.Prune(ctx, 90*day); err != nil {
			t.Fatal(err)
		}
		if got := f.listEvents(t, namespace, 10); len(got) != 4 {
			t.Errorf("%d events are left, wants 4", len(got))
		}
	})
}
