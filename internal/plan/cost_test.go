package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// countingRule counts its calls.
type countingRule struct {
	schedule.Rule
	calls int
}

func (c *countingRule) Next(after time.Time) time.Time {
	c.calls++
	return c.Rule.Next(after)
}

// However long no scheduler was running, and however dense the rule, a decision asks the
// rule a bounded number of times and is right about where to go on. What it cannot
// compute it counts to a limit; everything else is exact.
func TestDecisionCostIsBounded(t *testing.T) {
	for _, tt := range []struct {
		name, schedule, nominal, now string
		count                        int64
		last                         string // occurrence before now
		second                       string // and the one before
	}{
		{"every minute for 40 years", "* * * * *", "09:00", "2066-03-02 09:00:30", 40*525_600 + 10*1440 + 1, "2066-03-02 09:00", "2066-03-02 08:59"},
		{"every second of one month a year", "* * * * 1 *", "2026-01-01 00:00", "2029-12-31 00:00", 4 * 31 * 86_400, "2029-01-31 23:59:59", "2029-01-31 23:59:58"},
		{"once a year for 400 years", "0 0 1 1 *", "2026-01-01 00:00", "2425-12-31 00:00", 400, "2425-01-01 00:00", "2424-01-01 00:00"},
		{"every minute until a rule ended long ago", "0 * * * * * 2026", "09:00", "2426-01-01 00:00", 304*1440 + 15*60, "2026-12-31 23:59", "2026-12-31 23:58"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			subject, seen, now := subject(t, tt.schedule), planned(t, tt.nominal), at(t, tt.now)
			check := func(verb string, step Step, count int64, to, mark string, reason belfry.Reason) {
				t.Helper()
				want := Skip{ID: belfry.RunID(job, belfry.KindScheduled, seen.NominalAt, belfry.ID{}), From: seen.NominalAt, To: at(t, to), Count: count, Reason: reason}
				if len(step.Skips) != 1 || step.Skips[0] != want || !step.Next.FiredFor.Equal(at(t, mark)) {
					t.Errorf("%s: got %s, want %+v and a mark at %s", verb, describe(step), want, mark)
				}
				checkStep(t, subject, seen, step)
			}
			both := func(missed, all int64) {
				t.Helper()
				seen.NextAt = seen.NominalAt
				check("decide", Decide(subject, seen, now, now), missed, tt.second, tt.last, belfry.ReasonMissed)
				seen.NextAt = time.Time{}
				check("resume", Resume(subject, seen, false, now), all, tt.last, tt.last, belfry.ReasonPaused)
			}
			both(tt.count-1, tt.count)
			rule := &countingRule{Rule: subject.Policy.Rule} // of no kind that can compute
			subject.Policy.Rule = rule
			if tt.count > maxCounted {
				both(maxCounted, maxCounted)
			} else {
				both(tt.count-1, tt.count)
			}
			if rule.calls > 2*(maxCounted+400) {
				t.Errorf("the rule was asked %d times for two decisions", rule.calls)
			}
		})
	}
}

func TestSkipCountsAreExact(t *testing.T) {
	subject, seen := subject(t, "* * * * *"), planned(t, "09:00")
	for _, missed := range []int64{1, 2, 3, 4, 5, 1000, maxCounted - 1, maxCounted, maxCounted + 1, 2 * maxCounted} {
		last := seen.NominalAt.Add(time.Duration(missed-1) * time.Minute)
		now := last.Add(time.Second)
		step := Decide(subject, seen, now, now)
		var count int64
		to := seen.NominalAt.Add(-time.Minute)
		if len(step.Skips) > 0 {
			count, to = step.Skips[0].Count, step.Skips[0].To
		}
		if count != missed-1 || !to.Equal(last.Add(-time.Minute)) || !step.Runs[0].ScheduledAt.Equal(last) {
			t.Errorf("%d missed: got %s", missed, describe(step))
		}
		paused := seen
		paused.NextAt = time.Time{}
		resumed := Resume(subject, paused, false, now)
		if k := resumed.Skips[0]; k.Count != missed || !k.To.Equal(last) {
			t.Errorf("%d fell into the pause: got %s", missed, describe(resumed))
		}
	}
}

