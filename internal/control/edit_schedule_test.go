package control_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/plan"
)

// Each case is about a job that fires every minute from start, looked at after
// some time.
func TestEditOfTheSchedule(t *testing.T) {
	rule := func(text string) func(*belfry.Manifest, time.Time) {
		return func(m *belfry.Manifest, _ time.Time) { m.Schedule = text }
	}
	for _, tt := range []struct {
		name   string
		paused bool          // before
		later  time.Duration // after the first occurrence
		change func(m *belfry.Manifest, start time.Time)
		want   string        // what was decided
		next   time.Duration // after the first occurrence; negative: nothing is planned
	}{
		{"before anything is due", false, -30 * time.Second, rule("*/15 * * * *"), "", 5 * time.Minute},
		{"with one due", false, 30 * time.Second, rule("*/10 * * * *"), "0 ready r1", 10 * time.Minute},
		{"with some due", false, 150 * time.Second, rule("*/10 * * * *"), "0 missed_window x2 r1, 2 ready r1", 10 * time.Minute},
		{"on the dot", false, 2 * time.Minute, rule("*/2 * * * *"), "0 missed_window x2 r1, 2 ready r1", 4 * time.Minute},
		{"of the zone alone", false, 30 * time.Second, func(m *belfry.Manifest, _ time.Time) { m.Timezone = "Asia/Tokyo" }, "0 ready r1", time.Minute},
		{"in a pause", true, 150 * time.Second, rule("*/10 * * * *"), "0 paused x3 r1", -1},
		{"and out of a pause", true, 150 * time.Second, func(m *belfry.Manifest, _ time.Time) { m.Schedule, m.Status = "*/10 * * * *", belfry.StatusActive },
			"0 paused x3 r1", 10 * time.Minute},
		{"and into a pause", false, 30 * time.Second, func(m *belfry.Manifest, _ time.Time) { m.Schedule, m.Status = "*/10 * * * *", belfry.StatusPaused }, "0 ready r1", -1},
		{"to an instant", false, 30 * time.Second, func(m *belfry.Manifest, start time.Time) {
			m.Schedule = start.Add(90 * time.Second).Format(time.RFC3339)
		}, "0 ready r1", 90 * time.Second},
		{"to an instant a little late", false, 30 * time.Second, func(m *belfry.Manifest, start time.Time) {
			m.Schedule = start.Add(10 * time.Second).Format(time.RFC3339)
		}, "0 ready r1", 30 * time.Second},
		{"of something else leaves what is due", false, 30 * time.Second, func(m *belfry.Manifest, _ time.Time) { m.MaxRetries = belfry.Some(9) }, "", 0},
		{"of something else in a pause", true, 150 * time.Second, func(m *belfry.Manifest, _ time.Time) { m.MaxRetries = belfry.Some(9) }, "", -1},
		{"of something else and out of a pause", true, 150 * time.Second, func(m *belfry.Manifest, _ time.Time) { m.MaxRetries, m.Status = belfry.Some(9), belfry.StatusActive },
			"0 paused x3 r1", 3 * time.Minute},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			c := newControl(t)
			time.Sleep(9*time.Minute + 20*time.Second) // it is ten minutes past soon
			d := controltest.Input("* * * * *")
			if tt.paused {
				d.Status = belfry.StatusPaused
			}
			job := controltest.Create(t, c, d)
			start := time.Now().UTC().Truncate(time.Minute).Add(time.Minute)
			time.Sleep(time.Until(start) + tt.later)
			job = controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { tt.change(m, start) })
			if got := controltest.History(t, c, job.ID, start); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			switch {
			case tt.next < 0:
				if job.NextRunAt != nil {
					t.Errorf("the next run is at %v", job.NextRunAt)
				}
			case job.NextRunAt == nil || job.NextRunAt.Sub(start) != tt.next:
				t.Errorf("the next run is at %v, want %v", job.NextRunAt, start.Add(tt.next))
			}
			if job.Revision != 2 {
				t.Errorf("revision %d", job.Revision)
			}
		})
	}
}

func TestEditOfAOneOffThatHasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := controltest.Open(t)
		c := control.New(s, plan.Defaults{})
		at := time.Now().UTC().Add(time.Hour)
		job := controltest.Create(t, c, controltest.Named("once", at.Format(time.RFC3339)))
		time.Sleep(time.Hour)
		controltest.Fire(t, s)
		time.Sleep(time.Hour)

		job = controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.MaxRetries = belfry.Some(1) })
		job = controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.Timezone = "Asia/Tokyo" }) // the instant has an offset of its own
		if job.Revision != 3 || job.NextRunAt != nil {
			t.Errorf("revision %d, next run at %v", job.Revision, job.NextRunAt)
		}
		for _, over := range []struct {
			schedule time.Time
			says     string
		}{
			{at.Add(-time.Second), "has passed"},
			{at.Add(time.Second), "has passed"},
		} {
			_, err := c.Edit(t.Context(), ns, job.ID.String(), "", controltest.Patch(func(m *belfry.Manifest) { m.Schedule = over.schedule.Format(time.RFC3339) }))
			oneError(t, err, "schedule", over.says)
		}
		again := time.Now().UTC().Add(time.Minute)
		job = controltest.Edit(t, c, job.ID, func(m *belfry.Manifest) { m.Schedule = again.Format(time.RFC3339) })
		if job.NextRunAt == nil || !job.NextRunAt.Equal(again) {
			t.Errorf("the next run is at %v", job.NextRunAt)
		}
		time.Sleep(2 * time.Minute)
		controltest.Fire(t, s)
		_, err := c.Edit(t.Context(), ns, job.ID.String(), "", controltest.Patch(func(m *belfry.Manifest) { m.Schedule = again.Add(-time.Second).Format(time.RFC3339) }))
		oneError(t, err, "schedule", "is not after "+again.Format(time.RFC3339))
		if got := controltest.History(t, c, job.ID, at); got != "0 ready r1, 61 overlap r4" {
			t.Errorf("got %s", got)
		}
		if job, err = c.Edit(t.Context(), ns, job.ID.String(), "", controltest.Patch(func(m *belfry.Manifest) { m.Schedule = "@hourly" })); err != nil || job.Status != belfry.StatusQueued || job.NextRunAt == nil {
			t.Errorf("status %s, next run at %v, error %v", job.Status, job.NextRunAt, err)
		}
	})
}
