package plan

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belfry-sh/belfry"
)

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
		got, more := tuned(t, tt.schedule, tt.tune).Policy.Between(at(t, tt.from), at(t, tt.to), tt.limit)
		var told []string
		for _, at := range got {
			told = append(told, short(at))
		}
		if !slices.Equal(told, tt.want) || more != tt.more {
			t.Errorf("%s: got %v, more %v; want %v, %v", tt.name, told, more, tt.want, tt.more)
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
		is, before, after := tuned(t, tt.schedule, tt.tune).Policy.Around(at(t, tt.at))
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
