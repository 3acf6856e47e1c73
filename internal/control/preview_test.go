package control_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
)

func TestAPreviewSaysWhatTheClockDoes(t *testing.T) {
	c := control.New(open(t), plan.Defaults{})
	const ny, spring, autumn = "America/New_York", "2026-03-07T12:00:00Z", "2026-10-31T12:00:00Z"
	for _, tt := range []struct {
		schedule, zone, gap, overlap, after string
		want                                string // local times, with notes
	}{
		{"30 2 * * *", ny, "", "", spring, "Sunday 2026-03-08T03:00:00-04:00 (02:30 does not exist that day: runs at 03:00), Monday 2026-03-09T02:30:00-04:00"},
		{"0,30 2 * * *", ny, "", "", spring, "Sunday 2026-03-08T03:00:00-04:00 (02:00 and 02:30 do not exist that day: runs once, at 03:00), Monday 2026-03-09T02:00:00-04:00"},
		{"*/15 2 * * *", ny, "run", "", spring, "Sunday 2026-03-08T03:00:00-04:00 (02:00 to 02:45 (4 times) do not exist that day: runs once, at 03:00), Monday 2026-03-09T02:00:00-04:00"},
		{"0 2,3 * * *", ny, "", "", spring, "Sunday 2026-03-08T03:00:00-04:00 (02:00 does not exist that day: merged into the run at 03:00), Monday 2026-03-09T02:00:00-04:00"},
		{"30 2 * * *", ny, "skip", "", spring, "Monday 2026-03-09T02:30:00-04:00 (02:30 does not exist on 8 March 2026: left out), Tuesday 2026-03-10T02:30:00-04:00"},
		{"*/15 2 * * *", ny, "skip", "", spring, "Monday 2026-03-09T02:00:00-04:00 (02:00 to 02:45 (4 times) do not exist on 8 March 2026: left out), Monday 2026-03-09T02:15:00-04:00"},
		{"0 2,3 * * *", ny, "skip", "", spring, "Sunday 2026-03-08T03:00:00-04:00 (02:00 does not exist that day: left out), Monday 2026-03-09T02:00:00-04:00"},
		{"30 1 * * *", ny, "", "", autumn, "Sunday 2026-11-01T01:30:00-04:00 (01:30 comes twice: runs the first time), Monday 2026-11-02T01:30:00-05:00"},
		{"30 1 * * *", ny, "", "BOTH", autumn, "Sunday 2026-11-01T01:30:00-04:00, Sunday 2026-11-01T01:30:00-05:00 (second 01:30)"},
		{"30 * * * *", ny, "", "auto", "2026-11-01T05:00:00Z", "Sunday 2026-11-01T01:30:00-04:00, Sunday 2026-11-01T01:30:00-05:00 (second 01:30)"},
		{"2026-03-08T02:30:00", ny, "", "", spring, "Sunday 2026-03-08T03:00:00-04:00 (02:30 does not exist that day: runs at 03:00)"},
		{"0 12 * * *", "Pacific/Apia", "", "", "2011-12-29T23:00:00Z",
			"Saturday 2011-12-31T00:00:00+14:00 (12:00 does not exist on 30 December 2011: runs at 00:00), Saturday 2011-12-31T12:00:00+14:00"},
		{"0-58 0-58 0-22 * * *", "Pacific/Apia", "", "", "2011-12-30T08:59:59Z",
			"Saturday 2011-12-31T00:00:00+14:00 (00:00 and 80062 later times do not exist on 30 December 2011: merged into the run at 00:00), Saturday 2011-12-31T00:00:01+14:00"},
		{"0 9 * * *", "", "", "", spring, "Sunday 2026-03-08T09:00:00Z, Monday 2026-03-09T09:00:00Z"},
	} {
		after, _ := time.Parse(time.RFC3339, tt.after)
		p, err := c.Preview(control.PreviewOf{
			Schedule: tt.schedule, Timezone: tt.zone, DSTGap: belfry.DSTGap(tt.gap), DSTOverlap: belfry.DSTOverlap(tt.overlap), After: after, Count: 2,
		})
		if err != nil {
			t.Errorf("%s in %s: %v", tt.schedule, tt.zone, err)
			continue
		}
		var got []string
		for _, o := range p.Next {
			text := o.Weekday + " " + o.Local
			if o.Note != "" {
				text += " (" + o.Note + ")"
			}
			if local, err := time.Parse(time.RFC3339, o.Local); err != nil || !local.Equal(o.At) || o.At.Location() != time.UTC {
				t.Errorf("%s is not %v", o.Local, o.At)
			}
			got = append(got, text)
		}
		if got := strings.Join(got, ", "); got != tt.want {
			t.Errorf("%s in %s\ngot  %s\nwant %s", tt.schedule, tt.zone, got, tt.want)
		}
	}
}

