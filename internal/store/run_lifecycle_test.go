package store_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// lifecycle is one run and what should be known of it.
type lifecycle struct {
	f      *fixture
	id     belfry.ID
	spec   belfry.Spec
	worker belfry.ID

	state  belfry.RunStatus
	counts belfry.AttemptCounts
	held   *belfry.Run    // the attempt that holds it
	past   []endedAttempt // those that have ended
}

// Whatever workers, reapers and users do to a run, and in whatever order their
// words arrive, it ends once.
func TestARunEndsOnce(t *testing.T) {
	t.Parallel()
	for _, b := range backends[:2] {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			f := open(t, b)
			rapid.Check(t, func(t *rapid.T) {
				f.deleteAll(t)
				l := f.newLifecycle(t)
				t.Repeat(map[string]func(*rapid.T){
					"claim": l.claim, "finish": l.finish, "finish again": l.finishLate, "forge": l.finishForged, "promote": l.promote,
					"pass the deadline": l.passDeadline, "lose the worker": l.loseWorker, "cancel": l.cancel, "pass the grace": l.passGrace,
					"redrive": l.redrive, "discard": l.discard, "": l.compare,
				})
				l.settle(t)
				checkInvariants(t, f)
			})
		})
	}
}

// newLifecycle makes a job with one run.
func (f *fixture) newLifecycle(t *rapid.T) *lifecycle {
	job := f.createJob(t, 1, withRetries(rapid.IntRange(0, 2).Draw(t, "retries")), withBase(0), func(j *belfry.Job) {
		j.Overlap = pick(t, []belfry.Overlap{belfry.OverlapSkip, belfry.OverlapQueue, belfry.OverlapParallel}, "overlap")
		if rapid.Bool().Draw(t, "once") {
			j.Schedule = f.minutesAgo(1).Format(time.RFC3339)
		}
	})
	step := f.step(t, job)
	f.fire(t, step)
	return &lifecycle{f: f, id: step.Runs[0].ID, spec: job.Spec, worker: f.registerWorker(t), state: belfry.RunReady}
}

// settleHeld is what the end of the attempt that holds the run makes of it.
func (l *lifecycle) settleHeld(r belfry.Result) {
	s := belfry.Settle(l.id, l.counts, l.spec.Retry(), r)
	l.state, l.counts = s.State, s.Counts
	l.past = append(l.past, endedAttempt{l.held, r.Outcome})
	l.held = nil
}

func (l *lifecycle) claim(t *rapid.T) {
	runs := l.f.claim(t, l.worker, 1)
	if (len(runs) == 1) != (l.state == belfry.RunReady) {
		t.Fatalf("of a run that is %s %d were claimed", l.state, len(runs))
	}
	if len(runs) == 1 {
		if l.held = runs[0]; l.held.Attempt != len(l.past)+1 {
			t.Fatalf("after %d attempts there is number %d", len(l.past), l.held.Attempt)
		}
		l.state = belfry.RunRunning
	}
}

func (l *lifecycle) finish(t *rapid.T) {
	if l.held == nil {
		t.Skip("no worker holds it")
	}
	r := anyResult(t, l.held)
	if v := l.f.finish(t, r)[0]; v != belfry.VerdictAccepted {
		t.Fatalf("the result of the attempt that holds the run is %s", v)
	}
	l.settleHeld(r)
}

// finishLate repeats an attempt that has ended, in the same way or in another.
func (l *lifecycle) finishLate(t *rapid.T) {
	if len(l.past) == 0 {
		t.Skip("no attempt has ended")
	}
	past, want := pick(t, l.past, "attempt"), belfry.VerdictLate
	r := anyResult(t, past.run)
	if r.Outcome == past.outcome {
		want = belfry.VerdictAccepted
	}
	if v := l.f.finish(t, r)[0]; v != want {
		t.Fatalf("%s of an attempt that ended as %s is %s, wants %s", r.Outcome, past.outcome, v, want)
	}
}

// finishForged reports an attempt with a token that no attempt has.
func (l *lifecycle) finishForged(t *rapid.T) {
	r := belfry.Result{Namespace: namespace, RunID: l.id, Attempt: rapid.IntRange(0, len(l.past)+2).Draw(t, "attempt"), Token: belfry.NewToken(), Outcome: pick(t, outcomes, "outcome")}
	if v := l.f.finish(t, r)[0]; v != belfry.VerdictLate {
		t.Fatalf("a forged result is %s", v)
	}
}

func (l *lifecycle) promote(t *rapid.T) {
	l.f.promoteAll(t)
	if l.state == belfry.RunRetry {
		l.state = belfry.RunReady
	}
}

