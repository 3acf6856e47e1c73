package plan

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belfry-sh/belfry"
)

// life is a job in the hands of the functions under test.
type life struct {
	*rapid.T
	subject  Subject
	plan     Plan
	now, end time.Time
	since    time.Time
	expected model
	fates    map[time.Time]belfry.Reason
	told     map[time.Time]int64
	ids      map[belfry.ID]bool
}

// start creates the job. The id says when.
func start(t *rapid.T, s Subject, now, end time.Time) *life {
	l := &life{
		T: t, subject: s, now: now, end: end, since: now, plan: First(job, 5, s.Policy, now),
		fates: map[time.Time]belfry.Reason{}, told: map[time.Time]int64{}, ids: map[belfry.ID]bool{},
		expected: model{fates: map[time.Time]belfry.Reason{}, told: map[time.Time]int64{}},
	}
	l.expected.adopt(t, s, now, end)
	// The job's id is much older than the job, so the time until now is decided.
	if s.Policy.SkipsGap() && !l.expected.once {
		l.plan.FiredFor, l.expected.mark = now, now
	}
	return l
}

// apply does what a store does with a step, and notes what became of which
// occurrence.
func (l *life) apply(step Step) {
	l.Helper()
	sound(l, l.subject, l.plan, step)
	if step.Due && l.plan.NextAt.After(l.now) {
		l.Fatalf("a step for %v was made at %v", l.plan.NextAt, l.now)
	}
	if first := step.First(); !first.IsZero() && !first.After(l.plan.FiredFor) {
		l.Fatalf("%v is decided although all up to %v is", first, l.plan.FiredFor)
	}
	fresh := func(id belfry.ID) {
		if l.ids[id] {
			l.Fatalf("%s was recorded twice", id)
		}
		l.ids[id] = true
	}
	note := func(at time.Time, fate belfry.Reason) {
		if earlier, twice := l.fates[at]; twice {
			l.Fatalf("%v is %s and %s", at, earlier, fate)
		}
		if ready := l.subject.Policy.ReadyAt(job, at); ready.After(l.now) {
			l.Fatalf("%v is %s although it is only %v", ready, fate, l.now)
		}
		l.fates[at] = fate
	}
	for _, k := range step.Skips {
		fresh(k.ID)
		at := k.From
		if k.Reason == belfry.ReasonDSTGap {
			l.told[at] = k.Count
			continue
		}
		for i := int64(1); i < k.Count; i++ {
			note(at, k.Reason)
			at = l.subject.Policy.Rule.Next(at)
		}
		note(at, k.Reason)
		if !at.Equal(k.To) {
			l.Fatalf("a skip of %d from %v ends at %v, want %v", k.Count, k.From, k.To, at)
		}
	}
	for _, r := range step.Runs {
		if fresh(r.ID); r.Kind == belfry.KindScheduled {
			note(r.ScheduledAt, ran)
		}
	}
	version := l.plan.Version + 1
	l.plan = step.Next
	l.plan.Version = version
}

func (l *life) isDue() bool { return !l.plan.NextAt.IsZero() && !l.plan.NextAt.After(l.now) }

func (l *life) look() {
	if l.isDue() {
		l.expected.decide(l.since, l.now)
		l.apply(Decide(l.subject, l.plan, l.since, l.now))
	}
}

// agree compares the two.
func (l *life) agree() {
	l.Helper()
	if !maps.Equal(l.fates, l.expected.fates) {
		tell := func(r belfry.Reason) string { return string(r) }
		l.Fatalf("at %v\ngot  %s\nwant %s", l.now, list(l.fates, tell), list(l.expected.fates, tell))
	}
	if !maps.Equal(l.told, l.expected.told) {
		tell := func(n int64) string { return fmt.Sprint(n) }
		l.Fatalf("at %v\ngot gaps %s\nwant     %s", l.now, list(l.told, tell), list(l.expected.told, tell))
	}
	var first occasion
	if len(l.expected.left) > 0 {
		first = l.expected.left[0]
	}
	if !l.plan.NominalAt.Equal(first.at) || l.plan.RunsMade != l.expected.made {
		l.Fatalf("at %v %v is next after %d runs, want %v after %d", l.now, l.plan.NominalAt, l.plan.RunsMade, first.at, l.expected.made)
	}
	next := l.plan.NextAt
	if want := !first.at.IsZero() && !l.expected.paused; next.IsZero() == want {
		l.Fatalf("at %v the next look is at %v; planned is %v", l.now, next, want)
	} else if want && !next.Equal(first.ready) && (next.Before(first.ready) || next.After(l.now)) {
		l.Fatalf("at %v the next look is at %v, want %v", l.now, next, first.ready)
	}
}

// end deletes the job, or has everything decided that is due; then no occurrence
// up to now may be without a fate.
func (l *life) finish() {
	if rapid.Bool().Draw(l.T, "delete") {
		l.expected.delete(l.now)
		l.apply(Delete(l.subject, l.plan, l.now))
	} else {
		if l.expected.paused {
			l.expected.resume(l.now)
			l.apply(Resume(l.subject, l.plan, l.now))
		}
		for l.isDue() {
			l.look()
		}
	}
	l.agree()
	if n := l.expected.due(l.now); n > 0 {
		l.Fatalf("%d occurrences up to %v have no fate", n, l.now)
	}
}

