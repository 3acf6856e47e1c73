package plan

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belfry-sh/belfry"
)

// simulation is a job to which the functions under test are applied.
type simulation struct {
	*rapid.T
	subject  Subject
	plan     Plan
	now, end time.Time
	since    time.Time
	expected model
	fates    map[time.Time]belfry.Reason
	gapNotes map[time.Time]int64
	gone     []time.Time
	ids      map[belfry.ID]bool
}

// newSimulation creates the job. The id says when.
func newSimulation(t *rapid.T, s Subject, now, end time.Time) *simulation {
	l := &simulation{
		T: t, subject: s, now: now, end: end, since: now, plan: First(job, 5, s.Policy, now),
		fates: map[time.Time]belfry.Reason{}, gapNotes: map[time.Time]int64{}, ids: map[belfry.ID]bool{},
		expected: model{fates: map[time.Time]belfry.Reason{}, gapNotes: map[time.Time]int64{}},
	}
	l.expected.addRule(t, s, now, end)
	l.expected.setNext(now)
	// The job's id is much older than the job, so the time until now is decided.
	if s.Policy.SkipsGap() && !l.expected.once {
		l.plan.FiredFor, l.expected.mark = now, now
	}
	return l
}

// apply does what a store does with a step, and notes what became of which
// occurrence.
func (l *simulation) apply(step Step) {
	l.Helper()
	checkStep(l, l.subject, l.plan, step)
	if step.Due && l.plan.NextAt.After(l.now) {
		l.Fatalf("a step for %v was made at %v", l.plan.NextAt, l.now)
	}
	if first := step.First(); !first.IsZero() && !first.After(l.plan.FiredFor) {
		l.Fatalf("%v is decided although all up to %v is", first, l.plan.FiredFor)
	}
	for _, k := range step.Skips {
		l.recordSkip(k)
	}
	for _, r := range step.Runs {
		l.checkNewID(r.ID)
		if r.Kind != belfry.KindScheduled {
			continue
		}
		if l.recordOutcome(r.ScheduledAt, ran); r.Queue == NoQueueLimit {
			l.fates[r.ScheduledAt] = caughtUp
		}
		if r.ReadyAt.After(l.now) {
			l.Fatalf("%v runs although it is only %v", r.ReadyAt, l.now)
		}
	}
	var large int64
	if step.Event != nil {
		l.checkNewID(step.Event.ID)
		large = step.Event.Count
	}
	if large != l.expected.large {
		l.Fatalf("an event counts %d runs, want %d", large, l.expected.large)
	}
	l.expected.large = 0
	version := l.plan.Version + 1
	l.plan = step.Next
	l.plan.Version = version
}

func (l *simulation) checkNewID(id belfry.ID) {
	l.Helper()
	if l.ids[id] {
		l.Fatalf("%s was recorded twice", id)
	}
	l.ids[id] = true
}

func (l *simulation) recordOutcome(at time.Time, fate belfry.Reason) {
	l.Helper()
	if earlier, twice := l.fates[at]; twice {
		l.Fatalf("%v is %s and %s", at, earlier, fate)
	}
	if at.After(l.now) {
		l.Fatalf("%v is %s although it is only %v", at, fate, l.now)
	}
	l.fates[at] = fate
}

func (l *simulation) recordSkip(k Skip) {
	l.Helper()
	l.checkNewID(k.ID)
	at := k.From
	switch {
	case k.Note && k.Reason == belfry.ReasonDSTGap:
		l.gapNotes[at] = k.Count
		return
	case k.Note:
		l.gone = append(l.gone, at)
		return
	}
	for i := int64(1); i < k.Count; i++ {
		l.recordOutcome(at, k.Reason)
		at = l.subject.Policy.Rule.Next(at)
	}
	l.recordOutcome(at, k.Reason)
	if !at.Equal(k.To) {
		l.Fatalf("a skip of %d from %v ends at %v, want %v", k.Count, k.From, k.To, at)
	}
}

func (l *simulation) isDue() bool { return !l.plan.NextAt.IsZero() && !l.plan.NextAt.After(l.now) }

func (l *simulation) fireDue() {
	if l.isDue() {
		l.expected.decide(l.since, l.now)
		l.apply(Decide(l.subject, l.plan, l.since, l.now))
	}
}

