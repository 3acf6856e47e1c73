package plan

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// The model knows all occurrences of a rule beforehand, as a list, and what must
// become of each: it is told what happens to the job and notes a fate for every
// occurrence by its own reading of the rules. In the end the steps must have
// decided the same.
type model struct {
	once   bool
	left   []time.Time // occurrences without a fate
	fates  map[time.Time]belfry.Reason
	paused bool
}

const ran belfry.Reason = "ran"

// due is how many occurrences lie no later than now.
func (m *model) due(now time.Time) int {
	n := 0
	for n < len(m.left) && !m.left[n].After(now) {
		n++
	}
	return n
}

func (m *model) settle(n int, fate belfry.Reason) {
	for _, at := range m.left[:n] {
		m.fates[at] = fate
	}
	m.left = m.left[n:]
}

// decide is told of a look at the plan while somebody is in charge since then.
func (m *model) decide(since, now time.Time) {
	missed := 0
	for missed < len(m.left) && m.left[missed].Before(since) && m.left[missed].Before(now) {
		missed++
	}
	m.settle(max(missed-1, 0), belfry.ReasonMissed)
	m.settle(1, ran)
}

func (m *model) pause(since, now time.Time) {
	if m.due(now) > 0 {
		m.decide(since, now)
	}
	m.paused = true
}

func (m *model) resume(now time.Time) {
	if !m.once {
		m.settle(m.due(now), belfry.ReasonPaused)
	}
	m.paused = false
}

func (m *model) delete(now time.Time) {
	fate := belfry.ReasonDeleted
	if m.paused && !m.once {
		fate = belfry.ReasonPaused
	}
	m.settle(m.due(now), fate)
	m.left = nil
}

// life is a job in the hands of the functions under test.
type life struct {
	*rapid.T
	subject  Subject
	plan     Plan
	now      time.Time
	since    time.Time
	expected model
	fates    map[time.Time]belfry.Reason
	ids      map[belfry.ID]bool
}

// apply does what a store does with a step, and notes what became of which
// occurrence.
func (l *life) apply(step Step) {
	l.Helper()
	sound(l, l.subject, l.plan, step)
	if step.Due && l.plan.NextAt.After(l.now) {
		l.Fatalf("a step for %v was made at %v", l.plan.NextAt, l.now)
	}
	note := func(id belfry.ID, at time.Time, fate belfry.Reason) {
		if earlier, twice := l.fates[at]; twice {
			l.Fatalf("%v is %s and %s", at, earlier, fate)
		}
		if at.After(l.now) {
			l.Fatalf("%v is %s although it is only %v", at, fate, l.now)
		}
		l.fates[at] = fate
		l.ids[id] = true
	}
	for _, k := range step.Skips {
		at := k.From
		for i := int64(1); i < k.Count; i++ {
			note(k.ID, at, k.Reason)
			at = l.subject.Policy.Rule.Next(at)
		}
		note(k.ID, at, k.Reason)
		if !at.Equal(k.To) {
			l.Fatalf("a skip of %d from %v ends at %v, want %v", k.Count, k.From, k.To, at)
		}
	}
	for _, r := range step.Runs {
		if r.Kind == belfry.KindScheduled {
			note(r.ID, r.ScheduledAt, ran)
		} else if l.ids[r.ID] {
			l.Fatalf("run %s was made twice", r.ID)
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
		l.Fatalf("at %v\ngot  %s\nwant %s", l.now, list(l.fates), list(l.expected.fates))
	}
	var nominal time.Time
	if len(l.expected.left) > 0 {
		nominal = l.expected.left[0]
	}
	if !l.plan.NominalAt.Equal(nominal) {
		l.Fatalf("at %v %v is next, want %v", l.now, l.plan.NominalAt, nominal)
	}
	if want := !nominal.IsZero() && !l.expected.paused; l.plan.NextAt.IsZero() == want {
		l.Fatalf("at %v the next look is at %v; planned is %v", l.now, l.plan.NextAt, want)
	}
}

func list(fates map[time.Time]belfry.Reason) (out string) {
	for _, at := range slices.SortedFunc(maps.Keys(fates), time.Time.Compare) {
		out += short(at) + " " + string(fates[at]) + ", "
	}
	return out
}

// occurrences lists what a rule names after start, until end.
func occurrences(rule schedule.Rule, start, end time.Time) (out []time.Time) {
	if at, once := schedule.Once(rule); once {
		return []time.Time{at}
	}
	for at := rule.Next(start); !at.IsZero() && !at.After(end); at = rule.Next(at) {
		out = append(out, at)
	}
	return out
}

func TestEveryOccurrenceIsDecidedOnce(t *testing.T) {
	schedules := []string{
		"* * * * *", "*/7 * * * *", "0 * * * *", "30 9 * * MON-FRI", "*/20 * * * * *",
		"Europe/Paris */15 * * * *", "Europe/Paris 30 2 * * *", "America/New_York 0 1,2 * * *",
		"Australia/Lord_Howe */10 1-2 * * *", "0 0 9 29-31 3 * 2026",
		"2026-03-29T00:50:00Z", "2026-03-28T09:00:00.123456Z", "2026-03-20T09:00:00Z",
	}
	rapid.Check(t, func(t *rapid.T) {
		subject := subject(t, rapid.SampledFrom(schedules).Draw(t, "schedule"))
		// Around the Sunday on which Paris changes its clocks.
		start := at(t, "2026-03-28 12:00").Add(time.Duration(rapid.Int64Range(0, int64(30*time.Hour/time.Microsecond)).Draw(t, "start")) * time.Microsecond)
		stride := rapid.SampledFrom([]time.Duration{10 * time.Second, 2 * time.Minute, time.Hour, 8 * time.Hour}).Draw(t, "stride")
		const moves = 30
		_, once := schedule.Once(subject.Policy.Rule)
		l := &life{
			T: t, subject: subject, now: start, since: start,
			plan:  First(job, 5, subject.Policy, start),
			fates: map[time.Time]belfry.Reason{}, ids: map[belfry.ID]bool{},
			expected: model{once: once, fates: map[time.Time]belfry.Reason{},
				left: occurrences(subject.Policy.Rule, start, start.Add((moves+20)*stride+48*time.Hour))},
		}
		l.expected.left = slices.Clip(l.expected.left)
		for range rapid.IntRange(1, moves).Draw(t, "moves") {
			l.now = l.now.Add(time.Duration(rapid.Int64Range(0, int64(stride/time.Microsecond)).Draw(t, "later")) * time.Microsecond)
			switch rapid.SampledFrom([]string{"look", "look", "look twice", "outage", "pause", "resume", "trigger", "on the dot"}).Draw(t, "move") {
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
					l.apply(Pause(subject, l.plan, l.since, l.now))
				}
			case "resume":
				if l.expected.paused {
					l.expected.resume(l.now)
					l.apply(Resume(subject, l.plan, l.now))
				}
			case "trigger":
				l.apply(Fire(subject, l.plan, []Trigger{{ID: belfry.NewID(l.now), JobID: job, Kind: belfry.KindManual, At: l.now}}))
			}
			l.agree()
		}
		l.end()
	})
}

// end deletes the job, or has everything decided that is due; then no occurrence
// up to now may be without a fate.
func (l *life) end() {
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
