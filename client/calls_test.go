package client

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
)

const runText = "01890a5d-ac96-774b-bcce-b302099a8057"

var (
	runID, _ = belfry.ParseID(runText)
	nine     = time.Date(2030, 1, 1, 9, 0, 0, 0, time.FixedZone("CET", 3600))
)

// callTest is a call and the request that it makes.
type callTest struct {
	call  func(context.Context, *Client) error
	want  string
	body  string
	keyed bool
}

func (a callTest) check(t *testing.T) {
	t.Helper()
	c, s := scripted(t, said{status: 200, body: `{}`})
	if err := a.call(t.Context(), c); err != nil {
		t.Fatalf("%s: %v", a.want, err)
	}
	r := s.requests[0]
	if got := r.Method + " " + r.URL.RequestURI(); got != a.want || s.bodies[0] != a.body || len(s.requests) != 1 {
		t.Errorf("the request is %s with %s, want %s with %s", got, s.bodies[0], a.want, a.body)
	}
	if keyed := r.Header.Get("Idempotency-Key") != ""; keyed != a.keyed {
		t.Errorf("%s: has a key: %v", a.want, keyed)
	}
}

// errorOf drops the answer of a call.
func errorOf[T any](call func(context.Context, *Client) (T, error)) func(context.Context, *Client) error {
	return func(ctx context.Context, c *Client) error { _, err := call(ctx, c); return err }
}

func TestRequestsAboutJobsAndRuns(t *testing.T) {
	const span = `"from":"2030-01-01T09:00:00+01:00","to":"2030-01-01T10:00:00+01:00"`
	type ctx = context.Context
	for _, a := range []callTest{
		{errorOf(func(x ctx, c *Client) (belfry.Job, error) { return c.ResumeJob(x, "a/b", belfry.Resume{}) }),
			"POST /api/v1/jobs/a%2Fb/resume", "{}", false},
		{errorOf(func(x ctx, c *Client) (belfry.Job, error) { return c.ResumeJob(x, "j", belfry.Resume{CatchUp: true}) }),
			"POST /api/v1/jobs/j/resume", `{"catch_up":true}`, false},
		{func(x ctx, c *Client) error { return c.DeleteJob(x, "j") },
			"DELETE /api/v1/jobs/j", "", false},
		{func(x ctx, c *Client) error { return c.DeleteJob(x, "j?", CancelRuns(), PurgeHistory(), IfMatch("v")) },
			"DELETE /api/v1/jobs/j%3F?history=delete&runs=cancel", "", false},
		{errorOf(func(x ctx, c *Client) (belfry.Job, error) { return c.CancelJob(x, "j") }),
			"POST /api/v1/jobs/j/cancel", "", false},
		{errorOf(func(x ctx, c *Client) (belfry.Run, error) { return c.CancelRun(x, runID) }),
			"POST /api/v1/runs/" + runText + "/cancel", "", false},
		{errorOf(func(x ctx, c *Client) (belfry.BackfillResult, error) {
			return c.BackfillJob(x, "j", belfry.Backfill{From: nine, To: nine.Add(time.Hour), Limit: 7, DryRun: true})
		}), "POST /api/v1/jobs/j/backfill", `{` + span + `,"limit":7,"dry_run":true}`, true},
		{errorOf(func(x ctx, c *Client) (belfry.BackfillResult, error) {
			return c.BackfillJob(x, "j", belfry.Backfill{From: nine})
		}),
			"POST /api/v1/jobs/j/backfill", `{"from":"2030-01-01T09:00:00+01:00"}`, true},
		{errorOf(func(x ctx, c *Client) (belfry.Explanation, error) { return c.ExplainJob(x, "j", "") }),
			"GET /api/v1/jobs/j/why", "", false},
		{errorOf(func(x ctx, c *Client) (belfry.Explanation, error) { return c.ExplainJob(x, "j", "2026-03-02 09:05") }),
			"GET /api/v1/jobs/j/why?at=2026-03-02+09%3A05", "", false},
		{errorOf(func(x ctx, c *Client) (belfry.Explanation, error) {
			return c.ExplainJob(x, "j", "2026-03-02T09:05:00+01:00")
		}),
			"GET /api/v1/jobs/j/why?at=2026-03-02T09%3A05%3A00%2B01%3A00", "", false},
		{errorOf(func(x ctx, c *Client) (belfry.BulkResult, error) {
			filter := belfry.JobFilter{Status: belfry.StatusPaused, Type: "http", Handler: "h", Queue: "q", Tags: []string{"a", "b"}, Search: "s", PageSize: 3}
			return c.BulkJobs(x, belfry.Bulk{Action: belfry.ActionRetry, Filter: filter, DryRun: true, Limit: 9, Cursor: "c"})
		}), "POST /api/v1/jobs/actions", `{"action":"retry","filter":{"status":"paused","type":"http","handler":"h","queue":"q","tags":["a","b"],"search":"s"},` +
			`"dry_run":true,"limit":9,"cursor":"c"}`, true},
		{errorOf(func(x ctx, c *Client) (belfry.BulkResult, error) {
			return c.BulkJobs(x, belfry.Bulk{Action: belfry.ActionPause, All: true}, IdempotencyKey("mine"))
		}), "POST /api/v1/jobs/actions", `{"action":"pause","all":true}`, true},
	} {
		a.check(t)
	}
}