// wantReaped expects the reaper to take the run from its worker.
func (l *lifecycle) wantReaped(t *rapid.T, silence time.Duration, want belfry.Outcome) {
	if n := l.f.reap(t, silence); n != 1 {
		t.Fatalf("reaped %d attempts, wants 1", n)
	}
	l.settleHeld(result(l.held, want))
}

func (l *lifecycle) passDeadline(t *rapid.T) {
	if l.held == nil {
		t.Skip("no worker holds it")
	}
	l.f.ageAttempt(t, l.held, time.Hour)
	l.wantReaped(t, 0, belfry.OutcomeTimedOut)
}

func (l *lifecycle) loseWorker(t *rapid.T) {
	l.f.silenceWorker(t, l.worker, time.Hour)
	l.worker = l.f.registerWorker(t)
	if l.held != nil {
		l.wantReaped(t, time.Minute, belfry.OutcomeLost)
	}
}

func (l *lifecycle) passGrace(t *rapid.T) {
	if l.held == nil || !l.counts.Cancelled {
		t.Skip("no worker holds a cancelled run")
	}
	l.f.backdate(t, time.Hour, "runs", "cancel_requested_at", "")
	l.wantReaped(t, 0, belfry.OutcomeCancelled)
}

func (l *lifecycle) cancel(t *rapid.T) {
	err := l.f.Cancel(ctx, namespace, l.id)
	switch l.state {
	case belfry.RunSucceeded, belfry.RunDead, belfry.RunDiscarded:
		wantCode(t, "cancel a run that is "+string(l.state), err, belfry.Conflict)
		return
	case belfry.RunRunning:
		l.counts.Cancelled = true
	default:
		l.state = belfry.RunCancelled
	}
	if err != nil {
		t.Fatalf("cancel a run that is %s: %v", l.state, err)
	}
}

func (l *lifecycle) redrive(t *rapid.T) {
	again, want := store.Redrive{Run: l.id}, 0
	if rapid.Bool().Draw(t, "later") {
		again.After = time.Hour
	}
	if l.state == belfry.RunDead {
		want = 1
	}
	if n := l.f.redrive(t, namespace, again); n != want {
		t.Fatalf("of a run that is %s %d were redriven", l.state, n)
	}
	if want == 1 {
		l.state, l.counts = belfry.RunReady, belfry.AttemptCounts{}
		if again.After > 0 {
			l.state = belfry.RunRetry
		}
	}
}

func (l *lifecycle) discard(t *rapid.T) {
	want := 0
	if l.state == belfry.RunDead {
		want = 1
	}
	if n := l.f.discard(t, namespace, l.id); n != want {
		t.Fatalf("of a run that is %s %d were discarded", l.state, n)
	}
	if want == 1 {
		l.state = belfry.RunDiscarded
	}
}

// compare expects the run to be in one place, in the state that it should have, with
// every attempt that it had.
func (l *lifecycle) compare(t *rapid.T) {
	if got := l.f.state(t, l.id); got != l.state {
		t.Fatalf("the run is %q, wants %s", got, l.state)
	}
	var failed []belfry.Outcome
	for _, past := range l.past {
		if past.outcome != belfry.OutcomeSucceeded {
			failed = append(failed, past.outcome)
		}
	}
	run := l.f.run(t, namespace, l.id)
	var got []belfry.Outcome
	for _, a := range run.Attempts {
		got = append(got, a.Outcome)
	}
	if !slices.Equal(got, failed) {
		t.Fatalf("the attempts were %v, wants %v", got, failed)
	}
	settled := l.state == belfry.RunSucceeded || l.state == belfry.RunCancelled || l.state == belfry.RunDiscarded
	if n := l.f.count(t, `SELECT count(*) FROM history WHERE id = ?`, l.id); (n == 1) != settled || n > 1 {
		t.Fatalf("of a run that is %s there are %d rows of history", l.state, n)
	}
}

// settle brings the run to its end, if it is not there, and expects one record of it.
func (l *lifecycle) settle(t *rapid.T) {
	for l.state == belfry.RunReady || l.state == belfry.RunRetry {
		l.promote(t)
		l.claim(t)
	}
	if l.held != nil {
		l.f.finishAs(t, l.held, belfry.OutcomeSucceeded)
		l.settleHeld(result(l.held, belfry.OutcomeSucceeded))
	}
	l.discard(t)
	l.compare(t)
	if n := l.f.count(t, `SELECT count(*) FROM `+everyRun); n != 1 {
		t.Fatalf("there are %d records of the run, wants 1", n)
	}
}
