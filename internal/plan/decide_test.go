package plan

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

func TestDecide(t *testing.T) {
	for _, tt := range []struct {
		name, schedule      string
		nominal, since, now string
		want                string
	}{
		{"on time", "*/5 * * * *", "09:00", "08:00", "09:00",
			"run 09:00; next 09:05; decided 09:00"},
		{"a moment late", "*/5 * * * *", "09:00", "08:00", "09:00:02",
			"run 09:00; next 09:05; decided 09:00"},
		{"late through load, one at a time", "*/5 * * * *", "09:00", "08:00", "09:17",
			"run 09:00; next 09:05; decided 09:00"},
		{"late through load by a day, still not missed", "*/5 * * * *", "09:00", "09:00", "Tue 09:00",
			"run 09:00; next 09:05; decided 09:00"},

		{"a scheduler runs from that very instant", "*/5 * * * *", "09:00", "09:00", "09:00:01",
			"run 09:00; next 09:05; decided 09:00"},
		{"the scheduler ran a microsecond too late: missed, but the only one", "*/5 * * * *", "09:00", "09:00:00.000001", "09:00:01",
			"run 09:00; next 09:05; decided 09:00"},
		{"one missed", "*/5 * * * *", "09:00", "09:03", "09:03",
			"run 09:00; next 09:05; decided 09:00"},
		{"two missed: the first is skipped", "*/5 * * * *", "09:00", "09:08", "09:08",
			"skip 1, 09:00, missed_window; run 09:05; next 09:10; decided 09:05"},
		{"many missed: all but the latest are one skip", "*/5 * * * *", "09:00", "12:02", "12:02",
			"skip 36, 09:00 to 11:55, missed_window; run 12:00; next 12:05; decided 12:00"},
		{"an occurrence at the instant of coming into charge is not missed", "*/5 * * * *", "09:00", "09:15", "09:16",
			"skip 2, 09:00 to 09:05, missed_window; run 09:10; next 09:15; decided 09:10"},
		{"missed ones first, those after since later", "*/5 * * * *", "09:00", "09:12", "09:31",
			"skip 2, 09:00 to 09:05, missed_window; run 09:10; next 09:15; decided 09:10"},
		{"a since in the future is no reason to decide the future", "*/5 * * * *", "09:00", "10:00", "09:07",
			"skip 1, 09:00, missed_window; run 09:05; next 09:10; decided 09:05"},
		{"nor to skip what is due this instant", "*/5 * * * *", "09:00", "10:00", "09:05",
			"run 09:00; next 09:05; decided 09:00"},
		{"no scheduler was ever running before", "*/5 * * * *", "09:00", "", "09:00",
			"run 09:00; next 09:05; decided 09:00"},

		{"over a weekend", "0 9 * * MON-FRI", "2026-02-25 09:00", "08:00", "08:00",
			"skip 2, 2026-02-25 09:00 to 2026-02-26 09:00, missed_window; run 2026-02-27 09:00; next 09:00; decided 2026-02-27 09:00"},
		{"in a zone, over the change of its clock", "Europe/Paris 30 2 * * *", "2026-03-27 01:30", "2026-03-31 12:00", "2026-03-31 12:00",
			"skip 4, 2026-03-27 01:30 to 2026-03-30 00:30, missed_window; run 2026-03-31 00:30; next 2026-04-01 00:30; decided 2026-03-31 00:30"},
		{"in an hour that the clock shows twice", "Europe/Paris */30 2 25 10 *", "2026-10-25 00:00", "2026-10-25 12:00", "2026-10-25 12:00",
			"skip 3, 2026-10-25 00:00 to 2026-10-25 01:00, missed_window; run 2026-10-25 01:30; next 2027-10-25 00:00; decided 2026-10-25 01:30"},

		{"the last occurrence of a rule", "0 0 9 2 3 * 2026", "09:00", "08:00", "09:00",
			"run 09:00; next never; decided 09:00"},
		{"the last occurrences of a rule, missed", "0 0 9 2-4 3 * 2026", "09:00", "Sun 08:00", "Sun 08:00",
			"skip 2, 09:00 to Tue 09:00, missed_window; run Wed 09:00; next never; decided Wed 09:00"},

		{"a one-off on time", "2026-03-02T09:00:00Z", "09:00", "08:00", "09:00",
			"run 09:00; next never; decided 09:00"},
		{"a one-off late through load", "2026-03-02T09:00:00Z", "09:00", "08:00", "11:00",
			"run 09:00; next never; decided 09:00"},
		{"a one-off missed", "2026-03-02T09:00:00Z", "09:00", "Tue 08:00", "Tue 08:00",
			"run 09:00; next never; decided 09:00"},
		{"a one-off within a second", "2026-03-02T09:00:00.25Z", "09:00:00.25", "09:00:00.5", "09:00:00.75",
			"run 09:00:00.25; next never; decided 09:00:00.25"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			subject, seen := subject(t, tt.schedule), planned(t, tt.nominal)
			step := Decide(subject, seen, at(t, tt.since), at(t, tt.now))
			if got := describe(step); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			checkStep(t, subject, seen, step)
			if !step.Due {
				t.Error("the step may be applied before the occurrence is due")
			}
			if step.Next.ZoneVersion != schedule.ZoneVersion() {
				t.Errorf("the next occurrence was computed with zones %q", step.Next.ZoneVersion)
			}
		})
	}
}

