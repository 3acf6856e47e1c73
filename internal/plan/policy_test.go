package plan

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

func TestRuleWithinBounds(t *testing.T) {
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
		policy := subjectWith(t, tt.schedule, func(s *belfry.Spec) { s.StartsAt, s.EndsAt = at(t, tt.from), at(t, tt.to) }).Policy
		if got := policy.Rule.Next(at(t, tt.after)); !got.Equal(at(t, tt.want)) {
			t.Errorf("%s: got %s, want %s", tt.name, short(got), tt.want)
		}
	}
}

func TestCompileOptionsOfTheSpec(t *testing.T) {
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
		policy := subjectWith(t, "Europe/Paris 30 2 * * *", tt.tune).Policy
		if got := policy.Rule.Next(at(t, tt.after)); !got.Equal(at(t, tt.want)) {
			t.Errorf("%s: got %s, want %s", tt.name, short(got), tt.want)
		}
	}
}

func TestCompileSharesEqualRules(t *testing.T) {
	one := subject(t, "0 9 * * *").Policy
	other := subjectWith(t, "0 9 * * *", func(s *belfry.Spec) {
		s.Queue, s.JitterSeconds, s.MaxRuns, s.EndsAt = "other", 60, 7, at(t, "2030-01-01 00:00")
	}).Policy
	if one.Unbounded != other.Unbounded {
		t.Error("two specs that differ in other things have two parsed rules")
	}
	if _, once := schedule.Once(subjectWith(t, "2026-03-02T09:00:00Z", func(s *belfry.Spec) { s.EndsAt = at(t, "08:00") }).Policy.Rule); !once {
		t.Error("a one-off is none within bounds")
	}
}

