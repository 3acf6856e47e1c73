package control_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/store"
)

// deadLetters makes so many dead letters of a job, a second apart, and returns the
// latest first.
func deadLetters(sc *controltest.Scenario, job belfry.Job, n int) (dead []belfry.ID) {
	sc.Helper()
	for range n {
		time.Sleep(time.Second)
		sc.Trigger(job)
		sc.Fire()
		dead = append(dead, sc.FailForGood(1)...)
	}
	slices.Reverse(dead)
	return dead
}

func TestRedriveAndDiscardErrors(t *testing.T) {
	controltest.Run(t, "change nothing", func(sc *controltest.Scenario) {
		job := sc.Create("@yearly")
		dead := deadLetters(sc, job, 1)
		for _, tt := range []struct {
			name         string
			request      belfry.Redrive
			field, words string
		}{
			{"an empty filter", belfry.Redrive{}, "filter", "all"},
			{"one payload for all jobs", belfry.Redrive{All: true, RedriveOptions: belfry.RedriveOptions{Payload: json.RawMessage(`1`)}}, "payload", "one job only"},
			{"a payload that is no JSON", belfry.Redrive{RunID: dead[0], RedriveOptions: belfry.RedriveOptions{Payload: json.RawMessage(`{`)}}, "payload", "must be JSON"},
			{"a payload that is no JSON, for many", belfry.Redrive{Filter: belfry.DeadFilter{Job: job.ID.String()}, DryRun: true, RedriveOptions: belfry.RedriveOptions{Payload: json.RawMessage(`{`)}}, "payload", "must be JSON"},
		} {
			_, err := sc.Control.Redrive(sc.Context(), ns, tt.request)
			if oneError(sc.T, err, tt.field, tt.words); sc.Failed() {
				sc.Fatal(tt.name)
			}
		}
		_, err := sc.Control.Discard(sc.Context(), ns, belfry.Discard{})
		oneError(sc.T, err, "filter", "is empty")
		for _, dry := range []bool{false, true} {
			_, err = sc.Control.Redrive(sc.Context(), ns, belfry.Redrive{RunID: belfry.NewID(time.Now()), DryRun: dry})
			codeOf(sc.T, err, belfry.NotFound)
			_, err = sc.Control.Discard(sc.Context(), ns, belfry.Discard{RunID: belfry.NewID(time.Now()), DryRun: dry})
			codeOf(sc.T, err, belfry.NotFound)
			_, err = sc.Control.Discard(sc.Context(), ns, belfry.Discard{Filter: belfry.DeadFilter{Job: "nobody"}, DryRun: dry})
			codeOf(sc.T, err, belfry.NotFound)
		}
		if sc.Run(dead[0]).Status != belfry.RunDead {
			sc.Error("it is no dead letter any more")
		}
	})
}

func TestRedrivenRunKeepsItsHistory(t *testing.T) {
	controltest.Run(t, "and gets another payload", func(sc *controltest.Scenario) {
		job := sc.Create("*/5 * * * *")
		sc.FireAt("09:00")
		claimed := sc.Claim(1)[0]
		key := claimed.Key()
		sc.Finish(claimed, belfry.OutcomeFailed, func(r *belfry.Result) { r.Permanent = true })
		sc.Edit(job, func(m *belfry.Manifest) { m.Payload = json.RawMessage(`{"b":2}`) })
		letter, err := sc.Control.DeadLetter(sc.Context(), ns, claimed.ID)
		if err != nil || string(letter.Payload) != `{"a":1}` || letter.IdempotencyKey != key || len(letter.Attempts) != 1 || letter.Fingerprint == "" {
			sc.Fatalf("got %+v, error %v", letter, err)
		}
		done, err := sc.Control.Redrive(sc.Context(), ns, belfry.Redrive{RunID: claimed.ID, RedriveOptions: belfry.RedriveOptions{Payload: json.RawMessage(`{"a": 3}`)}})
		if err != nil || done.Matched != 1 || done.Done != 1 || !done.LastAt.Equal(sc.At("09:00")) {
			sc.Fatalf("got %+v, error %v", done, err)
		}
		again := sc.Claim(1)[0]
		if again.ID != claimed.ID || again.Key() != key || again.Attempt != 2 || again.Revision != 2 || string(again.Payload) != `{"a":3}` {
			sc.Errorf("got %+v with the payload %s", again, again.Payload)
		}
		if _, err := sc.Control.DeadLetter(sc.Context(), ns, claimed.ID); belfry.CodeOf(err) != belfry.NotFound {
			sc.Errorf("it is still a dead letter: %v", err)
		}
		sc.Finish(again, belfry.OutcomeSucceeded)
		if run := sc.Run(claimed.ID); run.Status != belfry.RunSucceeded || len(run.Attempts) != 1 {
			sc.Errorf("it is %s with %d failed attempts", run.Status, len(run.Attempts))
		}
	})
}

