package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	noticeable  = time.Minute // how late a run may be fired without being called late
	silentAfter = time.Minute // how long after its last heartbeat a worker counts as gone
	maxCounted  = 100_000     // the count of a record that stands for at least so many
)

// requestedRuns begins the sentence about a run that was requested.
var requestedRuns = map[belfry.RunKind]string{belfry.KindManual: "The manual run of ", belfry.KindBackfill: "The backfill of "}

// decisions are what was decided for an instant, by the status of its run.
var decisions = map[belfry.RunStatus]belfry.Decision{
	belfry.RunReady: belfry.DecisionQueued, belfry.RunRunning: belfry.DecisionRunning, belfry.RunRetry: belfry.DecisionRetrying, belfry.RunWaiting: belfry.DecisionWaiting,
	belfry.RunSucceeded: belfry.DecisionRan, belfry.RunDead: belfry.DecisionDead, belfry.RunDiscarded: belfry.DecisionDiscarded,
	belfry.RunSkipped: belfry.DecisionSkipped, belfry.RunCancelled: belfry.DecisionCancelled,
}

// recorded explains an instant by its record and the others of the same instant.
func (t *instant) recorded(ctx context.Context, record belfry.Run, others []belfry.Run) (belfry.Explanation, error) {
	run := record
	if record.Status != belfry.RunSkipped {
		var err error
		if run, err = t.store.Run(ctx, t.job.Namespace, record.ID); err != nil {
			return belfry.Explanation{}, err
		}
	}
	t.out.Run, t.out.Reason, t.out.Decision = &run, run.Reason, decisions[run.Status]
	verdict, err := t.verdict(ctx, run)
	if err != nil {
		return belfry.Explanation{}, err
	}
	t.out.Sentence = requestedRuns[run.Kind] + t.format.full(t.at) + " " + verdict
	if i := slices.IndexFunc(others, func(r belfry.Run) bool { return r.Kind == belfry.KindBackfill }); i >= 0 {
		t.out.Sentence += " It was backfilled too: that run " + statusVerb(others[i].Status) + "."
	}
	return t.out, nil
}

// verdict says what became of a run or skip.
func (t *instant) verdict(ctx context.Context, run belfry.Run) (string, error) {
	switch run.Status {
	case belfry.RunSucceeded:
		return t.succeeded(run), nil
	case belfry.RunDead:
		return t.died(run) + " It is a dead letter until it is redriven or discarded.", nil
	case belfry.RunDiscarded:
		return t.died(run) + " The dead letter was discarded.", nil
	case belfry.RunCancelled:
		return t.cancelled(run), nil
	case belfry.RunSkipped:
		return t.skipped(ctx, run)
	}
	return t.live(ctx, run)
}

func (t *instant) succeeded(run belfry.Run) string {
	verdict := "ran: it succeeded"
	if run.FinishedAt != nil {
		verdict += " at " + t.format.seconds(*run.FinishedAt)
	}
	if run.Attempt > 1 {
		verdict += fmt.Sprintf(" in attempt %d", run.Attempt)
	}
	verdict += "."
	if late := run.FiredAt.Sub(run.ReadyAt); late >= noticeable && run.Kind == belfry.KindScheduled && run.Attempt <= 1 {
		verdict += fmt.Sprintf(" It was fired at %s, %s late.", t.format.seconds(run.FiredAt), duration(late))
	}
	return verdict
}

// died is about a dead letter, or one that was discarded.
func (t *instant) died(run belfry.Run) string {
	verdict := "ran and failed"
	if run.FinishedAt != nil && run.Status == belfry.RunDead {
		verdict += " at " + t.format.seconds(*run.FinishedAt)
	}
	switch run.Reason {
	case belfry.ReasonPoison:
		verdict += fmt.Sprintf(": %d workers in a row were lost while they ran it", belfry.PoisonLimit)
	case belfry.ReasonPermanent:
		verdict += ": retries cannot fix the failure, after " + count(run.Attempt, "attempt")
	default:
		verdict += ": it is out of retries after " + count(run.Attempt, "attempt")
	}
	if said := lastError(run); said != "" {
		verdict += "; the last error was: " + said
	}
	return verdict + "."
}

