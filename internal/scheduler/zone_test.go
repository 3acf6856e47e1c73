package scheduler

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
	"github.com/belfry-sh/belfry/internal/store"
)

// createPlanned makes a job that was planned for an instant with some release of the
// time-zone data.
func (b *bubble) createPlanned(schedule, release string, at time.Time, change func(*store.NewJob)) belfry.ID {
	b.Helper()
	id := b.create(schedule, nil)
	b.edit(id, func(s plan.Subject, j *belfry.Job, p plan.Plan, now time.Time) plan.Step {
		step := plan.Step{Subject: s, Seen: p, Next: p}
		step.Next.NominalAt, step.Next.NextAt, step.Next.ZoneVersion = at, at, release
		if change != nil {
			n := store.NewJob{Job: *j, Plan: step.Next}
			change(&n)
			*j, step.Next = n.Job, n.Plan
		}
		return step
	})
	return id
}

func (b *bubble) plan(job belfry.ID) plan.Plan {
	b.Helper()
	dues, err := b.store.PlansByJob(b.Context(), []belfry.ID{job})
	if err != nil || len(dues) != 1 {
		b.Fatalf("found %d plans of a job, %v", len(dues), err)
	}
	return dues[0].Plan
}

// clock is an instant of the first day of the bubble.
func clock(hour, minute int) time.Time { return time.Date(2000, 1, 1, hour, minute, 0, 0, time.UTC) }

// wantMoved expects one note of a move and then one run.
func (b *bubble) wantMoved(what string, job belfry.ID, from, to time.Time) {
	b.Helper()
	var notes, made []time.Time
	for _, run := range b.runs(job) {
		switch {
		case run.Status == belfry.RunSkipped && run.Reason == belfry.ReasonZoneChange:
			notes = append(notes, run.ScheduledAt)
			if want := belfry.RunID(job, belfry.RunKind(belfry.ReasonZoneChange), from, belfry.ID{}); run.ID != want || run.SkippedCount != 1 {
				b.Errorf("%s: the note is %+v, wants id %s", what, run, want)
			}
		case run.Status == belfry.RunSucceeded:
			made = append(made, run.ScheduledAt)
			if calls := b.callsOf(run.ID); len(calls) == 0 || calls[0].at.Before(to) {
				b.Errorf("%s: the run of %v was called %+v", what, run.ScheduledAt, calls)
			}
		default:
			b.Errorf("%s: there is %+v", what, run)
		}
	}
	if len(notes) != 1 || !notes[0].Equal(from) || len(made) != 1 || !made[0].Equal(to) {
		b.Errorf("%s: moved from %v and ran at %v, wants %v and %v", what, notes, made, from, to)
	}
}

