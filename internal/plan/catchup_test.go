package plan

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

// A way is a policy for missed windows. What it makes of a missed occurrence does
// not depend on overlaps.
type way struct {
	missed belfry.MissedWindow
	most   int // max_missed
	window int // catch_up_window_seconds
}

var (
	skips   = way{missed: belfry.MissedSkip}
	onceAny = way{missed: belfry.MissedRunOnce}
	onceNew = way{missed: belfry.MissedRunOnce, window: 30}
	each    = way{missed: belfry.MissedRunAll}
	eachOf3 = way{missed: belfry.MissedRunAll, most: 3}
	eachDay = way{missed: belfry.MissedRunAll, window: 86_400}
	eachOne = way{missed: belfry.MissedRunAll, most: 1, window: 60}
)

const onTime = "run 09:00; next 09:01; decided 09:00"

// Each case is a job of every minute, planned for 9:00, while no scheduler was running
// charge until the instant "since".
var missedCases = []struct {
	name, since, now string
	want             map[way]string
}{
	{"on time", "08:00", "09:00", map[way]string{
		skips: onTime, onceAny: onTime, onceNew: onTime, each: onTime, eachOf3: onTime, eachDay: onTime, eachOne: onTime,
	}},
	{"late through load by an hour", "08:00", "10:00:30", map[way]string{
		skips: onTime, onceAny: onTime, onceNew: onTime, each: onTime, eachOf3: onTime, eachDay: onTime, eachOne: onTime,
	}},
	{"running from that very instant", "09:00", "09:05", map[way]string{
		skips: onTime, onceAny: onTime, onceNew: onTime, each: onTime, eachOf3: onTime, eachDay: onTime, eachOne: onTime,
	}},
	{"missed by a microsecond", "09:00:00.000001", "09:00:00.000001", map[way]string{
		skips:   "skip 1, 09:00, missed_window; next 09:01; decided 09:00",
		onceAny: onTime, onceNew: onTime, each: onTime, eachOf3: onTime, eachDay: onTime, eachOne: onTime,
	}},
	{"missed by a microsecond, and decided long after", "09:00:00.000001", "12:00", map[way]string{
		skips:   "skip 1, 09:00, missed_window; next 09:01; decided 09:00",
		onceAny: onTime,
		onceNew: "skip 1, 09:00, missed_window; next 09:01; decided 09:00",
		each:    "skip 1, 09:00, missed_window; next 09:01; decided 09:00",
		eachOf3: "skip 1, 09:00, missed_window; next 09:01; decided 09:00",
		eachDay: onTime,
		eachOne: "skip 1, 09:00, missed_window; next 09:01; decided 09:00",
	}},
	{"a minute", "09:01:30", "09:01:30", map[way]string{
		skips:   "skip 2, 09:00 to 09:01, missed_window; next 09:02; decided 09:01",
		onceAny: "skip 1, 09:00, missed_window; run 09:01; next 09:02; decided 09:01",
		onceNew: "skip 1, 09:00, missed_window; run 09:01; next 09:02; decided 09:01",
		each:    "run 09:00; run 09:01; next 09:02; decided 09:01",
		eachOf3: "run 09:00; run 09:01; next 09:02; decided 09:01",
		eachDay: "run 09:00; run 09:01; next 09:02; decided 09:01",
		eachOne: "skip 1, 09:00, missed_window; run 09:01; next 09:02; decided 09:01",
	}},
	{"a minute, at the edges of two windows", "09:01:30.000001", "09:01:30.000001", map[way]string{
		onceNew: "skip 2, 09:00 to 09:01, missed_window; next 09:02; decided 09:01",
		eachOf3: "run 09:00; run 09:01; next 09:02; decided 09:01",
		eachOne: "skip 1, 09:00, missed_window; run 09:01; next 09:02; decided 09:01",
	}},
	{"exactly a minute is young enough for a window of it", "09:01", "09:01", map[way]string{
		eachOne: onTime, onceNew: "skip 1, 09:00, missed_window; next 09:01; decided 09:00",
	}},
	{"a microsecond more is not", "09:01:00.000001", "09:01:00.000001", map[way]string{
		eachOne: "skip 1, 09:00, missed_window; run 09:01; next 09:02; decided 09:01",
	}},
	{"an hour", "10:00:30", "10:00:30", map[way]string{
		skips:   "skip 61, 09:00 to 10:00, missed_window; next 10:01; decided 10:00",
		onceAny: "skip 60, 09:00 to 09:59, missed_window; run 10:00; next 10:01; decided 10:00",
		onceNew: "skip 60, 09:00 to 09:59, missed_window; run 10:00; next 10:01; decided 10:00",
		each:    "skip 31, 09:00 to 09:30, missed_window; run 30, 09:31 to 10:00; next 10:01; decided 10:00",
		eachOf3: "skip 31, 09:00 to 09:30, missed_window; skip 27, 09:31 to 09:57, max_missed; run 09:58; run 09:59; run 10:00; next 10:01; decided 10:00",
		eachDay: "run 61, 09:00 to 10:00; next 10:01; decided 10:00",
		eachOne: "skip 60, 09:00 to 09:59, missed_window; run 10:00; next 10:01; decided 10:00",
	}},
	{"an hour, decided later: the windows count from now", "10:00:30", "10:20", map[way]string{
		onceAny: "skip 60, 09:00 to 09:59, missed_window; run 10:00; next 10:01; decided 10:00",
		onceNew: "skip 61, 09:00 to 10:00, missed_window; next 10:01; decided 10:00",
		each:    "skip 50, 09:00 to 09:49, missed_window; run 11, 09:50 to 10:00; next 10:01; decided 10:00",
	}},
	{"8 hours", "17:00:30", "17:00:30", map[way]string{
		skips:   "skip 481, 09:00 to 17:00, missed_window; next 17:01; decided 17:00",
		onceAny: "skip 480, 09:00 to 16:59, missed_window; run 17:00; next 17:01; decided 17:00",
		each:    "skip 451, 09:00 to 16:30, missed_window; run 30, 16:31 to 17:00; next 17:01; decided 17:00",
		eachOf3: "skip 451, 09:00 to 16:30, missed_window; skip 27, 16:31 to 16:57, max_missed; run 16:58; run 16:59; run 17:00; next 17:01; decided 17:00",
		eachDay: "skip 381, 09:00 to 15:20, max_missed; run 100, 15:21 to 17:00; next 17:01; decided 17:00",
	}},
	{"40 days", "2026-04-11 09:00:30", "2026-04-11 09:00:30", map[way]string{
		skips: "skip 57601, 09:00 to 2026-04-11 09:00, missed_window; next 2026-04-11 09:01; decided 2026-04-11 09:00",
		onceAny: "skip 57600, 09:00 to 2026-04-11 08:59, missed_window; run 2026-04-11 09:00; next 2026-04-11 09:01; " +
			"decided 2026-04-11 09:00",
		each: "skip 57571, 09:00 to 2026-04-11 08:30, missed_window; run 30, 2026-04-11 08:31 to 2026-04-11 09:00; " +
			"next 2026-04-11 09:01; decided 2026-04-11 09:00",
		eachDay: "skip 56161, 09:00 to 2026-04-10 09:00, missed_window; skip 1340, 2026-04-10 09:01 to 2026-04-11 07:20, max_missed; " +
			"run 100, 2026-04-11 07:21 to 2026-04-11 09:00; next 2026-04-11 09:01; decided 2026-04-11 09:00",
	}},
}

