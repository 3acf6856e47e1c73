package api_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schedule"
	"github.com/belfry-sh/belfry/internal/store"
)

const previews = "/api/v1/schedules/preview"

func TestAPreviewShowsTheNightOfTheClockChange(t *testing.T) {
	s := serve(t)
	a := s.agreed(contractOf(t, s), 200, nil, "POST", previews,
		`{"schedule": "30 2 * * *", "timezone": "America/New_York", "after": "2026-03-07T12:00:00Z", "count": 2}`)
	want := `{"schedule":"30 2 * * *","timezone":"America/New_York","zone_version":"` + schedule.ZoneVersion() + `","description":"At 02:30 every day in America/New_York",` +
		`"warnings":["8 Mar 2026 02:30 does not exist in America/New_York: runs 03:00"],"next":[` +
		`{"at":"2026-03-08T07:00:00Z","local":"2026-03-08T03:00:00-04:00","weekday":"Sunday","note":"02:30 does not exist that day: runs at 03:00"},` +
		`{"at":"2026-03-09T06:30:00Z","local":"2026-03-09T02:30:00-04:00","weekday":"Monday"}]}` + "\n"
	if a.body != want {
		t.Errorf("got  %s\nwant %s", a.body, want)
	}
}

func TestPreviewsAreWhatWasAskedFor(t *testing.T) {
	s := serve(t)
	c := contractOf(t, s)
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
		{"what is usual for the overlap", `{"schedule": "30 1 * * *", "timezone": "America/New_York", "dst_overlap": "auto", "dst_gap": null, "after": "2026-11-01T00:00:00Z", "count": 1}`,
			[]string{"2026-11-01T05:30:00Z"}},
		{"an instant that is over", `{"schedule": "2020-01-01T00:00:00Z"}`, nil},
	} {
		var got struct{ Next []struct{ At string } }
		a := s.want(200, &got, "POST", previews, tt.body)
		if err := c.agrees("POST", previews, "", "", a); err != nil { // Requests may be looser than the document.
			t.Errorf("%s: %v", tt.name, err)
		}
		var list []string
		for _, o := range got.Next {
			list = append(list, o.At)
		}
		if !slices.Equal(list, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, list, tt.want)
		}
	}
	var usual struct {
		Next     []json.RawMessage
		Resolved string `json:"resolved_schedule"`
		Warnings []string
	}
	s.agreed(c, 200, &usual, "POST", previews, `{"schedule": "H H * * *"}`)
	if len(usual.Next) != 10 || usual.Resolved == "" || strings.Contains(usual.Resolved, "H") || len(usual.Warnings) != 1 {
		t.Errorf("got %+v", usual)
	}
}

