package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// silent is how long after its last heartbeat a worker counts as one that serves
// nobody.
const silent = time.Minute

// wait asks what a live run waits for; NotFound if it is over.
func (q *inquiry) wait(ctx context.Context, run belfry.ID) (w store.Wait, err error) {
	err = insist(ctx, "look up what a run waits for", func() error {
		w, err = q.c.store.Wait(ctx, q.job.Namespace, run)
		return err
	})
	return w, err
}

// retries tells of a run that waits for its next attempt.
func (q *inquiry) retries(run belfry.Run) string {
	q.Waits = &belfry.Wait{What: belfry.WaitForTime, Until: given(run.ReadyAt)}
	next := "the next attempt is at " + q.words.moment(run.ReadyAt)
	failures, last := 0, belfry.Outcome("")
	for _, a := range run.Attempts {
		if last = a.Outcome; last == belfry.OutcomeFailed || last == belfry.OutcomeTimedOut {
			failures++
		}
	}
	switch {
	case last == "":
		return "has not started yet; it may at " + q.words.moment(run.ReadyAt) + "."
	case last == belfry.OutcomeSnoozed:
		return "was put off by its handler; " + next + "."
	case q.policy == nil || failures == 0 || failures > q.policy.MaxRetries: // It was redriven, and has all its retries again.
		return fmt.Sprintf("had %s; %s.", number(len(run.Attempts), "attempt"), next)
	}
	what := fmt.Sprintf("failed %d of %d attempts; %s.", failures, q.policy.MaxRetries+1, next)
	if said := lastError(run); said != "" {
		what += " The last error was: " + said + "."
	}
	return what
}

// queues tells of a run that waits for others of its job.
func (q *inquiry) queues(ctx context.Context, w store.Wait) (string, error) {
	q.Waits = &belfry.Wait{What: belfry.WaitForRun, Runs: w.Before}
	how := " (overlap: " + string(q.spec().Overlap) + ")."
	if len(w.Before) == 0 {
		return "is about to start: it waited for an earlier run of the same job" + how, nil
	}
	first, err := q.c.Run(ctx, q.job.Namespace, w.Before[0])
	if err != nil {
		return "", err
	}
	what := "waits for " + q.words.runOf(first) + " of the same job, which " + stateVerb(first.Status)
	if more := len(w.Before) - 1; more > 0 {
		what += fmt.Sprintf(", and for %d more", more)
	}
	return what + how, nil
}

// stateVerb says of a run what its state is.
func stateVerb(s belfry.RunStatus) string {
	switch s {
	case belfry.RunReady:
		return "is queued"
	case belfry.RunRetry:
		return "is to be tried again"
	case belfry.RunSucceeded:
		return "succeeded"
	case belfry.RunSkipped, belfry.RunCancelled, belfry.RunDiscarded:
		return "was " + string(s)
	}
	return "is " + string(s)
}

// ready tells of a run that waits for a worker.
func (q *inquiry) ready(ctx context.Context, run belfry.Run, w store.Wait) (string, error) {
	var workers []store.Worker
	err := insist(ctx, "list workers", func() (err error) {
		workers, err = q.c.store.Workers(ctx)
		return err
	})
	if err != nil {
		return "", err
	}
	queue, handler := laneParts(w.Lane)
	q.Waits = &belfry.Wait{What: belfry.WaitForSlot, Queue: queue, Handler: handler, Running: w.Running, Ahead: w.Ahead}
	var seen time.Time // of the latest that fell silent
	shared := false
	for _, one := range workers {
		switch {
		case !slices.Contains(one.Lanes, w.Lane):
		case q.now.Sub(one.LastSeen) > silent:
			seen = later(seen, one.LastSeen)
		default:
			q.Waits.Workers++
			q.Waits.Slots += one.Slots
			shared = shared || len(one.Lanes) > 1
		}
	}
	if q.Waits.Workers == 0 {
		q.Waits.What = belfry.WaitForWorker
		what := fmt.Sprintf("is queued: no worker serves handler %s in queue %s", handler, queue)
		if !seen.IsZero() {
			what += "; the last that did was heard of at " + q.words.moment(seen)
		}
		return what + ".", nil
	}
	return "is queued: " + slotsOf(q.Waits, shared && q.now.Sub(run.ReadyAt) > noticeable), nil
}

// slotsOf tells of workers that are there, and may also be busy with what is not
// counted here.
func slotsOf(w *belfry.Wait, elsewhere bool) string {
	serve := fmt.Sprintf("%s that serve %s/%s", number(w.Workers, "worker"), w.Queue, w.Handler)
	if w.Workers == 1 {
		serve = fmt.Sprintf("the worker that serves %s/%s", w.Queue, w.Handler)
	}
	first := "no run comes first"
	switch {
	case w.Ahead == 1:
		first = "1 run comes first"
	case w.Ahead > 1:
		first = fmt.Sprintf("%d runs come first", w.Ahead)
	}
	switch {
	case w.Slots == 0 && w.Workers == 1:
		return fmt.Sprintf("%s has no slots; %s.", serve, first)
	case w.Slots == 0:
		return fmt.Sprintf("%s have no slots; %s.", serve, first)
	case w.Running >= w.Slots && w.Slots == 1:
		return fmt.Sprintf("the only slot of %s is busy; %s.", serve, first)
	case w.Running >= w.Slots:
		return fmt.Sprintf("all %d slots of %s are busy; %s.", w.Slots, serve, first)
	case elsewhere:
		return fmt.Sprintf("%d of %s of %s are busy with its kind, and the others may be with other queues and handlers; %s.",
			w.Running, number(w.Slots, "slot"), serve, first)
	}
	return fmt.Sprintf("%s, and %d of %s of %s are busy; it starts as soon as one of them takes it.", first, w.Running, number(w.Slots, "slot"), serve)
}

// laneParts takes a lane apart, without the namespace that one of a user's own
// handlers has.
func laneParts(lane string) (queue, handler string) {
	if _, own, found := strings.Cut(lane, ":"); found {
		lane = own
	}
	queue, handler, _ = strings.Cut(lane, "/")
	return queue, handler
}
