package plan

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

func TestARuleKeepsToItsBounds(t *testing.T) {
	for _, tt := range []struct {
		name, schedule, from, to string
		after, want              string
	}{
		{"before the start", "0 * * * *", "09:30", "", "03:00", "10:00"},
		{"an occurrence at the start", "0 * * * *", "09:00", "", "03:00", "09:00"},
		{"asked at the start", "0 * * * *", "09:00", "", "09:00", "10:00"},
		{"a start within a second", "* * * * * *", "09:00:00.000001", "", "03:00", "09:00:01"},
		{"an occurrence at the end", "0 * * * *", "", "10:00", "09:00", "10:00"},
		{"after the end", "0 * * * *", "", "10:00", "10:00", ""},
		{"the next lies after the end", "0 * * * *", "", "09:59:59.999999", "09:00", ""},
		{"nothing in between", "0 9 * * *", "09:01", "Tue 08:59", "03:00", ""},
		{"counted from the start", "PT25M", "09:00", "", "09:26", "09:50"},
		{"the start itself", "PT25M", "09:00", "", "08:00", "09:00"},
		{"both in between", "PT25M", "09:00", "09:50", "09:25", "09:50"},
		{"no bounds", "0 * * * *", "", "", "09:00", "10:00"},
		{"a calendar rule", "FREQ=DAILY", "09:00", "Wed 09:00", "10:00", "Tue 09:00"},
	} {
		policy := tuned(t, tt.schedule, func(s *belfry.Spec) { s.StartsAt, s.EndsAt = at(t, tt.from), at(t, tt.to) }).Policy
		if got := policy.Rule.Next(at(t, tt.after)); !got.Equal(at(t, tt.want)) {
			t.Errorf("%s: got %s, want %s", tt.name, short(got), tt.want)
		}
	}
}

func TestTheRuleOfAPolicyIsReadAsItsSpecSays(t *testing.T) {
	summer, autumn := "2026-03-28 12:00", "2026-10-25 00:10"
	for _, tt := range []struct {
		name  string
		tune  func(s *belfry.Spec)
		after string
		want  string
	}{
		{"a gap runs", func(s *belfry.Spec) {}, summer, "2026-03-29 01:00"},
		{"a gap is skipped", func(s *belfry.Spec) { s.DSTGap = belfry.GapSkip }, summer, "2026-03-30 00:30"},
		{"a gap is skipped where nothing that is missed runs", func(s *belfry.Spec) { s.MissedWindow = belfry.MissedSkip }, summer, "2026-03-30 00:30"},
		{"a gap runs all the same", func(s *belfry.Spec) { s.MissedWindow, s.DSTGap = belfry.MissedSkip, belfry.GapRun }, summer, "2026-03-29 01:00"},
		{"an overlap by its kind", func(s *belfry.Spec) {}, autumn, "2026-10-25 00:30"},
		{"an overlap the first time", func(s *belfry.Spec) { s.DSTOverlap = belfry.DSTFirst }, "2026-10-25 00:30", "2026-10-26 01:30"},
		{"an overlap both times", func(s *belfry.Spec) { s.DSTOverlap = belfry.DSTBoth }, "2026-10-25 00:30", "2026-10-25 01:30"},
		{"what was resolved", func(s *belfry.Spec) { s.Schedule, s.Resolved = "H 2 * * *", "30 2 * * *" }, summer, "2026-03-29 01:00"},
	} {
		policy := tuned(t, "Europe/Paris 30 2 * * *", tt.tune).Policy
		if got := policy.Rule.Next(at(t, tt.after)); !got.Equal(at(t, tt.want)) {
			t.Errorf("%s: got %s, want %s", tt.name, short(got), tt.want)
		}
	}
}

func TestEqualRulesAreShared(t *testing.T) {
	one := subject(t, "0 9 * * *").Policy
	other := tuned(t, "0 9 * * *", func(s *belfry.Spec) {
		s.Queue, s.JitterSeconds, s.MaxRuns, s.EndsAt = "other", 60, 7, at(t, "2030-01-01 00:00")
	}).Policy
	if one.Unbounded != other.Unbounded {
		t.Error("two specs that differ in other things have two parsed rules")
	}
	if _, once := schedule.Once(tuned(t, "2026-03-02T09:00:00Z", func(s *belfry.Spec) { s.EndsAt = at(t, "08:00") }).Policy.Rule); !once {
		t.Error("a one-off is none within bounds")
	}
}

