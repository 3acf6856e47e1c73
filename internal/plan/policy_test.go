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
		{"an overlap by its kind", func(s *belfry.Spec) {}, autumn, "2026-10-25 00:30"},
		{"an overlap the first time", func(s *belfry.Spec) { s.DSTOverlap = belfry.OverlapFirst }, "2026-10-25 00:30", "2026-10-26 01:30"},
		{"an overlap both times", func(s *belfry.Spec) { s.DSTOverlap = belfry.OverlapBoth }, "2026-10-25 00:30", "2026-10-25 01:30"},
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
	if one.Whole != other.Whole {
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

// BenchmarkCompile is a spec of which another like it is in use.
func BenchmarkCompile(b *testing.B) {
	policy := tuned(b, "Europe/Paris 30 9 * * MON-FRI", func(s *belfry.Spec) { s.EndsAt = at(b, "2030-01-01 00:00") }).Policy
	spec := policy.Spec
	b.ReportAllocs()
	for b.Loop() {
		spec.MaxRetries++
		if _, err := Compile(spec); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	if policy.Whole == nil {
		b.Fatal()
	}
}