func TestRunsCarryTheOverlapPolicy(t *testing.T) {
	for _, tt := range []struct {
		overlap belfry.Overlap
		bound   int
		serial  bool
		queue   int
	}{
		{belfry.OverlapSkip, 0, true, 0},
		{belfry.OverlapSkip, 7, true, 0},
		{belfry.OverlapQueue, 0, true, 100},
		{belfry.OverlapQueue, 7, true, 7},
		{belfry.OverlapParallel, 7, false, 0},
	} {
		subject := subjectWith(t, "* * * * *", func(s *belfry.Spec) { s.Overlap, s.MaxQueued = tt.overlap, tt.bound })
		due := Decide(subject, planned(t, "09:00"), at(t, "08:00"), at(t, "09:00")).Runs
		missed := Decide(subject, planned(t, "09:00"), at(t, "09:05"), at(t, "09:05")).Runs
		asked := Fire(subject, planned(t, "10:00"), []Trigger{{Kind: belfry.KindManual}, {Kind: belfry.KindBackfill}}).Runs
		for name, r := range map[string]Run{"due": due[0], "catch-up": missed[0], "triggered": asked[0]} {
			if r.Serial != tt.serial || r.Queue != tt.queue {
				t.Errorf("%s, %s: got %v, %d; want %v, %d", tt.overlap, name, r.Serial, r.Queue, tt.serial, tt.queue)
			}
		}
		if r := asked[1]; r.Serial != tt.serial || r.Queue != NoQueueLimit {
			t.Errorf("%s, backfilled: got %v, %d; want %v and no bound", tt.overlap, r.Serial, r.Queue, tt.serial)
		}
	}
}

func TestFirst(t *testing.T) {
	for _, tt := range []struct {
		name, schedule, now string
		next, nominal       string
	}{
		{"the next occurrence", "*/5 * * * *", "09:01", "09:05", "09:05"},
		{"not the one that is just now", "*/5 * * * *", "09:00", "09:05", "09:05"},
		{"in its zone", "America/New_York 0 9 * * *", "09:00", "14:00", "14:00"},
		{"a one-off to come", "2026-03-02T10:00:00Z", "09:00", "10:00", "10:00"},
		{"a one-off just now", "2026-03-02T10:00:00Z", "10:00", "10:00", "10:00"},
		{"a one-off in the past is due at once, for its own instant", "2026-03-02T08:00:00Z", "09:00", "09:00", "08:00"},
		{"a rule that is over", "0 0 9 2 3 * 2026", "09:00", "", ""},
	} {
		got := First(job, 5, subject(t, tt.schedule).Policy, at(t, tt.now))
		want := Plan{
			JobID: job, Shard: 5, Version: 1, ZoneVersion: schedule.ZoneVersion(), Once: strings.HasPrefix(tt.schedule, "2026"),
			NextAt: at(t, tt.next), NominalAt: at(t, tt.nominal),
		}
		if got != want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, want)
		}
	}
}

// A backfilled instant has passed; its run may start when the backfill lets it.
func TestFireTriggerReadyAt(t *testing.T) {
	for _, tt := range []struct{ at, ready, want string }{
		{"09:00", "", "09:00"}, {"09:00", "12:00", "12:00"}, {"12:00", "09:00", "12:00"},
	} {
		trigger := Trigger{ID: belfry.ID{15: 1}, JobID: job, Kind: belfry.KindBackfill, At: at(t, tt.at), ReadyAt: at(t, tt.ready)}
		r := Fire(subject(t, "0 * * * *"), planned(t, "13:00"), []Trigger{trigger}).Runs[0]
		if !r.ScheduledAt.Equal(trigger.At) || !r.ReadyAt.Equal(at(t, tt.want)) || r.Kind != belfry.KindBackfill || r.ID != trigger.RunID() {
			t.Errorf("%+v: got %+v", tt, r)
		}
	}
}

