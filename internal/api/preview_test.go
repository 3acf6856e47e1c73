package api_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
	"github.com/belfry-sh/belfry/internal/store"
)

const previewPath = "/api/v1/schedules/preview"

func TestPreviewOfClockChange(t *testing.T) {
	s := newService(t)
	a := s.expectDocumented(newContract(t, s), 200, nil, "POST", previewPath,
		`{"schedule": "30 2 * * *", "timezone": "America/New_York", "after": "2026-03-07T12:00:00Z", "count": 2}`)
	want := `{"schedule":"30 2 * * *","timezone":"America/New_York","description":"At 02:30 every day in America/New_York","zone_version":"` + schedule.ZoneVersion() + `",` +
		`"warnings":["8 Mar 2026 02:30 does not exist in America/New_York: runs 03:00"],"next":[` +
		`{"at":"2026-03-08T07:00:00Z","local":"2026-03-08T03:00:00-04:00","weekday":"Sunday","note":"02:30 does not exist that day: runs at 03:00"},` +
		`{"at":"2026-03-09T06:30:00Z","local":"2026-03-09T02:30:00-04:00","weekday":"Monday"}]}` + "\n"
	if a.body != want {
		t.Errorf("got  %s\nwant %s", a.body, want)
	}
}

func TestPreviewOccurrences(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	for _, tt := range []struct {
		name, body string
		want       []string // of next
	}{
		{"a rule that ends", `{"schedule": "R3/2027-03-01T09:00:00Z/PT15M", "after": "2027-01-01T00:00:00Z"}`,
			[]string{"2027-03-01T09:00:00Z", "2027-03-01T09:15:00Z", "2027-03-01T09:30:00Z"}},
		{"a calendar rule from a start", `{"schedule": "FREQ=WEEKLY;COUNT=2", "starts_at": "2027-03-01T09:00:00+01:00", "after": "2027-01-01T00:00:00Z", "timezone": "Europe/Paris"}`,
			[]string{"2027-03-01T08:00:00Z", "2027-03-08T08:00:00Z"}},
		{"a start and an end", `{"schedule": "@daily", "startsAt": "2027-03-01T00:00:00Z", "endsAt": "2027-03-03T00:00:00Z", "after": "2027-01-01T00:00:00Z"}`,
			[]string{"2027-03-01T00:00:00Z", "2027-03-02T00:00:00Z", "2027-03-03T00:00:00Z"}},
		{"the gap skipped", `{"schedule": "30 2 * * *", "timezone": "America/New_York", "dst_gap": "SKIP", "after": "2026-03-07T12:00:00Z", "count": 1}`,
			[]string{"2026-03-09T06:30:00Z"}},
		{"both of the overlap", `{"schedule": "30 1 * * *", "timezone": "America/New_York", "dst_overlap": "both", "after": "2026-11-01T00:00:00Z", "count": 2}`,
			[]string{"2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"}},
		{"the first of the overlap", `{"schedule": "30 * * * *", "timezone": "America/New_York", "dst_overlap": "first", "after": "2026-11-01T05:00:00Z", "count": 2}`,
			[]string{"2026-11-01T05:30:00Z", "2026-11-01T07:30:00Z"}},
		{"the default for the overlap", `{"schedule": "30 1 * * *", "timezone": "America/New_York", "dst_overlap": "auto", "dst_gap": null, "after": "2026-11-01T00:00:00Z", "count": 1}`,
			[]string{"2026-11-01T05:30:00Z"}},
		{"a time zone in the schedule", `{"schedule": "DTSTART;TZID=America/New_York:20270301T090000 RRULE:FREQ=DAILY;COUNT=1", "after": "2027-01-01T00:00:00Z"}`,
			[]string{"2027-03-01T14:00:00Z"}},
		{"an instant that is over", `{"schedule": "2020-01-01T00:00:00Z"}`, nil},
	} {
		var got belfry.Preview
		a := s.expect(200, &got, "POST", previewPath, tt.body)
		if err := c.check("POST", previewPath, "", "", a); err != nil { // Requests may be looser than the document.
			t.Errorf("%s: %v", tt.name, err)
		}
		var list []string
		for _, o := range got.Next {
			list = append(list, o.At.Format(time.RFC3339))
		}
		if !slices.Equal(list, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, list, tt.want)
		}
	}
	var hashed belfry.Preview
	s.expectDocumented(c, 200, &hashed, "POST", previewPath, `{"schedule": "H H * * *"}`)
	if len(hashed.Next) != 10 || hashed.Resolved == "" || strings.Contains(hashed.Resolved, "H") || len(hashed.Warnings) != 1 {
		t.Errorf("got %+v", hashed)
	}
}

