package plan

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/schedule"
)

func TestEdit(t *testing.T) {
	const fives, noon = "*/5 * * * *", "2026-03-02T12:00:00Z"
	for _, tt := range []struct {
		name              string
		old, nominal, now string
		paused            bool
		rule              string
		pause             bool
		want              string
		decided           string // before the edit
	}{
		{name: "nothing is due", old: fives, nominal: "09:05", now: "09:03", rule: "0 * * * *", want: "next 10:00"},
		{name: "one is due", old: fives, nominal: "09:05", now: "09:07", rule: "0 * * * *", want: "run 09:05; next 10:00; decided 09:05"},
		{name: "one is due this very moment", old: fives, nominal: "09:05", now: "09:05", rule: "0 * * * *", want: "run 09:05; next 10:00; decided 09:05"},
		{name: "the last of some is due this very moment", old: fives, nominal: "09:05", now: "09:15", rule: "0 * * * *",
			want: "skip 2, 09:05 to 09:10, missed_window; run 09:15; next 10:00; decided 09:15"},
		{name: "both rules name the same moment", old: fives, nominal: "09:05", now: "09:05", rule: "*/1 * * * *", want: "run 09:05; next 09:06; decided 09:05"},
		{name: "the new rule named this very moment", old: fives, nominal: "09:10", now: "09:07", rule: "7 * * * *", want: "next 10:07"},
		{name: "into a pause, with one due", old: fives, nominal: "09:05", now: "09:07", rule: "0 * * * *", pause: true,
			want: "run 09:05; halt before 10:00; decided 09:05"},
		{name: "within a pause", old: fives, nominal: "09:05", now: "09:17", paused: true, rule: "0 * * * *", pause: true,
			want: "skip 3, 09:05 to 09:15, paused; halt before 10:00; decided 09:15"},
		{name: "out of a pause", old: fives, nominal: "09:05", now: "09:17", paused: true, rule: "0 * * * *",
			want: "skip 3, 09:05 to 09:15, paused; next 10:00; decided 09:15"},
		{name: "out of a pause into which nothing fell", old: fives, nominal: "09:05", now: "09:03", paused: true, rule: "0 * * * *", want: "next 10:00"},
		{name: "a paused one-off that is overdue", old: "2026-03-02T09:00:00Z", nominal: "09:00", now: "10:00", paused: true, rule: noon,
			want: "skip 1, 09:00, paused; next 12:00; decided 09:00"},
		{name: "a one-off to come", old: "2026-03-02T09:00:00Z", nominal: "09:00", now: "08:00", rule: noon, want: "next 12:00"},
		{name: "a one-off that is due", old: "2026-03-02T09:00:00Z", nominal: "09:00", now: "09:01", rule: noon, want: "run 09:00; next 12:00; decided 09:00"},
		{name: "a one-off that is over is planned again", old: "2026-03-02T09:00:00Z", now: "10:00", decided: "09:00", rule: noon, want: "next 12:00"},
		{name: "to a one-off a little late", old: "2026-03-02T09:00:00Z", now: "12:10", decided: "09:00", rule: noon, want: "next 12:10 for 12:00"},
		{name: "to a one-off that was decided", old: noon, now: "12:10", decided: "12:00", rule: noon, want: "next never"},
		{name: "to a one-off before what is due", old: "* * * * *", nominal: "12:01", now: "12:05", rule: noon,
			want: "skip 4, 12:01 to 12:04, missed_window; run 12:05; next never; decided 12:05"},
		{name: "from a one-off to a rule", old: "2026-03-02T09:00:00Z", now: "10:00", decided: "09:00", rule: fives, want: "next 10:05"},
		{name: "a clock that went back", old: fives, nominal: "09:35", now: "09:03", decided: "09:30", rule: "* * * * *", want: "next 09:31"},
		{name: "to a rule that is over", old: fives, nominal: "09:05", now: "09:03", rule: "0 0 0 1 1 * 2026", want: "next never"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			subject, seen := subject(t, tt.old), planned(t, tt.nominal)
			seen.FiredFor = at(t, tt.decided)
			if tt.paused {
				seen.NextAt = time.Time{}
			}
			step := Edit(subject, to(t, tt.rule), seen, tt.pause, at(t, tt.now))
			if got := tell(step); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			sound(t, subject, seen, step)
			if step.Due != (len(step.Runs) > 0) || step.Next.ZoneVersion != schedule.ZoneVersion() {
				t.Errorf("due %v, zones of %s", step.Due, step.Next.ZoneVersion)
			}
		})
	}
}

// A plan that should be looked at later than now, since the clock went back, is
// still decided: nothing else will.
func TestEditDecidesWhatIsPlannedTooLate(t *testing.T) {
	subject, seen := subject(t, "2026-03-02T09:00:00Z"), planned(t, "09:00")
	seen.NextAt = at(t, "09:20")
	step := Edit(subject, &Policy{Rule: ended{}}, seen, false, at(t, "09:10"))
	if got, want := tell(step), "run 09:00; next never; decided 09:00"; got != want || step.Due {
		t.Errorf("got %s, due %v; want %s", got, step.Due, want)
	}
}

// to is the policy of an edit.
func to(t failer, text string) *Policy { return subject(t, text).Policy }

type ended struct{}

func (ended) Next(time.Time) time.Time { return time.Time{} }
