package plan

import (
	"reflect"
	"time"

	"github.com/belfry-sh/belfry"
)

// checkStep checks what holds for every step.
func checkStep(t failer, subject Subject, seen Plan, step Step) {
	t.Helper()
	if step.Subject != subject || step.Seen != seen || step.Epoch != 0 {
		t.Fatalf("the step is about %+v and %+v", step.Subject, step.Seen)
	}
	checkPlan(t, seen, step)
	checkRuns(t, subject, seen, step)
	checkSkips(t, seen, step)
	checkEvent(t, subject, step)
	checkPartition(t, subject.Policy, step)
}

func checkPlan(t failer, seen Plan, step Step) {
	t.Helper()
	next := step.Next
	if next.JobID != seen.JobID || next.Shard != seen.Shard {
		t.Fatalf("the plan of %v became that of %v", seen.JobID, next.JobID)
	}
	if next.FiredFor.Before(seen.FiredFor) {
		t.Fatalf("the mark went back from %v to %v", seen.FiredFor, next.FiredFor)
	}
	if !next.NominalAt.IsZero() && !next.NominalAt.After(next.FiredFor) {
		t.Fatalf("%v is planned although all up to %v is decided", next.NominalAt, next.FiredFor)
	}
	if !next.NextAt.IsZero() && (next.NominalAt.IsZero() || next.NextAt.Before(next.NominalAt)) {
		t.Fatalf("NextAt %v is too early for %v", next.NextAt, next.NominalAt)
	}
	made := seen.RunsMade
	for _, r := range step.Runs {
		if r.Kind == belfry.KindScheduled {
			made++
		}
	}
	if next.RunsMade != made {
		t.Fatalf("%d runs were counted, want %d", next.RunsMade, made)
	}
}

// checkDecided checks that the high-water mark includes an occurrence that a step decides.
func checkDecided(t failer, seen Plan, step Step, id belfry.ID, at time.Time) {
	t.Helper()
	if want := belfry.RunID(seen.JobID, belfry.KindScheduled, at, belfry.ID{}); id != want {
		t.Fatalf("what became of %v has id %s, want %s", at, id, want)
	}
	if !at.After(seen.FiredFor) || at.After(step.Next.FiredFor) {
		t.Fatalf("%v is decided although the mark goes from %v to %v", at, seen.FiredFor, step.Next.FiredFor)
	}
}

func checkRuns(t failer, subject Subject, seen Plan, step Step) {
	t.Helper()
	p := subject.Policy
	for _, r := range step.Runs {
		if r.Kind != belfry.KindScheduled {
			continue
		}
		checkDecided(t, seen, step, r.ID, r.ScheduledAt)
		want := Run{ID: r.ID, Kind: belfry.KindScheduled, ScheduledAt: r.ScheduledAt, ReadyAt: p.ReadyAt(seen.JobID, r.ScheduledAt)}
		want.Serial = p.Overlap != belfry.OverlapParallel
		if p.Overlap == belfry.OverlapQueue {
			if want.Queue = p.MaxQueued; want.Queue == 0 {
				want.Queue = belfry.DefaultMaxQueued
			}
		}
		if p.MissedWindow == belfry.MissedRunAll && r.Queue == NoQueueLimit {
			want.Queue = NoQueueLimit
		}
		if !reflect.DeepEqual(r, want) {
			t.Fatalf("got run %+v, want %+v", r, want)
		}
	}
}

func checkSkips(t failer, seen Plan, step Step) {
	t.Helper()
	for _, k := range step.Skips {
		if k.Note {
			want := newNote(seen.JobID, k.From, k.Count, k.Reason)
			if k.Reason == belfry.ReasonCancelled {
				want.ID = cancelID(seen)
			}
			known := k.Reason == belfry.ReasonDSTGap || k.Reason == belfry.ReasonZoneChange || k.Reason == belfry.ReasonCancelled
			if k != want || k.Count < 1 || !known {
				t.Fatalf("got %+v", k)
			}
			continue
		}
		checkDecided(t, seen, step, k.ID, k.From)
		if k.Count < 1 || k.To.Before(k.From) || k.To.After(step.Next.FiredFor) || (k.Count == 1) != k.To.Equal(k.From) {
			t.Fatalf("got skip %+v", k)
		}
	}
}

func checkEvent(t failer, subject Subject, step Step) {
	t.Helper()
	most := subject.Policy.defaults.LargeCatchUp
	if most == 0 {
		most = 10
	}
	n, e := len(step.Runs), step.Event
	if e == nil {
		if n > most && step.Runs[0].Kind == belfry.KindScheduled {
			t.Fatalf("no event for %d runs", n)
		}
		return
	}
	want := belfry.Event{
		ID:        belfry.RunID(step.Seen.JobID, "large_catch_up", step.Runs[n-1].ScheduledAt, belfry.ID{}),
		Namespace: subject.Namespace, JobID: step.Seen.JobID, Kind: belfry.EventLargeCatchUp, At: e.At, Message: e.Message, Count: int64(n),
	}
	if n <= most || *e != want || e.Message == "" || e.At.Before(step.Runs[n-1].ReadyAt) {
		t.Fatalf("%d runs: got %+v, want %+v", n, e, want)
	}
}

// checkPartition checks that the occurrences from the first that a step decides to the
// last are each in one of its runs or skips, and that the runs are in order. Very
// large numbers are not checked.
func checkPartition(t failer, p *Policy, step Step) {
	t.Helper()
	left := map[time.Time]int{} // by the first of a skip, or the run: how many more
	ends := map[time.Time]time.Time{}
	var last, ran time.Time
	for _, k := range step.Skips {
		if !k.Note {
			if k.Count > 5000 {
				return
			}
			left[k.From], ends[k.From], last = int(k.Count), k.To, later(last, k.To)
		}
	}
	for _, r := range step.Runs {
		if r.Kind == belfry.KindScheduled {
			if _, twice := left[r.ScheduledAt]; twice || !r.ScheduledAt.After(ran) {
				t.Fatalf("%v follows %v, or has two fates", r.ScheduledAt, ran)
			}
			ran = r.ScheduledAt
			left[ran], ends[ran], last = 1, ran, later(last, ran)
		}
	}
	first := step.First()
	if len(left) == 0 != first.IsZero() {
		t.Fatalf("the first decided occurrence is %v", first)
	}
	for at := first; len(left) > 0 && !at.After(last); at = p.Rule.Next(at) {
		n, begins := left[at]
		if !begins {
			t.Fatalf("%v has no fate", at)
		}
		delete(left, at)
		end := ends[at]
		for ; n > 1; n-- {
			if at = p.Rule.Next(at); at.IsZero() || at.After(end) {
				t.Fatalf("a skip until %v counts too many", end)
			}
		}
		if !at.Equal(end) {
			t.Fatalf("a skip until %v ends at %v", end, at)
		}
	}
	if len(left) > 0 {
		t.Fatalf("what was decided is no occurrence: %v", left)
	}
}
