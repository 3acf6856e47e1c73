package plan

import (
	"testing"
	"time"

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
			want: "run 09:05; paused before 10:00; decided 09:05"},
		{name: "within a pause", old: fives, nominal: "09:05", now: "09:17", paused: true, rule: "0 * * * *", pause: true,
			want: "skip 3, 09:05 to 09:15, paused; paused before 10:00; decided 09:15"},
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
			step := Edit(subject, editedPolicy(t, tt.rule), seen, tt.pause, at(t, tt.now))
			if got := describe(step); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			checkStep(t, subject, seen, step)
			if step.Due != (len(step.Runs) > 0) || step.Next.ZoneVersion != schedule.ZoneVersion() {
				t.Errorf("due %v, zones of %s", step.Due, step.Next.ZoneVersion)
			}
		})
	}
}

// A plan whose NextAt is later than now, because the clock went back, is decided all
// the same: nothing else will decide it.
func TestEditDecidesADelayedPlan(t *testing.T) {
	subject, seen := subject(t, "2026-03-02T09:00:00Z"), planned(t, "09:00")
	seen.NextAt = at(t, "09:20")
	step := Edit(subject, &Policy{Rule: emptyRule{}}, seen, false, at(t, "09:10"))
	if got, want := describe(step), "run 09:00; next never; decided 09:00"; got != want || step.Due {
		t.Errorf("got %s, due %v; want %s", got, step.Due, want)
	}
}

func editedPolicy(t failer, text string) *Policy { return subject(t, text).Policy }

type emptyRule struct{}

func (emptyRule) Next(time.Time) time.Time { return time.Time{} }

func TestPause(t *testing.T) {
	for _, tt := range []struct {
		name, schedule string
		nominal, now   string
		due            bool
		want           string
	}{
		{"nothing is due", "*/5 * * * *", "09:05", "09:03", false, "paused before 09:05"},
		{"something is due this instant", "*/5 * * * *", "09:05", "09:05", true, "run 09:05; paused before 09:10; decided 09:05"},
		{"something is due since a while", "*/5 * * * *", "09:05", "09:07", true, "run 09:05; paused before 09:10; decided 09:05"},
		{"something was missed", "*/5 * * * *", "09:00", "09:13", true,
			"skip 2, 09:00 to 09:05, missed_window; run 09:10; paused before 09:15; decided 09:10"},
		{"a one-off to come", "2026-03-02T09:00:00Z", "09:00", "08:30", false, "paused before 09:00"},
		{"a one-off that is due", "2026-03-02T09:00:00Z", "09:00", "09:00", true, "run 09:00; next never; decided 09:00"},
		{"a one-off that is due for long", "2026-03-02T09:00:00Z", "09:00", "Sun 09:00", true, "run 09:00; next never; decided 09:00"},
		{"nothing is left", "2026-03-02T09:00:00Z", "", "09:00", false, "next never"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			subject, seen := subject(t, tt.schedule), planned(t, tt.nominal)
			step := Pause(subject, seen, at(t, tt.now))
			if got := describe(step); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			checkStep(t, subject, seen, step)
			if step.Due != tt.due || !step.Next.NextAt.IsZero() {
				t.Errorf("due is %v, and the next is at %v", step.Due, step.Next.NextAt)
			}
		})
	}
}

func TestPauseOfAPausedPlan(t *testing.T) {
	subject, seen := subject(t, "*/5 * * * *"), planned(t, "09:05")
	seen.NextAt = time.Time{}
	step := Pause(subject, seen, at(t, "12:00"))
	if step.Next != seen || step.Due || step.Runs != nil || step.Skips != nil {
		t.Errorf("got %+v", step)
	}
}

func TestResume(t *testing.T) {
	for _, tt := range []struct {
		name, schedule string
		nominal, now   string
		want           string
	}{
		{"before the next occurrence", "*/5 * * * *", "09:05", "09:03", "next 09:05"},
		{"at the next occurrence, which fell into the pause", "*/5 * * * *", "09:05", "09:05",
			"skip 1, 09:05, paused; next 09:10; decided 09:05"},
		{"after one", "*/5 * * * *", "09:05", "09:07",
			"skip 1, 09:05, paused; next 09:10; decided 09:05"},
		{"after a night", "*/5 * * * *", "09:05", "Tue 09:02",
			"skip 288, 09:05 to Tue 09:00, paused; next Tue 09:05; decided Tue 09:00"},
		{"after the last of all", "0 0 9 2-4 3 * 2026", "09:00", "Fri 09:00",
			"skip 3, 09:00 to Wed 09:00, paused; next never; decided Wed 09:00"},
		{"a one-off before its instant", "2026-03-02T09:00:00Z", "09:00", "08:00", "next 09:00"},
		{"a one-off at its instant", "2026-03-02T09:00:00Z", "09:00", "09:00", "next 09:00"},
		{"a one-off after its instant is due at once", "2026-03-02T09:00:00Z", "09:00", "Tue 10:00", "next Tue 10:00 for 09:00"},
		{"nothing is left", "2026-03-02T09:00:00Z", "", "10:00", "next never"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			subject, seen := subject(t, tt.schedule), planned(t, tt.nominal)
			seen.NextAt = time.Time{}
			step := Resume(subject, seen, false, at(t, tt.now))
			if got := describe(step); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			checkStep(t, subject, seen, step)
			if step.Due || len(step.Runs) > 0 {
				t.Errorf("resuming fired: %+v", step)
			}
		})
	}
}