func TestPreviewsOfWrongSchedulesAreRefused(t *testing.T) {
	s := serve(t)
	c := contractOf(t, s)
	for _, tt := range []struct{ body, field, says string }{
		{`{}`, "schedule", "is missing"},
		{`{"schedule": "61 * * * *"}`, "schedule", `column 1: minute 61 is out of range, it goes from 0 to 59; for example "*/15 * * * *"`},
		{`{"schedule": "0 0 31 2 *"}`, "schedule", "never fires"},
		{`{"schedule": "FREQ=DAILY;BYEASTER=1"}`, "schedule", "column 12"},
		{`{"schedule": "R5/PT0S"}`, "schedule", "for example"},
		{`{"schedule": "2027-03-01T09:00:00"}`, "timezone", "requires a time zone"},
		{`{"schedule": "@daily", "timezone": "EST"}`, "timezone", `did you mean "America/New_York"?`},
		{`{"schedule": "@daily", "dst_gap": "jump"}`, "dst_gap", `must be "run" or "skip"`},
		{`{"schedule": "@daily", "dst_overlap": "last"}`, "dst_overlap", `must be "auto", "first" or "both"`},
		{`{"schedule": "@daily", "count": 0}`, "count", "from 1 to 100"},
		{`{"schedule": "@daily", "count": 101}`, "count", "from 1 to 100"},
		{`{"schedule": "@daily", "count": -1}`, "count", "from 1 to 100"},
		{`{"schedule": "@daily", "after": "2027-03-01T09:00:00"}`, "after", "with an offset or a Z"},
		{`{"schedule": "@daily", "after": "tomorrow"}`, "after", `for example "2027-03-01T09:00:00+01:00"`},
		{`{"schedule": "@daily", "after": 1790000000}`, "after", "must be a string, not a number"},
		{`{"schedule": "@daily", "after": "9999-12-31T23:59:59-01:00"}`, "after", "1970 to 2499"},
		{`{"schedule": "@daily", "starts_at": "2027-03-01T09:00:00Z", "ends_at": "2027-03-01T09:00:00Z"}`, "ends_at", "must be after starts_at"},
		{`{"schedule": "@daily", "ends_at": "2026-03-01T09:00:00Z", "after": "2027-03-01T09:00:00Z"}`, "ends_at", "never fires"},
		{`{"schedule": "@daily", "name": "x"}`, "name", "is not known"},
	} {
		p := s.agreed(c, 422, nil, "POST", previews, tt.body).problem(t)
		at := slices.Index(p.fields(), tt.field)
		if at < 0 || !strings.Contains(p.Errors[at].Message, tt.says) || p.Detail != "the schedule is not valid" {
			t.Errorf("%s: got %q about %v, want %s to say %q", tt.body, p.Detail, p.Errors, tt.field, tt.says)
		}
	}
	p := s.agreed(c, 422, nil, "POST", previews, `{"schedule": "61 * * * *", "timezone": "Mars/Olympus", "after": 1, "count": "x", "colour": 1}`).problem(t)
	if got := p.fields(); !slices.Equal(got, []string{"after", "count", "colour", "timezone", "schedule"}) {
		t.Errorf("what is wrong is %v, want all of it", got)
	}
	s.agreed(c, 400, nil, "POST", previews, `{"schedule"`)
	s.agreed(c, 415, nil, "POST", previews, `{}`, "Content-Type: text/plain")
}

func TestARunTellsWhatTheClockDid(t *testing.T) {
	s := serve(t)
	job := s.create(`{"name": "night", "schedule": "30 2 * * *", "timezone": "America/New_York", "payload": {"url": "https://example.com"}}`)
	ctx := context.Background()
	found, err := s.store.Find(ctx, []belfry.ID{job.ID})
	s.check(err)
	policy, err := plan.Compile(job.Spec)
	s.check(err)
	at := time.Date(2026, 3, 8, 7, 0, 0, 0, time.UTC)
	run := plan.Run{ID: belfry.RunID(job.ID, belfry.KindScheduled, at, belfry.ID{}), Kind: belfry.KindScheduled, ScheduledAt: at, ReadyAt: at}
	step := plan.Step{
		Subject: plan.Subject{Namespace: job.Namespace, Name: job.Name, Revision: job.Revision, Policy: policy},
		Seen:    found[0].Plan, Next: found[0].Plan, Runs: []plan.Run{run},
	}
	_, err = s.store.Fire(ctx, belfry.NewID(s.store.Now()), []plan.Step{step}, store.Slots{})
	s.check(err)
	c := contractOf(t, s)
	var shown struct{ Note string }
	s.agreed(c, 200, &shown, "GET", "/api/v1/runs/"+run.ID.String(), "")
	if want := "02:30 does not exist that day: runs at 03:00"; shown.Note != want {
		t.Errorf("the note is %q, want %q", shown.Note, want)
	}
	if list := s.agreed(c, 200, nil, "GET", "/api/v1/jobs/night/runs", ""); strings.Contains(list.body, `"note"`) {
		t.Errorf("the list has notes: %s", list.body)
	}
}