func TestMissedWindows(t *testing.T) {
	for _, tt := range missedCases {
		for w, want := range tt.want {
			for _, overlap := range []belfry.Overlap{belfry.OverlapSkip, belfry.OverlapQueue, belfry.OverlapParallel} {
				s := subjectWith(t, "* * * * *", w.tune)
				s.Policy.Overlap = overlap
				seen := planned(t, "09:00")
				step := Decide(s, seen, at(t, tt.since), at(t, tt.now))
				if got := describe(step); got != want {
					t.Errorf("%s, %+v, %s:\ngot  %s\nwant %s", tt.name, w, overlap, got, want)
				}
				checkStep(t, s, seen, step)
				makesUp := w.missed == belfry.MissedRunAll && seen.NominalAt.Before(earlier(at(t, tt.since), at(t, tt.now)))
				for _, r := range step.Runs {
					if makesUp != (r.Queue == NoQueueLimit) {
						t.Errorf("%s, %+v, %s: got %+v", tt.name, w, overlap, r)
					}
				}
			}
		}
	}
}

func (w way) tune(s *belfry.Spec) {
	s.MissedWindow, s.MaxMissed, s.CatchUpSeconds = w.missed, w.most, w.window
}

// Each case is a job of every hour that was planned for 9:00 and is decided at
// 14:00:30 for the first time.
func TestMissedWindowsWithMoreSettings(t *testing.T) {
	day := func(s *belfry.Spec) { eachDay.tune(s) }
	for _, tt := range []struct {
		name     string
		schedule string
		made     int64
		tune     func(s *belfry.Spec)
		want     string
	}{
		{"all", "0 * * * *", 0, day, "run 6, 09:00 to 14:00; next 15:00; decided 14:00"},
		{"one run is left", "0 * * * *", 3, func(s *belfry.Spec) { day(s); s.MaxRuns = 4 },
			"skip 5, 09:00 to 13:00, max_missed; run 14:00; next never; decided 14:00"},
		{"two runs are left", "0 * * * *", 3, func(s *belfry.Spec) { day(s); s.MaxRuns = 5 },
			"skip 4, 09:00 to 12:00, max_missed; run 13:00; run 14:00; next never; decided 14:00"},
		{"as many runs are left as were missed", "0 * * * *", 3, func(s *belfry.Spec) { day(s); s.MaxRuns = 9 },
			"run 6, 09:00 to 14:00; next never; decided 14:00"},
		{"one more run is left", "0 * * * *", 3, func(s *belfry.Spec) { day(s); s.MaxRuns = 10 },
			"run 6, 09:00 to 14:00; next 15:00; decided 14:00"},
		{"two runs are left and one is young enough", "0 * * * *", 3, func(s *belfry.Spec) { each.tune(s); s.MaxRuns = 5 },
			"skip 5, 09:00 to 13:00, missed_window; run 14:00; next 15:00; decided 14:00"},
		{"no run is left", "0 * * * *", 3, func(s *belfry.Spec) { day(s); s.MaxRuns = 3 },
			"skip 6, 09:00 to 14:00, max_missed; next never; decided 14:00"},
		{"fewer than no run are left", "0 * * * *", 4, func(s *belfry.Spec) { day(s); s.MaxRuns = 3 },
			"skip 6, 09:00 to 14:00, max_missed; next never; decided 14:00"},
		{"no run is left for the latest", "0 * * * *", 3, func(s *belfry.Spec) { onceAny.tune(s); s.MaxRuns = 3 },
			"skip 6, 09:00 to 14:00, missed_window; next never; decided 14:00"},
		{"skips are not runs", "0 * * * *", 3, func(s *belfry.Spec) { skips.tune(s); s.MaxRuns = 4 },
			"skip 6, 09:00 to 14:00, missed_window; next 15:00; decided 14:00"},
		{"the end came in between", "0 * * * *", 0, func(s *belfry.Spec) { day(s); s.EndsAt = at(t, "11:00") },
			"run 09:00; run 10:00; run 11:00; next never; decided 11:00"},
		{"the end came in between, and only the latest runs", "0 * * * *", 0, func(s *belfry.Spec) { onceAny.tune(s); s.EndsAt = at(t, "11:59") },
			"skip 2, 09:00 to 10:00, missed_window; run 11:00; next never; decided 11:00"},
		{"the end came before the window", "0 * * * *", 0, func(s *belfry.Spec) { each.tune(s); s.EndsAt = at(t, "11:00") },
			"skip 3, 09:00 to 11:00, missed_window; next never; decided 11:00"},
		{"the last of the rule", "0 0 9-12 2 3 * 2026", 0, func(s *belfry.Spec) { day(s); s.MaxMissed = 1 },
			"skip 3, 09:00 to 11:00, max_missed; run 12:00; next never; decided 12:00"},
		{"a rule of the calendar", "FREQ=HOURLY;INTERVAL=2", 0, func(s *belfry.Spec) { day(s); s.StartsAt = at(t, "07:00") },
			"run 09:00; run 11:00; run 13:00; next 15:00; decided 13:00"},
		{"an interval", "PT90M", 0, func(s *belfry.Spec) { day(s); s.StartsAt, s.MaxMissed = at(t, "09:00"), 2 },
			"skip 2, 09:00 to 10:30, max_missed; run 12:00; run 13:30; next 15:00; decided 13:30"},
	} {
		s, seen, now := subjectWith(t, tt.schedule, tt.tune), planned(t, "09:00"), at(t, "14:00:30")
		seen.RunsMade, seen.FiredFor = tt.made, at(t, "08:00")
		step := Decide(s, seen, now, now)
		if got := describe(step); got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, got, tt.want)
		}
		checkStep(t, s, seen, step)
	}
}