func TestRequestsAboutDeadLetters(t *testing.T) {
	filter := belfry.DeadFilter{Job: "a b", Since: nine, Until: nine.Add(time.Hour), Error: "no luck", Fingerprint: "f", Reason: belfry.ReasonPoison, PageSize: 5}
	const path = "/api/v1/dead-letters"
	const query = "?error=no+luck&fingerprint=f&job=a+b&limit=5&reason=poison&since=2030-01-01T09%3A00%3A00%2B01%3A00&until=2030-01-01T10%3A00%3A00%2B01%3A00"
	const body = `{"filter":{"job":"a b","since":"2030-01-01T09:00:00+01:00","until":"2030-01-01T10:00:00+01:00","error":"no luck","fingerprint":"f","reason":"poison"}`
	type ctx = context.Context
	for _, a := range []callTest{
		{errorOf(func(x ctx, c *Client) (belfry.DeadLetter, error) { return c.DeadLetter(x, runID) }), "GET " + path + "/" + runText, "", false},
		{errorOf(func(x ctx, c *Client) (belfry.Run, error) {
			return c.RedriveDeadLetter(x, runID, belfry.RedriveOptions{})
		}), "POST " + path + "/" + runText + "/redrive", "{}", false},
		{errorOf(func(x ctx, c *Client) (belfry.Run, error) {
			return c.RedriveDeadLetter(x, runID, belfry.RedriveOptions{Payload: json.RawMessage(`{"a":1}`)})
		}),
			"POST " + path + "/" + runText + "/redrive", `{"payload":{"a":1}}`, false},
		{func(x ctx, c *Client) error { return c.DiscardDeadLetter(x, runID) }, "DELETE " + path + "/" + runText, "", false},
		{errorOf(func(x ctx, c *Client) (belfry.DeadResult, error) {
			return c.RedriveDeadLetters(x, belfry.Redrive{Filter: filter, RedriveOptions: belfry.RedriveOptions{Payload: json.RawMessage("1")}, Rate: 2.5, Limit: 9, DryRun: true})
		}), "POST " + path + "/redrive", body + `,"dry_run":true,"limit":9,"payload":1,"rate":2.5}`, false},
		{errorOf(func(x ctx, c *Client) (belfry.DeadResult, error) {
			return c.RedriveDeadLetters(x, belfry.Redrive{All: true})
		}),
			"POST " + path + "/redrive", `{"all":true}`, false},
		{errorOf(func(x ctx, c *Client) (belfry.DeadResult, error) {
			return c.DiscardDeadLetters(x, belfry.Discard{Filter: filter, Limit: 9, DryRun: true})
		}), "POST " + path + "/discard", body + `,"dry_run":true,"limit":9}`, false},
	} {
		a.check(t)
	}
	c, s := scripted(t, said{status: 200, body: `[]`})
	for range c.DeadLetters(t.Context(), filter) {
	}
	c.DeadGroups(t.Context(), filter)
	c.DeadGroups(t.Context(), belfry.DeadFilter{})
	for range c.Events(t.Context(), belfry.EventFilter{}) {
	}
	want := []string{path + query, path + "/groups" + query, path + "/groups", "/api/v1/events"}
	for i, r := range s.requests {
		if r.Method != "GET" || r.URL.RequestURI() != want[i] {
			t.Errorf("the request is %s %s, want %s", r.Method, r.URL.RequestURI(), want[i])
		}
	}
	if len(s.requests) != len(want) {
		t.Errorf("%d requests, want %d", len(s.requests), len(want))
	}
}

