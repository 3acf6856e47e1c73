package validate

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
)

func TestPreviewNotesClockChanges(t *testing.T) {
	v := New(now, plan.Defaults{})
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
		p, errors := v.Preview(t.Context(), belfry.PreviewRequest{
			Schedule: tt.schedule, Timezone: tt.zone, DSTGap: belfry.DSTGap(tt.gap), DSTOverlap: belfry.DSTOverlap(tt.overlap), After: after, Count: 2,
		})
		if len(errors) > 0 {
			t.Errorf("%s in %s: %v", tt.schedule, tt.zone, errors)
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

func TestPreview(t *testing.T) {
	v := New(now, plan.Defaults{})
	preview := func(r belfry.PreviewRequest) belfry.Preview {
		t.Helper()
		p, errors := v.Preview(t.Context(), r)
		if len(errors) > 0 {
			t.Fatal(errors)
		}
		return p
	}
	p := preview(belfry.PreviewRequest{Schedule: " 0 9 * * MON-FRI "})
	if p.Schedule != "0 9 * * MON-FRI" || p.Timezone != "UTC" || p.ZoneVersion != schedule.ZoneVersion() ||
		p.Description != "At 09:00, Monday through Friday" || len(p.Next) != 10 || len(p.Warnings) != 0 || p.Resolved != "" {
		t.Errorf("got %+v", p)
	}
	p = preview(belfry.PreviewRequest{Schedule: "H 3 * * *", StartsAt: now.AddDate(0, 0, 5), EndsAt: now.AddDate(0, 0, 8)})
	if p.Resolved == "" || len(p.Next) != 3 || len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], "depends on the job") {
		t.Errorf("got %+v", p)
	}
	job := belfry.NewID(now)
	want, _, _ := schedule.Resolve("H 3 * * *", job)
	if p = preview(belfry.PreviewRequest{Schedule: "H 3 * * *", JobID: job}); p.Resolved != want || len(p.Warnings) != 0 {
		t.Errorf("got %+v", p)
	}
	p = preview(belfry.PreviewRequest{Schedule: "PT10M", Count: 1})
	if !p.StartsAt.Equal(now) || len(p.Next) != 1 || !p.Next[0].At.Equal(now.Add(10*time.Minute)) || len(p.Warnings) != 1 {
		t.Errorf("got %+v", p)
	}
	if p = preview(belfry.PreviewRequest{Schedule: "1999-01-01T00:00:00Z"}); p.Next == nil || len(p.Next) != 0 {
		t.Errorf("got %+v", p)
	}
}

func TestPreviewErrors(t *testing.T) {
	_, errors := New(now, plan.Defaults{}).Preview(t.Context(), belfry.PreviewRequest{Schedule: "0 25 * * *", Timezone: "Paris", DSTGap: "x", Count: 1001, After: now.AddDate(3000, 0, 0)})
	if want := []string{"dst_gap", "count", "after", "timezone", "schedule"}; !slices.Equal(fieldsOf(errors), want) {
		t.Errorf("got %v", errors)
	}
	_, errors = New(now, plan.Defaults{}).Preview(t.Context(), belfry.PreviewRequest{})
	oneError(t, errors, "schedule", "required")
}
