package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

// backwardRule returns an instant that is not after the given one.
type backwardRule struct{ back time.Duration }

func (o backwardRule) Next(after time.Time) time.Time { return after.Add(-o.back) }

// A rule that does not go on must not be asked for ever. Whoever would plan by it
// panics; but its job can be got rid of.
func TestRuleThatDoesNotAdvancePanics(t *testing.T) {
	for _, back := range []time.Duration{0, time.Microsecond, time.Hour} {
		for _, jitter := range []int{0, 60} {
			for _, w := range []way{skips, onceAny, each} {
				s := subjectWith(t, "* * * * *", func(s *belfry.Spec) { w.tune(s); s.JitterSeconds = jitter })
				good := s.Policy
				s.Policy = &Policy{Spec: good.Spec, Rule: &limitedRule{Rule: backwardRule{back}, t: t}}
				seen, now := planned(t, "09:00"), at(t, "2026-04-11 09:00:30")
				paused := seen
				paused.NextAt = time.Time{}
				for name, do := range map[string]func() Step{
					"on time":     func() Step { return Decide(s, seen, at(t, "08:00"), at(t, "09:00")) },
					"missed":      func() Step { return Decide(s, seen, now, now) },
					"paused":      func() Step { return Pause(s, seen, now) },
					"resumed":     func() Step { return Resume(s, paused, false, now) },
					"caught up":   func() Step { return Resume(s, paused, true, now) },
					"edited away": func() Step { return Edit(s, good, seen, false, now) },
					"edited to":   func() Step { return Edit(Subject{Policy: good}, s.Policy, seen, false, at(t, "08:30")) },
				} {
					if why := panics(func() { do() }); !strings.HasPrefix(why, "the schedule returned 2026-") {
						t.Errorf("%s, %v, %+v: got %q", name, back, w, why)
					}
				}
				for _, step := range []Step{Delete(s, seen, now), Cancel(s, seen, now), Delete(s, paused, now), Cancel(s, paused, now)} {
					if len(step.Skips) != 1 || step.Skips[0].Count != 1 || !step.Next.NominalAt.IsZero() {
						t.Errorf("got %s", describe(step))
					}
				}
			}
		}
	}
}

// panics is what a function panics with; empty: it does not.
func panics(do func()) (why string) {
	defer func() { why, _ = recover().(string) }()
	do()
	return ""
}

type panickingRule struct{}

func (panickingRule) Next(time.Time) time.Time { panic("the rule is broken") }

// A panic of a rule is not swallowed: the caller knows the job.
func TestPanicOfARule(t *testing.T) {
	s := subject(t, "* * * * *")
	s.Policy = &Policy{Spec: s.Policy.Spec, Rule: panickingRule{}}
	if why := panics(func() { Decide(s, planned(t, "09:00"), at(t, "08:00"), at(t, "09:00")) }); why != "the rule is broken" {
		t.Errorf("got %q", why)
	}
}
