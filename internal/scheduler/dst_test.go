package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
	"github.com/belfry-sh/belfry/internal/store"
)

// newYork is where the jobs of a year are at half past two in the morning, which
// does not exist on 2 April 2000 and is half an hour after a repeated hour on 29
// October.
const newYork = "America/New_York"

// runAroundDue runs a node only while something is due: what is planned must be found
// by a node that has just started.
func (b *bubble) runAroundDue(until time.Time, jobs ...belfry.ID) {
	b.Helper()
	for {
		dues, err := b.store.PlansByJob(b.Context(), jobs)
		if err != nil {
			b.Fatal(err)
		}
		dues = slices.DeleteFunc(dues, func(d store.Due) bool { return d.Plan.NextAt.IsZero() })
		if len(dues) == 0 {
			return
		}
		next := slices.MinFunc(dues, func(a, b store.Due) int { return a.Plan.NextAt.Compare(b.Plan.NextAt) }).Plan.NextAt
		if next.After(until) {
			return
		}
		if wait := time.Until(next.Add(-time.Second)); wait > 0 {
			b.sleep(wait)
		}
		b.start(b.store)
		b.sleep(2 * time.Second)
		b.stop()
	}
}

// night is half past two in New York on a day of 2000, or the end of the gap.
func night(month time.Month, day int) time.Time {
	date := time.Date(2000, month, day, 0, 0, 0, 0, time.UTC)
	switch {
	case month == time.April && day == 2:
		return date.Add(7 * time.Hour)
	case date.After(time.Date(2000, 4, 2, 0, 0, 0, 0, time.UTC)) && date.Before(time.Date(2000, 10, 29, 0, 0, 0, 0, time.UTC)):
		return date.Add(6*time.Hour + 30*time.Minute)
	}
	return date.Add(7*time.Hour + 30*time.Minute)
}

// nightsBetween lists those from one day to another, without the given ones.
func nightsBetween(from, to time.Time, without ...time.Time) (all []time.Time) {
	for day := from; !day.After(to); day = day.AddDate(0, 0, 1) {
		if at := night(day.Month(), day.Day()); !slices.Contains(without, at) {
			all = append(all, at)
		}
	}
	return all
}

func TestDSTYearInNewYork(t *testing.T) {
	if testing.Short() {
		t.Skip("a year takes a while")
	}
	inBubble(t, func(b *bubble) {
		b.retention = 400 * 24 * time.Hour
		first, last := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2000, 11, 15, 0, 0, 0, 0, time.UTC)
		ends := time.Date(2000, 5, 1, 0, 0, 0, 0, time.UTC)
		in := func(change func(*belfry.Spec)) belfry.ID {
			return b.create("30 2 * * *", func(s *belfry.Spec) {
				s.Timezone = newYork
				if change != nil {
					change(s)
				}
			})
		}
		gap := night(time.April, 2)
		type wants struct {
			what   string
			job    belfry.ID
			jitter time.Duration
			runs   []time.Time
			gaps   []time.Time
			status belfry.JobStatus
		}
		all := []wants{
			{"what the clock skips runs at the end of the gap", in(nil), 0, nightsBetween(first, last), nil, belfry.StatusScheduled},
			{"what the clock skips is skipped", in(func(s *belfry.Spec) { s.DSTGap = belfry.GapSkip }), 0,
				nightsBetween(first, last, gap), []time.Time{gap}, belfry.StatusScheduled},
			{"jitter", in(func(s *belfry.Spec) { s.JitterSeconds = 600 }), 10 * time.Minute, nightsBetween(first, last), nil, belfry.StatusScheduled},
			{"jitter and a gap that is skipped", in(func(s *belfry.Spec) { s.JitterSeconds, s.DSTGap = 600, belfry.GapSkip }), 10 * time.Minute,
				nightsBetween(first, last, gap), []time.Time{gap}, belfry.StatusScheduled},
			{"an end", in(func(s *belfry.Spec) { s.EndsAt, s.JitterSeconds = ends, 600 }), 10 * time.Minute,
				nightsBetween(first, ends.AddDate(0, 0, -1)), nil, belfry.StatusCompleted},
			{"an end at the last occurrence, which the clock skips", in(func(s *belfry.Spec) { s.EndsAt, s.DSTGap = gap, belfry.GapSkip }), 0,
				nightsBetween(first, gap.AddDate(0, 0, -1)), nil, belfry.StatusCompleted},
			{"a number of runs", in(func(s *belfry.Spec) { s.MaxRuns = 100 }), 0, nightsBetween(first, first.AddDate(0, 0, 99)), nil, belfry.StatusCompleted},
			{"a number of runs and a gap that is skipped", in(func(s *belfry.Spec) { s.MaxRuns, s.DSTGap = 100, belfry.GapSkip }), 0,
				nightsBetween(first, first.AddDate(0, 0, 100), gap), []time.Time{gap}, belfry.StatusCompleted},
		}
		var jobs []belfry.ID
		for _, w := range all {
			jobs = append(jobs, w.job)
		}
		b.runAroundDue(time.Date(2000, 2, 1, 0, 0, 0, 0, time.UTC), jobs...)
		for _, w := range all { // triggered runs do not count
			b.trigger(w.job)
		}
		b.runAroundDue(last.AddDate(0, 0, 1), jobs...)
		for _, w := range all {
			b.wantYear(w.what, w.job, w.jitter, w.runs, w.gaps)
			if job, err := b.store.Job(b.Context(), "default", w.job); err != nil || job.Status != w.status || (job.NextRunAt != nil) != (w.status == belfry.StatusScheduled) {
				b.Errorf("%s: the job is %s and next runs at %v, %v", w.what, job.Status, job.NextRunAt, err)
			}
		}
	})
}

