package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/worker"
)

var _ worker.Source = (*Client)(nil)

func TestClaimWaitTime(t *testing.T) {
	for _, tt := range []struct {
		deadline time.Duration // zero: none
		want     int
	}{{0, 10}, {time.Minute, 10}, {13 * time.Second, 8}, {6500 * time.Millisecond, 1}, {5 * time.Second, 0}} {
		synctest.Test(t, func(t *testing.T) {
			c, s := scripted(t, said{status: 200, body: `{"runs":[]}`})
			ctx := t.Context()
			if tt.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tt.deadline)
				defer cancel()
			}
			w := belfry.NewID(time.Now())
			runs, err := c.Claim(ctx, belfry.Claim{WorkerID: w, Queues: []string{"q"}, Handlers: []string{"a"}, Limit: 1000})
			want := fmt.Sprintf(`{"queue":["q"],"handlers":["a"],"limit":100,"wait_seconds":%d}`, tt.want)
			if err != nil || len(runs) != 0 || s.bodies[0] != want || s.requests[0].URL.Path != "/api/v1/workers/"+w.String()+"/claim" {
				t.Errorf("within %s: got %v and %v, sent %s to %s", tt.deadline, runs, err, s.bodies[0], s.requests[0].URL)
			}
		})
	}
}

func TestClaimTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := scripted(t)
		c.http.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		began := time.Now()
		_, err := c.Claim(t.Context(), belfry.Claim{Limit: 1})
		if took := time.Since(began); took != claimWait+claimSlack || belfry.CodeOf(err) != belfry.Unavailable {
			t.Errorf("got %v after %s", err, took)
		}
	})
}

func TestClaimedRuns(t *testing.T) {
	now := time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC)
	sent := belfry.Run{
		ID: belfry.NewID(now), JobID: belfry.NewID(now), JobName: "invoices", Namespace: "billing", Revision: 3, Kind: belfry.KindManual,
		ScheduledAt: now, ReadyAt: now, FiredAt: now, Attempt: 2, Token: belfry.NewToken(), Payload: json.RawMessage(`{"a":"<&>"}`),
		DeadlineAt: now.Add(time.Minute), TemplateKey: "week-1", Spec: belfry.Spec{Type: belfry.TypeWorker, Handler: "send", Queue: "mail", TimeoutSeconds: 7},
	}
	body, _ := json.Marshal(map[string]any{"runs": []any{sent.Claimed()}})
	c, _ := scripted(t, said{status: 200, body: string(body)})
	w := belfry.NewID(now)
	runs, err := c.Claim(t.Context(), belfry.Claim{WorkerID: w, Limit: 1})
	if err != nil || len(runs) != 1 {
		t.Fatalf("got %v and %v", runs, err)
	}
	run := runs[0]
	var payload struct{ A string }
	if json.Unmarshal(run.Payload, &payload); payload.A != "<&>" {
		t.Errorf("the payload is %s", run.Payload)
	}
	if run.ID != sent.ID || run.Token != sent.Token || run.Attempt != 2 || run.JobName != "invoices" || !run.ScheduledAt.Equal(now) || run.WorkerID != w ||
		run.Key() != sent.Key() || run.Spec.HandlerName() != "send" || run.Spec.Timeout() != 7*time.Second || run.Namespace != "billing" {
		t.Errorf("got %+v", run)
	}
}

func TestHeartbeat(t *testing.T) {
	held := belfry.HeldAttempt{RunID: belfry.NewID(time.Now()), Attempt: 2}
	other := belfry.HeldAttempt{RunID: belfry.NewID(time.Now()), Attempt: 1}
	c, s := scripted(t, said{status: 200, body: `{"unknown":false,"lost":[{"run_id":"` + held.RunID.String() + `","attempt":2}],` +
		`"cancel":[{"run_id":"` + other.RunID.String() + `","attempt":1}]}`})
	beat := belfry.Heartbeat{WorkerID: belfry.NewID(time.Now()), Node: "n", Slots: 3, Queues: []string{"q"}, Handlers: []string{"a"}, Complete: true, Held: []belfry.HeldAttempt{held}}
	reply, err := c.Heartbeat(t.Context(), beat)
	if err != nil || !slices.Equal(reply.Lost, []belfry.HeldAttempt{held}) || !slices.Equal(reply.Cancel, []belfry.HeldAttempt{other}) || reply.Unknown {
		t.Errorf("got %+v and %v", reply, err)
	}
	want := `{"node":"n","slots":3,"queue":["q"],"handlers":["a"],"held":[{"run_id":"` + held.RunID.String() + `","attempt":2}],"complete":true}`
	if s.bodies[0] != want {
		t.Errorf("sent %s", s.bodies[0])
	}
	beat.Held = make([]belfry.HeldAttempt, maxHeld+1)
	if _, err := c.Heartbeat(t.Context(), beat); err != nil || strings.Contains(s.bodies[1], "complete") || strings.Contains(s.bodies[1], "held") {
		t.Errorf("more than fits: got %v, sent %.200s", err, s.bodies[1])
	}
}

