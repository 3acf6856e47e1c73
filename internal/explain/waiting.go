package explain

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// silentAfter is how long after its last heartbeat a worker counts as gone.
const silentAfter = time.Minute

// live is about a run that is not settled.
func (e *explainer) live(ctx context.Context, t *instant, run belfry.Run) (verdict string, err error) {
	w, err := e.store.RunWait(ctx, t.job.Namespace, run.ID)
	switch {
	case err != nil:
		return "", err
	case w.State != run.Status:
		return "", errChanging
	}
	switch run.Status {
	case belfry.RunRunning:
		t.out.Decision = belfry.DecisionRunning
		verdict = "is running"
		if run.StartedAt != nil {
			verdict = "has been running since " + t.format.seconds(*run.StartedAt)
		}
		verdict += fmt.Sprintf(" (attempt %d).", run.Attempt)
	case belfry.RunRetry:
		t.out.Decision = belfry.DecisionRetrying
		verdict = t.retrying(run)
	case belfry.RunWaiting:
		t.out.Decision = belfry.DecisionWaiting
		verdict, err = e.behind(ctx, t, w)
	default:
		t.out.Decision = belfry.DecisionQueued
		verdict, err = e.queued(ctx, t, run, w)
	}
	if w.Cancel {
		verdict += " It was cancelled: it ends when its worker stops it."
	}
	return verdict, err
}

// retrying is about a run that waits for its next attempt.
func (t *instant) retrying(run belfry.Run) string {
	t.out.WaitsFor = &belfry.Wait{What: belfry.WaitForTime, Until: pointer(run.ReadyAt)}
	next := "the next attempt is at " + t.format.seconds(run.ReadyAt)
	failures, last := 0, belfry.Outcome("")
	for _, a := range run.Attempts {
		if last = a.Outcome; last == belfry.OutcomeFailed || last == belfry.OutcomeTimedOut {
			failures++
		}
	}
	retries := t.spec.MaxRetries.Value()
	switch {
	case last == "":
		return "has not started; it may start at " + t.format.seconds(run.ReadyAt) + "."
	case last == belfry.OutcomeSnoozed:
		return "was snoozed by its handler; " + next + "."
	case t.policy == nil || failures == 0 || failures > retries: // A redriven run has all its retries again.
		return fmt.Sprintf("had %s; %s.", count(len(run.Attempts), "attempt"), next)
	}
	verdict := fmt.Sprintf("failed %d of %d attempts; %s.", failures, retries+1, next)
	if said := lastError(run); said != "" {
		verdict += " The last error was: " + said + "."
	}
	return verdict
}

// behind is about a run that waits for others of its job.
func (e *explainer) behind(ctx context.Context, t *instant, w store.RunWait) (string, error) {
	t.out.WaitsFor = &belfry.Wait{What: belfry.WaitForRun, RunIDs: w.Before}
	policy := " (overlap: " + string(t.spec.Overlap) + ")."
	if len(w.Before) == 0 {
		return "is about to start: it waited for an earlier run of the same job" + policy, nil
	}
	first, err := e.store.Run(ctx, t.job.Namespace, w.Before[0])
	if err != nil {
		return "", err
	}
	verdict := "waits for " + t.format.run(first) + " of the same job, which " + statusVerb(first.Status)
	if more := len(w.Before) - 1; more > 0 {
		verdict += fmt.Sprintf(", and for %d more", more)
	}
	return verdict + policy, nil
}

// statusVerb says what the status of a run is.
func statusVerb(s belfry.RunStatus) string {
	switch s {
	case belfry.RunReady:
		return "is queued"
	case belfry.RunRetry:
		return "waits for its next attempt"
	case belfry.RunWaiting:
		return "waits for an earlier run"
	case belfry.RunSucceeded:
		return "succeeded"
	case belfry.RunSkipped, belfry.RunCancelled, belfry.RunDiscarded:
		return "was " + string(s)
	}
	return "is " + string(s)
}

// queued is about a run that waits for a worker.
func (e *explainer) queued(ctx context.Context, t *instant, run belfry.Run, w store.RunWait) (string, error) {
	workers, err := e.store.Workers(ctx)
	if err != nil {
		return "", err
	}
	queue, handler := belfry.SplitLane(w.Lane)
	wait := &belfry.Wait{What: belfry.WaitForSlot, Queue: queue, Handler: handler, Running: w.Running, Ahead: w.Ahead}
	t.out.WaitsFor = wait
	var lastSeen time.Time // of the latest one that is gone
	shared := false        // with other queues or handlers
	for _, one := range workers {
		switch {
		case !slices.Contains(one.Lanes, w.Lane):
		case t.now.Sub(one.LastSeen) > silentAfter:
			if one.LastSeen.After(lastSeen) {
				lastSeen = one.LastSeen
			}
		default:
			wait.Workers++
			wait.Slots += one.Slots
			shared = shared || len(one.Lanes) > 1
		}
	}
	if wait.Workers == 0 {
		wait.What = belfry.WaitForWorker
		verdict := fmt.Sprintf("is queued: no worker serves handler %s in queue %s", handler, queue)
		if !lastSeen.IsZero() {
			verdict += "; the last one that did was seen at " + t.format.seconds(lastSeen)
		}
		return verdict + ".", nil
	}
	return "is queued: " + slots(wait, shared && t.now.Sub(run.ReadyAt) > noticeable), nil
}

// slots is about workers that may also be busy with runs that are not counted here.
func slots(w *belfry.Wait, busyElsewhere bool) string {
	serving := fmt.Sprintf("%s that serve %s/%s", count(w.Workers, "worker"), w.Queue, w.Handler)
	if w.Workers == 1 {
		serving = fmt.Sprintf("the worker that serves %s/%s", w.Queue, w.Handler)
	}
	ahead := "no run is ahead of it"
	switch {
	case w.Ahead == 1:
		ahead = "1 run is ahead of it"
	case w.Ahead > 1:
		ahead = fmt.Sprintf("%d runs are ahead of it", w.Ahead)
	}
	switch {
	case w.Slots == 0 && w.Workers == 1:
		return fmt.Sprintf("%s has no slots; %s.", serving, ahead)
	case w.Slots == 0:
		return fmt.Sprintf("%s have no slots; %s.", serving, ahead)
	case w.Running >= w.Slots && w.Slots == 1:
		return fmt.Sprintf("the only slot of %s is busy; %s.", serving, ahead)
	case w.Running >= w.Slots:
		return fmt.Sprintf("all %d slots of %s are busy; %s.", w.Slots, serving, ahead)
	case busyElsewhere:
		return fmt.Sprintf("%d of %s of %s are busy with this handler, and others may be busy with other queues and handlers; %s.",
			w.Running, count(w.Slots, "slot"), serving, ahead)
	}
	return fmt.Sprintf("%s, and %d of %s of %s are busy; it starts as soon as one of them claims it.", ahead, w.Running, count(w.Slots, "slot"), serving)
}