func TestResumeOneOff(t *testing.T) {
	subject, seen := subject(t, "2026-03-02T09:00:00Z"), planned(t, "09:00")
	paused := Pause(subject, seen, at(t, "08:30")).Next
	resumed := Resume(subject, paused, false, at(t, "11:00")).Next
	for _, since := range []string{"08:00", "11:30"} {
		step := Decide(subject, resumed, at(t, since), at(t, "11:31"))
		if got, want := describe(step), "run 09:00; next never; decided 09:00"; got != want {
			t.Errorf("running since %s: got %s, want %s", since, got, want)
		}
	}
}

func TestDelete(t *testing.T) {
	for _, tt := range []struct {
		name, schedule string
		nominal, now   string
		paused         bool
		want           string
	}{
		{"nothing is due", "*/5 * * * *", "09:05", "09:03", false, "next never"},
		{"something is due this instant", "*/5 * * * *", "09:05", "09:05", false, "skip 1, 09:05, deleted; next never; decided 09:05"},
		{"several are due", "*/5 * * * *", "09:05", "09:17", false, "skip 3, 09:05 to 09:15, deleted; next never; decided 09:15"},
		{"a one-off that is due", "2026-03-02T09:00:00Z", "09:00", "09:01", false, "skip 1, 09:00, deleted; next never; decided 09:00"},
		{"a one-off to come", "2026-03-02T09:00:00Z", "09:00", "08:00", false, "next never"},
		{"nothing is left", "2026-03-02T09:00:00Z", "", "10:00", false, "next never"},
		{"paused, before the next occurrence", "*/5 * * * *", "09:05", "09:03", true, "next never"},
		{"paused, and some fell into the pause", "*/5 * * * *", "09:05", "09:17", true, "skip 3, 09:05 to 09:15, paused; next never; decided 09:15"},
		{"a paused one-off that would have run after the pause", "2026-03-02T09:00:00Z", "09:00", "10:00", true, "skip 1, 09:00, deleted; next never; decided 09:00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			subject, seen := subject(t, tt.schedule), planned(t, tt.nominal)
			if tt.paused {
				seen.NextAt = time.Time{}
			}
			step := Delete(subject, seen, at(t, tt.now))
			if got := describe(step); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			checkStep(t, subject, seen, step)
			if step.Due || len(step.Runs) > 0 {
				t.Errorf("deleting fired: %+v", step)
			}
		})
	}
}