func TestRedriveOfAnEditedJob(t *testing.T) {
	const old, fixed = `{"url":"https://example.com/a","headers":{"Authorization":"expired"},"body":%s}`, `{"url":"https://example.com/b","headers":{"Authorization":"fresh"},"body":%s}`
	for _, tt := range []struct {
		name    string
		own     string // body of the trigger, if it has one
		options belfry.RedriveOptions
		payload string
	}{
		{"uses the fix", "", belfry.RedriveOptions{}, fmt.Sprintf(fixed, "2")},
		{"uses the fix with its own body", "7", belfry.RedriveOptions{}, fmt.Sprintf(fixed, "7")},
		{"uses the fix with another body", "7", belfry.RedriveOptions{Payload: json.RawMessage("8")}, fmt.Sprintf(fixed, "8")},
		{"as it was fired", "", belfry.RedriveOptions{AsFired: true}, fmt.Sprintf(old, "1")},
		{"as it was fired with its own body", "7", belfry.RedriveOptions{AsFired: true}, fmt.Sprintf(old, "7")},
		{"as it was fired with another body", "7", belfry.RedriveOptions{Payload: json.RawMessage("8"), AsFired: true}, fmt.Sprintf(old, "8")},
	} {
		controltest.Run(t, tt.name, func(sc *controltest.Scenario) {
			in := controltest.Input("0 0 1 1 *")
			in.Payload = json.RawMessage(fmt.Sprintf(old, "1"))
			job := controltest.Create(sc.T, sc.Control, in)
			trigger := belfry.Trigger{}
			if tt.own != "" {
				trigger.Payload = json.RawMessage(tt.own)
			}
			result, err := sc.Control.Trigger(sc.Context(), ns, job.ID.String(), trigger, control.Key{})
			sc.OK(err)
			sc.Fire()
			claim := func() *belfry.Run {
				worker := belfry.NewID(time.Now())
				_, err := sc.Store.Heartbeat(sc.Context(), belfry.Heartbeat{WorkerID: worker, Slots: 1, Lanes: []string{"default/http", "other/http"}, Register: true})
				sc.OK(err)
				runs, err := sc.Store.Claim(sc.Context(), belfry.Claim{WorkerID: worker, Lanes: []string{"default/http", "other/http"}, Limit: 1})
				if err != nil || len(runs) != 1 {
					sc.Fatalf("claimed %v, error %v", runs, err)
				}
				return runs[0]
			}
			run := claim()
			_, err = sc.Store.Finish(sc.Context(), []belfry.Result{{Namespace: ns, RunID: run.ID, Attempt: run.Attempt, Token: run.Token, Outcome: belfry.OutcomeFailed, Permanent: true}})
			sc.OK(err)
			sc.Edit(job, func(m *belfry.Manifest) {
				m.Payload, m.Queue, m.TimeoutSeconds = json.RawMessage(fmt.Sprintf(fixed, "2")), "other", 77
			})
			letter, err := sc.Control.DeadLetter(sc.Context(), ns, result.RunID)
			if err != nil || !letter.Edited() || letter.JobRevision != 2 {
				sc.Errorf("the dead letter is %+v, error %v", letter, err)
			}
			edited, revision, timeout := 1, 2, 77*time.Second
			if tt.options.AsFired {
				edited, revision, timeout = 0, 1, 0
			}
			done, err := sc.Control.Redrive(sc.Context(), ns, belfry.Redrive{RunID: result.RunID, RedriveOptions: tt.options})
			if err != nil || done.Done != 1 || done.Edited != edited {
				sc.Errorf("redrove %+v, error %v", done, err)
			}
			again := claim()
			if again.ID != run.ID || again.Revision != revision || again.Attempt != 2 || timeout != 0 && again.Spec.Timeout() != timeout || !jsonEqual(again.Payload, tt.payload) {
				sc.Errorf("it runs as %+v with the payload %s", again, again.Payload)
			}
		})
	}
}

