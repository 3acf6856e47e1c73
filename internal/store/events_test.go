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
		some, err := f.ListEvents(ctx, namespace, belfry.EventFilter{}, page)
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

func TestAddedEvents(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		job := f.createJob(t, 1)
		event := func(dedup byte, kind belfry.EventKind, about belfry.ID) store.NewEvent {
			now := f.Now().UTC().Truncate(time.Microsecond)
			return store.NewEvent{Event: belfry.Event{ID: belfry.NewID(now), Namespace: namespace, JobID: about, RunID: about, Kind: kind, At: now, Message: string(kind), Count: 2}, Dedup: belfry.ID{dedup}}
		}
		add := func(events ...store.NewEvent) []belfry.ID {
			added, err := f.AddEvents(ctx, events)
			if err != nil {
				t.Fatal(err)
			}
			return added
		}
		dead, lost := event(1, belfry.EventRunDead, job.ID), event(2, belfry.EventNodeLost, belfry.ID{})
		if got := add(dead, lost); len(got) != 2 || got[0] != dead.ID {
			t.Errorf("added %+v", got)
		}
		again := event(1, belfry.EventRunDead, job.ID)
		moved := event(0, belfry.EventShardsMoved, belfry.ID{}) // without a dedup id all count
		if got := add(again, moved); len(got) != 1 || got[0] != moved.ID {
			t.Errorf("added %+v", got)
		}
		add(event(0, belfry.EventShardsMoved, belfry.ID{}))
		if got := add(); got != nil {
			t.Errorf("added %+v", got)
		}
		for _, tt := range []struct {
			filter belfry.EventFilter
			want   int
		}{
			{belfry.EventFilter{}, 4}, {belfry.EventFilter{Kind: belfry.EventShardsMoved}, 2}, {belfry.EventFilter{JobID: job.ID}, 1},
			{belfry.EventFilter{JobID: job.ID, Kind: belfry.EventNodeLost}, 0}, {belfry.EventFilter{JobID: belfry.ID{9}}, 0},
		} {
			if got, err := f.ListEvents(ctx, namespace, tt.filter, store.Page{Limit: 10}); err != nil || len(got) != tt.want {
				t.Errorf("%+v finds %+v (%v), want %d", tt.filter, got, err, tt.want)
			}
		}
		all, err := f.EventsAfter(ctx, belfry.ID{}, 10)
		if err != nil || len(all) != 4 || !slices.IsSortedFunc(all, func(a, b belfry.Event) int { return a.ID.Compare(b.ID) }) {
			t.Fatalf("all are %+v (%v)", all, err)
		}
		if diff := cmp.Diff(dead.Event, all[slices.IndexFunc(all, func(e belfry.Event) bool { return e.ID == dead.ID })]); diff != "" {
			t.Errorf("the event differs (-want +got):\n%s", diff)
		}
		if rest, err := f.EventsAfter(ctx, all[1].ID, 1); err != nil || len(rest) != 1 || rest[0].ID != all[2].ID {
			t.Errorf("after the second are %+v (%v)", rest, err)
		}
	})
}

func TestNodes(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		n := store.Node{ID: belfry.NewID(f.Now()), Name: "web-1", Address: "web-1:80", Version: "1.2", Roles: []string{"api", "worker"}, Offset: -3 * time.Microsecond}
		keep := func() {
			if err := f.KeepNode(ctx, n); err != nil {
				t.Fatal(err)
			}
		}
		only := func() store.Node {
			nodes, err := f.Nodes(ctx)
			if err != nil || len(nodes) != 1 {
				t.Fatalf("the nodes are %+v (%v)", nodes, err)
			}
			return nodes[0]
		}
		keep()
		first := only()
		if first.ID != n.ID || first.Name != n.Name || first.Version != n.Version || first.Address != n.Address || first.Offset != n.Offset || !slices.Equal(first.Roles, n.Roles) || first.LeftAt != nil || first.SeenAt != first.StartedAt {
			t.Errorf("it is %+v", first)
		}
		n.Offset = time.Minute
		keep()
		if got := only(); got.StartedAt != first.StartedAt || got.SeenAt.Before(first.SeenAt) || got.Offset != time.Minute {
			t.Errorf("it is %+v, and was %+v", got, first)
		}
		f.backdate(t, store.NodeTimeout+time.Minute, "nodes", "seen_at", "1 = 1")
		keep()
		back := only()
		if !back.StartedAt.After(first.StartedAt) {
			t.Errorf("one that was lost is back as %+v, and was %+v", back, first)
		}
		if err := f.EndNode(ctx, n.ID); err != nil {
			t.Fatal(err)
		}
		if got := only(); got.LeftAt == nil || got.LeftAt.Before(back.SeenAt) {
			t.Errorf("it ended as %+v", got)
		}
		f.backdate(t, store.NodeRetention, "nodes", "seen_at", "1 = 1")
		if nodes, err := f.Nodes(ctx); err != nil || len(nodes) != 0 {
			t.Errorf("old nodes are %+v (%v)", nodes, err)
		}
		if _, err := f.Prune(ctx, 90*day); err != nil {
			t.Fatal(err)
		}
		keep()
		if got := only(); got.StartedAt.Before(back.StartedAt) || got.LeftAt != nil {
			t.Errorf("it started again as %+v", got)
		}
	})
}
