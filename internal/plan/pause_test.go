package plan

import (
	"testing"
	"time"
)

func TestPause(t *testing.T) {
	for _, tt := range []struct {
		name, schedule string
		nominal, now   string
		due            bool
		want           string
	}{
		{"nothing is due", "*/5 * * * *", "09:05", "09:03", false, "halt before 09:05"},
		{"something is due this instant", "*/5 * * * *", "09:05", "09:05", true, "run 09:05; halt before 09:10; decided 09:05"},
		{"something is due since a while", "*/5 * * * *", "09:05", "09:07", true, "run 09:05; halt before 09:10; decided 09:05"},
		{"something was missed", "*/5 * * * *", "09:00", "09:13", true,
			"skip 2, 09:00 to 09:05, missed_window; run 09:10; halt before 09:15; decided 09:10"},
		{"a one-off to come", "2026-03-02T09:00:00Z", "09:00", "08:30", false, "halt before 09:00"},
		{"a one-off that is due", "2026-03-02T09:00:00Z", "09:00", "09:00", true, "run 09:00; next never; decided 09:00"},
		{"a one-off that is due for long", "2026-03-02T09:00:00Z", "09:00", "Sun 09:00", true, "run 09:00; next never; decided 09:00"},
		{"nothing is left", "2026-03-02T09:00:00Z", "", "09:00", false, "next never"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			subject, seen := subject(t, tt.schedule), planned(t, tt.nominal)
			step := Pause(subject, seen, at(t, tt.now))
			if got := tell(step); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			sound(t, subject, seen, step)
			if step.Due != tt.due || !step.Next.NextAt.IsZero() {
				t.Errorf("due is %v, and the next look at %v", step.Due, step.Next.NextAt)
			}
		})
	}
}

func TestAPauseOfAPausedPlanChangesNothing(t *testing.T) {
	subject, seen := subject(t, "*/5 * * * *"), planned(t, "09:05")
	seen.NextAt = time.Time{}
	step := Pause(subject, seen, at(t, "12:00"))
	if step.Next != seen || step.Due || step.Runs != nil || step.Skips != nil {
		t.Errorf("got %+v", step)
	}
}

func TestResume(t *testing.T) {
	for _, tt := range []struct {
		name, schedule string
		nominal, now   string
		want           string
	}{
		{"before the next occurrence", "*/5 * * * *", "09:05", "09:03", "next 09:05"},
		{"at the next occurrence, which fell into the pause", "*/5 * * * *", "09:05", "09:05",
			"skip 1, 09:05, paused; next 09:10; decided 09:05"},
		{"after one", "*/5 * * * *", "09:05", "09:07",
			"skip 1, 09:05, paused; next 09:10; decided 09:05"},
		{"after a night", "*/5 * * * *", "09:05", "Tue 09:02",
			"skip 288, 09:05 to Tue 09:00, paused; next Tue 09:05; decided Tue 09:00"},
		{"after the last of all", "0 0 9 2-4 3 * 2026", "09:00", "Fri 09:00",
			"skip 3, 09:00 to Wed 09:00, paused; next never; decided Wed 09:00"},
		{"a one-off before its instant", "2026-03-02T09:00:00Z", "09:00", "08:00", "next 09:00"},
		{"a one-off at its instant", "2026-03-02T09:00:00Z", "09:00", "09:00", "next 09:00"},
		{"a one-off after its instant is due at once", "2026-03-02T09:00:00Z", "09:00", "Tue 10:00", "next Tue 10:00 for 09:00"},
		{"nothing is left", "2026-03-02T09:00:00Z", "", "10:00", "next never"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			subject, seen := subject(t, tt.schedule), planned(t, tt.nominal)
			seen.NextAt = time.Time{}
			step := Resume(subject, seen, false, at(t, tt.now))
			if got := tell(step); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			sound(t, subject, seen, step)
			if step.Due || len(step.Runs) > 0 {
				t.Errorf("resuming fired: %+v", step)
			}
		})
	}
}

func TestAResumedOneOffRunsForItsOwnInstant(t *testing.T) {
	subject, seen := subject(t, "2026-03-02T09:00:00Z"), planned(t, "09:00")
	paused := Pause(subject, seen, at(t, "08:30")).Next
	resumed := Resume(subject, paused, false, at(t, "11:00")).Next
	for _, since := range []string{"08:00", "11:30"} {
		step := Decide(subject, resumed, at(t, since), at(t, "11:31"))
		if got, want := tell(step), "run 09:00; next never; decided 09:00"; got != want {
			t.Errorf("in charge since %s: got %s, want %s", since, got, want)
		}
	}
}

func TestDelete(t *testing.T) {
	for _, tt := range []struct {
		name, schedule string
		nominal, now   string
		paused         bool
		want           string
	}{
		{"nothing is due", "*/5 * * * *", "09:05", "09:03", false, "next never"},
		{"something is due this instant", "*/5 * * * *", "09:05", "09:05", false, "skip 1, 09:05, deleted; next never; decided 09:05"},
		{"several are due", "*/5 * * * *", "09:05", "09:17", false, "skip 3, 09:05 to 09:15, deleted; next never; decided 09:15"},
		{"a one-off that is due", "2026-03-02T09:00:00Z", "09:00", "09:01", false, "skip 1, 09:00, deleted; next never; decided 09:00"},
		{"a one-off to come", "2026-03-02T09:00:00Z", "09:00", "08:00", false, "next never"},
		{"nothing is left", "2026-03-02T09:00:00Z", "", "10:00", false, "next never"},
		{"paused, before the next occurrence", "*/5 * * * *", "09:05", "09:03", true, "next never"},
		{"paused, and some fell into the pause", "*/5 * * * *", "09:05", "09:17", true, "skip 3, 09:05 to 09:15, paused; next never; decided 09:15"},
		{"a paused one-off that would have run after the pause", "2026-03-02T09:00:00Z", "09:00", "10:00", true, "skip 1, 09:00, deleted; next never; decided 09:00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			subject, seen := subject(t, tt.schedule), planned(t, tt.nominal)
			if tt.paused {
				seen.NextAt = time.Time{}
			}
			step := Delete(subject, seen, at(t, tt.now))
			if got := tell(step); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			sound(t, subject, seen, step)
			if step.Due || len(step.Runs) > 0 {
				t.Errorf("deleting fired: %+v", step)
			}
		})
	}
}