// compareWithModel compares what the steps decided with the model.
func (l *simulation) compareWithModel() {
	l.Helper()
	if !maps.Equal(l.fates, l.expected.fates) {
		text := func(r belfry.Reason) string { return string(r) }
		l.Fatalf("at %v\ngot  %s\nwant %s", l.now, list(l.fates, text), list(l.expected.fates, text))
	}
	if !maps.Equal(l.gapNotes, l.expected.gapNotes) {
		text := func(n int64) string { return fmt.Sprint(n) }
		l.Fatalf("at %v\ngot gaps %s\nwant     %s", l.now, list(l.gapNotes, text), list(l.expected.gapNotes, text))
	}
	if !slices.EqualFunc(l.gone, l.expected.gone, time.Time.Equal) {
		l.Fatalf("at %v %v were cancelled before their time, want %v", l.now, l.gone, l.expected.gone)
	}
	var first, next time.Time
	if len(l.expected.left) > 0 {
		first = l.expected.left[0].at
	}
	if !l.expected.paused {
		next = l.expected.nextAt
	}
	p, want := l.plan, l.expected
	if !p.NominalAt.Equal(first) || !p.NextAt.Equal(next) || !p.FiredFor.Equal(want.mark) || p.RunsMade != want.made || p.Once != want.once {
		l.Fatalf("at %v the plan is %+v, want %v due at %v, after %v and %d runs", l.now, p, first, next, want.mark, want.made)
	}
}

// finish deletes or cancels the job, or has everything decided that is due; then no
// occurrence up to now may be without a fate, unless it waits for its jitter.
func (l *simulation) finish() {
	switch rapid.SampledFrom([]string{"delete", "cancel", "go on"}).Draw(l.T, "finish") {
	case "delete":
		l.expected.end(belfry.ReasonDeleted, l.now)
		l.apply(Delete(l.subject, l.plan, l.now))
	case "cancel":
		l.expected.cancel(l.now)
		l.apply(Cancel(l.subject, l.plan, l.now))
	default:
		l.act("resume", 0)
		for l.isDue() {
			l.fireDue()
		}
	}
	l.compareWithModel()
	if n := l.expected.due(l.now); n > 0 {
		l.Fatalf("%d occurrences up to %v have no fate", n, l.now)
	}
}

// act does one of the things that may happen to a job.
func (l *simulation) act(what string, stride time.Duration) {
	switch what {
	case "fire":
		l.fireDue()
	case "fire twice":
		l.fireDue()
		l.fireDue()
	case "on the dot":
		if l.plan.NextAt.After(l.now) && l.plan.NextAt.Before(l.now.Add(stride)) {
			l.now = l.plan.NextAt
		}
		l.fireDue()
	case "outage":
		l.since = l.now
	case "pause":
		if !l.expected.paused {
			l.expected.pause(l.now)
			l.apply(Pause(l.subject, l.plan, l.now))
		}
	case "resume":
		if l.expected.paused {
			catchUp := rapid.Bool().Draw(l.T, "catch up")
			l.expected.resume(catchUp, l.now)
			l.apply(Resume(l.subject, l.plan, catchUp, l.now))
		}
	case "cancel":
		l.expected.cancel(l.now)
		l.apply(Cancel(l.subject, l.plan, l.now))
	case "trigger":
		kind := rapid.SampledFrom([]belfry.RunKind{belfry.KindManual, belfry.KindBackfill}).Draw(l.T, "kind")
		l.apply(Fire(l.subject, l.plan, []Trigger{{ID: belfry.NewID(l.now), JobID: job, Kind: kind, At: l.now}}))
	}
}