// With run_all, occurrences that are too old and those beyond the limit are counted apart.
func TestCatchUpSkipCountsAreExact(t *testing.T) {
	const day, month = 86_400, 40 * 86_400
	s := subjectWith(t, "* * * * * *", func(s *belfry.Spec) {
		s.MissedWindow, s.MaxMissed, s.CatchUpSeconds = belfry.MissedRunAll, 1000, 10*day
	})
	exact, now := s.Policy.Rule, at(t, "09:00").AddDate(0, 0, 40)
	rule := &countingRule{Rule: exact} // of no kind that can compute
	for _, tt := range []struct {
		rule      schedule.Rule
		old, many int64
	}{
		{exact, month - 10*day, 10*day - 1000},
		{rule, maxCounted, maxCounted},
	} {
		s.Policy.Rule = tt.rule
		seen := planned(t, "09:00")
		step := Decide(s, seen, now, now)
		checkStep(t, s, seen, step)
		oldest, newest := now.Add(-10*day*time.Second), now.Add(-time.Second)
		first := newest.Add(-999 * time.Second)
		want := []Skip{
			{belfry.RunID(job, belfry.KindScheduled, seen.NominalAt, belfry.ID{}), seen.NominalAt, oldest.Add(-time.Second), tt.old, belfry.ReasonMissed, "", false},
			{belfry.RunID(job, belfry.KindScheduled, oldest, belfry.ID{}), oldest, first.Add(-time.Second), tt.many, belfry.ReasonMaxMissed, "", false},
		}
		if !slices.Equal(step.Skips, want) {
			t.Errorf("got  %+v\nwant %+v", step.Skips, want)
		}
		if n := len(step.Runs); n != 1000 || !step.Runs[0].ScheduledAt.Equal(first) || !step.Runs[n-1].ScheduledAt.Equal(newest) {
			t.Errorf("got %s", describe(step))
		}
	}
	if rule.calls > 3*maxCounted+10_000 {
		t.Errorf("the rule was asked %d times", rule.calls)
	}
}

// BenchmarkDecide is a decision after 40 days without a scheduler.
func BenchmarkDecide(b *testing.B) {
	for _, text := range []string{"* * * * * *", "*/5 * * * *", "America/New_York 0 9 * * MON-FRI"} {
		for _, jitter := range []int{0, 300} {
			for _, w := range []way{onceAny, {belfry.MissedRunAll, 100, 86_400}, {belfry.MissedRunAll, 1000, 40 * 86_400}} {
				b.Run(fmt.Sprintf("%s with jitter %d and %d runs", text, jitter, max(w.most, 1)), func(b *testing.B) {
					subject := subjectWith(b, text, func(s *belfry.Spec) { w.tune(s); s.JitterSeconds = jitter })
					seen := First(job, 5, subject.Policy, at(b, "09:00"))
					now := at(b, "09:00").AddDate(0, 0, 40)
					b.ReportAllocs()
					for b.Loop() {
						Decide(subject, seen, now, now)
					}
				})
			}
		}
	}
}

// A plan may name an instant that its rule no longer does, because a newer zone
// database moved the rule. The instant was promised, and counts once.
func TestDecideOccurrenceThatTheRuleNoLongerHas(t *testing.T) {
	for _, tt := range []struct {
		name, nominal, now string
		want               string
	}{
		{"on time", "09:02", "09:02", "run 09:02; next 09:05; decided 09:02"},
		{"missed alone", "09:02", "09:04", "run 09:02; next 09:05; decided 09:02"},
		{"missed with the next", "09:02", "09:08", "skip 1, 09:02, missed_window; run 09:05; next 09:10; decided 09:05"},
		{"missed with several", "09:02", "09:18", "skip 3, 09:02 to 09:10, missed_window; run 09:15; next 09:20; decided 09:15"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rule := &limitedRule{t: t}
			subject, seen := subject(t, "*/5 * * * *"), planned(t, tt.nominal)
			rule.Rule = subject.Policy.Rule
			subject.Policy.Rule = rule
			since := at(t, tt.now)
			step := Decide(subject, seen, since, since)
			if got := describe(step); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			checkStep(t, subject, seen, step)
		})
	}
}

// limitedRule fails the test after too many calls.
type limitedRule struct {
	schedule.Rule
	t     *testing.T
	calls int
}

func (p *limitedRule) Next(after time.Time) time.Time {
	if p.calls++; p.calls > 10_000 {
		p.t.Fatal("the rule is asked again and again")
	}
	return p.Rule.Next(after)
}

func TestOccurrencesFromFindsTheLatest(t *testing.T) {
	for _, tt := range []struct {
		name, schedule, first, end string
		previous, latest           string
	}{
		{"none in between", "*/5 * * * *", "09:00", "09:05", "09:00", "09:00"},
		{"the end itself does not count", "*/5 * * * *", "09:00", "09:10", "09:00", "09:05"},
		{"a second after it", "*/5 * * * *", "09:00", "09:10:01", "09:05", "09:10"},
		{"nothing at all in between", "0 9 * * *", "09:00", "09:00:01", "09:00", "09:00"},
		{"a one-off", "2026-03-02T09:00:00Z", "09:00", "2499-12-31 00:00", "09:00", "09:00"},
		{"further away than a duration can hold", "0 0 9 2 3 * 2026", "1970-03-02 09:00", "2499-12-31 00:00", "1970-03-02 09:00", "09:00"},
		{"centuries before the end", "0 0 9 2 3 * 1970-1975", "1970-03-02 09:00", "2499-12-31 00:00", "1974-03-02 09:00", "1975-03-02 09:00"},
	} {
		got := subject(t, tt.schedule).Policy.dueBefore(Plan{NominalAt: at(t, tt.first)}, at(t, tt.end), 1)
		previous := got.newest[max(len(got.newest)-2, 0)]
		if !got.latest().Equal(at(t, tt.latest)) || !previous.Equal(at(t, tt.previous)) {
			t.Errorf("%s: got %v after %v, want %s after %s", tt.name, got.latest(), previous, tt.latest, tt.previous)
		}
	}
}
