package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

// live gives a client of a real server.
func live(t *testing.T, options ...client.Option) (*client.Client, *server) {
	t.Helper()
	s, err := serve(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return connect(t, s.url, options...), s
}

func connect(t *testing.T, url string, options ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// must ends the test on an error.
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// all collects a list.
func all[T any](t *testing.T, list iter.Seq2[T, error]) (items []T) {
	t.Helper()
	for item, err := range list {
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, item)
	}
	return items
}

var workerJob = belfry.Manifest{Spec: belfry.Spec{Schedule: "0 9 * * *", Timezone: "Europe/Paris", Type: belfry.TypeWorker}, Payload: json.RawMessage(`{"a":1}`)}

func named(name string) belfry.Manifest {
	d := workerJob
	d.Name = name
	return d
}

func TestJobLifecycle(t *testing.T) {
	c, _ := live(t)
	ctx := t.Context()
	const name = "invoices/monthly 100% ü"
	draft := named(name)
	draft.Handler, draft.Tags, draft.MaxRetries, draft.Queue = "send-invoice", []string{"b", "a"}, belfry.Some(0), "mail"
	job := must[belfry.Job](t)(c.CreateJob(ctx, draft))
	if job.Name != name || job.Status != belfry.StatusScheduled || job.MaxRetries.Value() != 0 || job.TimeoutSeconds != 60 || job.NextRunAt == nil ||
		job.Handler != "send-invoice" || !slices.Equal(job.Tags, []string{"a", "b"}) {
		t.Errorf("created %+v", job)
	}
	for _, ref := range []string{name, job.ID.String()} {
		if got := must[belfry.Job](t)(c.Job(ctx, ref)); got.ID != job.ID || string(got.Payload) != `{"a":1}` {
			t.Errorf("%s is %+v", ref, got)
		}
	}

	job, made, err := c.PutJob(ctx, name, draft)
	if err != nil || made || job.Revision != 1 {
		t.Errorf("put what is there: made %v, revision %d, %v", made, job.Revision, err)
	}
	draft.Schedule = "0 10 * * *"
	if job, made, err = c.PutJob(ctx, name, draft); err != nil || made || job.Revision != 2 {
		t.Errorf("put another: made %v, revision %d, %v", made, job.Revision, err)
	}
	if _, made, err = c.PutJob(ctx, "other", workerJob); err != nil || !made {
		t.Errorf("put a new one: made %v, %v", made, err)
	}

	_, version, err := c.JobWithVersion(ctx, name)
	if err != nil || version == "" {
		t.Fatalf("the version is %q, %v", version, err)
	}
	job = must[belfry.Job](t)(c.EditJob(ctx, name, map[string]any{"timeout_seconds": 7, "tags": []string{}}, client.IfMatch(version)))
	if job.TimeoutSeconds != 7 || len(job.Tags) != 0 || job.Schedule != "0 10 * * *" {
		t.Errorf("edited to %+v", job)
	}
	if _, err := c.EditJob(ctx, name, json.RawMessage(`{"timeout_seconds": 8}`), client.IfMatch(version)); belfry.CodeOf(err) != belfry.Changed {
		t.Errorf("an edit of what has changed: %v", err)
	}
	if err := c.DeleteJob(ctx, name, client.IfMatch(version)); belfry.CodeOf(err) != belfry.Changed {
		t.Errorf("a delete of what has changed: %v", err)
	}

	if job = must[belfry.Job](t)(c.PauseJob(ctx, name)); job.Status != belfry.StatusPaused {
		t.Errorf("paused it is %s", job.Status)
	}
	if job = must[belfry.Job](t)(c.ResumeJob(ctx, name, belfry.Resume{})); job.Status != belfry.StatusScheduled {
		t.Errorf("resumed it is %s", job.Status)
	}

	job = must[belfry.Job](t)(c.RollbackJob(ctx, name, 1))
	revisions := all(t, c.Revisions(ctx, name))
	if job.Schedule != "0 9 * * *" || len(revisions) != job.Revision || revisions[0].ReplacedAt != nil || revisions[0].Schedule != job.Schedule ||
		revisions[len(revisions)-1].Number != 1 || revisions[len(revisions)-1].ReplacedAt == nil || string(revisions[0].Payload) != `{"a":1}` {
		t.Errorf("rolled back to %+v with %+v", job, revisions)
	}

	if err := c.DeleteJob(ctx, name); err != nil {
		t.Error(err)
	}
	if _, err := c.Job(ctx, name); belfry.CodeOf(err) != belfry.NotFound {
		t.Errorf("deleted it is %v", err)
	}
	if err := c.DeleteJob(ctx, name); belfry.CodeOf(err) != belfry.NotFound {
		t.Errorf("deleted twice: %v", err)
	}
}

func TestErrorsNameTheirFields(t *testing.T) {
	c, _ := live(t)
	_, err := c.CreateJob(t.Context(), belfry.Manifest{Spec: belfry.Spec{Schedule: "61 * * * *", TimeoutSeconds: -1, Type: belfry.TypeWorker, Handler: "h"}})
	answer, ok := errors.AsType[*client.Error](err)
	if !ok || answer.Status != 422 || answer.Code != belfry.Invalid || answer.RequestID == "" {
		t.Fatalf("got %v", err)
	}
	var fields []string
	for _, f := range answer.Fields {
		fields = append(fields, f.Field)
	}
	if slices.Sort(fields); !slices.Equal(fields, []string{"schedule", "timeout_seconds"}) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

func TestIdempotencyKey(t *testing.T) {
	c, _ := live(t)
	ctx := t.Context()
	first := must[belfry.Job](t)(c.CreateJob(ctx, named("once"), client.IdempotencyKey("k1")))
	again := must[belfry.Job](t)(c.CreateJob(ctx, named("once"), client.IdempotencyKey("k1")))
	if first.ID != again.ID {
		t.Errorf("two jobs: %s and %s", first.ID, again.ID)
	}
	if _, err := c.CreateJob(ctx, named("twice"), client.IdempotencyKey("k1")); belfry.CodeOf(err) != belfry.Invalid {
		t.Errorf("another job under the same key: %v", err)
	}
	run := must[belfry.ID](t)(c.TriggerJob(ctx, "once", nil, client.IdempotencyKey("k2")))
	if same := must[belfry.ID](t)(c.TriggerJob(ctx, "once", nil, client.IdempotencyKey("k2"))); same != run {
		t.Errorf("two runs: %s and %s", run, same)
	}
}

func TestImportAndLists(t *testing.T) {
	c, s := live(t)
	ctx := t.Context()
	const jobs = 3000
	ids := must[[]belfry.ID](t)(c.ImportJobs(ctx, func(yield func(belfry.Manifest, error) bool) {
		for i := range jobs {
			d := named(fmt.Sprintf("job %04d", i))
			d.Handler, d.Tags = "h", []string{fmt.Sprint("mod", i%100), "all"}
			if !yield(d, nil) {
				return
			}
		}
	}))
	if len(ids) != jobs {
		t.Fatalf("made %d of %d jobs", len(ids), jobs)
	}
	if job := must[belfry.Job](t)(c.Job(ctx, "job 1234")); job.ID != ids[1234] {
		t.Error("the ids are not in order")
	}
	seen := map[belfry.ID]bool{}
	for _, job := range all(t, c.Jobs(ctx, belfry.JobFilter{PageSize: 97})) {
		seen[job.ID] = true
	}
	if len(seen) != jobs {
		t.Errorf("listed %d of %d jobs", len(seen), jobs)
	}
	for _, tt := range []struct {
		filter belfry.JobFilter
		want   int
	}{
		{belfry.JobFilter{Tags: []string{"all", "mod7"}}, 30},
		{belfry.JobFilter{Search: "OB 012"}, 10},
		{belfry.JobFilter{Handler: "h", Queue: "default", Type: belfry.TypeWorker, Status: belfry.StatusScheduled, PageSize: 500}, jobs},
		{belfry.JobFilter{Handler: "none"}, 0},
	} {
		if n := len(all(t, c.Jobs(ctx, tt.filter))); n != tt.want {
			t.Errorf("%+v: listed %d, want %d", tt.filter, n, tt.want)
		}
	}

	_, err := c.ImportJobs(ctx, func(yield func(belfry.Manifest, error) bool) {
		_ = yield(named("new"), nil) && yield(belfry.Manifest{Spec: belfry.Spec{Schedule: "never", Type: belfry.TypeWorker, Handler: "h"}}, nil)
	})
	if belfry.CodeOf(err) != belfry.Invalid || !strings.Contains(err.Error(), "line 2.schedule") {
		t.Errorf("a bad line: %v", err)
	}
	if _, err = c.ImportJobs(ctx, func(yield func(belfry.Manifest, error) bool) {
		_ = yield(named("new"), nil) && yield(belfry.Manifest{}, errors.New("the file is broken"))
	}); err == nil || err.Error() != "import jobs: line 2: the file is broken" {
		t.Errorf("a broken sequence: %v", err)
	}
	if _, err := c.Job(ctx, "new"); belfry.CodeOf(err) != belfry.NotFound {
		t.Errorf("half an import was made: %v", err)
	}

	other := connect(t, s.url, client.WithNamespace("other"))
	if n := len(all(t, other.Jobs(ctx, belfry.JobFilter{}))); n != 0 {
		t.Errorf("another namespace has %d jobs", n)
	}
	for _, err := range other.Jobs(ctx, belfry.JobFilter{Status: "odd"}) {
		if belfry.CodeOf(err) != belfry.Invalid {
			t.Errorf("a filter that is wrong: %v", err)
		}
	}
}

// settled waits until a run is over.
func settled(t *testing.T, c *client.Client, id belfry.ID) belfry.Run {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		run := must[belfry.Run](t)(c.Run(ctx, id))
		if run.FinishedAt != nil {
			return run
		}
		time.Sleep(10 * time.Millisecond)
	}
}