func TestZoneUpdateMovesPlansOnce(t *testing.T) {
	inBubble(t, func(b *bubble) {
		later := b.createPlanned("50 0 * * *", "1999a", clock(0, 40), nil)
		sooner := b.createPlanned("30 0 * * *", "1999a", clock(0, 45), nil)
		imminent := b.createPlanned("5 0 * * *", "", clock(0, 3), nil) // in the wheel already when it is moved
		brought := b.createPlanned("4 0 * * *", "1999a", clock(0, 55), nil)
		stays := b.createPlanned("35 0 * * *", "1999a", clock(0, 35), nil)
		soon := b.createPlanned("6 0 * * *", "1999a", clock(0, 6), nil)
		newer := b.createPlanned("36 0 * * *", "9999z", clock(0, 37), nil)
		same := b.createPlanned("36 0 * * *", schedule.ZoneVersion(), clock(0, 37), nil)
		due := b.createPlanned("36 0 * * *", "1999a", clock(0, 0), nil)
		paused := b.createPlanned("38 0 * * *", "1999a", clock(0, 39), func(n *store.NewJob) { n.Job.State, n.Plan.NextAt = belfry.JobPaused, time.Time{} })
		seen := map[belfry.ID]int64{}
		for _, job := range []belfry.ID{stays, soon, newer, same, paused} {
			seen[job] = b.plan(job).Version
		}
		b.start(b.store)
		b.sleep(2 * time.Minute)
		for _, tt := range []struct {
			what     string
			job      belfry.ID
			steps    int64
			at       time.Time
			released string
		}{
			{"one that stays is only marked", stays, 1, clock(0, 35), schedule.ZoneVersion()},
			{"one that stays and is due soon is left to the loop", soon, 0, clock(0, 6), "1999a"},
			{"one of a newer release is not changed", newer, 0, clock(0, 37), "9999z"},
			{"one of the same release too", same, 0, clock(0, 37), schedule.ZoneVersion()},
			{"a paused one is moved", paused, 1, clock(0, 38), schedule.ZoneVersion()},
		} {
			if p := b.plan(tt.job); p.Version != seen[tt.job]+tt.steps || !p.NominalAt.Equal(tt.at) || p.ZoneVersion != tt.released {
				b.Errorf("%s: the plan is %+v", tt.what, p)
			}
		}
		if p := b.plan(paused); !p.NextAt.IsZero() {
			b.Errorf("the paused job is planned at %v", p.NextAt)
		}
		b.sleep(time.Hour)
		b.wantMoved("later", later, clock(0, 40), clock(0, 50))
		b.wantMoved("sooner", sooner, clock(0, 45), clock(0, 30))
		b.wantMoved("imminent", imminent, clock(0, 3), clock(0, 5))
		b.wantMoved("brought near", brought, clock(0, 55), clock(0, 4))
		for _, job := range []belfry.ID{stays, soon, newer, same} {
			if made, skipped := count(b.runs(job)); made != 1 || skipped != 0 {
				b.Errorf("a plan that was not to move has %d runs and %d skips", made, skipped)
			}
		}
		if runs := b.runs(due); len(runs) != 2 || !runs[0].ScheduledAt.Equal(clock(0, 0)) || !runs[1].ScheduledAt.Equal(clock(0, 36)) {
			b.Errorf("what was due already became %+v", runs)
		}
		for _, c := range b.handled() {
			if c.at.Sub(c.run.ScheduledAt) > slack && c.run.JobID != due {
				b.Errorf("the run of %v started at %v", c.run.ScheduledAt, c.at)
			}
		}
	})
}

func TestZoneUpdateRepeatsDaily(t *testing.T) {
	inBubble(t, func(b *bubble) {
		ctx, cancel := context.WithCancel(b.Context())
		s := New(b.store, Options{Owner: belfry.NewID(time.Now())})
		var parts sync.WaitGroup
		for shard := range b.store.Shards() {
			parts.Go(func() { s.Lead(ctx, store.Term{Shard: shard, Since: b.store.Now()}) })
		}
		parts.Go(func() { newZoneUpdater(s).run(ctx) })
		b.sleep(time.Hour)
		at := time.Date(2000, 1, 3, 12, 0, 0, 0, time.UTC)
		job := b.createPlanned("0 12 3 1 *", "1999a", at.Add(time.Hour), nil)
		b.sleep(22 * time.Hour)
		if p := b.plan(job); !p.NextAt.Equal(at.Add(time.Hour)) {
			b.Errorf("the plan is %+v already", p)
		}
		b.sleep(2 * time.Hour)
		if p := b.plan(job); !p.NextAt.Equal(at) {
			b.Errorf("after a day the plan is %+v", p)
		}
		cancel()
		parts.Wait()
	})
}

func TestZoneUpdateRepeatsForANewTerm(t *testing.T) {
	r := newZoneUpdater(&Scheduler{})
	terms := map[int]store.Term{1: {Shard: 1, Epoch: 4}, 2: {Shard: 2, Epoch: 1}, 3: {Shard: 3}}
	r.checked = map[int]int64{1: 4, 2: 0}
	if got := r.unchecked(terms); !slices.Equal(got, []int{2, 3}) {
		t.Errorf("the shards %v are checked, wants 2 and 3", got)
	}
}