func TestPreviewErrors(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	for _, tt := range []struct{ body, field, message string }{
		{`{}`, "schedule", "is required"},
		{`{"schedule": "61 * * * *"}`, "schedule", `column 1: minute 61 is out of range, it goes from 0 to 59; for example "*/15 * * * *"`},
		{`{"schedule": "0 0 31 2 *"}`, "schedule", "never fires"},
		{`{"schedule": "FREQ=DAILY;BYEASTER=1"}`, "schedule", "column 12"},
		{`{"schedule": "R5/PT0S"}`, "schedule", "for example"},
		{`{"schedule": "2027-03-01T09:00:00"}`, "timezone", "requires a time zone"},
		{`{"schedule": "@daily", "timezone": "EST"}`, "timezone", `did you mean "America/New_York"?`},
		{`{"schedule": "@daily", "dst_gap": "jump"}`, "dst_gap", `must be "run" or "skip"`},
		{`{"schedule": "@daily", "dst_overlap": "last"}`, "dst_overlap", `must be "auto", "first" or "both"`},
		{`{"schedule": "@daily", "count": 0}`, "count", "must be from 1 to 1000, not 0"},
		{`{"schedule": "@daily", "after": "tomorrow"}`, "after", `for example "2027-03-01T09:00:00+01:00"`},
		{`{"schedule": "@daily", "starts_at": "2027-03-01T09:00:00Z", "ends_at": "2027-03-01T09:00:00Z"}`, "ends_at", "must be after starts_at"},
		{`{"schedule": "@daily", "ends_at": "2026-03-01T09:00:00Z", "after": "2027-03-01T09:00:00Z"}`, "ends_at", "never fires"},
		{`{"schedule": "@daily", "name": "x"}`, "name", "is unknown"},
	} {
		p := s.expectDocumented(c, 422, nil, "POST", previewPath, tt.body).problem(t)
		at := slices.Index(p.fields(), tt.field)
		if at < 0 || !strings.Contains(p.Errors[at].Message, tt.message) {
			t.Errorf("%s: got %q about %v, want %q about %s", tt.body, p.Detail, p.Errors, tt.message, tt.field)
		}
	}
	s.expectDocumented(c, 400, nil, "POST", previewPath, `{"schedule"`)
	s.expectDocumented(c, 415, nil, "POST", previewPath, `{}`, "Content-Type: text/plain")
}

func TestRunHasNoteOfClockChange(t *testing.T) {
	s := newService(t)
	job := s.create(`{"name": "night", "schedule": "30 2 * * *", "timezone": "America/New_York", "payload": {"url": "https://example.com"}}`)
	ctx := context.Background()
	found, err := s.store.PlansByJob(ctx, []belfry.ID{job.ID})
	s.check(err)
	policy, err := plan.Compile(job.Spec)
	s.check(err)
	at := time.Date(2026, 3, 8, 7, 0, 0, 0, time.UTC)
	run := plan.Run{ID: belfry.RunID(job.ID, belfry.KindScheduled, at, belfry.ID{}), Kind: belfry.KindScheduled, ScheduledAt: at, ReadyAt: at}
	step := plan.Step{
		Subject: plan.Subject{Namespace: job.Namespace, Name: job.Name, Revision: job.Revision, Policy: policy},
		Seen:    found[0].Plan, Next: found[0].Plan, Runs: []plan.Run{run},
	}
	_, err = s.store.Fire(ctx, belfry.NewID(s.store.Now()), []plan.Step{step}, store.FreeSlots{})
	s.check(err)
	c := newContract(t, s)
	var shown belfry.Run
	s.expectDocumented(c, 200, &shown, "GET", "/api/v1/runs/"+run.ID.String(), "")
	if want := "02:30 does not exist that day: runs at 03:00"; shown.Note != want {
		t.Errorf("the note is %q, want %q", shown.Note, want)
	}
	if list := s.expectDocumented(c, 200, nil, "GET", "/api/v1/jobs/night/runs", ""); strings.Contains(list.body, `"note"`) {
		t.Errorf("the list has notes: %s", list.body)
	}
}
