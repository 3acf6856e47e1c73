package plan

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

// Whoever pauses or edits a job does not know since when anybody was in charge. Each
// case is a job of every 5 minutes that was to be looked at for 9:00.
func TestWhatIsDueIsSettled(t *testing.T) {
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
			s, seen, now := tuned(t, "*/5 * * * *", w.tune), planned(t, "09:00"), at(t, tt.now)
			paused, edited := Pause(s, seen, now), Edit(s, &Policy{Rule: ended{}}, seen, false, now)
			for verb, step := range map[string]Step{"pause": paused, "edit": edited} {
				sound(t, s, seen, step)
				if !step.Due || !step.Next.NextAt.IsZero() {
					t.Errorf("%s, %s, %+v: got %+v", tt.name, verb, w, step)
				}
				if step.Next.NextAt, step.Next.NominalAt = step.Next.FiredFor, step.Next.FiredFor; tell(step) != putNext(want, step) {
					t.Errorf("%s, %s, %+v:\ngot  %s\nwant %s", tt.name, verb, w, tell(step), want)
				}
			}
		}
	}
}

// putNext puts what tell says of the next look before what is decided.
func putNext(want string, step Step) string {
	tail := "decided " + short(step.Next.FiredFor)
	return want[:len(want)-len(tail)] + "next " + short(step.Next.NextAt) + "; " + tail
}

func TestAJitteredOccurrenceIsJustDueWhenItsJitterEnds(t *testing.T) {
	s, ready := hourly(t)
	s.Policy.MissedWindow = belfry.MissedSkip
	seen := First(job, 5, s.Policy, at(t, "08:30"))
	for late, want := range map[time.Duration]string{
		0:                              "run 09:00; halt before 10:00; decided 09:00",
		time.Minute:                    "run 09:00; halt before 10:00; decided 09:00",
		time.Minute + time.Microsecond: "skip 1, 09:00, missed_window; halt before 10:00; decided 09:00",
	} {
		if got := tell(Pause(s, seen, ready[0].Add(late))); got != want {
			t.Errorf("%v late: got %s, want %s", late, got, want)
		}
	}
}

// Each case is a job of every 5 minutes that was paused before 9:00.
func TestResumeWithACatchUp(t *testing.T) {
	for _, tt := range []struct {
		name, now string
		way       way
		most      int // max_runs, of which there were 3
		want      string
	}{
		{"nothing fell into the pause", "08:59", each, 0, "next 09:00"},
		{"one, and none is made up for", "09:02", skips, 0, "skip 1, 09:00, paused; next 09:05; decided 09:00"},
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
		s, seen := tuned(t, "*/5 * * * *", func(s *belfry.Spec) { tt.way.tune(s); s.MaxRuns = tt.most }), planned(t, "09:00")
		seen.NextAt = time.Time{}
		step := Resume(s, seen, true, at(t, tt.now))
		sound(t, s, seen, step)
		if got := tell(step); got != tt.want || step.Due {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, got, tt.want)
		}
	}
	s, seen := tuned(t, "* * * * *", each.tune), planned(t, "09:00")
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
		beside         bool
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
			if got := tell(step); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			sound(t, subject, seen, step)
			if step.Due || len(step.Runs) > 0 || len(step.Skips) > 0 && step.Skips[0].Note != tt.beside {
				t.Errorf("got %+v", step)
			}
			if again := Cancel(subject, step.Next, at(t, tt.now)); len(again.Skips) > 0 {
				t.Errorf("a second time: %s", tell(again))
			}
		})
	}
}

// The record of what was cancelled before its time is one of that cancellation: the
// same instant may be planned and cancelled again, or run after all.
func TestWhatWasCancelledMayBePlannedAgain(t *testing.T) {
	s, seen, now := subject(t, "*/5 * * * *"), planned(t, "09:05"), at(t, "09:03")
	first := Cancel(s, seen, now)
	again := Edit(s, s.Policy, first.Next, false, now)
	if got, want := tell(again), "next 09:05"; got != want {
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