func TestZoneUpdateLogsMoves(t *testing.T) {
	inBubble(t, func(b *bubble) {
		const jobs = 1203 // in three batches
		for range jobs {
			b.createPlanned("0 14 * * *", "1999a", clock(13, 0), nil)
		}
		var log bytes.Buffer
		b.log = slog.New(slog.NewTextHandler(&log, nil))
		b.start(b.store)
		b.sleep(time.Minute)
		b.stop()
		if n := strings.Count(log.String(), "moves a job"); n != maxMovesLogged || !strings.Contains(log.String(), fmt.Sprint("jobs=", jobs)) {
			b.Errorf("%d moves are named:\n%s", n, log.String()[max(log.Len()-1000, 0):])
		}
		if want := "from=2000-01-01T13:00:00.000Z to=2000-01-01T14:00:00.000Z planned_with=1999a"; !strings.Contains(log.String(), want) {
			b.Errorf("no line says %q", want)
		}
		after, _, err := b.store.PlansForZoneUpdate(b.Context(), []int{0, 1, 2, 3}, schedule.ZoneVersion(), belfry.ID{}, 10)
		if err != nil || len(after) != 0 {
			b.Errorf("%d plans are still of an older release, %v", len(after), err)
		}
	})
}

// TestFaultAtEveryStoreCallOfAZoneUpdate makes every store call of the first seconds fail, with
// the answer lost or not, or kills the process there.
func TestFaultAtEveryStoreCallOfAZoneUpdate(t *testing.T) {
	scenario := func(b *bubble, f *faultyStore) (calls int) {
		moved := b.createPlanned("13 0 * * *", "1999a", clock(0, 15), nil)
		near := b.createPlanned("5 0 * * *", "1999a", clock(0, 3), nil)
		stays := b.createPlanned("14 0 * * *", "1999a", clock(0, 14), nil)
		b.start(f)
		b.sleep(4 * time.Second)
		calls = f.count()
		for range 16 { // the fault may come a little later than it was counted
			if f.down() && b.store == f.Store {
				b.crash()
				b.start(b.store)
			}
			b.sleep(time.Minute)
		}
		b.wantMoved("moved", moved, clock(0, 15), clock(0, 13))
		b.wantMoved("near", near, clock(0, 3), clock(0, 5))
		b.wantDecided("stays", stays, 1)
		b.wantNoRepeats()
		return calls
	}
	var total int
	inBubble(t, func(b *bubble) { total = scenario(b, &faultyStore{Store: b.store}) })
	if t.Failed() {
		t.Fatal("it fails without faults")
	}
	stride := 1
	if testing.Short() {
		stride = 7
	}
	for _, kind := range []fault{errorBefore, errorAfter, crashBefore, crashAfter} {
		for n := 1; n <= total; n += stride {
			t.Run(fmt.Sprintf("%s %d", kind, n), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(b *bubble) {
					f := &faultyStore{Store: b.store, kind: kind, n: n}
					scenario(b, f)
					if b.Failed() {
						b.Logf("%s call %d, %s", kind, n, f.name)
					}
				})
			})
		}
	}
}

// unmovableStore refuses the steps of one job.
type unmovableStore struct {
	store.Store
	job belfry.ID
}

func TestZoneUpdateSkipsAPlanThatCannotBeUpdated(t *testing.T) {
	inBubble(t, func(b *bubble) {
		var jobs []belfry.ID
		for range 20 {
			jobs = append(jobs, b.createPlanned("0 14 * * *", "1999a", clock(13, 0), nil))
		}
		b.start(&unmovableStore{b.store, jobs[7]})
		b.sleep(time.Minute)
		for i, job := range jobs {
			if moved := b.plan(job).NominalAt.Equal(clock(14, 0)); moved != (i != 7) {
				b.Errorf("job %d was moved: %v", i, moved)
			}
		}
	})
}

func (s *unmovableStore) Fire(ctx context.Context, owner belfry.ID, steps []plan.Step, slots ...store.FreeSlots) (store.FireResult, error) {
	for i := range steps {
		if steps[i].Seen.JobID == s.job {
			return store.FireResult{}, errRefused
		}
	}
	return s.Store.Fire(ctx, owner, steps, slots...)
}
