package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
	"github.com/belfry-sh/belfry/worker"
)

// What a handler asks for reaches the run, over HTTP and back.
func TestHandlerErrorsReachTheRun(t *testing.T) {
	c, _ := live(t)
	ctx := t.Context()
	mux := worker.NewMux()
	no := errors.New("no luck")
	mux.HandleFunc("work", func(_ context.Context, run *belfry.Run) error {
		switch ask := string(run.Payload); {
		case run.Attempt > 1:
			return nil
		case ask == `"snooze"`:
			return belfry.Snooze(100 * time.Millisecond)
		case ask == `"permanent"`:
			return belfry.Permanent(no)
		default:
			return belfry.RetryAfter(no, 200*time.Millisecond)
		}
	})
	spec := belfry.Spec{Schedule: "@monthly", MaxRetries: belfry.Some(1), RetryBaseSeconds: belfry.Some(3600.0), RetryCapSeconds: belfry.Some(7200.0), Overlap: belfry.OverlapParallel}
	must[belfry.Job](t)(c.CreateJob(ctx, belfry.Manifest{Name: "work", Spec: spec}))
	pooled(t, c, mux)
	for _, tt := range []struct {
		payload string
		state   belfry.RunStatus
		reason  belfry.Reason
		outcome belfry.Outcome
		wait    time.Duration
	}{
		{"snooze", belfry.RunSucceeded, "", belfry.OutcomeSnoozed, 100 * time.Millisecond},
		{"permanent", belfry.RunDead, belfry.ReasonPermanent, belfry.OutcomeFailed, 0},
		{"later", belfry.RunSucceeded, "", belfry.OutcomeFailed, 200 * time.Millisecond},
	} {
		run := settled(t, c, must[belfry.ID](t)(c.TriggerJob(ctx, "work", tt.payload)))
		if run.Status != tt.state || run.Reason != tt.reason || len(run.Attempts) != 1 || run.Attempts[0].Outcome != tt.outcome {
			t.Errorf("%s: the run is %+v", tt.payload, run)
			continue
		}
		if waited := run.StartedAt.Sub(run.Attempts[0].FinishedAt); tt.wait > 0 && waited < tt.wait {
			t.Errorf("%s: it waited for %s, want at least %s", tt.payload, waited, tt.wait)
		}
	}
}

func TestCancelRunsAndJobs(t *testing.T) {
	c, _ := live(t)
	ctx := t.Context()
	mux := worker.NewMux()
	began, causes := make(chan belfry.ID, 1), make(chan error, 1)
	mux.HandleFunc("slow", func(ctx context.Context, run *belfry.Run) error {
		began <- run.ID
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	})
	must[belfry.Job](t)(c.CreateJob(ctx, belfry.Manifest{Name: "slow", Spec: belfry.Spec{Schedule: "@monthly", TimeoutSeconds: 600, Overlap: belfry.OverlapQueue}}))
	pooled(t, c, mux)
	running := must[belfry.ID](t)(c.TriggerJob(ctx, "slow", nil))
	<-began
	waiting := must[belfry.ID](t)(c.TriggerJob(ctx, "slow", nil))
	await(t, func() bool { return must[belfry.Run](t)(c.Run(ctx, waiting)).Status == belfry.RunWaiting })
	if run := must[belfry.Run](t)(c.CancelRun(ctx, waiting)); run.Status != belfry.RunCancelled {
		t.Errorf("the run that waited is %s", run.Status)
	}
	asked := time.Now()
	if run := must[belfry.Run](t)(c.CancelRun(ctx, running)); run.Status != belfry.RunRunning && run.Status != belfry.RunCancelled { // by now
		t.Errorf("the run that is under way is %s", run.Status)
	}
	if cause := <-causes; cause != worker.ErrCancelled {
		t.Errorf("its context ended by %v", cause)
	}
	t.Logf("its worker heard of it after %s", time.Since(asked))
	run := settled(t, c, running)
	if run.Status != belfry.RunCancelled || len(run.Attempts) != 1 || run.Attempts[0].Outcome != belfry.OutcomeCancelled {
		t.Errorf("it ended as %+v", run)
	}
	if again := must[belfry.Run](t)(c.CancelRun(ctx, running)); again.Status != belfry.RunCancelled {
		t.Errorf("cancelled twice it is %s", again.Status)
	}
	job := must[belfry.Job](t)(c.CancelJob(ctx, "slow"))
	if job.Status != belfry.StatusCancelled || job.NextRunAt != nil {
		t.Errorf("the job is %s, next at %v", job.Status, job.NextRunAt)
	}
}