// sorter answers results, and keeps the sizes of requests.
func sorter(t *testing.T, sizes *[]int, seen *[]map[string]any) *Client {
	return serving(t, func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Results []map[string]any `json:"results"`
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || !strings.HasSuffix(r.URL.Path, "/finish") {
			t.Errorf("%s: %v", r.URL, err)
		}
		*sizes = append(*sizes, int(r.ContentLength))
		*seen = append(*seen, in.Results...)
		verdicts := make([]belfry.Verdict, len(in.Results))
		for i, r := range in.Results {
			verdicts[i] = belfry.VerdictAccepted
			if r["attempt"].(float64) == 7 {
				verdicts[i] = belfry.VerdictLate
			}
		}
		json.NewEncoder(w).Encode(map[string]any{"verdicts": verdicts})
	})
}

func TestFinishInBatches(t *testing.T) {
	var sizes []int
	var seen []map[string]any
	c := sorter(t, &sizes, &seen)
	results := make([]belfry.Result, 1500)
	for i := range results {
		results[i] = belfry.Result{RunID: belfry.NewID(time.Now()), Attempt: i, Token: belfry.NewToken(), Outcome: belfry.OutcomeFailed, Error: "no"}
		if i < 30 {
			results[i].Output = strings.Repeat("x", belfry.MaxOutput)
		}
	}
	verdicts, err := c.Finish(t.Context(), results)
	if err != nil || len(verdicts) != len(results) || len(seen) != len(results) {
		t.Fatalf("got %d verdicts and %v, %d arrived", len(verdicts), err, len(seen))
	}
	for i, v := range verdicts {
		if (v == belfry.VerdictLate) != (i == 7) || seen[i]["run_id"] != results[i].RunID.String() || seen[i]["token"] != results[i].Token.String() {
			t.Fatalf("result %d arrived as %v and is %s", i, seen[i], v)
		}
	}
	if len(sizes) != 6 || slices.Max(sizes) > finishSize+100 { // 7 outputs a request, and at most a thousand results
		t.Errorf("sent requests of %v bytes", sizes)
	}
}

func TestFinishSanitizesOutput(t *testing.T) {
	var sizes []int
	var seen []map[string]any
	c := sorter(t, &sizes, &seen)
	outputs := []string{"hello <b>", "a\xffb\x00c", "", strings.Repeat("\xff", belfry.MaxOutput)}
	wants := []any{"hello <b>", "a\uFFFDb\uFFFDc", nil, "\uFFFD"}
	for i, output := range outputs {
		if _, err := c.Finish(t.Context(), []belfry.Result{{Output: output}}); err != nil {
			t.Fatal(err)
		}
		if seen[i]["output"] != wants[i] {
			t.Errorf("%.20q arrived as %.20q", output, seen[i]["output"])
		}
	}
}

func TestFinishSendsAdvice(t *testing.T) {
	var sizes []int
	var seen []map[string]any
	c := sorter(t, &sizes, &seen)
	results := []belfry.Result{{Outcome: belfry.OutcomeSnoozed, RetryAfterSeconds: 0.25}, {Outcome: belfry.OutcomeFailed, Permanent: true}, {Outcome: belfry.OutcomeCancelled}}
	if _, err := c.Finish(t.Context(), results); err != nil {
		t.Fatal(err)
	}
	if seen[0]["outcome"] != "snoozed" || seen[0]["retry_after_seconds"] != 0.25 || seen[1]["permanent"] != true || seen[2]["outcome"] != "cancelled" {
		t.Errorf("arrived as %v", seen)
	}
	for _, name := range []string{"retry_after_seconds", "permanent"} {
		if v, there := seen[2][name]; there {
			t.Errorf("%s is sent though it says nothing: %v", name, v)
		}
	}
}

func TestFinishNeedsAVerdictPerResult(t *testing.T) {
	c, s := scripted(t, said{status: 200, body: `{"verdicts":["accepted"]}`})
	if _, err := c.Finish(t.Context(), make([]belfry.Result, 2)); err == nil {
		t.Error("one verdict for two results was taken")
	}
	if v, err := c.Finish(t.Context(), nil); len(v) != 0 || err != nil || len(s.requests) != 1 {
		t.Errorf("no results: got %v and %v", v, err)
	}
	s.answers = []said{refusal(400, "bad_request", "no")}
	if _, err := c.Finish(t.Context(), make([]belfry.Result, 1)); belfry.CodeOf(err) != belfry.Invalid {
		t.Errorf("got %v, which a worker would send for ever", err)
	}
}

func TestClaimEndsWithItsContext(t *testing.T) {
	left := make(chan error, 1)
	arrived := make(chan struct{})
	c := serving(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // the context of a request is watched once its body is read
		close(arrived)
		<-r.Context().Done()
		left <- r.Context().Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	if _, err := c.Claim(ctx, belfry.Claim{Limit: 1}); err == nil || context.Cause(ctx) == nil {
		t.Errorf("got %v", err)
	}
	if err := <-left; err == nil {
		t.Error("the server did not notice")
	}
}
