package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

// hourly is a job with up to half an hour of jitter, and when it is ready for its
// occurrences at 9, 10 and 11 o'clock.
func hourly(t *testing.T) (s Subject, ready [3]time.Time) {
	s = subjectWith(t, "0 * * * *", func(s *belfry.Spec) { s.JitterSeconds = 1800 })
	for i := range ready {
		nominal := at(t, "09:00").Add(time.Duration(i) * time.Hour)
		ready[i] = s.Policy.ReadyAt(job, nominal)
		if d := ready[i].Sub(nominal); d < time.Minute || d > 30*time.Minute {
			t.Fatalf("the jitter of %v is %v; the tests need another job", nominal, d)
		}
	}
	return s, ready
}

func TestDecideWithJitter(t *testing.T) {
	s, ready := hourly(t)
	const before, after = -time.Microsecond, time.Microsecond
	first := First(job, 5, s.Policy, at(t, "08:30"))
	if !first.NominalAt.Equal(at(t, "09:00")) || !first.NextAt.Equal(ready[0]) {
		t.Fatalf("the first plan is %+v", first)
	}
	paused := first
	paused.NextAt = time.Time{}
	last := s
	last.Policy = subjectWith(t, "0 * * * *", func(s *belfry.Spec) { s.JitterSeconds, s.MaxRuns = 1800, 1 }).Policy
	for _, tt := range []struct {
		name string
		step Step
		want string
	}{
		{"on time", Decide(s, first, at(t, "08:00"), ready[0]), "run 09:00; next for 10:00; decided 09:00"},
		{"running from that very instant", Decide(s, first, ready[0], ready[0].Add(after)), "run 09:00; next for 10:00; decided 09:00"},
		{"running after the nominal time only", Decide(s, first, ready[0].Add(before), ready[0]), "run 09:00; next for 10:00; decided 09:00"},
		{"missed, while the next waits for its jitter", Decide(s, first, ready[1].Add(before), ready[1].Add(before)), "run 09:00; next for 10:00; decided 09:00"},
		{"missed, while the next is due this instant", Decide(s, first, ready[1], ready[1]), "run 09:00; next for 10:00; decided 09:00"},
		{"missed, and the next too", Decide(s, first, ready[1].Add(after), ready[1].Add(after)), "skip 1, 09:00, missed_window; run 10:00; next for 11:00; decided 10:00"},
		{"missed, and the third waits", Decide(s, first, ready[2], ready[2]), "skip 1, 09:00, missed_window; run 10:00; next for 11:00; decided 10:00"},
		{"missed, and the third too", Decide(s, first, ready[2].Add(after), ready[2].Add(after)),
			"skip 2, 09:00 to 10:00, missed_window; run 11:00; next for 12:00; decided 11:00"},
		{"a pause before it is due", Pause(s, first, ready[0].Add(before)), "paused before 09:00"},
		{"a pause when it is due", Pause(s, first, ready[0]), "run 09:00; paused before 10:00; decided 09:00"},
		{"resumed before it is due", Resume(s, paused, false, ready[0].Add(before)), "next for 09:00"},
		{"resumed when it is due", Resume(s, paused, false, ready[0]), "skip 1, 09:00, paused; next for 10:00; decided 09:00"},
		{"resumed while the next waits", Resume(s, paused, false, ready[1].Add(before)), "skip 1, 09:00, paused; next for 10:00; decided 09:00"},
		{"resumed when the next is due", Resume(s, paused, false, ready[1]), "skip 2, 09:00 to 10:00, paused; next for 11:00; decided 10:00"},
		{"deleted before its nominal time", Delete(s, first, at(t, "08:59")), "next never"},
		{"deleted before it is due", Delete(s, first, ready[0].Add(before)), "skip 1, 09:00, deleted; next never; decided 09:00"},
		{"deleted when it is due", Delete(s, first, ready[0]), "skip 1, 09:00, deleted; next never; decided 09:00"},
		{"deleted while the next waits", Delete(s, first, ready[1].Add(before)), "skip 2, 09:00 to 10:00, deleted; next never; decided 10:00"},
		{"deleted in a pause while the next waits", Delete(s, paused, ready[1].Add(before)),
			"skip 1, 09:00, paused; skip 1, 10:00, deleted; next never; decided 10:00"},
		{"cancelled before its nominal time", Cancel(s, first, at(t, "08:59")), "skip 1, 09:00, cancelled; next never"},
		{"cancelled before it is due", Cancel(s, first, ready[0].Add(before)), "skip 1, 09:00, cancelled; next never; decided 09:00"},
		{"cancelled while the next waits", Cancel(s, first, ready[1].Add(before)), "skip 2, 09:00 to 10:00, cancelled; next never; decided 10:00"},
		{"edited before it is due", Edit(s, editedPolicy(t, "17 * * * *"), first, false, ready[0].Add(before)), "skip 1, 09:00, edited; next 09:17; decided 09:00"},
		{"edited before its nominal time", Edit(s, editedPolicy(t, "17 * * * *"), first, false, at(t, "08:59")), "next 09:17"},
		{"edited to fewer runs than were made", Edit(s, subjectWith(t, "0 9,17 * * *", func(s *belfry.Spec) { s.MaxRuns = 2 }).Policy, withRunsMade(first, 2), false, ready[0].Add(before)),
			"skip 1, 09:00, edited; next never; decided 09:00"},
		{"edited to a one-off before it", Edit(s, editedPolicy(t, "2026-03-02T08:50:00Z"), first, false, ready[0].Add(before)), "skip 1, 09:00, edited; next never; decided 09:00"},
		{"edited to a one-off that is the same", Edit(s, editedPolicy(t, "2026-03-02T09:00:00Z"), first, false, ready[0].Add(before)), "next for 09:00"},
		{"edited to a one-off after it", Edit(s, editedPolicy(t, "2026-03-02T09:00:01Z"), first, false, ready[0].Add(before)), "skip 1, 09:00, edited; next for 09:00:01; decided 09:00"},
		{"edited to what names it too", Edit(s, editedPolicy(t, "0 9,17 * * *"), first, false, ready[0].Add(before)), "next for 09:00"},
		{"edited when it is due", Edit(s, editedPolicy(t, "0 17 * * *"), first, false, ready[0]), "run 09:00; next 17:00; decided 09:00"},
		{"edited while the next waits", Edit(s, editedPolicy(t, "0 17 * * *"), first, false, ready[1].Add(before)), "skip 1, 10:00, edited; run 09:00; next 17:00; decided 10:00"},
		{"edited while the next waits, which stays", Edit(s, editedPolicy(t, "0 10,17 * * *"), first, false, ready[1].Add(before)), "run 09:00; next for 10:00; decided 09:00"},
		{"edited while the next waits, of which there would have been none", Edit(last, editedPolicy(t, "0 10,17 * * *"), first, false, ready[1].Add(before)),
			"run 09:00; next 17:00; decided 09:00"},
		{"edited into a pause while it waits", Edit(s, editedPolicy(t, "0 9,17 * * *"), first, true, ready[0].Add(before)), "paused before 09:00"},
	} {
		got := describe(tt.step)
		if next := tt.step.Next; !next.NextAt.IsZero() && !next.NextAt.Equal(next.NominalAt) {
			got = describeNext(tt.step)
			if edited := strings.HasPrefix(tt.name, "edited"); !edited && !next.NextAt.Equal(s.Policy.ReadyAt(job, next.NominalAt)) {
				t.Errorf("%s: NextAt is %v", tt.name, next.NextAt)
			}
		}
		if got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, got, tt.want)
		}
		checkStep(t, tt.step.Subject, tt.step.Seen, tt.step)
		for _, r := range tt.step.Runs {
			if !r.ReadyAt.Equal(s.Policy.ReadyAt(job, r.ScheduledAt)) || r.ReadyAt.Equal(r.ScheduledAt) {
				t.Errorf("%s: got %+v", tt.name, r)
			}
		}
	}
}

