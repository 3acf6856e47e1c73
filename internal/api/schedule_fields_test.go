package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

func TestScheduleFieldsAreStoredAndShown(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	for _, body := range []string{
		`{"name": "a", "schedule": "0 9 * * *", "timezone": "Europe/Paris", "starts_at": "2030-01-01T00:00:00+01:00", "ends_at": "2031-01-01T00:00:00.1234567Z",
		  "max_runs": 5, "jitter_seconds": 60, "dst_gap": "skip", "dst_overlap": "both", "payload": {"url": "https://example.com"}}`,
		`{"name": "b", "schedule": "0 9 * * *", "timezone": "Europe/Paris", "startsAt": "2030-01-01T00:00:00+01:00", "endsAt": "2031-01-01T00:00:00.1234567Z",
		  "maxRuns": 5, "jitterSeconds": 60, "dstGap": "Skip", "dstOverlap": "Both", "resolved_schedule": "whatever", "payload": {"url": "https://example.com"}}`,
	} {
		job := s.create(body)
		want := belfry.DefaultSpec()
		want.Type, want.Schedule, want.Timezone = belfry.TypeHTTP, "0 9 * * *", "Europe/Paris"
		want.StartsAt, want.EndsAt = time.Date(2029, 12, 31, 23, 0, 0, 0, time.UTC), time.Date(2031, 1, 1, 0, 0, 0, 123456000, time.UTC)
		want.MaxRuns, want.JitterSeconds, want.DSTGap, want.DSTOverlap = 5, 60, belfry.GapSkip, belfry.DSTBoth
		expectSpec(t, want, job)
		first := time.Date(2030, 1, 1, 8, 0, 0, 0, time.UTC)
		if next := job.NextRunAt; next == nil || next.Before(first) || next.After(first.Add(time.Minute)) {
			t.Errorf("it runs next at %v, want within a minute of %v", next, first)
		}
	}
	shown := s.expectDocumented(c, 200, nil, "GET", "/api/v1/jobs/a", "")
	again := s.expect(200, nil, "PUT", "/api/v1/jobs/a", shown.body)
	if again.body != shown.body {
		t.Errorf("sent back as it was shown, the job becomes %s", again.body)
	}
	bare := s.expectDocumented(c, 200, nil, "PATCH", "/api/v1/jobs/a",
		`{"starts_at": null, "ends_at": null, "max_runs": null, "jitter_seconds": null, "dst_gap": null, "dst_overlap": null}`)
	for _, member := range []string{"starts_at", "ends_at", "max_runs", "jitter_seconds", "dst_gap", "dst_overlap"} {
		if strings.Contains(bare.body, member) {
			t.Errorf("%s is not gone: %s", member, bare.body)
		}
	}
	s.expectDocumented(c, 200, nil, "PATCH", "/api/v1/jobs/a", `{"dst_overlap": "auto", "dst_gap": "run", "starts_at": "2030-01-01T00:00:00Z"}`)
}

func TestHashedScheduleAndIntervalStartAreKept(t *testing.T) {
	s := newService(t)
	c := newContract(t, s)
	var spread, interval belfry.Job
	s.expectDocumented(c, 201, &spread, "POST", "/api/v1/jobs", `{"name": "spread", "schedule": "H H(0-5) * * *", "payload": {"url": "https://example.com"}}`)
	if spread.Schedule != "H H(0-5) * * *" || spread.Resolved == "" || strings.Contains(spread.Resolved, "H") {
		t.Errorf("the schedule is %q, resolved %q", spread.Schedule, spread.Resolved)
	}
	s.expectDocumented(c, 201, &interval, "POST", "/api/v1/jobs", `{"name": "interval", "schedule": "PT15M", "payload": {"url": "https://example.com"}}`)
	if interval.StartsAt.IsZero() || !interval.NextRunAt.Equal(interval.StartsAt.Add(15*time.Minute)) {
		t.Errorf("it starts at %v and runs next at %v", interval.StartsAt, interval.NextRunAt)
	}
	for name, body := range map[string]string{
		"spread":   `{"schedule": "H H(0-5) * * *", "payload": {"url": "https://example.com"}}`,
		"interval": `{"schedule": "PT15M", "payload": {"url": "https://example.com"}}`,
	} {
		var after belfry.Job
		s.expectDocumented(c, 200, &after, "PUT", "/api/v1/jobs/"+name, body)
		before := map[string]belfry.Job{"spread": spread, "interval": interval}[name]
		if after.Revision != 1 || after.Resolved != before.Resolved || !after.StartsAt.Equal(before.StartsAt) {
			t.Errorf("put again, %s becomes revision %d of %+v, it was %+v", name, after.Revision, after.Spec, before.Spec)
		}
	}
}

func TestScheduleFieldErrors(t *testing.T) {
	s := newService(t)
	for _, tt := range []struct{ fields, field, message string }{
		{`"starts_at": "2030-01-01T00:00:00"`, "starts_at", `must be an instant with an offset or Z, for example "2027-03-01T09:00:00+01:00"`},
		{`"startsAt": "2030-01-01 00:00:00Z"`, "startsAt", "with an offset or Z"},
		{`"ends_at": "0001-01-01T00:00:00Z"`, "ends_at", "1970 to 2499"},
		{`"ends_at": "9999-12-31T23:59:59-23:59"`, "ends_at", "1970 to 2499"},
		{`"ends_at": "2020-01-01T00:00:00Z"`, "ends_at", "never fires"},
		{`"max_runs": 1.5`, "max_runs", "whole number"},
		{`"dst_gap": "both"`, "dst_gap", `"skip"`},
	} {
		p := s.send("POST", "/api/v1/jobs", `{"schedule": "@daily", "payload": {"url": "https://example.com"}, `+tt.fields+`}`).problem(t)
		at := slices.Index(p.fields(), tt.field)
		if p.Status != http.StatusUnprocessableEntity || at < 0 || !strings.Contains(p.Errors[at].Message, tt.message) {
			t.Errorf("%s: got %d %v, want %q about %s", tt.fields, p.Status, p.Errors, tt.message, tt.field)
		}
	}
}