func TestJitterDoesNotChangeWithAnythingElse(t *testing.T) {
	jittered := func(tune func(s *belfry.Spec)) *Policy {
		return tuned(t, "0 * * * *", func(s *belfry.Spec) { s.JitterSeconds = 86400; tune(s) }).Policy
	}
	nine := at(t, "09:00")
	want := jittered(func(*belfry.Spec) {}).ReadyAt(job, nine)
	if d := want.Sub(nine); d <= 0 || d > time.Hour || d%time.Microsecond != 0 {
		t.Errorf("the jitter is %v", d)
	}
	for name, tune := range map[string]func(s *belfry.Spec){
		"the queue":        func(s *belfry.Spec) { s.Queue = "other" },
		"another limit":    func(s *belfry.Spec) { s.MaxRuns = 4 },
		"the last of all":  func(s *belfry.Spec) { s.EndsAt = nine },
		"the first of all": func(s *belfry.Spec) { s.StartsAt = nine },
		"the text":         func(s *belfry.Spec) { s.Schedule = "0 0 * * * *" },
	} {
		if got := jittered(tune).ReadyAt(job, nine); !got.Equal(want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	if other := jittered(func(*belfry.Spec) {}).ReadyAt(belfry.ID{15: 1}, nine); other.Equal(want) {
		t.Error("two jobs have the same jitter")
	}
	dense := tuned(t, "* * * * * *", func(s *belfry.Spec) { s.JitterSeconds = 3600 }).Policy
	if got := dense.ReadyAt(job, nine); !got.Equal(nine) {
		t.Errorf("a rule of seconds has a jitter until %v", got)
	}
}

func TestWeightsFollowPriorities(t *testing.T) {
	for _, tt := range []struct {
		priority belfry.Priority
		ageing   time.Duration
		want     time.Duration
	}{
		{belfry.PriorityNormal, 0, 0},
		{"normal", time.Hour, 0},
		{"0", 0, 5 * 10 * time.Minute / 9},
		{belfry.PriorityLow, 0, 4 * 10 * time.Minute / 9},
		{belfry.PriorityHigh, 0, -4 * 10 * time.Minute / 9},
		{belfry.PriorityHigh, 9 * time.Second, -4 * time.Second},
		{"6", 9 * time.Second, -time.Second},
		{"0", 9 * time.Second, 5 * time.Second},
	} {
		spec := tuned(t, "* * * * *", func(s *belfry.Spec) { s.Priority = tt.priority }).Policy.Spec
		policy, err := Defaults{Ageing: tt.ageing}.Compile(spec)
		if err != nil {
			t.Fatal(err)
		}
		if got := policy.Weight(); got != tt.want.Microseconds() {
			t.Errorf("%q within %v: got %d, want %v", tt.priority, tt.ageing, got, tt.want)
		}
	}
}

// A run of the lowest priority waits as much longer than one of the highest as the
// ageing says, and no longer.
func TestNoPriorityStarvesAnother(t *testing.T) {
	weight := func(p belfry.Priority) int64 {
		return tuned(t, "* * * * *", func(s *belfry.Spec) { s.Priority = p }).Policy.Weight()
	}
	asked := at(t, "09:00")
	low, lowest := Rank(asked, weight("low")), Rank(asked, weight("0"))
	if r := Rank(asked.Add(8*time.Minute), weight("high")); r >= low {
		t.Error("after 8 minutes a high one is not before the low one")
	}
	if r := Rank(asked.Add(9*time.Minute), weight("high")); r <= low {
		t.Error("after 9 minutes a high one is before the low one")
	}
	if r := Rank(asked.Add(10*time.Minute+time.Microsecond), weight("9")); r <= lowest {
		t.Error("after 10 minutes a high one is before the lowest")
	}
}

// BenchmarkCompile is a spec of which another like it is in use.
func BenchmarkCompile(b *testing.B) {
	policy := tuned(b, "Europe/Paris 30 9 * * MON-FRI", func(s *belfry.Spec) { s.EndsAt = at(b, "2030-01-01 00:00") }).Policy
	spec := policy.Spec
	b.ReportAllocs()
	for b.Loop() {
		spec.MaxRetries = belfry.Some(9)
		if _, err := Compile(spec); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	if policy.Unbounded == nil {
		b.Fatal()
	}
}