// A pause or an edit does not know since when a scheduler has been running. Each case
// is a job of every 5 minutes that was planned for 9:00.
func TestPauseAndEditDecideWhatIsDue(t *testing.T) {
	eachOfAll := way{missed: belfry.MissedRunAll, window: 86_400}
	eachQuick := way{missed: belfry.MissedRunAll, window: 1}
	onceQuick := way{missed: belfry.MissedRunOnce, window: 1}
	for _, tt := range []struct {
		name, now string
		want      map[way]string
	}{
		{"due this instant", "09:00", map[way]string{
			skips: "run 09:00; decided 09:00", onceAny: "run 09:00; decided 09:00", onceQuick: "run 09:00; decided 09:00",
			eachOfAll: "run 09:00; decided 09:00", eachQuick: "run 09:00; decided 09:00",
		}},
		{"due for a minute, which is late and not missed", "09:01", map[way]string{
			skips: "run 09:00; decided 09:00", onceAny: "run 09:00; decided 09:00", onceQuick: "run 09:00; decided 09:00",
			eachOfAll: "run 09:00; decided 09:00", eachQuick: "run 09:00; decided 09:00",
		}},
		{"due for more", "09:01:00.000001", map[way]string{
			skips: "skip 1, 09:00, missed_window; decided 09:00", onceAny: "run 09:00; decided 09:00",
			onceQuick: "skip 1, 09:00, missed_window; decided 09:00",
			eachOfAll: "run 09:00; decided 09:00", eachQuick: "skip 1, 09:00, missed_window; decided 09:00",
		}},
		{"several are due, the last just now", "09:10:30", map[way]string{
			skips:     "skip 2, 09:00 to 09:05, missed_window; run 09:10; decided 09:10",
			onceAny:   "skip 2, 09:00 to 09:05, missed_window; run 09:10; decided 09:10",
			onceQuick: "skip 2, 09:00 to 09:05, missed_window; run 09:10; decided 09:10",
			eachOfAll: "run 09:00; run 09:05; run 09:10; decided 09:10",
			eachQuick: "skip 2, 09:00 to 09:05, missed_window; run 09:10; decided 09:10",
		}},
		{"several are due, the last for long", "09:13", map[way]string{
			skips:     "skip 3, 09:00 to 09:10, missed_window; decided 09:10",
			onceAny:   "skip 2, 09:00 to 09:05, missed_window; run 09:10; decided 09:10",
			onceQuick: "skip 3, 09:00 to 09:10, missed_window; decided 09:10",
			eachOfAll: "run 09:00; run 09:05; run 09:10; decided 09:10",
			eachQuick: "skip 3, 09:00 to 09:10, missed_window; decided 09:10",
			eachOf3:   "run 09:00; run 09:05; run 09:10; decided 09:10",
			eachOne:   "skip 3, 09:00 to 09:10, missed_window; decided 09:10",
		}},
		{"a day is due", "Tue 09:02", map[way]string{
			skips:     "skip 289, 09:00 to Tue 09:00, missed_window; decided Tue 09:00",
			onceAny:   "skip 288, 09:00 to Tue 08:55, missed_window; run Tue 09:00; decided Tue 09:00",
			each:      "skip 283, 09:00 to Tue 08:30, missed_window; run 6, Tue 08:35 to Tue 09:00; decided Tue 09:00",
			eachOfAll: "skip 1, 09:00, missed_window; skip 188, 09:05 to Tue 00:40, max_missed; run 100, Tue 00:45 to Tue 09:00; decided Tue 09:00",
		}},
	} {
		for w, want := range tt.want {
			s, seen, now := subjectWith(t, "*/5 * * * *", w.tune), planned(t, "09:00"), at(t, tt.now)
			paused, edited := Pause(s, seen, now), Edit(s, &Policy{Rule: emptyRule{}}, seen, false, now)
			for verb, step := range map[string]Step{"pause": paused, "edit": edited} {
				checkStep(t, s, seen, step)
				if !step.Due || !step.Next.NextAt.IsZero() {
					t.Errorf("%s, %s, %+v: got %+v", tt.name, verb, w, step)
				}
				if step.Next.NextAt, step.Next.NominalAt = step.Next.FiredFor, step.Next.FiredFor; describe(step) != putNext(want, step) {
					t.Errorf("%s, %s, %+v:\ngot  %s\nwant %s", tt.name, verb, w, describe(step), want)
				}
			}
		}
	}
}

// putNext inserts the next occurrence before what is decided.
func putNext(want string, step Step) string {
	tail := "decided " + short(step.Next.FiredFor)
	return want[:len(want)-len(tail)] + "next " + short(step.Next.NextAt) + "; " + tail
}

func TestPauseAtTheEndOfJitter(t *testing.T) {
	s, ready := hourly(t)
	s.Policy.MissedWindow = belfry.MissedSkip
	seen := First(job, 5, s.Policy, at(t, "08:30"))
	for late, want := range map[time.Duration]string{
		0:                              "run 09:00; paused before 10:00; decided 09:00",
		time.Minute:                    "run 09:00; paused before 10:00; decided 09:00",
		time.Minute + time.Microsecond: "skip 1, 09:00, missed_window; paused before 10:00; decided 09:00",
	} {
		if got := describe(Pause(s, seen, ready[0].Add(late))); got != want {
			t.Errorf("%v late: got %s, want %s", late, got, want)
		}
	}
}