func TestRedriveAndDiscardDeadLetters(t *testing.T) {
	c, _ := live(t)
	ctx := t.Context()
	mux := worker.NewMux()
	worker.HandleJSON(mux, "work", func(_ context.Context, run *belfry.Run, in struct{ Customer int }) error {
		if in.Customer > 0 {
			return fmt.Errorf("customer %d is unknown", in.Customer)
		}
		return nil
	})
	must[belfry.Job](t)(c.CreateJob(ctx, belfry.Manifest{Name: "work", Spec: belfry.Spec{Schedule: "@monthly", MaxRetries: belfry.Some(0), Overlap: belfry.OverlapParallel}}))
	pooled(t, c, mux)
	var ids []belfry.ID
	for i := range 5 {
		id := must[belfry.ID](t)(c.TriggerJob(ctx, "work", map[string]int{"customer": i + 1}))
		settled(t, c, id)
		ids = append(ids, id)
	}
	filter := belfry.DeadFilter{Job: "work", Error: "IS UNKNOWN", Reason: belfry.ReasonOutOfRetries, PageSize: 2}
	letters := all(t, c.DeadLetters(ctx, filter))
	if len(letters) != 5 || letters[0].ID != ids[4] || letters[0].JobName != "work" || letters[0].IdempotencyKey == "" {
		t.Fatalf("the dead letters are %+v", letters)
	}
	groups := must[[]belfry.DeadGroup](t)(c.DeadGroups(ctx, belfry.DeadFilter{}))
	if len(groups) != 1 || groups[0].Count != 5 || groups[0].Fingerprint != letters[0].Fingerprint {
		t.Errorf("the groups are %+v", groups)
	}
	letter := must[belfry.DeadLetter](t)(c.DeadLetter(ctx, ids[0]))
	if string(letter.Payload) != `{"customer":1}` || len(letter.Attempts) != 1 || letter.Attempts[0].Error != "customer 1 is unknown" {
		t.Errorf("a dead letter is %+v", letter)
	}

	if run := must[belfry.Run](t)(c.RedriveDeadLetter(ctx, ids[0], belfry.RedriveOptions{Payload: json.RawMessage(`{"customer":0}`)})); run.ID != ids[0] {
		t.Errorf("redriven it is %+v", run)
	}
	if run := settled(t, c, ids[0]); run.Status != belfry.RunSucceeded || run.Attempt != 2 || run.IdempotencyKey != letter.IdempotencyKey {
		t.Errorf("redriven it ended as %+v", run)
	}
	if err := c.DiscardDeadLetter(ctx, ids[1]); err != nil || must[belfry.Run](t)(c.Run(ctx, ids[1])).Status != belfry.RunDiscarded {
		t.Errorf("a discard: %v", err)
	}
	if _, err := c.RedriveDeadLetters(ctx, belfry.Redrive{}); belfry.CodeOf(err) != belfry.Invalid || !strings.Contains(err.Error(), "all") {
		t.Errorf("a redrive of nobody knows what: %v", err)
	}
	order := belfry.Redrive{Filter: filter, RedriveOptions: belfry.RedriveOptions{Payload: json.RawMessage(`{"customer":0}`)}, Rate: 100, Limit: 2, DryRun: true}
	if done := must[belfry.DeadResult](t)(c.RedriveDeadLetters(ctx, order)); done.Matched == 0 || done.Done != 0 {
		t.Errorf("a dry run: %+v", done)
	}
	order.DryRun = false
	if done := must[belfry.DeadResult](t)(c.RedriveDeadLetters(ctx, order)); done.Done != 2 || !done.More || done.LastAt.IsZero() {
		t.Errorf("two of three: %+v", done)
	}
	if done := must[belfry.DeadResult](t)(c.DiscardDeadLetters(ctx, belfry.Discard{All: true})); done.Done != 1 || done.More {
		t.Errorf("the rest: %+v", done)
	}
	await(t, func() bool {
		return len(all(t, c.Runs(ctx, belfry.RunFilter{JobRunFilter: belfry.JobRunFilter{Status: belfry.RunSucceeded}}))) == 3
	})
	if left := all(t, c.DeadLetters(ctx, belfry.DeadFilter{})); len(left) != 0 {
		t.Errorf("left are %+v", left)
	}
}

