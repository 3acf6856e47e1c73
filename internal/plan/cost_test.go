package plan

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// counted is a rule that counts how often it is asked.
type counted struct {
	schedule.Rule
	calls int
}

func (c *counted) Next(after time.Time) time.Time {
	c.calls++
	return c.Rule.Next(after)
}

// However long nobody was there, and however dense the rule, a decision asks the
// rule a bounded number of times and is right about where to go on.
func TestADecisionHasABoundedCost(t *testing.T) {
	const most = maxCounted + 200
	for _, tt := range []struct {
		name, schedule, nominal, now string
		count                        int64
		last                         string // occurrence before now
		second                       string // and the one before
	}{
		{"every minute for 40 years", "* * * * *", "09:00", "2066-03-02 09:00:30", maxCounted, "2066-03-02 09:00", "2066-03-02 08:59"},
		{"every second of one month a year", "* * * * 1 *", "2026-01-01 00:00", "2029-12-31 00:00", maxCounted, "2029-01-31 23:59:59", "2029-01-31 23:59:58"},
		{"once a year for 400 years", "0 0 1 1 *", "2026-01-01 00:00", "2425-12-31 00:00", 400, "2425-01-01 00:00", "2424-01-01 00:00"},
		{"every minute until a rule ended long ago", "0 * * * * * 2026", "09:00", "2426-01-01 00:00", maxCounted, "2026-12-31 23:59", "2026-12-31 23:58"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			subject, seen, now := subject(t, tt.schedule), planned(t, tt.nominal), at(t, tt.now)
			rule := &counted{Rule: subject.Policy.Rule}
			subject.Policy.Rule = rule
			check := func(verb string, step Step, count int64, to, mark string, reason belfry.Reason) {
				t.Helper()
				want := newSkip(job, seen.NominalAt, at(t, to), min(count, maxCounted), reason)
				if len(step.Skips) != 1 || step.Skips[0] != want || !step.Next.FiredFor.Equal(at(t, mark)) {
					t.Errorf("%s: got %s, want %+v and a mark at %s", verb, tell(step), want, mark)
				}
				if rule.calls > most {
					t.Errorf("%s: the rule was asked %d times, want at most %d", verb, rule.calls, most)
				}
				sound(t, subject, seen, step)
				rule.calls = 0
			}
			missed := tt.count
			if missed < maxCounted {
				missed-- // the last of them runs
			}
			check("decide", Decide(subject, seen, now, now), missed, tt.second, tt.last, belfry.ReasonMissed)
			seen.NextAt = time.Time{}
			check("resume", Resume(subject, seen, now), tt.count, tt.last, tt.last, belfry.ReasonPaused)
		})
	}
}

func TestCountsAreExactUpToTheLimit(t *testing.T) {
	subject, seen := subject(t, "* * * * *"), planned(t, "09:00")
	for _, missed := range []int64{1, 2, 3, 1000, maxCounted - 1, maxCounted, maxCounted + 1, maxCounted + 2, 2 * maxCounted} {
		last := seen.NominalAt.Add(time.Duration(missed-1) * time.Minute)
		now := last.Add(time.Second)
		step := Decide(subject, seen, now, now)
		var count int64
		to := seen.NominalAt.Add(-time.Minute)
		if len(step.Skips) > 0 {
			count, to = step.Skips[0].Count, step.Skips[0].To
		}
		if want := min(missed-1, maxCounted); count != want || !to.Equal(last.Add(-time.Minute)) || !step.Runs[0].ScheduledAt.Equal(last) {
			t.Errorf("%d missed: got %s, want %d skipped", missed, tell(step), want)
		}
		paused := seen
		paused.NextAt = time.Time{}
		resumed := Resume(subject, paused, now)
		if k := resumed.Skips[0]; k.Count != min(missed, maxCounted) || !k.To.Equal(last) {
			t.Errorf("%d fell into the pause: got %s", missed, tell(resumed))
		}
	}
}

// A plan may name an instant that its rule no longer does, because a newer zone
// database moved the rule. The instant was promised, and counts once.
func TestAnOccurrenceThatTheRuleNoLongerNames(t *testing.T) {
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
			rule := &patient{t: t}
			subject, seen := subject(t, "*/5 * * * *"), planned(t, tt.nominal)
			rule.Rule = subject.Policy.Rule
			subject.Policy.Rule = rule
			since := at(t, tt.now)
			step := Decide(subject, seen, since, since)
			if got := tell(step); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			sound(t, subject, seen, step)
		})
	}
}

// patient is a rule that fails the test rather than be asked for ever.
type patient struct {
	schedule.Rule
	t     *testing.T
	calls int
}

func (p *patient) Next(after time.Time) time.Time {
	if p.calls++; p.calls > 10_000 {
		p.t.Fatal("the rule is asked again and again")
	}
	return p.Rule.Next(after)
}

func TestBeforeFindsTheLatest(t *testing.T) {
	for _, tt := range []struct{ name, schedule, first, end, want string }{
		{"none in between", "*/5 * * * *", "09:00", "09:05", "09:00"},
		{"the end itself does not count", "*/5 * * * *", "09:00", "09:10", "09:05"},
		{"a second after it", "*/5 * * * *", "09:00", "09:10:01", "09:10"},
		{"nothing at all in between", "0 9 * * *", "09:00", "09:00:01", "09:00"},
		{"a one-off", "2026-03-02T09:00:00Z", "09:00", "2499-12-31 00:00", "09:00"},
		{"further away than a duration can tell", "0 0 9 2 3 * 2026", "1970-03-02 09:00", "2499-12-31 00:00", "09:00"},
		{"centuries before the end", "0 0 9 2 3 * 1970-1975", "1970-03-02 09:00", "2499-12-31 00:00", "1975-03-02 09:00"},
	} {
		got := before(subject(t, tt.schedule).Policy.Rule, at(t, tt.first), at(t, tt.end))
		if !got.Equal(at(t, tt.want)) {
			t.Errorf("%s: got %v, want %s", tt.name, got, tt.want)
		}
	}
}