func withRunsMade(p Plan, runs int64) Plan {
	p.RunsMade = runs
	return p
}

// describeNext is describe without NextAt, which depends on jitter.
func describeNext(s Step) string {
	nominal := s.Next.NominalAt
	s.Next.NextAt = nominal
	text := describe(s)
	return strings.Replace(text, "next "+short(nominal), "next for "+short(nominal), 1)
}

func TestRetimeJitter(t *testing.T) {
	s, ready := hourly(t)
	first := First(job, 5, s.Policy, at(t, "08:30"))
	none := subject(t, "0 * * * *").Policy
	retime := func(p Plan, now time.Time) Plan { return Retime(Step{Subject: s, Seen: p, Next: p}, none, now).Next }
	if got := retime(first, at(t, "08:40")); !got.NextAt.Equal(at(t, "09:00")) || !got.NominalAt.Equal(first.NominalAt) {
		t.Errorf("without jitter the plan is %+v", got)
	}
	if now := ready[0].Add(-time.Second); !retime(first, now).NextAt.Equal(now) {
		t.Error("what would have been due is not due at once")
	}
	if now := at(t, "09:50"); !retime(first, now).NextAt.Equal(ready[0]) {
		t.Error("what is due already is due later")
	}
	first.NextAt = time.Time{}
	if got := retime(first, at(t, "08:40")); got != first {
		t.Errorf("a paused plan became %+v", got)
	}
}

func TestTriggersHaveNoJitter(t *testing.T) {
	s, _ := hourly(t)
	asked := at(t, "08:40")
	step := Fire(s, First(job, 5, s.Policy, at(t, "08:30")), []Trigger{{ID: belfry.ID{15: 1}, JobID: job, Kind: belfry.KindManual, At: asked}})
	if !step.Runs[0].ReadyAt.Equal(asked) {
		t.Errorf("got %+v", step.Runs[0])
	}
}

func TestOneOffWithJitter(t *testing.T) {
	s := subjectWith(t, "2026-03-02T09:00:00Z", func(s *belfry.Spec) { s.JitterSeconds = 1800 })
	ready := s.Policy.ReadyAt(job, at(t, "09:00"))
	if !ready.After(at(t, "09:00")) {
		t.Fatal("the tests need another job")
	}
	first := First(job, 5, s.Policy, at(t, "09:00:01"))
	if !first.NextAt.Equal(ready) || !First(job, 5, s.Policy, at(t, "10:00")).NextAt.Equal(at(t, "10:00")) {
		t.Errorf("the first plan is %+v", first)
	}
	if got, want := describe(Decide(s, first, ready, ready)), "run 09:00; next never; decided 09:00"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