func TestARedriveSendsNoSecretElsewhere(t *testing.T) {
	controltest.Run(t, "of a trigger", func(sc *controltest.Scenario) {
		job := controltest.Create(sc.T, sc.Control, controltest.Input("0 0 1 1 *"))
		result, err := sc.Control.Trigger(sc.Context(), ns, job.ID.String(), belfry.Trigger{Payload: json.RawMessage(`{"token":"s3cr3t"}`)}, control.Key{})
		sc.OK(err)
		sc.Fire()
		worker := belfry.NewID(time.Now())
		_, err = sc.Store.Heartbeat(sc.Context(), belfry.Heartbeat{WorkerID: worker, Slots: 1, Lanes: []string{"default/http"}, Register: true})
		sc.OK(err)
		runs, err := sc.Store.Claim(sc.Context(), belfry.Claim{WorkerID: worker, Lanes: []string{"default/http"}, Limit: 1})
		sc.OK(err)
		_, err = sc.Store.Finish(sc.Context(), []belfry.Result{{Namespace: ns, RunID: result.RunID, Attempt: 1, Token: runs[0].Token, Outcome: belfry.OutcomeFailed, Permanent: true}})
		sc.OK(err)
		sc.Edit(job, func(m *belfry.Manifest) { m.Payload = json.RawMessage(`{"url":"https://example.org/hook"}`) })
		_, err = sc.Control.Redrive(sc.Context(), ns, belfry.Redrive{RunID: result.RunID})
		codeOf(sc.T, err, belfry.Conflict)
		if sc.Run(result.RunID).Status != belfry.RunDead {
			sc.Error("it is no dead letter any more")
		}
	})
}

func jsonEqual(a json.RawMessage, b string) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}

func TestRedriveByFilter(t *testing.T) {
	ofJob := func(job belfry.Job) belfry.DeadFilter { return belfry.DeadFilter{Job: job.ID.String()} }
	for _, tt := range []struct {
		name    string
		request func(job belfry.Job) belfry.Redrive
		matched int
		done    int
		more    bool
		after   []time.Duration // the redriven ones start, latest death first
	}{
		{"all of a job", func(job belfry.Job) belfry.Redrive { return belfry.Redrive{Filter: ofJob(job)} }, 5, 5, false, []time.Duration{0, 0, 0, 0, 0}},
		{"all of a job as a dry run", func(job belfry.Job) belfry.Redrive { return belfry.Redrive{Filter: ofJob(job), DryRun: true} }, 5, 0, false, nil},
		{"all of a job by name", func(belfry.Job) belfry.Redrive { return belfry.Redrive{Filter: belfry.DeadFilter{Job: "many"}} }, 5, 5, false, []time.Duration{0, 0, 0, 0, 0}},
		{"at a rate", func(job belfry.Job) belfry.Redrive { return belfry.Redrive{Filter: ofJob(job), Rate: 2} }, 5, 5, false,
			[]time.Duration{2 * time.Second, 1500 * time.Millisecond, time.Second, 500 * time.Millisecond, 0}},
		{"some of them", func(job belfry.Job) belfry.Redrive { return belfry.Redrive{Filter: ofJob(job), Limit: 2} }, 2, 2, true, []time.Duration{0, 0}},
		{"as many as there are", func(job belfry.Job) belfry.Redrive { return belfry.Redrive{Filter: ofJob(job), Limit: 5} }, 5, 5, false, []time.Duration{0, 0, 0, 0, 0}},
		{"some as a dry run", func(job belfry.Job) belfry.Redrive { return belfry.Redrive{Filter: ofJob(job), Limit: 2, DryRun: true} }, 2, 0, true, nil},
		{"all", func(belfry.Job) belfry.Redrive { return belfry.Redrive{All: true} }, 6, 6, false, []time.Duration{0, 0, 0, 0, 0}},
		{"none", func(belfry.Job) belfry.Redrive { return belfry.Redrive{Filter: belfry.DeadFilter{Error: "never said"}} }, 0, 0, false, nil},
	} {
		controltest.Run(t, tt.name, func(sc *controltest.Scenario) {
			job := sc.Create("@yearly", func(s *belfry.Spec) { s.Overlap = "parallel" })
			sc.Edit(job, func(m *belfry.Manifest) { m.Name = "many" })
			dead := deadLetters(sc, job, 5)
			deadLetters(sc, sc.Create("@yearly"), 1)
			now := time.Now().UTC()
			done, err := sc.Control.Redrive(sc.Context(), ns, tt.request(job))
			if err != nil || done.Matched != tt.matched || done.Done != tt.done || done.More != tt.more {
				sc.Errorf("got %+v, error %v", done, err)
			}
			if n := len(tt.after); n > 0 && !done.LastAt.Equal(now.Add(slices.Max(tt.after))) {
				sc.Errorf("the last starts at %s", done.LastAt)
			}
			for i, id := range dead {
				run := sc.Run(id)
				if i >= len(tt.after) {
					if run.Status != belfry.RunDead {
						sc.Errorf("%d is %s", i, run.Status)
					}
				} else if got := run.ReadyAt.Sub(now); got != tt.after[i] || run.Status == belfry.RunDead {
					sc.Errorf("%d is %s and starts after %s, want %s", i, run.Status, got, tt.after[i])
				}
			}
		})
	}
}