func TestAnswersAreDecoded(t *testing.T) {
	ctx := t.Context()
	asked := func(body string) *Client {
		c, _ := scripted(t, said{status: 200, body: body})
		return c
	}
	made, err := asked(`{"count":2,"instants":["2030-01-01T08:00:00Z","2030-01-02T08:00:00Z"],"run_ids":["`+runText+`"],"more":true,"next_from":"2030-01-03T08:00:00Z"}`).
		BackfillJob(ctx, "j", belfry.Backfill{})
	if err != nil || made.Count != 2 || !made.Instants[0].Equal(nine) || made.RunIDs[0] != runID || !made.More || made.NextFrom.Day() != 3 {
		t.Errorf("a backfill is decoded as %+v, %v", made, err)
	}
	made, err = asked(`{"count":0,"instants":[],"more":false,"next_from":null}`).BackfillJob(ctx, "j", belfry.Backfill{})
	if err != nil || !made.NextFrom.IsZero() || made.RunIDs != nil {
		t.Errorf("a backfill of nothing is decoded as %+v, %v", made, err)
	}
	why, err := asked(`{"at":"2030-01-01T08:00:00Z","decision":"queued","sentence":"It waits.","run":{"run_id":"`+runText+`","idempotency_key":"k"},
		"rule":{"schedule":"@daily","timezone":"UTC","description":"every day"},"revision":3,"previous":null,"next":"2030-01-02T08:00:00Z",
		"waits_for":{"what":"slot","queue":"q","handler":"h","workers":2,"slots":100,"running":100,"ahead":17}}`).ExplainJob(ctx, "j", "")
	if err != nil || why.Decision != "queued" || why.Run.ID != runID || why.Run.IdempotencyKey != "k" || why.Rule.Schedule != "@daily" || why.Revision != 3 ||
		why.Previous != nil || why.Next.Day() != 2 || why.WaitsFor.What != "slot" || why.WaitsFor.Ahead != 17 {
		t.Errorf("an explanation is decoded as %+v, %v", why, err)
	}
	letter, err := asked(`{"run_id":"`+runText+`","status":"dead","job_name":"n","fingerprint":"f","reason":"permanent","idempotency_key":"k",
		"payload":{"a":1},"attempts":[{"attempt":1,"outcome":"failed","output":"o"}]}`).DeadLetter(ctx, runID)
	if err != nil || letter.ID != runID || letter.JobName != "n" || letter.Fingerprint != "f" || letter.Reason != belfry.ReasonPermanent ||
		letter.IdempotencyKey != "k" || string(letter.Payload) != `{"a":1}` || letter.Attempts[0].Output != "o" {
		t.Errorf("a dead letter is decoded as %+v, %v", letter, err)
	}
	groups, err := asked(`[{"fingerprint":"f","count":5,"jobs":2,"error":"e","latest_run_id":"`+runText+`"}]`).DeadGroups(ctx, belfry.DeadFilter{})
	if err != nil || len(groups) != 1 || groups[0].Count != 5 || groups[0].LatestRunID != runID {
		t.Errorf("groups are decoded as %+v, %v", groups, err)
	}
	redriven, err := asked(`{"matched":5,"done":3,"more":true,"last_at":"2030-01-01T08:00:00Z"}`).RedriveDeadLetters(ctx, belfry.Redrive{})
	if err != nil || redriven.Matched != 5 || redriven.Done != 3 || !redriven.More || !redriven.LastAt.Equal(nine) {
		t.Errorf("a redrive is decoded as %+v, %v", redriven, err)
	}
	discarded, err := asked(`{"matched":5,"done":3,"more":true}`).DiscardDeadLetters(ctx, belfry.Discard{})
	if err != nil || discarded != (belfry.DeadResult{Matched: 5, Done: 3, More: true}) {
		t.Errorf("a discard is decoded as %+v, %v", discarded, err)
	}
	bulk, err := asked(`{"matched":5,"done":4,"failed":[{"job_id":"`+runText+`","name":"n","error":"e"}],"next":"c"}`).BulkJobs(ctx, belfry.Bulk{})
	if err != nil || bulk.Matched != 5 || bulk.Done != 4 || bulk.Failed[0] != (belfry.BulkFailure{JobID: runID, Name: "n", Error: "e"}) || bulk.Next != "c" {
		t.Errorf("a bulk action is decoded as %+v, %v", bulk, err)
	}
	for event, err := range asked(`[{"event_id":"`+runText+`","kind":"large_catch_up","message":"m","count":12}]`).Events(ctx, belfry.EventFilter{}) {
		if err != nil || event.ID != runID || event.Kind != belfry.EventLargeCatchUp || event.Count != 12 {
			t.Errorf("an event is decoded as %+v, %v", event, err)
		}
	}
}