func TestBulkJobs(t *testing.T) {
	c, _ := live(t)
	ctx := t.Context()
	for i := range 7 {
		d := named(fmt.Sprint("job ", i))
		d.Handler, d.Tags = "h", []string{"many"}
		must[belfry.Job](t)(c.CreateJob(ctx, d))
	}
	must[belfry.Job](t)(c.CreateJob(ctx, named("other")))
	act := func(b belfry.Bulk) (matched, done int) {
		t.Helper()
		b.Filter, b.Limit = belfry.JobFilter{Tags: []string{"many"}}, 3
		for {
			part := must[belfry.BulkResult](t)(c.BulkJobs(ctx, b))
			matched, done = matched+part.Matched, done+part.Done
			if len(part.Failed) > 0 {
				t.Errorf("%s failed: %+v", b.Action, part.Failed)
			}
			if b.Cursor = part.Next; b.Cursor == "" {
				return matched, done
			}
		}
	}
	for _, action := range []belfry.Action{belfry.ActionPause, belfry.ActionResume, belfry.ActionTrigger, belfry.ActionRetry, belfry.ActionCancel, belfry.ActionDelete} {
		if matched, done := act(belfry.Bulk{Action: action, DryRun: true}); matched != 7 || done != 0 {
			t.Errorf("%s as a dry run: %d and %d", action, matched, done)
		}
		if matched, done := act(belfry.Bulk{Action: action}); matched != 7 || done != 7 {
			t.Errorf("%s: %d and %d", action, matched, done)
		}
	}
	if _, err := c.BulkJobs(ctx, belfry.Bulk{Action: belfry.ActionDelete}); belfry.CodeOf(err) != belfry.Invalid {
		t.Errorf("an order about nobody knows what: %v", err)
	}
	if left := all(t, c.Jobs(ctx, belfry.JobFilter{})); len(left) != 1 || left[0].Name != "other" {
		t.Errorf("left are %+v", left)
	}
}

func TestBackfillAndExplainJob(t *testing.T) {
	c, _ := live(t)
	ctx := t.Context()
	mux := worker.NewMux()
	mux.HandleFunc("daily", func(context.Context, *belfry.Run) error { return nil })
	must[belfry.Job](t)(c.CreateJob(ctx, belfry.Manifest{Name: "daily", Spec: belfry.Spec{Schedule: "0 9 * * *", Timezone: "Europe/Paris"}}))
	order := belfry.Backfill{From: time.Date(2025, 3, 1, 0, 0, 0, 0, time.UTC), To: time.Date(2025, 3, 10, 0, 0, 0, 0, time.UTC), Limit: 4, DryRun: true}
	dry := must[belfry.BackfillResult](t)(c.BackfillJob(ctx, "daily", order))
	if dry.Count != 4 || len(dry.Instants) != 4 || len(dry.RunIDs) != 0 || !dry.More || dry.NextFrom.Day() != 5 || dry.Instants[0].UTC().Hour() != 8 {
		t.Errorf("a dry run: %+v", dry)
	}
	order.DryRun = false
	made := must[belfry.BackfillResult](t)(c.BackfillJob(ctx, "daily", order, client.IdempotencyKey("k")))
	again := must[belfry.BackfillResult](t)(c.BackfillJob(ctx, "daily", order, client.IdempotencyKey("k")))
	if len(made.RunIDs) != 4 || fmt.Sprint(again.RunIDs) != fmt.Sprint(made.RunIDs) {
		t.Fatalf("made %+v, and again %+v", made, again)
	}
	pooled(t, c, mux)
	for i, id := range made.RunIDs {
		if run := settled(t, c, id); run.Status != belfry.RunSucceeded || run.Kind != belfry.KindBackfill || !run.ScheduledAt.Equal(made.Instants[i]) {
			t.Errorf("run %d is %+v", i, run)
		}
	}
	for at, want := range map[string]string{
		"2025-03-02 09:00":          "09:00",
		"2025-03-02T08:00:00Z":      "09:00",
		"2126-03-02 09:05":          "09:05",
		"2126-03-02T09:00:00+01:00": "09:00",
		"":                          "",
	} {
		why, err := c.ExplainJob(ctx, "daily", at)
		if err != nil || why.Sentence == "" || why.Decision == "" || !strings.Contains(why.Sentence, want) || why.Rule.Timezone != "Europe/Paris" {
			t.Errorf("why at %q: %+v, %v", at, why, err)
		}
	}
	if _, err := c.ExplainJob(ctx, "daily", "yesterday"); belfry.CodeOf(err) != belfry.Invalid {
		t.Errorf("why yesterday: %v", err)
	}
	if events := all(t, c.Events(ctx, belfry.EventFilter{Job: "daily"})); len(events) != 0 {
		t.Errorf("there are events: %+v", events)
	}
}
