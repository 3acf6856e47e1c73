package store_test

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// losses are the ways to lose what is said of a statement: its own reply, or that
// of the commit after it.
func losses(match string) map[string]func(*pgtest.Proxy) {
	return map[string]func(*pgtest.Proxy){
		"before the commit": func(p *pgtest.Proxy) { p.EatReplies(match, 1) },
		"the commit":        func(p *pgtest.Proxy) { p.EatCommits(match, 1) },
	}
}

func TestACancelWhoseReplyIsLostCancelsOnce(t *testing.T) {
	f, proxy := lossy(t)
	job := f.created(t, 10, queued(5))
	first, second, third := f.next(t, job), f.next(t, job), f.next(t, job)
	lose := func(run belfry.ID) {
		t.Helper()
		proxy.EatReplies("/* cancel */", 1)
		insist(t, proxy, func() error { return f.Cancel(ctx, namespace, run) })
	}
	lose(first.ID)
	f.wantState(t, "a ready run", first.ID, belfry.RunCancelled)
	checkWaiting(t, f) // whoever cancelled it did not get to see to those behind it
	f.wantState(t, "the one behind it", second.ID, belfry.RunReady)
	run := f.claimOne(t, f.worker(t))
	lose(run.ID)
	if orders := f.beat(t, belfry.Heartbeat{WorkerID: run.WorkerID}); len(orders.Cancel) != 1 {
		t.Errorf("the worker was told %+v", orders)
	}
	f.accepted(t, run, belfry.OutcomeCancelled)
	f.wantState(t, "a running run", second.ID, belfry.RunCancelled)
	f.wantState(t, "the one behind it", third.ID, belfry.RunReady)

	wish := f.trigger(t, job, "")
	proxy.EatCommits("/* cancel */", 1)
	insist(t, proxy, func() error { return f.Cancel(ctx, namespace, wish.RunID()) })
	f.wantState(t, "one that was only asked for", wish.RunID(), belfry.RunCancelled)
	if n := f.count(t, `SELECT count(*) FROM history WHERE state = 'cancelled'`); n != 3 {
		t.Errorf("%d runs are cancelled, wants 3", n)
	}
}

func TestADecisionAboutDeadLettersWhoseReplyIsLostIsMadeOnce(t *testing.T) {
	for verb, match := range map[string]string{"redrive": "/* redrive */", "discard": "/* discard */"} {
		for name, lose := range losses(match) {
			t.Run(verb+", "+name, func(t *testing.T) {
				f, proxy := lossy(t)
				a, b := f.dead(t), f.dead(t)
				version := f.plan(t, a.JobID).Version
				lose(proxy)
				found := 0
				insist(t, proxy, func() (err error) {
					if verb == "redrive" {
						found, err = f.Redrive(ctx, namespace, []store.Redrive{{Run: a.ID, After: time.Hour}, {Run: b.ID}})
					} else {
						found, err = f.Discard(ctx, namespace, []belfry.ID{a.ID, b.ID})
					}
					return err
				})
				want := 2
				if name == "the commit" {
					want = 0 // it was done, and nobody knew
				}
				if found != want {
					t.Errorf("the last call found %d dead letters, wants %d", found, want)
				}
				if verb == "discard" {
					f.wantState(t, verb, a.ID, belfry.RunDiscarded)
					f.wantState(t, verb, b.ID, belfry.RunDiscarded)
					return
				}
				f.wantState(t, verb, a.ID, belfry.RunRetry)
				f.wantState(t, verb, b.ID, belfry.RunReady)
				if p := f.plan(t, a.JobID); p.Version != version+1 {
					t.Errorf("the plan went from version %d to %d", version, p.Version)
				}
				if run := f.claimOne(t, f.worker(t)); run.ID != b.ID || run.Attempt != 2 {
					t.Errorf("claimed %+v", run)
				}
			})
		}
	}
}

func TestAListOfWishesWhoseReplyIsLostIsRecordedOnce(t *testing.T) {
	f, proxy := lossy(t)
	job := f.created(t, -60, parallel)
	wishes := []plan.Trigger{f.wish(job, ""), f.backfill(job, f.minutesAgo(60)), f.backfill(job, f.minutesAgo(50))}
	proxy.EatReplies("/* trigger */", 1)
	insist(t, proxy, func() error { return f.Trigger(ctx, wishes, nil) })
	if n := len(f.wishes(t)); n != 3 {
		t.Errorf("%d wishes are recorded, wants 3", n)
	}
	f.fire(t, plan.Fire(subject(t, namespace, 1, job.Spec), f.plan(t, job.ID), wishes))
	if err := f.Trigger(ctx, wishes, nil); err != nil || len(f.wishes(t)) != 0 {
		t.Errorf("once they were fired, asking again gives %v and %d wishes", err, len(f.wishes(t)))
	}
}

func TestAnEndWhoseReplyIsLostIsTheEndOnce(t *testing.T) {
	for name, lose := range losses("/* retire */") {
		t.Run(name, func(t *testing.T) {
			f, proxy := lossy(t)
			job := f.once(t, 5)
			f.edit(t, job, pause(t))
			f.accepted(t, f.claimOne(t, f.worker(t)), belfry.OutcomeSucceeded)
			f.exec(t, `UPDATE jobs SET state = 'active'`)
			lose(proxy)
			insist(t, proxy, func() error {
				_, _, err := f.Archive(ctx, f.all(), belfry.ID{}, 10)
				return err
			})
			f.wantEnded(t, name, job, belfry.StatusCompleted)
		})
		t.Run("of a run, "+name, func(t *testing.T) {
			f, proxy := lossy(t)
			job := f.once(t, 5)
			f.fire(t, f.step(t, job))
			run := f.claimOne(t, f.worker(t))
			lose(proxy)
			insist(t, proxy, func() error {
				_, err := f.Finish(ctx, []belfry.Result{result(run, belfry.OutcomeSucceeded)})
				return err
			})
			f.retire(t, 10)
			f.wantEnded(t, name, job, belfry.StatusCompleted)
		})
	}
}

func TestWhatComesAfterALostReplyIsMadeUpFor(t *testing.T) {
	f, proxy := lossy(t)
	job := f.created(t, 10, queued(5))
	f.fire(t, f.step(t, job))
	behind := f.next(t, job)
	run := f.claimOne(t, f.worker(t))
	proxy.EatReplies("/* advance */", 1)
	insist(t, proxy, func() error {
		_, err := f.Finish(ctx, []belfry.Result{result(run, belfry.OutcomeSucceeded)})
		return err
	})
	checkWaiting(t, f)
	f.wantState(t, "the one behind it", behind.ID, belfry.RunReady)

	for name, lose := range losses("/* edit */") {
		other := f.created(t, 10, queued(5), inQueue(name))
		f.next(t, other)
		waiting := f.next(t, other)
		lose(proxy)
		insist(t, proxy, func() error {
			_, err := f.EditJob(ctx, namespace, other.ID, removeAll(t))
			if belfry.CodeOf(err) == belfry.NotFound {
				return nil // it was done before
			}
			return err
		})
		f.wantState(t, name, waiting.ID, belfry.RunCancelled)
	}

	proxy.EatReplies("/* park */", 1)
	insist(t, proxy, func() error { return f.Quarantine(ctx, job.ID, "it cannot be rendered") })
	if got := f.found(t, job); got.Quarantined != "it cannot be rendered" {
		t.Errorf("the job is parked with %q", got.Quarantined)
	}
}
