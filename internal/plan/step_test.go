package plan

import (
	"fmt"
	"reflect"
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
	return tuned(t, text, func(*belfry.Spec) {})
}

// tuned is the same with more in its spec.
func tuned(t failer, text string, tune func(s *belfry.Spec)) Subject {
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

// tell puts a step into words: what is skipped, what runs, what comes next, and
// up to where everything is decided.
func tell(s Step) string {
	var out []string
	for _, k := range s.Skips {
		span := short(k.From)
		if !k.To.Equal(k.From) {
			span += " to " + short(k.To)
		}
		out = append(out, fmt.Sprintf("skip %d, %s, %s", k.Count, span, k.Reason))
	}
	for _, r := range s.Runs {
		out = append(out, "run "+short(r.ScheduledAt))
	}
	switch {
	case s.Next.NextAt.Equal(s.Next.NominalAt):
		out = append(out, "next "+short(s.Next.NextAt))
	case s.Next.NextAt.IsZero():
		out = append(out, "halt before "+short(s.Next.NominalAt))
	default:
		out = append(out, fmt.Sprintf("next %s for %s", short(s.Next.NextAt), short(s.Next.NominalAt)))
	}
	if !s.Next.FiredFor.Equal(s.Seen.FiredFor) {
		out = append(out, "decided "+short(s.Next.FiredFor))
	}
	return strings.Join(out, "; ")
}

// sound checks what holds for every step.
func sound(t failer, subject Subject, seen Plan, step Step) {
	t.Helper()
	if step.Subject != subject || step.Seen != seen || step.Epoch != 0 {
		t.Fatalf("the step is about %+v and %+v", step.Subject, step.Seen)
	}
	next := step.Next
	if next.JobID != seen.JobID || next.Shard != seen.Shard {
		t.Fatalf("the plan of %v became that of %v", seen.JobID, next.JobID)
	}
	if next.FiredFor.Before(seen.FiredFor) {
		t.Fatalf("the mark went back from %v to %v", seen.FiredFor, next.FiredFor)
	}
	if !next.NominalAt.IsZero() && !next.NominalAt.After(next.FiredFor) {
		t.Fatalf("%v is planned although all up to %v is decided", next.NominalAt, next.FiredFor)
	}
	if !next.NextAt.IsZero() && (next.NominalAt.IsZero() || next.NextAt.Before(next.NominalAt)) {
		t.Fatalf("the look at %v would be too early for %v", next.NextAt, next.NominalAt)
	}
	made := seen.RunsMade
	for _, r := range step.Runs {
		if r.Kind == belfry.KindScheduled {
			made++
		}
	}
	if next.RunsMade != made {
		t.Fatalf("%d runs were counted, want %d", next.RunsMade, made)
	}
	first := time.Time{}
	earliest := func(id belfry.ID, at time.Time) {
		if want := belfry.RunID(seen.JobID, belfry.KindScheduled, at, belfry.ID{}); id != want {
			t.Fatalf("what became of %v has id %s, want %s", at, id, want)
		}
		if !at.After(seen.FiredFor) || at.After(next.FiredFor) {
			t.Fatalf("%v is decided although the mark goes from %v to %v", at, seen.FiredFor, next.FiredFor)
		}
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	for _, r := range step.Runs {
		if r.Kind != belfry.KindScheduled {
			continue
		}
		earliest(r.ID, r.ScheduledAt)
		ready := subject.Policy.ReadyAt(seen.JobID, r.ScheduledAt)
		want := Run{ID: r.ID, Kind: belfry.KindScheduled, ScheduledAt: r.ScheduledAt, ReadyAt: ready, Limit: subject.Policy.Overlap.Limit()}
		if !reflect.DeepEqual(r, want) {
			t.Fatalf("got run %+v, want %+v", r, want)
		}
	}
	for _, k := range step.Skips {
		if k.Reason == belfry.ReasonDSTGap || k.Reason == belfry.ReasonMoved {
			if k != besides(seen.JobID, k.From, k.Count, k.Reason) || k.Count < 1 {
				t.Fatalf("got %+v", k)
			}
			continue
		}
		earliest(k.ID, k.From)
		if k.Count < 1 || k.To.Before(k.From) || k.To.After(next.FiredFor) || (k.Count == 1) != k.To.Equal(k.From) {
			t.Fatalf("got skip %+v", k)
		}
	}
	if !step.First().Equal(first) {
		t.Fatalf("the first decided occurrence is %v, want %v", step.First(), first)
	}
}

func TestFirstIsTheEarliestDecision(t *testing.T) {
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
		{"a trigger beside a skip", Step{
			Runs:  []Run{{Kind: belfry.KindManual, ScheduledAt: at(t, "07:00")}},
			Skips: []Skip{{From: at(t, "08:00"), To: at(t, "08:00")}},
		}, "08:00"},
		{"what is recorded beside the occurrences", Step{
			Runs:  []Run{{Kind: belfry.KindScheduled, ScheduledAt: at(t, "09:00")}},
			Skips: []Skip{{From: at(t, "08:00"), Reason: belfry.ReasonDSTGap}, {From: at(t, "07:00"), Reason: belfry.ReasonMoved}},
		}, "09:00"},
	} {
		if got := tt.step.First(); !got.Equal(at(t, tt.want)) {
			t.Errorf("%s: got %v, want %q", tt.name, got, tt.want)
		}
	}
}

func TestRanksFollowTime(t *testing.T) {
	early, late := at(t, "09:00"), at(t, "09:00").Add(time.Microsecond)
	if Rank(early) >= Rank(late) {
		t.Errorf("%d is not before %d", Rank(early), Rank(late))
	}
}

func TestASpecThatCannotBeReadIsRefused(t *testing.T) {
	for _, spec := range []belfry.Spec{{Schedule: ""}, {Schedule: "* * * *"}, {Schedule: "0 9 * * *", Timezone: "Europe/Nowhere"}} {
		if policy, err := Compile(spec); err == nil {
			t.Errorf("%+v became %+v", spec, policy)
		}
	}
}