// If the answer to a redrive was lost and the dead letter is gone, the redrive succeeded,
// unless somebody discarded it.
func TestRedriveIsSafeToRepeat(t *testing.T) {
	lost := said{err: errors.New("connection reset")}
	gone := refusal(404, "not_found", "there is no such dead letter")
	for _, tt := range []struct {
		name    string
		answers []said
		want    belfry.RunStatus
		refused string
	}{
		{"it was redriven", []said{lost, gone, {status: 200, body: `{"status":"ready"}`}}, belfry.RunReady, ""},
		{"it has even succeeded", []said{lost, gone, {status: 200, body: `{"status":"succeeded"}`}}, belfry.RunSucceeded, ""},
		{"it was not redriven", []said{lost, {status: 202, body: `{"status":"retry"}`}}, belfry.RunRetry, ""},
		{"it was discarded", []said{lost, gone, {status: 200, body: `{"status":"discarded"}`}}, "", "earlier try"},
		{"it is forgotten", []said{lost, gone, gone}, "", "earlier try"},
		{"it was never there", []said{gone}, "", "there is no such dead letter"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, _ := scripted(t, tt.answers...)
			run, err := c.RedriveDeadLetter(t.Context(), runID, belfry.RedriveOptions{})
			if tt.refused == "" && (err != nil || run.Status != tt.want) {
				t.Errorf("%s: got %s and %v", tt.name, run.Status, err)
			}
			if tt.refused != "" && (belfry.CodeOf(err) != belfry.NotFound || !strings.Contains(err.Error(), tt.refused)) {
				t.Errorf("%s: got %v", tt.name, err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		c, s := scripted(t, lost, gone)
		if err := c.DiscardDeadLetter(t.Context(), runID); err != nil || len(s.requests) != 2 {
			t.Errorf("a discard: got %v", err)
		}
	})
}

func TestOptionsExtendAQuery(t *testing.T) {
	c, s := scripted(t, said{status: 200, body: `{}`})
	if err := c.Do(t.Context(), "POST", "/api/v1/jobs/j?x=1", nil, nil, CancelRuns()); err != nil {
		t.Fatal(err)
	}
	if got := s.requests[0].URL.RequestURI(); got != "/api/v1/jobs/j?x=1&runs=cancel" {
		t.Errorf("the request is %s", got)
	}
}