func TestManyDeadLetters(t *testing.T) {
	controltest.Run(t, "are redriven and discarded in pages", func(sc *controltest.Scenario) {
		const many = 1100 // more than two pages
		job := sc.Create("@yearly", func(s *belfry.Spec) { s.Overlap = "parallel" })
		order := belfry.Backfill{From: time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC), Limit: 1000}
		sc.Edit(job, func(m *belfry.Manifest) { m.Schedule = "@hourly" })
		for made := 0; made < many; {
			done, err := sc.Control.Backfill(sc.Context(), ns, job.ID.String(), order, none)
			sc.OK(err)
			sc.Fire()
			order.From, order.Limit = done.NextFrom, many-len(done.RunIDs)
			made += len(done.RunIDs)
		}
		for made := 0; made < many; made += 100 {
			runs := sc.Claim(100)
			results := make([]belfry.Result, len(runs))
			for i, run := range runs {
				results[i] = belfry.Result{RunID: run.ID, Attempt: run.Attempt, Token: run.Token, Outcome: belfry.OutcomeFailed, Error: fmt.Sprint("row ", i), Permanent: true}
			}
			_, err := sc.Control.Finish(sc.Context(), ns, results)
			sc.OK(err)
		}
		groups, err := sc.Control.GroupDeadLetters(sc.Context(), ns, belfry.DeadFilter{}, 10)
		if err != nil || len(groups) != 1 || groups[0].Count != many || groups[0].Jobs != 1 {
			sc.Errorf("got the groups %+v, error %v", groups, err)
		}
		filter := belfry.DeadFilter{Job: job.ID.String()}
		dry, err := sc.Control.Discard(sc.Context(), ns, belfry.Discard{Filter: filter, DryRun: true})
		if err != nil || dry.Matched != many || dry.Done != 0 || dry.More {
			sc.Errorf("a dry run: %+v, error %v", dry, err)
		}
		redriven, err := sc.Control.Redrive(sc.Context(), ns, belfry.Redrive{Filter: filter, Limit: 530, RedriveOptions: belfry.RedriveOptions{Payload: json.RawMessage(`[7]`)}})
		if err != nil || redriven.Matched != 530 || redriven.Done != 530 || !redriven.More {
			sc.Errorf("redriven: %+v, error %v", redriven, err)
		}
		for _, run := range sc.Claim(530) {
			if string(run.Payload) != `[7]` {
				sc.Fatalf("a run has the payload %s", run.Payload)
			}
		}
		discarded, err := sc.Control.Discard(sc.Context(), ns, belfry.Discard{Filter: filter})
		if err != nil || discarded.Matched != many-530 || discarded.Done != many-530 || discarded.More {
			sc.Errorf("discarded: %+v, error %v", discarded, err)
		}
		if left, _, err := sc.Control.ListDeadLetters(sc.Context(), ns, belfry.DeadFilter{}, store.Page{Limit: 10}); err != nil || len(left) != 0 {
			sc.Errorf("%d are left, error %v", len(left), err)
		}
	})
}
