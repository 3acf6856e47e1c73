package control_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// lossy does what it is asked but loses the first answers, as a connection that
// breaks after the commit does.
type lossy struct {
	store.Store
	mu     sync.Mutex
	losses int
	before bool // the request is lost already
}

var errCut = errors.New("read tcp 10.0.0.1:5432: connection reset; SELECT secret")

// answer loses an answer, if it is time to.
func (l *lossy) answer(do func() error) error {
	l.mu.Lock()
	lost := l.losses > 0
	if lost {
		l.losses--
	}
	l.mu.Unlock()
	if !lost {
		return do()
	}
	if !l.before {
		do()
	}
	return errCut
}

func (l *lossy) CreateJobs(ctx context.Context, jobs iter.Seq2[store.NewJob, error], r *store.Request) error {
	return l.answer(func() error { return l.Store.CreateJobs(ctx, jobs, r) })
}

func (l *lossy) EditJob(ctx context.Context, namespace string, id belfry.ID, edit store.Edit) (job belfry.Job, err error) {
	err = l.answer(func() error {
		job, err = l.Store.EditJob(ctx, namespace, id, edit)
		return err
	})
	return job, err
}

func (l *lossy) Trigger(ctx context.Context, list []plan.Trigger, r *store.Request) error {
	return l.answer(func() error { return l.Store.Trigger(ctx, list, r) })
}

func (l *lossy) Job(ctx context.Context, namespace string, id belfry.ID) (job belfry.Job, err error) {
	err = l.answer(func() error {
		job, err = l.Store.Job(ctx, namespace, id)
		return err
	})
	return job, err
}

func (l *lossy) Redrive(ctx context.Context, namespace string, list []store.Redrive) (n int, err error) {
	err = l.answer(func() error {
		n, err = l.Store.Redrive(ctx, namespace, list)
		return err
	})
	return n, err
}

func (l *lossy) Discard(ctx context.Context, namespace string, runs []belfry.ID) (n int, err error) {
	err = l.answer(func() error {
		n, err = l.Store.Discard(ctx, namespace, runs)
		return err
	})
	return n, err
}

func (l *lossy) Cancel(ctx context.Context, namespace string, run belfry.ID) error {
	return l.answer(func() error { return l.Store.Cancel(ctx, namespace, run) })
}

func TestUnknownOutcomeOfJobs(t *testing.T) {
	for _, tt := range []struct {
		name   string
		losses int
		before bool
	}{
		{"the first answer is lost", 1, false},
		{"the first two answers are lost", 2, false},
		{"the first request is lost", 1, true},
	} {
		inBubble(t, tt.name, func(t *testing.T) {
			s := &lossy{Store: controltest.Open(t), before: tt.before}
			c := control.New(s, plan.Defaults{})
			lose := func() { s.losses = tt.losses }

			lose()
			d := controltest.Input("@yearly")
			d.Name = "only one"
			job := controltest.Create(t, c, d)
			if n := count(t, c); n != 1 {
				t.Fatalf("there are %d jobs", n)
			}
			lose()
			if _, err := c.Trigger(t.Context(), ns, job.ID.String(), belfry.Trigger{}, none); err != nil {
				t.Fatal(err)
			}
			if pending, err := s.PendingTriggers(t.Context(), []int{0, 1, 2, 3}, nil, 10); err != nil || len(pending) != 1 {
				t.Fatalf("there are %d triggers, error %v", len(pending), err)
			}
			lose()
			if paused, err := c.Pause(t.Context(), ns, job.ID.String()); err != nil || paused.Status != belfry.StatusPaused {
				t.Fatalf("status %s, error %v", paused.Status, err)
			}
			lose()
			if err := c.Delete(t.Context(), ns, job.ID.String(), "", control.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			lose()
			_, err := c.Get(t.Context(), ns, job.ID.String())
			codeOf(t, err, belfry.NotFound)
		})
	}
}

func TestUnknownOutcomeOfRuns(t *testing.T) {
	for _, before := range []bool{false, true} {
		controltest.Run(t, fmt.Sprintf("the request is lost: %v", before), func(sc *controltest.Scenario) {
			s := &lossy{Store: sc.Store, before: before}
			c := control.New(s, plan.Defaults{})
			job := sc.Create("@yearly", func(s *belfry.Spec) { s.Overlap = "parallel" })
			dead := deadLetters(sc, job, 4)

			s.losses = 2
			done, err := c.Redrive(sc.Context(), ns, belfry.Redrive{RunID: dead[0]})
			if err != nil || done.Done != 1 || sc.Run(dead[0]).Status != belfry.RunReady {
				sc.Errorf("redriven: %+v, error %v, the run is %s", done, err, sc.Run(dead[0]).Status)
			}
			s.losses = 2
			done, err = c.Discard(sc.Context(), ns, belfry.Discard{All: true, Limit: 2})
			if err != nil || done.Done != 2 || !done.More || sc.Run(dead[1]).Status != belfry.RunDiscarded || sc.Run(dead[3]).Status != belfry.RunDead {
				sc.Errorf("discarded: %+v, error %v", done, err)
			}
			s.losses = 2
			run, err := c.CancelRun(sc.Context(), ns, dead[0])
			if err != nil || run.Status != belfry.RunCancelled {
				sc.Errorf("cancelled: %s, error %v", run.Status, err)
			}
			s.losses = 2
			filled, err := c.Backfill(sc.Context(), ns, job.ID.String(), belfry.Backfill{From: sc.At("1999-12-31 00:00")}, none)
			if pending, _ := sc.Store.PendingTriggers(sc.Context(), controltest.Shards, nil, 10); err != nil || len(filled.RunIDs) != 1 || len(pending) != 1 {
				sc.Errorf("backfilled: %+v, %d pending, error %v", filled, len(pending), err)
			}
			s.losses = 2
			if after, err := c.CancelJob(sc.Context(), ns, job.ID.String()); err != nil || after.NextRunAt != nil {
				sc.Errorf("next run at %v, error %v", after.NextRunAt, err)
			}
		})
	}
}

func TestDatabaseThatDoesNotAnswerIsUnavailable(t *testing.T) { synctest.Test(t, noDatabase) }

func noDatabase(t *testing.T) {
	s := &lossy{Store: controltest.Open(t), losses: 1000, before: true}
	_, err := control.New(s, plan.Defaults{}).Create(t.Context(), ns, controltest.Input("@daily"), none)
	codeOf(t, err, belfry.Unavailable)
	if !errors.Is(err, errCut) {
		t.Errorf("the cause is lost: %v", err)
	}
	var shown *belfry.Error
	if !errors.As(err, &shown) || strings.Contains(shown.Error(), "SELECT") {
		t.Errorf("the cause is shown: %v", shown)
	}
	if tries := 1000 - s.losses; tries != 3 {
		t.Errorf("it was asked %d times", tries)
	}
}

func TestUnknownOutcomeIsNotRepeatedForACallerThatLeft(t *testing.T) {
	s := &lossy{Store: controltest.Open(t), losses: 1000, before: true}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := control.New(s, plan.Defaults{}).Trigger(ctx, ns, belfry.NewID(s.Now()).String(), belfry.Trigger{}, none)
	codeOf(t, err, belfry.Unavailable)
	if tries := 1000 - s.losses; tries != 1 {
		t.Errorf("it was asked %d times", tries)
	}
}