// move does one of the things that may happen to a job.
func (l *life) move(what string, stride time.Duration) {
	switch what {
	case "look":
		l.look()
	case "look twice":
		l.look()
		l.look()
	case "on the dot":
		if l.plan.NextAt.After(l.now) && l.plan.NextAt.Before(l.now.Add(stride)) {
			l.now = l.plan.NextAt
		}
		l.look()
	case "outage":
		l.since = l.now
	case "pause":
		if !l.expected.paused {
			l.expected.pause(l.since, l.now)
			l.apply(Pause(l.subject, l.plan, l.since, l.now))
		}
	case "resume":
		if l.expected.paused {
			l.expected.resume(l.now)
			l.apply(Resume(l.subject, l.plan, l.now))
		}
	case "trigger":
		l.apply(Fire(l.subject, l.plan, []Trigger{{ID: belfry.NewID(l.now), JobID: job, Kind: belfry.KindManual, At: l.now}}))
	}
}

// anySubject draws a schedule and what stands beside it, around the Sunday on which
// Paris changes its clocks.
func anySubject(t *rapid.T, schedules []string) Subject {
	return tuned(t, rapid.SampledFrom(schedules).Draw(t, "schedule"), func(s *belfry.Spec) {
		s.JitterSeconds = rapid.SampledFrom([]int{0, 0, 1, 30, 600, 7200, 86400}).Draw(t, "jitter")
		if rapid.Bool().Draw(t, "skip") {
			s.DSTGap = belfry.GapSkip
		}
		if s.Schedule[0] == '2' { // an instant
			return
		}
		s.MaxRuns = rapid.SampledFrom([]int{0, 0, 1, 3, 20}).Draw(t, "runs")
		hours := func(name string, from int) time.Time {
			after := time.Duration(rapid.IntRange(from*3600, (from+48)*3600).Draw(t, name)) * time.Second
			return at(t, "2026-03-27 12:00").Add(after)
		}
		if s.Schedule[0] == 'P' || rapid.Bool().Draw(t, "starts") {
			s.StartsAt = hours("start at", 0)
		}
		if rapid.Bool().Draw(t, "ends") {
			s.EndsAt = hours("end at", 48)
		}
	})
}

func (l *life) later(most time.Duration) {
	l.now = l.now.Add(time.Duration(rapid.Int64Range(0, int64(most/time.Microsecond)).Draw(l.T, "later")) * time.Microsecond)
}

func TestEveryOccurrenceIsDecidedOnce(t *testing.T) {
	schedules := []string{
		"* * * * *", "*/7 * * * *", "0 * * * *", "30 9 * * MON-FRI", "*/20 * * * * *",
		"Europe/Paris */15 * * * *", "Europe/Paris 30 2 * * *", "Europe/Paris 0,15,45 2,3 * * *", "America/New_York 0 1,2 * * *",
		"Australia/Lord_Howe */10 1-2 * * *", "0 0 9 29-31 3 * 2026", "PT25M", "Europe/Paris P1D",
		"2026-03-29T00:50:00Z", "2026-03-28T09:00:00.123456Z", "2026-03-20T09:00:00Z",
	}
	moves := []string{"look", "look", "look twice", "outage", "pause", "resume", "trigger", "on the dot"}
	rapid.Check(t, func(t *rapid.T) {
		from := at(t, "2026-03-28 12:00").Add(time.Duration(rapid.Int64Range(0, int64(30*time.Hour/time.Microsecond)).Draw(t, "start")) * time.Microsecond)
		stride := rapid.SampledFrom([]time.Duration{10 * time.Second, 2 * time.Minute, time.Hour, 8 * time.Hour}).Draw(t, "stride")
		const most = 30
		l := start(t, anySubject(t, schedules), from, from.Add((most+20)*stride+48*time.Hour))
		for range rapid.IntRange(1, most).Draw(t, "moves") {
			l.later(stride)
			l.move(rapid.SampledFrom(moves).Draw(t, "move"), stride)
			l.agree()
		}
		l.finish()
	})
}

// Whatever is done to a job, every occurrence of each of its rules, from the
// moment at which the rule came to the moment at which it went, has one fate.
func TestNoEditLosesOrDoublesAnOccurrence(t *testing.T) {
	schedules := []string{
		"* * * * *", "*/7 * * * *", "0 * * * *", "*/20 * * * * *", "Europe/Paris */15 * * * *", "Europe/Paris 30 2 * * *",
		"Europe/Paris 0,20,40 2,3 * * *", "PT25M", "2026-03-29T00:50:00Z", "2026-03-28T18:00:00.123456Z", "2026-03-20T09:00:00Z",
	}
	moves := []string{"look", "outage", "pause", "resume", "edit", "edit", "retime", "on the dot"}
	rapid.Check(t, func(t *rapid.T) {
		from := at(t, "2026-03-28 12:00")
		l := start(t, anySubject(t, schedules), from, from.Add(96*time.Hour))
		for range rapid.IntRange(1, 30).Draw(t, "moves") {
			l.later(2 * time.Hour)
			switch what := rapid.SampledFrom(moves).Draw(t, "move"); what {
			case "edit":
				next, pause := anySubject(t, schedules), rapid.Bool().Draw(t, "paused")
				l.expected.edit(t, next, pause, l.now, l.end)
				l.apply(Edit(l.subject, next.Policy, l.plan, pause, l.now))
				l.subject = next
			case "retime":
				spec := l.subject.Policy.Spec
				spec.JitterSeconds = rapid.SampledFrom([]int{0, 60, 3600}).Draw(t, "jitter")
				policy, err := Compile(spec)
				if err != nil {
					t.Fatal(err)
				}
				next := l.subject
				next.Policy = policy
				l.expected.retime(t, next, l.now, l.end)
				l.apply(Retime(Step{Subject: l.subject, Seen: l.plan, Next: l.plan}, policy, l.now))
				l.subject = next
			default:
				l.move(what, time.Hour)
			}
			l.agree()
		}
		l.finish()
	})
}