func (b *bubble) trigger(job belfry.ID) {
	b.Helper()
	trigger := plan.Trigger{ID: belfry.NewID(time.Now()), Namespace: "default", JobID: job, Kind: belfry.KindManual, At: b.store.Now()}
	if err := b.store.Trigger(b.Context(), []plan.Trigger{trigger}, nil); err != nil {
		b.Fatal(err)
	}
}

// wantYear expects exactly these runs, each called once at its instant and jitter,
// these gaps, and one triggered run.
func (b *bubble) wantYear(what string, job belfry.ID, jitter time.Duration, runs, gaps []time.Time) {
	b.Helper()
	var gotRuns, gotGaps []time.Time
	manual := 0
	for _, run := range b.runs(job) {
		switch {
		case run.Status == belfry.RunSkipped && run.Reason == belfry.ReasonDSTGap && run.SkippedCount == 1:
			gotGaps = append(gotGaps, run.ScheduledAt)
		case run.Status == belfry.RunSucceeded && run.Kind == belfry.KindManual:
			manual++
		case run.Status == belfry.RunSucceeded:
			gotRuns = append(gotRuns, run.ScheduledAt)
			due := run.ScheduledAt.Add(schedule.Jitter(job, run.ScheduledAt, jitter, 24*time.Hour))
			calls := b.callsOf(run.ID)
			if len(calls) != 1 || calls[0].at.Before(due) || calls[0].at.Sub(due) > slack || !run.ReadyAt.Equal(due) {
				b.Errorf("%s: the run of %v was ready at %v and called %+v, wants once at %v", what, run.ScheduledAt, run.ReadyAt, calls, due)
			}
		default:
			b.Errorf("%s: there is %+v", what, run)
		}
	}
	if !slices.EqualFunc(gotRuns, runs, time.Time.Equal) {
		b.Errorf("%s: %d runs, wants %d%s", what, len(gotRuns), len(runs), firstDifference(gotRuns, runs))
	}
	if !slices.EqualFunc(gotGaps, gaps, time.Time.Equal) || manual != 1 {
		b.Errorf("%s: the gaps are %v, wants %v; %d runs were triggered", what, gotGaps, gaps, manual)
	}
}

func firstDifference(got, want []time.Time) string {
	for i := range min(len(got), len(want)) {
		if !got[i].Equal(want[i]) {
			return fmt.Sprintf("; number %d is at %v, wants %v", i, got[i], want[i])
		}
	}
	return ""
}

func TestPendingTriggersAreFiredOnStart(t *testing.T) {
	inBubble(t, func(b *bubble) {
		job := b.create("0 12 * * *", nil)
		b.trigger(job)
		b.sleep(time.Minute)
		started := time.Now()
		b.start(b.store)
		b.sleep(time.Second)
		if calls := b.handled(); len(calls) != 1 || calls[0].at.Sub(started) > slack {
			b.Errorf("started at %v, got %+v", started, calls)
		}
	})
}

func TestJitterDelaysRunsOnly(t *testing.T) {
	inBubble(t, func(b *bubble) {
		const jobs, most = 20, 4 * time.Minute
		ids := map[belfry.ID]int{}
		for range jobs {
			ids[b.create("*/5 * * * *", func(s *belfry.Spec) { s.JitterSeconds, s.MaxRuns = int(most/time.Second), 12 })] = 0
		}
		b.start(b.store)
		b.sleep(2 * time.Hour)
		delays := map[time.Duration]bool{}
		for _, c := range b.handled() {
			n, at := ids[c.run.JobID], c.run.ScheduledAt
			delay := schedule.Jitter(c.run.JobID, at, most, 5*time.Minute)
			if want := clock(0, 5*(n+1)); !at.Equal(want) || c.at.Before(at.Add(delay)) || c.at.Sub(at.Add(delay)) > slack || !c.run.ReadyAt.Equal(at.Add(delay)) {
				b.Errorf("run %d is of %v, ready at %v and started at %v, wants %v and %v after it", n, at, c.run.ReadyAt, c.at, want, delay)
			}
			ids[c.run.JobID] = n + 1
			delays[delay] = true
		}
		for id, n := range ids {
			if made, skipped := count(b.runs(id)); n != 12 || made != 12 || skipped != 0 {
				b.Errorf("job %s has %d calls, %d runs and %d skips, wants 12, 12 and none", id, n, made, skipped)
			}
		}
		if len(delays) < 200 {
			b.Errorf("240 runs have %d different delays", len(delays))
		}
	})
}