func TestAPreview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := control.New(open(t), plan.Defaults{})
		now := time.Now().UTC()
		p, err := c.Preview(control.PreviewOf{Schedule: " 0 9 * * MON-FRI "})
		if err != nil || p.Schedule != "0 9 * * MON-FRI" || p.Timezone != "UTC" || p.ZoneVersion != schedule.ZoneVersion() ||
			p.Description != "At 09:00, Monday through Friday" || len(p.Next) != 10 || len(p.Warnings) != 0 || p.Resolved != "" {
			t.Errorf("got %+v, error %v", p, err)
		}
		p, err = c.Preview(control.PreviewOf{Schedule: "H 3 * * *", StartsAt: now.AddDate(0, 0, 5), EndsAt: now.AddDate(0, 0, 8)})
		if err != nil || p.Resolved == "" || len(p.Next) != 3 || len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], "depends on the job") {
			t.Errorf("got %+v, error %v", p, err)
		}
		job := belfry.NewID(now)
		want, _, _ := schedule.Resolve("H 3 * * *", job)
		if p, err = c.Preview(control.PreviewOf{Schedule: "H 3 * * *", JobID: job}); err != nil || p.Resolved != want || len(p.Warnings) != 0 {
			t.Errorf("got %+v, error %v", p, err)
		}
		p, err = c.Preview(control.PreviewOf{Schedule: "PT10M", Count: 1})
		if err != nil || !p.StartsAt.Equal(now) || !p.Next[0].At.Equal(now.Add(10*time.Minute)) || len(p.Warnings) != 1 {
			t.Errorf("got %+v, error %v", p, err)
		}
		if p, err = c.Preview(control.PreviewOf{Schedule: "1999-01-01T00:00:00Z"}); err != nil || len(p.Next) != 0 {
			t.Errorf("got %+v, error %v", p, err)
		}
		_, err = c.Preview(control.PreviewOf{Schedule: "0 25 * * *", Timezone: "Paris", DSTGap: "x", Count: 101, After: now.AddDate(3000, 0, 0)})
		if got := fmt.Sprint(faultsOf(t, err)); !strings.Contains(got, "dst_gap: ") || !strings.Contains(got, "timezone: ") || !strings.Contains(got, "schedule: column 3") ||
			!strings.Contains(got, "count: must be from 1 to 100") || !strings.Contains(got, "after: ") {
			t.Errorf("got %s", got)
		}
	})
}

// In 2000 the clock of Paris skips 2:00 to 3:00 on 26 March and shows 2:00 to 3:00
// twice on 29 October.
func TestANoteToARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		c := control.New(s, plan.Defaults{})
		make := func(name, text, gap string) belfry.ID {
			d := named(name, text)
			d.Spec.Timezone, d.Spec.DSTGap, d.Spec.Overlap = "Europe/Paris", belfry.DSTGap(gap), belfry.OverlapParallel
			return create(t, c, d).ID
		}
		time.Sleep(time.Until(time.Date(2000, 3, 25, 12, 0, 0, 0, time.UTC)))
		runs, skips := make("runs", "30 2 * * *", ""), make("skips", "30 2 * * *", "skip")
		for range 2 {
			time.Sleep(24 * time.Hour)
			fire(t, s)
		}
		edit(t, c, runs, func(d *control.Draft) { d.Spec.Schedule = "0 12 * * *" })
		notes := func(id belfry.ID) string {
			list, err := c.Runs(t.Context(), ns, id, control.RunPage{Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for _, r := range list {
				out = append(out, fmt.Sprintf("%s %s%s: %s", r.ScheduledAt.Format("02 15:04"), r.Status, r.Reason, c.Note(t.Context(), r)))
			}
			return strings.Join(out, "\n")
		}
		if got, want := notes(runs), "27 00:30 ready: \n26 01:00 ready: 02:30 does not exist that day: runs at 03:00"; got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		if got, want := notes(skips), "27 00:30 ready: \n26 01:00 skippeddst_gap: 02:30 does not exist that day: left out"; got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		list, _ := c.Runs(t.Context(), ns, runs, control.RunPage{Limit: 10})
		for name, run := range map[string]belfry.Run{
			"a manual run":      {Kind: belfry.KindManual, Namespace: ns, JobID: runs, ScheduledAt: list[1].ScheduledAt, Revision: 1},
			"another revision":  {Kind: belfry.KindScheduled, Namespace: ns, JobID: runs, ScheduledAt: list[1].ScheduledAt, Revision: 9},
			"the revision now":  {Kind: belfry.KindScheduled, Namespace: ns, JobID: runs, ScheduledAt: list[1].ScheduledAt, Revision: 2},
			"a job that is not": {Kind: belfry.KindScheduled, Namespace: ns, JobID: belfry.NewID(time.Now()), ScheduledAt: list[1].ScheduledAt, Revision: 1},
		} {
			if got := c.Note(t.Context(), run); got != "" {
				t.Errorf("%s: %s", name, got)
			}
		}
		if got := c.Note(t.Context(), belfry.Run{Kind: belfry.KindScheduled, Reason: belfry.ReasonZoneChange}); !strings.Contains(got, "zone database") {
			t.Errorf("got %q", got)
		}
	})
}
