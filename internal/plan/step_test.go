package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

var job = belfry.ID{0x01, 0x90, 0xb0, 0xf2, 0, 1, 0x70, 0, 0x80, 15: 0xaa}

// subject gives the subject of a job with this schedule. A zone may stand before
// it, as in "Europe/Paris 0 9 * * *".
func subject(t failer, text string) Subject {
	t.Helper()
	return subjectWith(t, text, func(*belfry.Spec) {})
}

// subjectWith is the same with more in its spec.
func subjectWith(t failer, text string, tune func(s *belfry.Spec)) Subject {
	t.Helper()
	spec := belfry.DefaultSpec()
	if zone, rest, found := strings.Cut(text, " "); found && strings.Contains(zone, "/") && zone[0] > '9' {
		spec.Timezone, text = zone, rest
	}
	spec.Type, spec.Schedule = belfry.TypeHTTP, text
	tune(&spec)
	policy, err := Compile(spec)
	if err != nil {
		t.Fatalf("compile %+v: %v", spec, err)
	}
	return Subject{Namespace: "default", Revision: 1, Policy: policy}
}

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// at reads "15:04", "15:04:05", "Mon 15:04" or "2006-01-02 15:04" in UTC. Days
// are those of the week of Monday, 2 March 2026, and a time alone is that
// Monday's. The empty text is the zero time.
func at(t failer, text string) time.Time {
	t.Helper()
	if text == "" {
		return time.Time{}
	}
	for day, name := range []string{"Mon ", "Tue ", "Wed ", "Thu ", "Fri ", "Sat ", "Sun "} {
		if rest, ok := strings.CutPrefix(text, name); ok {
			return at(t, fmt.Sprintf("2026-03-%02d %s", 2+day, rest))
		}
	}
	if len(text) <= len("15:04:05.000000") {
		text = "2026-03-02 " + text
	}
	for _, layout := range []string{"2006-01-02 15:04", "2006-01-02 15:04:05"} {
		if out, err := time.Parse(layout, text); err == nil {
			return out
		}
	}
	t.Fatalf("%q is not a time", text)
	return time.Time{}
}

// short is the inverse of at.
func short(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	layout := "15:04"
	if t.Second() != 0 || t.Nanosecond() != 0 {
		layout = "15:04:05.999999"
	}
	switch days := t.Sub(time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)) / (24 * time.Hour); {
	case t.Year() == 2026 && t.Month() == time.March && t.Day() == 2:
	case t.Year() == 2026 && days > 0 && days < 7:
		layout = "Mon " + layout
	default:
		layout = "2006-01-02 " + layout
	}
	return t.UTC().Format(layout)
}

// planned gives the plan of a job that waits for an occurrence.
func planned(t failer, nominal string) Plan {
	t.Helper()
	when := at(t, nominal)
	return Plan{JobID: job, Shard: 5, Version: 7, NextAt: when, NominalAt: when, RunsMade: 3, ZoneVersion: "1970a"}
}

// describe puts a step into words: what is skipped, what runs, what comes next, and
// up to where everything is decided.
func describe(s Step) string {
	var out []string
	for _, k := range s.Skips {
		span := short(k.From)
		if !k.To.Equal(k.From) {
			span += " to " + short(k.To)
		}
		out = append(out, fmt.Sprintf("skip %d, %s, %s", k.Count, span, k.Reason))
	}
	if n := len(s.Runs); n > 3 {
		out = append(out, fmt.Sprintf("run %d, %s to %s", n, short(s.Runs[0].ScheduledAt), short(s.Runs[n-1].ScheduledAt)))
	} else {
		for _, r := range s.Runs {
			out = append(out, "run "+short(r.ScheduledAt))
		}
	}
	switch {
	case s.Next.NextAt.Equal(s.Next.NominalAt):
		out = append(out, "next "+short(s.Next.NextAt))
	case s.Next.NextAt.IsZero():
		out = append(out, "paused before "+short(s.Next.NominalAt))
	default:
		out = append(out, fmt.Sprintf("next %s for %s", short(s.Next.NextAt), short(s.Next.NominalAt)))
	}
	if !s.Next.FiredFor.Equal(s.Seen.FiredFor) {
		out = append(out, "decided "+short(s.Next.FiredFor))
	}
	return strings.Join(out, "; ")
}

func TestStepFirst(t *testing.T) {
	for _, tt := range []struct {
		name string
		step Step
		want string
	}{
		{"nothing is decided", Step{}, ""},
		{"a run alone", Step{Runs: []Run{{Kind: belfry.KindScheduled, ScheduledAt: at(t, "09:00")}}}, "09:00"},
		{"a skip before a run", Step{
			Runs:  []Run{{Kind: belfry.KindScheduled, ScheduledAt: at(t, "09:00")}},
			Skips: []Skip{{From: at(t, "08:00"), To: at(t, "08:30")}},
		}, "08:00"},
		{"a trigger decides no occurrence", Step{Runs: []Run{{Kind: belfry.KindManual, ScheduledAt: at(t, "09:00")}}}, ""},
		{"a trigger and a skip", Step{
			Runs:  []Run{{Kind: belfry.KindManual, ScheduledAt: at(t, "07:00")}},
			Skips: []Skip{{From: at(t, "08:00"), To: at(t, "08:00")}},
		}, "08:00"},
		{"a note", Step{
			Runs:  []Run{{Kind: belfry.KindScheduled, ScheduledAt: at(t, "09:00")}},
			Skips: []Skip{{From: at(t, "08:00"), Note: true}, {From: at(t, "07:00"), Note: true}},
		}, "09:00"},
	} {
		if got := tt.step.First(); !got.Equal(at(t, tt.want)) {
			t.Errorf("%s: got %v, want %q", tt.name, got, tt.want)
		}
	}
}

func TestRankFollowsTime(t *testing.T) {
	early, late := at(t, "09:00"), at(t, "09:00").Add(time.Microsecond)
	if Rank(early, 7) >= Rank(late, 7) || Rank(early, 2) != Rank(late, 1) {
		t.Errorf("%d is not before %d", Rank(early, 7), Rank(late, 7))
	}
}

func TestCompileRefusesInvalidSpecs(t *testing.T) {
	for _, spec := range []belfry.Spec{{Schedule: ""}, {Schedule: "* * * *"}, {Schedule: "0 9 * * *", Timezone: "Europe/Nowhere"}} {
		if policy, err := Compile(spec); err == nil {
			t.Errorf("%+v became %+v", spec, policy)
		}
	}
}