func TestFireTriggerKeepsThePlan(t *testing.T) {
	payload := json.RawMessage(`{"url":"https://example.com"}`)
	asked := at(t, "09:03")
	triggers := []Trigger{
		{ID: belfry.ID{15: 1}, Namespace: "default", JobID: job, Shard: 5, Kind: belfry.KindManual, At: asked, Payload: payload},
		{ID: belfry.ID{15: 2}, Namespace: "default", JobID: job, Shard: 5, Kind: belfry.KindManual, At: asked},
	}
	due, paused, over := planned(t, "09:00"), planned(t, "09:00"), planned(t, "")
	paused.NextAt = time.Time{}
	over.FiredFor = at(t, "08:55")
	for name, seen := range map[string]Plan{"to come": planned(t, "09:05"), "due": due, "paused": paused, "over": over} {
		subject := subject(t, "*/5 * * * *")
		step := Fire(subject, seen, triggers)
		checkStep(t, subject, seen, step)
		if step.Next != seen || step.Due || len(step.Skips) > 0 || !step.First().IsZero() {
			t.Errorf("%s: got %+v, want the plan to stay %+v", name, step, seen)
		}
		for i, r := range step.Runs {
			w := triggers[i]
			id := belfry.RunID(job, belfry.KindManual, asked, w.ID)
			if r.ID != id || w.RunID() != id || r.Kind != belfry.KindManual || r.Trigger != w.ID ||
				!r.ScheduledAt.Equal(asked) || !r.ReadyAt.Equal(asked) || string(r.Payload) != string(w.Payload) {
				t.Errorf("%s: trigger %d became %+v", name, i, r)
			}
		}
		if len(step.Runs) != 2 || step.Runs[0].ID == step.Runs[1].ID {
			t.Errorf("%s: two triggers became %+v", name, step.Runs)
		}
	}
}

func TestMaxRunsEndsThePlan(t *testing.T) {
	limited := func(most int) Subject {
		return subjectWith(t, "*/5 * * * *", func(s *belfry.Spec) { s.MaxRuns = most })
	}
	seen := planned(t, "09:00") // after 3 runs
	paused := seen
	paused.NextAt = time.Time{}
	over := planned(t, "")
	over.FiredFor = at(t, "08:55")
	now := at(t, "09:00")
	for _, tt := range []struct {
		name string
		step Step
		want string
	}{
		{"the last but one", Decide(limited(5), seen, now, now), "run 09:00; next 09:05; decided 09:00"},
		{"the last", Decide(limited(4), seen, now, now), "run 09:00; next never; decided 09:00"},
		{"the last, with others missed", Decide(limited(4), seen, at(t, "10:02"), at(t, "10:02")),
			"skip 12, 09:00 to 09:55, missed_window; run 10:00; next never; decided 10:00"},
		{"the last when it is paused", Pause(limited(4), seen, now), "run 09:00; next never; decided 09:00"},
		{"skips are not counted", Resume(limited(4), paused, false, at(t, "10:02")), "skip 13, 09:00 to 10:00, paused; next 10:05; decided 10:00"},
		{"raised after the last", Edit(limited(3), limited(4).Policy, over, false, now), "next 09:05"},
		{"raised while it is paused", Edit(limited(3), limited(4).Policy, over, true, now), "paused before 09:05"},
		{"lowered below what was", Edit(limited(0), limited(2).Policy, seen, false, at(t, "08:58")), "next never"},
		{"lowered to what was", Edit(limited(0), limited(3).Policy, seen, false, at(t, "08:58")), "next never"},
		{"lowered while one is due", Edit(limited(0), limited(3).Policy, seen, false, now), "run 09:00; next never; decided 09:00"},
	} {
		if got := describe(tt.step); got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, got, tt.want)
		}
		checkStep(t, tt.step.Subject, tt.step.Seen, tt.step)
	}
	if p := First(job, 5, limited(1).Policy, now); !p.NextAt.Equal(at(t, "09:05")) {
		t.Errorf("the only run is at %v", p.NextAt)
	}
	many := Fire(limited(4), seen, []Trigger{{ID: belfry.ID{15: 1}, JobID: job}, {ID: belfry.ID{15: 2}, JobID: job}})
	if many.Next != seen {
		t.Errorf("triggers were counted: %+v", many.Next)
	}
}