// An occurrence is as old as it was due, jitter included.
func TestCatchUpWindowIncludesJitter(t *testing.T) {
	s := subjectWith(t, "0 * * * *", func(s *belfry.Spec) { eachOf3.tune(s); s.JitterSeconds = 3000 })
	seen := First(job, 5, s.Policy, at(t, "08:30"))
	var ready [4]time.Time
	for i := range ready {
		nominal := at(t, "09:00").Add(time.Duration(i) * time.Hour)
		if ready[i] = s.Policy.ReadyAt(job, nominal); ready[i].Sub(nominal) < time.Minute {
			t.Fatalf("the jitter of %v is too small; the tests need another job", nominal)
		}
	}
	for _, tt := range []struct {
		name string
		tune func(s *belfry.Spec)
		now  time.Time
		want string
	}{
		{"the latest is just young enough", func(s *belfry.Spec) {}, ready[3].Add(30 * time.Minute), "skip 3, 09:00 to 11:00, missed_window; run 12:00"},
		{"the latest is just too old", func(s *belfry.Spec) {}, ready[3].Add(30*time.Minute + time.Microsecond), "skip 4, 09:00 to 12:00, missed_window"},
		{"all are young enough but the first", func(s *belfry.Spec) { s.CatchUpSeconds = int(ready[3].Sub(ready[1])/time.Second) + 2 }, ready[3].Add(time.Second),
			"skip 1, 09:00, missed_window; run 10:00; run 11:00; run 12:00"},
		{"one more is too old", func(s *belfry.Spec) { s.CatchUpSeconds = int(ready[3].Sub(ready[1]) / time.Second) }, ready[3].Add(time.Second),
			"skip 2, 09:00 to 10:00, missed_window; run 11:00; run 12:00"},
		{"the first is young enough and too many", func(s *belfry.Spec) { s.CatchUpSeconds = int(ready[3].Sub(ready[0])/time.Second) + 2 }, ready[3].Add(time.Second),
			"skip 1, 09:00, max_missed; run 10:00; run 11:00; run 12:00"},
		{"one of the young ones is too many", func(s *belfry.Spec) { s.CatchUpSeconds, s.MaxMissed = int(ready[3].Sub(ready[1])/time.Second)+2, 2 }, ready[3].Add(time.Second),
			"skip 1, 09:00, missed_window; skip 1, 10:00, max_missed; run 11:00; run 12:00"},
	} {
		s := subjectWith(t, "0 * * * *", func(s *belfry.Spec) { eachOf3.tune(s); s.JitterSeconds = 3000; tt.tune(s) })
		step := Decide(s, seen, tt.now, tt.now)
		checkStep(t, s, seen, step)
		if got, want := describeNext(step), tt.want+"; next for 13:00; decided 12:00"; got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, got, want)
		}
	}
}

