package plan

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

func TestEdit(t *testing.T) {
	const fives, noon = "*/5 * * * *", "2026-03-02T12:00:00Z"
	for _, tt := range []struct {
		name              string
		old, nominal, now string
		paused            bool
		rule              string
		pause             bool
		want              string
		decided           string // before the edit
	}{
		{name: "nothing is due", old: fives, nominal: "09:05", now: "09:03", rule: "0 * * * *", want: "next 10:00"},
		{name: "one is due", old: fives, nominal: "09:05", now: "09:07", rule: "0 * * * *", want: "run 09:05; next 10:00; decided 09:05"},
		{name: "one is due this very moment", old: fives, nominal: "09:05", now: "09:05", rule: "0 * * * *", want: "run 09:05; next 10:00; decided 09:05"},
		{name: "the last of some is due this very moment", old: fives, nominal: "09:05", now: "09:15", rule: "0 * * * *",
			want: "skip 2, 09:05 to 09:10, missed_window; run 09:15; next 10:00; decided 09:15"},
		{name: "both rules name the same moment", old: fives, nominal: "09:05", now: "09:05", rule: "*/1 * * * *", want: "run 09:05; next 09:06; decided 09:05"},
		{name: "the new rule named this very moment", old: fives, nominal: "09:10", now: "09:07", rule: "7 * * * *", want: "next 10:07"},
		{name: "into a pause, with one due", old: fives, nominal: "09:05", now: "09:07", rule: "0 * * * *", pause: true,
			want: "run 09:05; halt before 10:00; decided 09:05"},
		{name: "within a pause", old: fives, nominal: "09:05", now: "09:17", paused: true, rule: "0 * * * *", pause: true,
			want: "skip 3, 09:05 to 09:15, paused; halt before 10:00; decided 09:15"},
		{name: "out of a pause", old: fives, nominal: "09:05", now: "09:17", paused: true, rule: "0 * * * *",
			want: "skip 3, 09:05 to 09:15, paused; next 10:00; decided 09:15"},
		{name: "out of a pause into which nothing fell", old: fives, nominal: "09:05", now: "09:03", paused: true, rule: "0 * * * *", want: "next 10:00"},
		{name: "a paused one-off that is overdue", old: "2026-03-02T09:00:00Z", nominal: "09:00", now: "10:00", paused: true, rule: noon,
			want: "skip 1, 09:00, paused; next 12:00; decided 09:00"},
		{name: "a one-off to come", old: "2026-03-02T09:00:00Z", nominal: "09:00", now: "08:00", rule: noon, want: "next 12:00"},
		{name: "a one-off that is due", old: "2026-03-02T09:00:00Z", nominal: "09:00", now: "09:01", rule: noon, want: "run 09:00; next 12:00; decided 09:00"},
		{name: "a one-off that is over is planned again", old: "2026-03-02T09:00:00Z", now: "10:00", decided: "09:00", rule: noon, want: "next 12:00"},
		{name: "to a one-off a little late", old: "2026-03-02T09:00:00Z", now: "12:10", decided: "09:00", rule: noon, want: "next 12:10 for 12:00"},
		{name: "to a one-off that was decided", old: noon, now: "12:10", decided: "12:00", rule: noon, want: "next never"},
		{name: "to a one-off before what is due", old: "* * * * *", nominal: "12:01", now: "12:05", rule: noon,
			want: "skip 4, 12:01 to 12:04, missed_window; run 12:05; next never; decided 12:05"},
		{name: "from a one-off to a rule", old: "2026-03-02T09:00:00Z", now: "10:00", decided: "09:00", rule: fives, want: "next 10:05"},
		{name: "a clock that went back", old: fives, nominal: "09:35", now: "09:03", decided: "09:30", rule: "* * * * *", want: "next 09:31"},
		{name: "to a rule that is over", old: fives, nominal: "09:05", now: "09:03", rule: "0 0 0 1 1 * 2026", want: "next never"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			subject, seen := subject(t, tt.old), planned(t, tt.nominal)
			seen.FiredFor = at(t, tt.decided)
			if tt.paused {
				seen.NextAt = time.Time{}
			}
			rule, err := schedule.Parse(tt.rule, schedule.Options{})
			if err != nil {
				t.Fatal(err)
			}
			step := Edit(subject, rule, seen, tt.pause, at(t, tt.now))
			if got := tell(step); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			sound(t, subject, seen, step)
			if step.Due != (len(step.Runs) > 0) || step.Next.ZoneVersion != schedule.ZoneVersion() {
				t.Errorf("due %v, zones of %s", step.Due, step.Next.ZoneVersion)
			}
		})
	}
}