func TestJitterDependsOnNoOtherSetting(t *testing.T) {
	jittered := func(tune func(s *belfry.Spec)) *Policy {
		return subjectWith(t, "0 * * * *", func(s *belfry.Spec) { s.JitterSeconds = 86400; tune(s) }).Policy
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
	dense := subjectWith(t, "* * * * * *", func(s *belfry.Spec) { s.JitterSeconds = 3600 }).Policy
	if got := dense.ReadyAt(job, nine); !got.Equal(nine) {
		t.Errorf("a rule of seconds has a jitter until %v", got)
	}
}

func TestPriorityWeights(t *testing.T) {
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
		spec := subjectWith(t, "* * * * *", func(s *belfry.Spec) { s.Priority = tt.priority }).Policy.Spec
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
func TestPriorityAgeing(t *testing.T) {
	weight := func(p belfry.Priority) int64 {
		return subjectWith(t, "* * * * *", func(s *belfry.Spec) { s.Priority = p }).Policy.Weight()
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
	policy := subjectWith(b, "Europe/Paris 30 9 * * MON-FRI", func(s *belfry.Spec) { s.EndsAt = at(b, "2030-01-01 00:00") }).Policy
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

func TestBetween(t *testing.T) {
	hours := func(s *belfry.Spec) { s.StartsAt, s.EndsAt = at(t, "08:30"), at(t, "12:00") }
	for _, tt := range []struct {
		name, schedule string
		tune           func(s *belfry.Spec)
		from, to       string
		limit          int
		want           []string
		more           bool
	}{
		{"both ends count", "0 * * * *", nil, "09:00", "11:00", 10, []string{"09:00", "10:00", "11:00"}, false},
		{"just inside the ends", "0 * * * *", nil, "09:00:00.000001", "10:59:59.999999", 10, []string{"10:00"}, false},
		{"as many as the limit", "0 * * * *", nil, "09:00", "11:00", 3, []string{"09:00", "10:00", "11:00"}, false},
		{"more than the limit", "0 * * * *", nil, "09:00", "11:00", 2, []string{"09:00", "10:00"}, true},
		{"a limit of none", "0 * * * *", nil, "09:00", "11:00", 0, nil, true},
		{"none in between", "0 * * * *", nil, "09:01", "09:59", 10, nil, false},
		{"one instant", "0 * * * *", nil, "09:00", "09:00", 10, []string{"09:00"}, false},
		{"the wrong way round", "0 * * * *", nil, "11:00", "09:00", 10, nil, false},
		{"within the bounds of the rule", "0 * * * *", hours, "07:00", "14:00", 10, []string{"09:00", "10:00", "11:00", "12:00"}, false},
		{"the bounds are no more", "0 * * * *", hours, "07:00", "14:00", 4, []string{"09:00", "10:00", "11:00", "12:00"}, false},
		{"a one-off", "2026-03-02T09:00:00.5Z", nil, "09:00:00.5", "11:00", 10, []string{"09:00:00.5"}, false},
		{"a one-off before", "2026-03-02T09:00:00.5Z", nil, "09:00:00.500001", "11:00", 10, nil, false},
		{"an interval", "PT25M", func(s *belfry.Spec) { s.StartsAt = at(t, "09:00") }, "08:00", "10:00", 10, []string{"09:00", "09:25", "09:50"}, false},
		{"whatever runs there may be", "0 * * * *", func(s *belfry.Spec) { s.MaxRuns = 1 }, "09:00", "10:00", 10, []string{"09:00", "10:00"}, false},
	} {
		if tt.tune == nil {
			tt.tune = func(*belfry.Spec) {}
		}
		got, more := subjectWith(t, tt.schedule, tt.tune).Policy.Between(at(t, tt.from), at(t, tt.to), tt.limit)
		var texts []string
		for _, at := range got {
			texts = append(texts, short(at))
		}
		if !slices.Equal(texts, tt.want) || more != tt.more {
			t.Errorf("%s: got %v, more %v; want %v, %v", tt.name, texts, more, tt.want, tt.more)
		}
	}
}

func TestAround(t *testing.T) {
	hours := func(s *belfry.Spec) { s.StartsAt, s.EndsAt = at(t, "08:30"), at(t, "12:00") }
	for _, tt := range []struct {
		name, schedule string
		tune           func(s *belfry.Spec)
		at             string
		is             bool
		before, after  string
	}{
		{"an occurrence", "0 * * * *", nil, "09:00", true, "08:00", "10:00"},
		{"just before one", "0 * * * *", nil, "08:59:59.999999", false, "08:00", "09:00"},
		{"just after one", "0 * * * *", nil, "09:00:00.000001", false, "09:00", "10:00"},
		{"the first within the bounds", "0 * * * *", hours, "09:00", true, "", "10:00"},
		{"before the bounds", "0 * * * *", hours, "07:00", false, "", "09:00"},
		{"the last within the bounds", "0 * * * *", hours, "12:00", true, "11:00", ""},
		{"after the bounds", "0 * * * *", hours, "Tue 12:00", false, "12:00", ""},
		{"a one-off", "2026-03-02T09:00:00Z", nil, "09:00", true, "", ""},
		{"before a one-off", "2026-03-02T09:00:00Z", nil, "08:00", false, "", "09:00"},
		{"long after a one-off", "2026-03-02T09:00:00Z", nil, "2499-01-01 00:00", false, "09:00", ""},
		{"a rule that is over for long", "0 0 9 2 3 * 1970-1975", nil, "2499-12-31 00:00", false, "1975-03-02 09:00", ""},
		{"a rule that comes in centuries", "0 0 9 2 3 * 2480", nil, "1971-03-02 09:00", false, "", "2480-03-02 09:00"},
		{"once in four years", "0 9 29 2 *", nil, "09:00", false, "2024-02-29 09:00", "2028-02-29 09:00"},
		{"every second", "* * * * * *", nil, "09:00", true, "08:59:59", "09:00:01"},
		{"in a zone whose clock changes", "Europe/Paris 30 2 * * *", nil, "2026-03-29 01:00", true, "2026-03-28 01:30", "2026-03-30 00:30"},
		{"where the clock skips it", "Europe/Paris 30 2 * * *", func(s *belfry.Spec) { s.MissedWindow = belfry.MissedSkip }, "2026-03-29 01:00", false,
			"2026-03-28 01:30", "2026-03-30 00:30"},
	} {
		if tt.tune == nil {
			tt.tune = func(*belfry.Spec) {}
		}
		is, before, after := subjectWith(t, tt.schedule, tt.tune).Policy.Around(at(t, tt.at))
		if is != tt.is || !before.Equal(at(t, tt.before)) || !after.Equal(at(t, tt.after)) {
			t.Errorf("%s: got %v, %v, %v; want %v, %q, %q", tt.name, is, before, after, tt.is, tt.before, tt.after)
		}
	}
}

// Whatever the rule, the neighbours of an instant are those among all occurrences.
func TestAroundAgreesWithBetween(t *testing.T) {
	schedules := []string{"*/7 * * * *", "0 * * * *", "*/20 * * * * *", "Europe/Paris 30 2 * * *", "Europe/Paris */15 * * * *", "PT25M", "2026-03-29T00:50:00Z"}
	rapid.Check(t, func(t *rapid.T) {
		p := anySubject(t, schedules).Policy
		middle := at(t, "2026-03-29 01:00").Add(time.Duration(rapid.IntRange(-40*3600, 40*3600).Draw(t, "at")) * time.Second)
		all, more := p.Between(middle.Add(-50*time.Hour), middle.Add(50*time.Hour), 100_000)
		i, is := slices.BinarySearchFunc(all, middle, time.Time.Compare)
		gotIs, before, after := p.Around(middle)
		if gotIs != is || more {
			t.Fatalf("is %v, want %v", gotIs, is)
		}
		if i > 0 && !before.Equal(all[i-1]) || i == 0 && before.After(middle.Add(-50*time.Hour)) {
			t.Fatalf("before %v is %v, want the last of %v", middle, before, all[:i])
		}
		if is {
			i++
		}
		if i < len(all) && !after.Equal(all[i]) || i == len(all) && !after.IsZero() && after.Before(middle.Add(50*time.Hour)) {
			t.Fatalf("after %v is %v", middle, after)
		}
	})
}