// An occurrence that became due only when an edit or a newer zone database moved it
// into the past was not missed by the scheduler that was running then.
func TestOccurrencePlannedInThePastIsNotMissed(t *testing.T) {
	s, seen := subjectWith(t, "0 * * * *", skips.tune), planned(t, "09:00")
	seen.NextAt = at(t, "09:20")
	if got, want := describe(Decide(s, seen, at(t, "09:10"), at(t, "09:25"))), "run 09:00; next 10:00; decided 09:00"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := describe(Decide(s, seen, at(t, "09:21"), at(t, "09:25"))), "skip 1, 09:00, missed_window; next 10:00; decided 09:00"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A zone database may shorten or lengthen the jitter of an occurrence that is
// planned: when it is decided, it counts as due.
func TestDecideBeforeNominalTime(t *testing.T) {
	s, seen := subjectWith(t, "0 * * * *", func(s *belfry.Spec) { s.JitterSeconds = 1800 }), planned(t, "09:00")
	now := at(t, "09:00:01")
	if !s.Policy.ReadyAt(job, seen.NominalAt).After(now) {
		t.Fatal("the tests need another job")
	}
	if got, want := describeNext(Decide(s, seen, now, now)), "run 09:00; next for 10:00; decided 09:00"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMissedOneOffWithSkip(t *testing.T) {
	s, seen := subjectWith(t, "2026-03-02T09:00:00Z", skips.tune), planned(t, "09:00")
	paused := seen
	paused.NextAt = time.Time{}
	const run, skip = "run 09:00; next never; decided 09:00", "skip 1, 09:00, missed_window; next never; decided 09:00"
	for _, tt := range []struct {
		name string
		step Step
		want string
	}{
		{"on time", Decide(s, seen, at(t, "08:00"), at(t, "09:00")), run},
		{"late", Decide(s, seen, at(t, "08:00"), at(t, "12:00")), run},
		{"missed", Decide(s, seen, at(t, "09:01"), at(t, "09:01")), skip},
		{"paused when it is only just due", Pause(s, seen, at(t, "09:00:30")), run},
		{"paused long after", Pause(s, seen, at(t, "10:00")), skip},
		{"resumed", Decide(s, Resume(s, paused, false, at(t, "10:00")).Next, at(t, "08:00"), at(t, "10:00:01")), run},
	} {
		if got := describe(tt.step); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestMissedOneOffRuns(t *testing.T) {
	for _, w := range []way{onceAny, onceNew, each, eachOf3, eachOne} {
		s, seen := subjectWith(t, "2026-03-02T09:00:00Z", w.tune), planned(t, "09:00")
		for _, now := range []string{"09:00", "09:01:30", "10:00", "17:00", "2026-04-11 09:00", "2066-04-11 09:00"} {
			want := "run 09:00; next never; decided 09:00"
			paused := seen
			paused.NextAt = time.Time{}
			for name, step := range map[string]Step{
				"decided":                 Decide(s, seen, at(t, now), at(t, now)),
				"paused":                  Pause(s, seen, at(t, now)),
				"edited":                  Edit(s, editedPolicy(t, "0 0 9 2 3 * 2026"), seen, false, at(t, now)),
				"resumed":                 Decide(s, Resume(s, paused, false, at(t, now)).Next, at(t, now).Add(1), at(t, now).Add(1)),
				"resumed with a catch-up": Decide(s, Resume(s, paused, true, at(t, now)).Next, at(t, now).Add(1), at(t, now).Add(1)),
			} {
				if got := describe(step); got != want || step.Runs[0].Queue != 0 || !step.Next.Once && name != "edited" {
					t.Errorf("%+v %s at %s: got %s, want %s", w, name, now, got, want)
				}
			}
		}
	}
}

func TestCatchUpWithServerDefaults(t *testing.T) {
	for _, tt := range []struct {
		name   string
		server Defaults
		way    way
		runs   int
		event  bool
	}{
		{"each, where nothing is said", Defaults{}, way{missed: belfry.MissedRunAll}, 30, true},
		{"each, and the server says less", Defaults{CatchUpWindow: 5 * time.Minute}, way{missed: belfry.MissedRunAll}, 5, false},
		{"each, and the server says more", Defaults{CatchUpWindow: time.Hour}, way{missed: belfry.MissedRunAll}, 60, true},
		{"each, and the job says otherwise", Defaults{CatchUpWindow: time.Hour}, way{missed: belfry.MissedRunAll, window: 600}, 10, false},
		{"each, and eleven are many", Defaults{}, way{missed: belfry.MissedRunAll, window: 660}, 11, true},
		{"each, and eleven are not many for the server", Defaults{LargeCatchUp: 11}, way{missed: belfry.MissedRunAll, window: 660}, 11, false},
		{"each, and one is many for the server", Defaults{LargeCatchUp: 1}, way{missed: belfry.MissedRunAll, most: 2}, 2, true},
		{"each, and one is not more than one", Defaults{LargeCatchUp: 1}, way{missed: belfry.MissedRunAll, most: 1}, 1, false},
		{"the latest, where nothing is said", Defaults{}, onceAny, 1, false},
		{"the latest, and the server says too little", Defaults{CatchUpWindow: 29 * time.Second}, onceAny, 0, false},
		{"the latest, and the job says more", Defaults{CatchUpWindow: 29 * time.Second}, onceNew, 1, false},
		{"none", Defaults{CatchUpWindow: time.Hour}, skips, 0, false},
	} {
		spec := subjectWith(t, "* * * * *", tt.way.tune).Policy.Spec
		policy, err := tt.server.Compile(spec)
		if err != nil {
			t.Fatal(err)
		}
		s, seen, now := Subject{Namespace: "team", Revision: 1, Policy: policy}, planned(t, "09:00"), at(t, "12:00:30")
		step := Decide(s, seen, now, now)
		checkStep(t, s, seen, step)
		if len(step.Runs) != tt.runs || (step.Event != nil) != tt.event {
			t.Errorf("%s: got %s and %+v, want %d runs", tt.name, describe(step), step.Event, tt.runs)
		}
	}
}

func TestLargeCatchUpEvent(t *testing.T) {
	s, seen := subjectWith(t, "* * * * *", each.tune), planned(t, "09:00")
	now := at(t, "09:10:30")
	step := Decide(s, seen, now, now)
	want := belfry.Event{
		ID: belfry.RunID(job, "large_catch_up", at(t, "09:10"), belfry.ID{}), Namespace: "default", JobID: job, Kind: "large_catch_up", At: now, Count: 11,
		Message: "11 runs catch up on missed occurrences from 2026-03-02T09:00:00Z to 2026-03-02T09:10:00Z",
	}
	if step.Event == nil || *step.Event != want {
		t.Errorf("got %+v, want %+v", step.Event, want)
	}
	if again := Decide(s, seen, now, now.Add(time.Second)); again.Event == nil || again.Event.ID != want.ID {
		t.Errorf("the same event has another id: %+v", again.Event)
	}
}