// A plan that should be looked at later than now, since the clock went back, is
// still decided: nothing else will.
func TestEditDecidesWhatIsPlannedTooLate(t *testing.T) {
	subject, seen := subject(t, "2026-03-02T09:00:00Z"), planned(t, "09:00")
	seen.NextAt = at(t, "09:20")
	step := Edit(subject, ended{}, seen, false, at(t, "09:10"))
	if got, want := tell(step), "run 09:00; next never; decided 09:00"; got != want || step.Due {
		t.Errorf("got %s, due %v; want %s", got, step.Due, want)
	}
}

type ended struct{}

func (ended) Next(time.Time) time.Time { return time.Time{} }

// edit is told of another rule, by what that names from now on.
func (m *model) edit(now time.Time, pause bool, once bool, left []time.Time) {
	due := m.due(now)
	if m.paused {
		m.settle(due, belfry.ReasonPaused)
	} else if due > 0 {
		m.settle(due-1, belfry.ReasonMissed)
		m.settle(1, ran)
	}
	var decided time.Time
	for at := range m.fates {
		if at.After(decided) {
			decided = at
		}
	}
	m.left = slices.DeleteFunc(slices.Clone(left), func(at time.Time) bool { return !at.After(decided) || !once && !at.After(now) })
	m.once, m.paused = once, pause
}

// Whatever is done to a job, every occurrence of each of its rules, from the
// moment at which the rule came to the moment at which it went, has one fate.
func TestNoEditLosesOrDoublesAnOccurrence(t *testing.T) {
	schedules := []string{
		"* * * * *", "*/7 * * * *", "0 * * * *", "*/20 * * * * *", "Europe/Paris */15 * * * *", "Europe/Paris 30 2 * * *",
		"2026-03-29T00:50:00Z", "2026-03-28T18:00:00.123456Z", "2026-03-20T09:00:00Z",
	}
	rapid.Check(t, func(t *rapid.T) {
		draw := func() Subject { return subject(t, rapid.SampledFrom(schedules).Draw(t, "schedule")) }
		start := at(t, "2026-03-28 12:00")
		end := start.Add(72 * time.Hour)
		l := &life{T: t, subject: draw(), now: start, since: start, fates: map[time.Time]belfry.Reason{}, ids: map[belfry.ID]bool{}}
		l.plan = First(job, 5, l.subject.Policy, start)
		_, once := schedule.Once(l.subject.Policy.Rule)
		l.expected = model{once: once, fates: map[time.Time]belfry.Reason{}, left: occurrences(l.subject.Policy.Rule, start, end)}
		for range rapid.IntRange(1, 30).Draw(t, "moves") {
			l.now = l.now.Add(time.Duration(rapid.Int64Range(0, int64(time.Hour/time.Second)).Draw(t, "later")) * time.Second)
			switch rapid.SampledFrom([]string{"look", "outage", "pause", "resume", "edit", "edit", "on the dot"}).Draw(t, "move") {
			case "on the dot":
				if l.plan.NextAt.After(l.now) && l.plan.NextAt.Before(l.now.Add(time.Hour)) {
					l.now = l.plan.NextAt
				}
				fallthrough
			case "edit":
				next, pause := draw(), rapid.Bool().Draw(t, "paused")
				_, once := schedule.Once(next.Policy.Rule)
				l.expected.edit(l.now, pause, once, occurrences(next.Policy.Rule, start, end))
				l.apply(Edit(l.subject, next.Policy.Rule, l.plan, pause, l.now))
				l.subject = next
			case "look":
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
			}
			l.agree()
		}
		l.end()
	})
}