func lastError(run belfry.Run) string {
	text, status := run.Error, run.HTTPStatus
	if n := len(run.Attempts); text == "" && status == 0 && n > 0 {
		text, status = run.Attempts[n-1].Error, run.Attempts[n-1].HTTPStatus
	}
	if text == "" && status != 0 {
		return fmt.Sprintf("HTTP status %d", status)
	}
	return quote(text)
}

func (t *instant) cancelled(run belfry.Run) string {
	verdict := "was cancelled"
	if run.FinishedAt != nil {
		verdict += " at " + t.format.seconds(*run.FinishedAt)
	}
	if run.Attempt == 0 {
		return verdict + ", before it started."
	}
	return verdict + fmt.Sprintf(", after it started (attempt %d).", run.Attempt)
}

func (t *instant) skipped(ctx context.Context, skip belfry.Run) (string, error) {
	if skip.Reason == belfry.ReasonDSTGap {
		return t.gap(skip), nil
	}
	reason, err := t.skipReason(ctx, skip)
	if err != nil {
		return "", err
	}
	verdict := "was skipped: " + reason + "."
	if skip.SkippedCount > 1 && skip.SkippedTo != nil {
		number := fmt.Sprint(skip.SkippedCount)
		if skip.SkippedCount >= maxCounted {
			number = "At least " + number
		}
		verdict += fmt.Sprintf(" %s occurrences from %s to %s share this record.", number, t.format.short(skip.ScheduledAt), t.format.short(*skip.SkippedTo))
	}
	return verdict, nil
}

func (t *instant) skipReason(ctx context.Context, skip belfry.Run) (string, error) {
	switch skip.Reason {
	case belfry.ReasonOverlap:
		return t.overlap(ctx, skip)
	case belfry.ReasonQueueFull:
		limit := t.spec.QueueLimit()
		return fmt.Sprintf("%s waited for an earlier one already, which is the limit (overlap: queue, max_queued: %d)", count(limit, "run"), limit), nil
	case belfry.ReasonMissed:
		return t.missed(ctx, skip)
	case belfry.ReasonMaxMissed:
		return fmt.Sprintf("%s, and more occurrences were missed than max_missed allows (missed_window: run_all catches up on the newest %d)",
			outage(skip), t.spec.MissedLimit()), nil
	case belfry.ReasonPaused:
		return "the job was paused", nil
	case belfry.ReasonEdited:
		return "the schedule was edited before it started, and the new one does not include it", nil
	case belfry.ReasonCancelled:
		return "the job was cancelled before it was due", nil
	case belfry.ReasonDeleted:
		return "the job was deleted first", nil
	case belfry.ReasonDuplicateKey:
		return fmt.Sprintf("another run of the job with the same idempotency key was alive or had succeeded in the last 7 days (idempotency_key_template: %s)",
			t.spec.IdempotencyKeyTemplate), nil
	case belfry.ReasonZoneChange:
		return "newer time-zone data moved it to another instant", nil
	}
	return "the reason is " + string(skip.Reason), nil
}

// overlap names the run that was alive.
func (t *instant) overlap(ctx context.Context, skip belfry.Run) (string, error) {
	const enough = 50 // runs and skips that may lie between
	runs, _, err := t.store.JobRuns(ctx, t.job.Namespace, t.job.ID, belfry.JobRunFilter{}, store.Page{After: store.Position{At: skip.FiredAt.Add(time.Microsecond)}, Limit: enough})
	if err != nil {
		return "", err
	}
	policy := " (overlap: " + string(t.spec.Overlap) + ")"
	for _, r := range runs {
		finished := r.FinishedAt != nil && r.FinishedAt.Before(skip.FiredAt)
		if r.ID == skip.ID || r.Status == belfry.RunSkipped || finished || r.FiredAt.IsZero() || r.FiredAt.After(skip.FiredAt) {
			continue
		}
		if r.StartedAt == nil || r.StartedAt.After(skip.FiredAt) {
			return t.format.run(r) + " had not finished" + policy, nil
		}
		return t.format.run(r) + " was still running" + policy, nil
	}
	return "an earlier run of the job had not finished" + policy, nil
}

// outage says when no scheduler was running, if the scheduler that decided knew it.
func outage(skip belfry.Run) string { return cmp.Or(skip.Error, "no scheduler was running") }

