package control_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// lossy does what it is asked but loses the first answers, as a connection that
// breaks after the commit does.
type lossy struct {
	store.Store
	losses int
	before bool // the request is lost already
}

var errCut = errors.New("read tcp 10.0.0.1:5432: connection reset; SELECT secret")

// answer loses an answer, if it is time to.
func (l *lossy) answer(do func() error) error {
	if l.losses == 0 {
		return do()
	}
	l.losses--
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

func (l *lossy) Trigger(ctx context.Context, t plan.Trigger, r *store.Request) error {
	return l.answer(func() error { return l.Store.Trigger(ctx, t, r) })
}

func (l *lossy) Job(ctx context.Context, namespace string, id belfry.ID) (job belfry.Job, err error) {
	err = l.answer(func() error {
		job, err = l.Store.Job(ctx, namespace, id)
		return err
	})
	return job, err
}

// inBubble runs a subtest in which nobody really waits.
func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

func TestALostAnswerChangesNothing(t *testing.T) {
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
			s := &lossy{Store: open(t), before: tt.before}
			c := control.New(s)
			lose := func() { s.losses = tt.losses }

			lose()
			d := draft("@yearly")
			d.Name = "only one"
			job := create(t, c, d)
			if n := count(t, c); n != 1 {
				t.Fatalf("there are %d jobs", n)
			}
			lose()
			if _, err := c.Trigger(t.Context(), ns, job.ID, nil, none); err != nil {
				t.Fatal(err)
			}
			if wishes, err := s.Triggers(t.Context(), []int{0, 1, 2, 3}, 10); err != nil || len(wishes) != 1 {
				t.Fatalf("there are %d triggers, error %v", len(wishes), err)
			}
			lose()
			if paused, err := c.Pause(t.Context(), ns, job.ID); err != nil || paused.Status != belfry.StatusPaused {
				t.Fatalf("status %s, error %v", paused.Status, err)
			}
			lose()
			if err := c.Delete(t.Context(), ns, job.ID, ""); err != nil {
				t.Fatal(err)
			}
			lose()
			_, err := c.Get(t.Context(), ns, job.ID)
			codeOf(t, err, belfry.NotFound)
		})
	}
}

func TestADeadDatabaseIsUnavailable(t *testing.T) { synctest.Test(t, deadDatabase) }

func deadDatabase(t *testing.T) {
	s := &lossy{Store: open(t), losses: 1000, before: true}
	_, err := control.New(s).Create(t.Context(), ns, draft("@daily"), none)
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

func TestNobodyWaitsForACallerWhoLeft(t *testing.T) {
	s := &lossy{Store: open(t), losses: 1000, before: true}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := control.New(s).Trigger(ctx, ns, belfry.NewID(s.Now()), nil, none)
	codeOf(t, err, belfry.Unavailable)
	if tries := 1000 - s.losses; tries != 1 {
		t.Errorf("it was asked %d times", tries)
	}
}
