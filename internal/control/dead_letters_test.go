package control_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

// letters makes so many dead letters of a job, a second apart, and gives the
// latest first.
func (sc *controltest.Scenario) letters(job belfry.Job, n int) (dead []belfry.ID) {
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

func TestWhatAnOrderAboutDeadLettersIsRefusedFor(t *testing.T) {
	controltest.Run(t, "before anything is done", func(sc *controltest.Scenario) {
		job := sc.Create("@yearly")
		dead := sc.letters(job, 1)
		for _, tt := range []struct {
			name        string
			of          control.RedriveOrder
			field, says string
		}{
			{"nothing in common", control.RedriveOrder{}, "filter", "all of them are meant"},
			{"a negative limit", control.RedriveOrder{DeadOrder: control.DeadOrder{All: true, Limit: -1}}, "limit", "0 to 10000"},
			{"too much", control.RedriveOrder{DeadOrder: control.DeadOrder{All: true, Limit: 10_001}}, "limit", "0 to 10000"},
			{"backwards", control.RedriveOrder{DeadOrder: control.DeadOrder{All: true}, Rate: -1}, "rate", "from 0.001 to 1000"},
			{"at once and not", control.RedriveOrder{DeadOrder: control.DeadOrder{All: true}, Rate: 1001}, "rate", "leave it out"},
			{"one payload for all jobs", control.RedriveOrder{DeadOrder: control.DeadOrder{All: true}, Payload: json.RawMessage(`1`)}, "payload", "one job only"},
			{"a payload that is none", control.RedriveOrder{DeadOrder: control.DeadOrder{Run: dead[0]}, Payload: json.RawMessage(`{`)}, "payload", "must be JSON"},
			{"a payload that is none, for many", control.RedriveOrder{
				DeadOrder: control.DeadOrder{Filter: belfry.DeadFilter{Job: job.ID}, DryRun: true}, Payload: json.RawMessage(`{`)}, "payload", "must be JSON"},
		} {
			_, err := sc.Control.Redrive(sc.Context(), ns, tt.of)
			if oneError(sc.T, err, tt.field, tt.says); sc.Failed() {
				sc.Fatal(tt.name)
			}
		}
		_, err := sc.Control.Discard(sc.Context(), ns, control.DeadOrder{})
		oneError(sc.T, err, "filter", "is empty")
		for _, dry := range []bool{false, true} {
			gone := control.DeadOrder{Run: belfry.NewID(time.Now()), DryRun: dry}
			_, err = sc.Control.Redrive(sc.Context(), ns, control.RedriveOrder{DeadOrder: gone})
			codeOf(sc.T, err, belfry.NotFound)
			_, err = sc.Control.Discard(sc.Context(), ns, gone)
			codeOf(sc.T, err, belfry.NotFound)
		}
		if sc.Run(dead[0]).Status != belfry.RunDead {
			sc.Error("the dead letter is none any more")
		}
	})
}

func TestARedrivenRunKeepsItsPast(t *testing.T) {
	controltest.Run(t, "and gets another payload", func(sc *controltest.Scenario) {
		job := sc.Create("*/5 * * * *")
		sc.FireAt("09:00")
		claimed := sc.Claim(1)[0]
		key := claimed.IdempotencyKey()
		sc.Finish(claimed, belfry.OutcomeFailed, func(r *belfry.Result) { r.Permanent = true })
		sc.Edit(job, func(m *belfry.Manifest) { m.Payload = json.RawMessage(`{"b":2}`) })
		letter, err := sc.Control.DeadLetter(sc.Context(), ns, claimed.ID)
		if err != nil || string(letter.Payload) != `{"a":1}` || len(letter.Attempts) != 1 || letter.Fingerprint == "" {
			sc.Fatalf("got %+v, error %v", letter, err)
		}
		done, err := sc.Control.Redrive(sc.Context(), ns, control.RedriveOrder{DeadOrder: control.DeadOrder{Run: claimed.ID}, Payload: json.RawMessage(`{"a": 3}`)})
		if err != nil || done.Matched != 1 || done.Done != 1 || !done.Until.Equal(sc.At("09:00")) {
			sc.Fatalf("got %+v, error %v", done, err)
		}
		again := sc.Claim(1)[0]
		if again.ID != claimed.ID || again.IdempotencyKey() != key || again.Attempt != 2 || again.Revision != 1 || string(again.Payload) != `{"a":3}` {
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

func TestRedrivingByFilter(t *testing.T) {
	for _, tt := range []struct {
		name    string
		order   func(job, other belfry.Job) control.RedriveOrder
		matched int
		done    int
		more    bool
		after   []time.Duration // the redriven ones start, latest death first
	}{
		{"all of a job", func(job, _ belfry.Job) control.RedriveOrder {
			return control.RedriveOrder{DeadOrder: control.DeadOrder{Filter: belfry.DeadFilter{Job: job.ID}}}
		}, 5, 5, false, []time.Duration{0, 0, 0, 0, 0}},
		{"first as a dry run", func(job, _ belfry.Job) control.RedriveOrder {
			return control.RedriveOrder{DeadOrder: control.DeadOrder{Filter: belfry.DeadFilter{Job: job.ID}, DryRun: true}}
		}, 5, 0, false, nil},
		{"at a rate", func(job, _ belfry.Job) control.RedriveOrder {
			return control.RedriveOrder{DeadOrder: control.DeadOrder{Filter: belfry.DeadFilter{Job: job.ID}}, Rate: 2}
		}, 5, 5, false, []time.Duration{2 * time.Second, 1500 * time.Millisecond, time.Second, 500 * time.Millisecond, 0}},
		{"some of them", func(job, _ belfry.Job) control.RedriveOrder {
			return control.RedriveOrder{DeadOrder: control.DeadOrder{Filter: belfry.DeadFilter{Job: job.ID}, Limit: 2}}
		}, 2, 2, true, []time.Duration{0, 0}},
		{"as many as there are", func(job, _ belfry.Job) control.RedriveOrder {
			return control.RedriveOrder{DeadOrder: control.DeadOrder{Filter: belfry.DeadFilter{Job: job.ID}, Limit: 5}}
		}, 5, 5, false, []time.Duration{0, 0, 0, 0, 0}},
		{"some as a dry run", func(job, _ belfry.Job) control.RedriveOrder {
			return control.RedriveOrder{DeadOrder: control.DeadOrder{Filter: belfry.DeadFilter{Job: job.ID}, Limit: 2, DryRun: true}}
		}, 2, 0, true, nil},
		{"all there are", func(_, _ belfry.Job) control.RedriveOrder {
			return control.RedriveOrder{DeadOrder: control.DeadOrder{All: true}}
		}, 6, 6, false, []time.Duration{0, 0, 0, 0, 0}},
		{"none", func(_, _ belfry.Job) control.RedriveOrder {
			return control.RedriveOrder{DeadOrder: control.DeadOrder{Filter: belfry.DeadFilter{Error: "never said"}}}
		}, 0, 0, false, nil},
	} {
		controltest.Run(t, tt.name, func(sc *controltest.Scenario) {
			job := sc.Create("@yearly", func(s *belfry.Spec) { s.Overlap = "parallel" })
			other := sc.Create("@yearly")
			dead := sc.letters(job, 5)
			sc.letters(other, 1)
			now := time.Now().UTC()
			done, err := sc.Control.Redrive(sc.Context(), ns, tt.order(job, other))
			if err != nil || done.Matched != tt.matched || done.Done != tt.done || done.More != tt.more {
				sc.Errorf("got %+v, error %v", done, err)
			}
			if n := len(tt.after); n > 0 && !done.Until.Equal(now.Add(slices.Max(tt.after))) {
				sc.Errorf("the last starts at %s", done.Until)
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

func TestManyDeadLettersArePaged(t *testing.T) {
	controltest.Run(t, "whatever is done takes them away", func(sc *controltest.Scenario) {
		const many = 1100 // more than two pages
		job := sc.Create("@yearly", func(s *belfry.Spec) { s.Overlap = "parallel" })
		order := belfry.Backfill{From: time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC), Limit: 1000}
		sc.Edit(job, func(m *belfry.Manifest) { m.Schedule = "@hourly" })
		for made := 0; made < many; {
			done, err := sc.Control.Backfill(sc.Context(), ns, job.ID.String(), order, none)
			sc.OK(err)
			sc.Fire()
			order.From, order.Limit = done.NextFrom, many-len(done.Runs)
			made += len(done.Runs)
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
		groups, err := sc.Control.DeadGroups(sc.Context(), ns, belfry.DeadFilter{}, 10)
		if err != nil || len(groups) != 1 || groups[0].Count != many || groups[0].Jobs != 1 {
			sc.Errorf("got the groups %+v, error %v", groups, err)
		}
		filter := belfry.DeadFilter{Job: job.ID}
		dry, err := sc.Control.Discard(sc.Context(), ns, control.DeadOrder{Filter: filter, DryRun: true})
		if err != nil || dry.Matched != many || dry.Done != 0 || dry.More {
			sc.Errorf("a dry run: %+v, error %v", dry, err)
		}
		redriven, err := sc.Control.Redrive(sc.Context(), ns, control.RedriveOrder{
			DeadOrder: control.DeadOrder{Filter: filter, Limit: 530}, Payload: json.RawMessage(`[7]`)})
		if err != nil || redriven.Matched != 530 || redriven.Done != 530 || !redriven.More {
			sc.Errorf("redriven: %+v, error %v", redriven, err)
		}
		for _, run := range sc.Claim(530) {
			if string(run.Payload) != `[7]` {
				sc.Fatalf("a run has the payload %s", run.Payload)
			}
		}
		discarded, err := sc.Control.Discard(sc.Context(), ns, control.DeadOrder{Filter: filter})
		if err != nil || discarded.Matched != many-530 || discarded.Done != many-530 || discarded.More {
			sc.Errorf("discarded: %+v, error %v", discarded, err)
		}
		if left, err := sc.Control.DeadLetters(sc.Context(), ns, belfry.DeadFilter{}, store.Page{Limit: 10}); err != nil || len(left) != 0 {
			sc.Errorf("%d are left, error %v", len(left), err)
		}
	})
}