func (t *instant) missed(ctx context.Context, skip belfry.Run) (string, error) {
	cause := outage(skip)
	switch {
	case t.policy == nil:
		return cause, nil
	case t.spec.MissedWindow == belfry.MissedSkip:
		return cause + " (missed_window: skip does not catch up)", nil
	case t.spec.MissedWindow == belfry.MissedRunOnce:
		latest, err := t.caughtUp(ctx, skip)
		if err != nil {
			return "", err
		}
		if !latest.IsZero() {
			return fmt.Sprintf("%s (missed_window: run_once catches up on the latest only, which was %s)", cause, t.format.short(latest)), nil
		}
	}
	window := t.policy.CatchUpWindow()
	if window == 0 {
		return cause + ", and it was too old to catch up (catch_up_window_seconds)", nil
	}
	return fmt.Sprintf("%s, and it was older than %s, the limit for catching up (catch_up_window_seconds)", cause, duration(window)), nil
}

// caughtUp is the occurrence after those of a skip, if the same decision ran it.
func (t *instant) caughtUp(ctx context.Context, skip belfry.Run) (time.Time, error) {
	last := skip.ScheduledAt
	if skip.SkippedTo != nil {
		last = *skip.SkippedTo
	}
	next := t.policy.Rule.Next(last)
	if next.IsZero() {
		return time.Time{}, nil
	}
	records, err := t.store.RunsAt(ctx, t.job.Namespace, t.job.ID, next)
	if !slices.ContainsFunc(records, func(r belfry.Run) bool {
		return r.Kind == belfry.KindScheduled && r.ScheduledAt.Equal(next) && r.FiredAt.Equal(skip.FiredAt)
	}) {
		return time.Time{}, err
	}
	return next, err
}

func (t *instant) live(ctx context.Context, run belfry.Run) (verdict string, err error) {
	w, err := t.store.RunWait(ctx, t.job.Namespace, run.ID)
	switch {
	case err != nil:
		return "", err
	case w.State != run.Status:
		return "", errChanging
	}
	switch run.Status {
	case belfry.RunRunning:
		verdict = "is running"
		if run.StartedAt != nil {
			verdict = "has been running since " + t.format.seconds(*run.StartedAt)
		}
		verdict += fmt.Sprintf(" (attempt %d).", run.Attempt)
	case belfry.RunRetry:
		verdict = t.retrying(run)
	case belfry.RunWaiting:
		verdict, err = t.behind(ctx, w)
	default:
		verdict, err = t.queued(ctx, run, w)
	}
	if w.Cancel {
		verdict += " It was cancelled: it ends when its worker stops it."
	}
	return verdict, err
}

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
func (t *instant) behind(ctx context.Context, w store.RunWait) (string, error) {
	t.out.WaitsFor = &belfry.Wait{What: belfry.WaitForRun, RunIDs: w.Before}
	policy := " (overlap: " + string(t.spec.Overlap) + ")."
	if len(w.Before) == 0 {
		return "is about to start: it waited for an earlier run of the same job" + policy, nil
	}
	first, err := t.store.Run(ctx, t.job.Namespace, w.Before[0])
	if err != nil {
		return "", err
	}
	verdict := "waits for " + t.format.run(first) + " of the same job, which " + statusVerb(first.Status)
	if more := len(w.Before) - 1; more > 0 {
		verdict += fmt.Sprintf(", and for %d more", more)
	}
	return verdict + policy, nil
}

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

func (t *instant) queued(ctx context.Context, run belfry.Run, w store.RunWait) (string, error) {
	workers, err := t.store.Workers(ctx)
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
		case !belfry.ServesLane(one.Lanes, w.Lane):
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
	serving, have := fmt.Sprintf("%d workers that serve %s/%s", w.Workers, w.Queue, w.Handler), "have"
	if w.Workers == 1 {
		serving, have = fmt.Sprintf("the worker that serves %s/%s", w.Queue, w.Handler), "has"
	}
	ahead := "no run is ahead of it"
	switch {
	case w.Ahead == 1:
		ahead = "1 run is ahead of it"
	case w.Ahead > 1:
		ahead = fmt.Sprintf("%d runs are ahead of it", w.Ahead)
	}
	switch {
	case w.Slots == 0:
		return fmt.Sprintf("%s %s no slots; %s.", serving, have, ahead)
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