// anySubject draws a schedule and its settings, around the Sunday on which
// Paris changes its clocks.
func anySubject(t *rapid.T, schedules []string) Subject {
	s := subjectWith(t, rapid.SampledFrom(schedules).Draw(t, "schedule"), func(s *belfry.Spec) {
		s.JitterSeconds = rapid.SampledFrom([]int{0, 0, 1, 30, 600, 7200, 86400}).Draw(t, "jitter")
		s.DSTGap = rapid.SampledFrom([]belfry.DSTGap{"", "", belfry.GapRun, belfry.GapSkip}).Draw(t, "gap")
		s.MissedWindow = rapid.SampledFrom([]belfry.MissedWindow{belfry.MissedSkip, belfry.MissedRunOnce, belfry.MissedRunAll}).Draw(t, "missed")
		s.MaxMissed = rapid.SampledFrom([]int{0, 0, 1, 2, 5, 1000}).Draw(t, "max missed")
		s.CatchUpSeconds = rapid.SampledFrom([]int{0, 0, 1, 60, 3600, 86400, 7 * 86400}).Draw(t, "window")
		s.Overlap = rapid.SampledFrom([]belfry.Overlap{belfry.OverlapSkip, belfry.OverlapQueue, belfry.OverlapParallel}).Draw(t, "overlap")
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
	s.Policy.defaults = Defaults{
		CatchUpWindow: rapid.SampledFrom([]time.Duration{0, 0, 10 * time.Minute, 5 * time.Hour}).Draw(t, "server's window"),
		LargeCatchUp:  rapid.SampledFrom([]int{0, 3}).Draw(t, "large"),
	}
	return s
}

func (l *simulation) advanceClock(most time.Duration) {
	l.now = l.now.Add(time.Duration(rapid.Int64Range(0, int64(most/time.Microsecond)).Draw(l.T, "later")) * time.Microsecond)
}

func TestEveryOccurrenceIsDecidedOnce(t *testing.T) {
	schedules := []string{
		"* * * * *", "*/7 * * * *", "0 * * * *", "30 9 * * MON-FRI", "*/20 * * * * *",
		"Europe/Paris */15 * * * *", "Europe/Paris 30 2 * * *", "Europe/Paris 0,15,45 2,3 * * *", "America/New_York 0 1,2 * * *",
		"Australia/Lord_Howe */10 1-2 * * *", "0 0 9 29-31 3 * 2026", "PT25M", "Europe/Paris P1D",
		"2026-03-29T00:50:00Z", "2026-03-28T09:00:00.123456Z", "2026-03-20T09:00:00Z",
	}
	actions := []string{"fire", "fire", "fire twice", "outage", "pause", "resume", "trigger", "on the dot"}
	rapid.Check(t, func(t *rapid.T) {
		from := at(t, "2026-03-28 12:00").Add(time.Duration(rapid.Int64Range(0, int64(30*time.Hour/time.Microsecond)).Draw(t, "start")) * time.Microsecond)
		stride := rapid.SampledFrom([]time.Duration{10 * time.Second, 2 * time.Minute, time.Hour, 8 * time.Hour}).Draw(t, "stride")
		const most = 30
		l := newSimulation(t, anySubject(t, schedules), from, from.Add((most+20)*stride+48*time.Hour))
		for range rapid.IntRange(1, most).Draw(t, "actions") {
			l.advanceClock(stride)
			l.act(rapid.SampledFrom(actions).Draw(t, "move"), stride)
			l.compareWithModel()
		}
		l.finish()
	})
}

// Whatever is done to a job, every occurrence of each of its rules, from the
// moment at which the rule came to the moment at which it went, has one fate.
func TestEditsDecideEveryOccurrenceOnce(t *testing.T) {
	schedules := []string{
		"* * * * *", "*/7 * * * *", "0 * * * *", "*/20 * * * * *", "Europe/Paris */15 * * * *", "Europe/Paris 30 2 * * *",
		"Europe/Paris 0,20,40 2,3 * * *", "PT25M", "2026-03-29T00:50:00Z", "2026-03-28T18:00:00.123456Z", "2026-03-20T09:00:00Z",
	}
	actions := []string{"fire", "outage", "pause", "resume", "edit", "edit", "edit", "retime", "cancel", "on the dot"}
	rapid.Check(t, func(t *rapid.T) {
		from := at(t, "2026-03-28 12:00")
		l := newSimulation(t, anySubject(t, schedules), from, from.Add(96*time.Hour))
		for range rapid.IntRange(1, 30).Draw(t, "actions") {
			l.advanceClock(2 * time.Hour)
			switch what := rapid.SampledFrom(actions).Draw(t, "move"); what {
			case "edit":
				next, pause := anySubject(t, schedules), rapid.Bool().Draw(t, "paused")
				l.expected.edit(t, next, pause, l.now, l.end)
				l.apply(Edit(l.subject, next.Policy, l.plan, pause, l.now))
				l.subject = next
			case "retime":
				spec := l.subject.Policy.Spec
				spec.JitterSeconds = rapid.SampledFrom([]int{0, 60, 3600}).Draw(t, "jitter")
				policy, err := l.subject.Policy.defaults.Compile(spec)
				if err != nil {
					t.Fatal(err)
				}
				next := l.subject
				next.Policy = policy
				l.expected.retime(t, next, l.now, l.end)
				l.apply(Retime(Step{Subject: l.subject, Seen: l.plan, Next: l.plan}, policy, l.now))
				l.subject = next
			default:
				l.act(what, time.Hour)
			}
			l.compareWithModel()
		}
		l.finish()
	})
}