// Each case is a job of every 5 minutes that was paused before 9:00.
func TestResumeWithCatchUp(t *testing.T) {
	for _, tt := range []struct {
		name, now string
		way       way
		most      int // max_runs, of which there were 3
		want      string
	}{
		{"nothing fell into the pause", "08:59", each, 0, "next 09:00"},
		{"one, and none runs", "09:02", skips, 0, "skip 1, 09:00, paused; next 09:05; decided 09:00"},
		{"one", "09:02", onceAny, 0, "run 09:00; next 09:05; decided 09:00"},
		{"one, this instant", "09:00", onceAny, 0, "run 09:00; next 09:05; decided 09:00"},
		{"some, and the latest runs", "09:12", onceAny, 0, "skip 2, 09:00 to 09:05, paused; run 09:10; next 09:15; decided 09:10"},
		{"some, and the latest is too old", "09:12", onceNew, 0, "skip 3, 09:00 to 09:10, paused; next 09:15; decided 09:10"},
		{"some, and each runs", "09:12", each, 0, "run 09:00; run 09:05; run 09:10; next 09:15; decided 09:10"},
		{"some, and the newest run", "09:27", eachOf3, 0, "skip 3, 09:00 to 09:10, max_missed; run 09:15; run 09:20; run 09:25; next 09:30; decided 09:25"},
		{"many, and the newest of the young run", "11:02", eachOf3, 0,
			"skip 19, 09:00 to 10:30, paused; skip 3, 10:35 to 10:45, max_missed; run 10:50; run 10:55; run 11:00; next 11:05; decided 11:00"},
		{"some, and two runs are left", "09:12", each, 5, "skip 1, 09:00, max_missed; run 09:05; run 09:10; next never; decided 09:10"},
	} {
		s, seen := subjectWith(t, "*/5 * * * *", func(s *belfry.Spec) { tt.way.tune(s); s.MaxRuns = tt.most }), planned(t, "09:00")
		seen.NextAt = time.Time{}
		step := Resume(s, seen, true, at(t, tt.now))
		checkStep(t, s, seen, step)
		if got := describe(step); got != tt.want || step.Due {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, got, tt.want)
		}
	}
	s, seen := subjectWith(t, "* * * * *", each.tune), planned(t, "09:00")
	seen.NextAt = time.Time{}
	if step := Resume(s, seen, true, at(t, "09:10:30")); step.Event == nil || step.Event.Count != 11 {
		t.Errorf("got %+v", step.Event)
	}
}

func TestCancel(t *testing.T) {
	const single = "2026-03-02T09:00:00Z"
	for _, tt := range []struct {
		name, schedule string
		nominal, now   string
		paused         bool
		note           bool
		want           string
	}{
		{"nothing is due", "*/5 * * * *", "09:05", "09:03", false, true, "skip 1, 09:05, cancelled; next never"},
		{"something is due this instant", "*/5 * * * *", "09:05", "09:05", false, false, "skip 1, 09:05, cancelled; next never; decided 09:05"},
		{"several are due", "*/5 * * * *", "09:05", "09:17", false, false, "skip 3, 09:05 to 09:15, cancelled; next never; decided 09:15"},
		{"a one-off that is due", single, "09:00", "09:01", false, false, "skip 1, 09:00, cancelled; next never; decided 09:00"},
		{"a one-off to come", single, "09:00", "08:00", false, true, "skip 1, 09:00, cancelled; next never"},
		{"nothing is left", single, "", "10:00", false, false, "next never"},
		{"paused, before the next occurrence", "*/5 * * * *", "09:05", "09:03", true, true, "skip 1, 09:05, cancelled; next never"},
		{"paused, and some fell into the pause", "*/5 * * * *", "09:05", "09:17", true, false, "skip 3, 09:05 to 09:15, paused; next never; decided 09:15"},
		{"a paused one-off that would have run after the pause", single, "09:00", "10:00", true, false, "skip 1, 09:00, cancelled; next never; decided 09:00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			subject, seen := subject(t, tt.schedule), planned(t, tt.nominal)
			if tt.paused {
				seen.NextAt = time.Time{}
			}
			step := Cancel(subject, seen, at(t, tt.now))
			if got := describe(step); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			checkStep(t, subject, seen, step)
			if step.Due || len(step.Runs) > 0 || len(step.Skips) > 0 && step.Skips[0].Note != tt.note {
				t.Errorf("got %+v", step)
			}
			if again := Cancel(subject, step.Next, at(t, tt.now)); len(again.Skips) > 0 {
				t.Errorf("a second time: %s", describe(again))
			}
		})
	}
}

// The record of what was cancelled before its time is one of that cancellation: the
// same instant may be planned and cancelled again, or run after all.
func TestCancelledOccurrenceCanBePlannedAgain(t *testing.T) {
	s, seen, now := subject(t, "*/5 * * * *"), planned(t, "09:05"), at(t, "09:03")
	first := Cancel(s, seen, now)
	again := Edit(s, s.Policy, first.Next, false, now)
	if got, want := describe(again), "next 09:05"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	again.Next.Version += 2
	second := Cancel(s, again.Next, now)
	run := Decide(s, again.Next, now, at(t, "09:05"))
	ids := map[belfry.ID]bool{first.Skips[0].ID: true, second.Skips[0].ID: true, run.Runs[0].ID: true}
	if len(ids) != 3 || Cancel(s, seen, now).Skips[0].ID != first.Skips[0].ID {
		t.Errorf("got %v", ids)
	}
}
