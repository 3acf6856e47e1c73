package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/postgres"
)

// A reply that is lost leaves the caller without knowing; repeating the call
// must have no second effect.

// openLossy gives a store whose replies can be lost.
func openLossy(t *testing.T) (*fixture, *pgtest.Proxy) {
	t.Helper()
	t.Parallel()
	address := pgtest.Database(t, postgres.Migrate)
	proxy := pgtest.NewProxy(t, address)
	f := openPostgres(t, proxy.URL(), address)
	t.Cleanup(func() { checkInvariants(t, f) })
	return f, proxy
}

// passGrace repeats a call whose outcome is unknown, as every caller does, and
// expects that a reply was lost on the way.
func retryUnknown(t *testing.T, proxy *pgtest.Proxy, call func() error) {
	t.Helper()
	before := proxy.Eaten()
	for range 5 {
		err := call()
		var known *belfry.Error
		if err == nil {
			if proxy.Eaten() == before {
				t.Fatal("no reply was lost: the test proves nothing")
			}
			return
		}
		if errors.As(err, &known) && known.Code != belfry.Unavailable {
			t.Fatalf("after a lost reply: %v", err)
		}
	}
	t.Fatal("the call was never answered")
}

func TestAFireWhoseReplyIsLostFiresOnce(t *testing.T) {
	f, proxy := openLossy(t)
	worker := f.registerWorker(t)
	for _, free := range []int{0, 10} {
		var steps []plan.Step
		for range 5 {
			steps = append(steps, f.step(t, f.createJob(t, 5)))
		}
		proxy.EatReplies("/* fire */", 1)
		retryUnknown(t, proxy, func() error {
			_, err := f.Fire(ctx, owner, steps, slots(worker, free))
			return err
		})
		for _, step := range steps {
			if p := f.plan(t, step.Seen.JobID); p.Version != 2 || p.RunsMade != 1 || f.state(t, step.Runs[0].ID) == "" {
				t.Errorf("the plan is %+v and the run %q", p, f.state(t, step.Runs[0].ID))
			}
		}
	}
	// What was claimed without anybody knowing comes back.
	f.backdate(t, store.ConfirmAfter+time.Second, "runs", "started_at deadline_at", "state = 'running'")
	f.heartbeat(t, belfry.Heartbeat{WorkerID: worker, Complete: true})
	if runs := f.claim(t, worker, 100); len(runs) != 10 {
		t.Errorf("%d runs can be claimed, wants 10", len(runs))
	}
}

func TestAClaimWhoseReplyIsLostComesBack(t *testing.T) {
	f, proxy := openLossy(t)
	worker := f.registerWorker(t)
	for range 6 {
		f.createJob(t, 5)
	}
	f.fireDue(t)
	var runs []*belfry.Run
	proxy.EatReplies("/* claim */", 1)
	retryUnknown(t, proxy, func() (err error) {
		runs, err = f.Claim(ctx, belfry.Claim{WorkerID: worker, Lanes: []string{lane}, Limit: 4})
		return err
	})
	if len(runs) != 2 {
		t.Errorf("the second claim got %d runs, wants the 2 that were left", len(runs))
	}
	heartbeat := belfry.Heartbeat{WorkerID: worker, Complete: true}
	for _, run := range runs {
		heartbeat.Held = append(heartbeat.Held, belfry.HeldAttempt{RunID: run.ID, Attempt: run.Attempt})
	}
	f.backdate(t, store.ConfirmAfter+time.Second, "runs", "started_at deadline_at", "state = 'running'")
	f.heartbeat(t, heartbeat)
	again := f.claim(t, worker, 10)
	if len(again) != 4 {
		t.Fatalf("%d runs came back, wants 4", len(again))
	}
	for _, run := range again {
		if row := f.liveRow(t, run.ID); run.Attempt != 2 || row.Failures != 0 || row.Lost != 0 {
			t.Errorf("a run came back at attempt %d with %+v", run.Attempt, row)
		}
	}
}

func TestAFinishWhoseReplyIsLostSettlesOnce(t *testing.T) {
	for _, outcome := range outcomes {
		t.Run(string(outcome), func(t *testing.T) {
			f, proxy := openLossy(t)
			run, other := f.startRun(t, withRetries(1)), f.startRun(t)
			results := []belfry.Result{result(run, outcome), result(other, outcome)}
			var verdicts []belfry.Verdict
			proxy.EatReplies("/* finish */", 1)
			retryUnknown(t, proxy, func() (err error) {
				verdicts, err = f.Finish(ctx, results)
				return err
			})
			if verdicts[0] != belfry.VerdictAccepted || verdicts[1] != belfry.VerdictAccepted {
				t.Errorf("the verdicts are %v, wants accepted", verdicts)
			}
			f.wantSettled(t, run, belfry.Settle(run.ID, belfry.AttemptCounts{}, run.Spec.Retry(), result(run, outcome)))
		})
	}
}

func TestACreateWhoseReplyIsLostCreatesOnce(t *testing.T) {
	for _, tt := range []struct {
		size int
		lose func(*pgtest.Proxy)
	}{
		{1, func(p *pgtest.Proxy) { p.EatReplies("/* create */", 1) }},
		{20, func(p *pgtest.Proxy) { p.EatReplies("/* create */", 1) }},
		{3000, func(p *pgtest.Proxy) { p.EatCommits("copy", 1) }},
		{3000, func(p *pgtest.Proxy) { p.EatReplies("copy", 1) }},
	} {
		t.Run(fmt.Sprint(tt.size), func(t *testing.T) {
			f, proxy := openLossy(t)
			jobs := make([]store.NewJob, tt.size)
			for i := range jobs {
				jobs[i] = f.job(f.minutesAgo(5), withName(fmt.Sprint("job ", i)))
			}
			tt.lose(proxy)
			retryUnknown(t, proxy, func() error { return f.CreateJobs(ctx, jobSeq(jobs...), nil) })
			if n := f.count(t, `SELECT count(*) FROM jobs JOIN plans ON job_id = id WHERE version = 1`); n != int64(tt.size) {
				t.Errorf("there are %d jobs, wants %d", n, tt.size)
			}
			// The name is taken now, by the one that was created.
			err := f.CreateJobs(ctx, jobSeq(f.job(f.minutesAgo(5), withName("job 0"))), nil)
			wantCode(t, "take the name", err, belfry.Conflict)
		})
	}
}

func TestARequestWhoseReplyIsLostIsDoneOnceAndAnsweredTheSame(t *testing.T) {
	reply := func(match string) func(*pgtest.Proxy) { return func(p *pgtest.Proxy) { p.EatReplies(match, 1) } }
	commit := func(match string) func(*pgtest.Proxy) { return func(p *pgtest.Proxy) { p.EatCommits(match, 1) } }
	for _, tt := range []struct {
		verb string
		loss string
		lose func(*pgtest.Proxy)
		done bool // by the first call, although nobody knows
	}{
		{"create one", "of the key", reply("/* request */"), false},
		{"create one", "of the job", reply("/* create */"), false},
		{"create one", "of the commit", commit("/* create */"), true},
		{"create many", "of the key", reply("/* request */"), false},
		{"create many", "of the jobs", reply("copy"), false},
		{"create many", "of the commit", commit("copy"), true},
		{"trigger", "of the key", reply("/* request */"), false},
		{"trigger", "of the trigger", reply("/* trigger */"), false},
		{"trigger", "of the commit", commit("/* trigger */"), true},
	} {
		t.Run(tt.verb+", the reply "+tt.loss, func(t *testing.T) {
			f, proxy := openLossy(t)
			job := f.createJob(t, -60)
			v := keyedCalls[slices.IndexFunc(keyedCalls, func(v keyedCall) bool { return v.name == tt.verb })]
			tt.lose(proxy)
			calls, found := 0, false
			retryUnknown(t, proxy, func() error {
				calls++
				err := v.call(f, f, job, request("key", "this", fmt.Sprint("answer ", calls)))
				var before *store.DuplicateRequest
				if found = errors.As(err, &before); found {
					wantDuplicate(t, err, "this", "answer 1")
					return nil
				}
				return err
			})
			if found != tt.done {
				t.Errorf("a call found that it was made before: %v, wants %v", found, tt.done)
			}
			f.wantCallCount(t, v, 1)
			want := fmt.Sprint("answer ", calls)
			if tt.done {
				want = "answer 1"
			}
			wantDuplicate(t, v.call(f, f, job, request("key", "this", "the last")), "this", want)
			f.wantCallCount(t, v, 1)
		})
	}
}

func TestAnEditWhoseReplyIsLostEditsOnce(t *testing.T) {
	for name, lose := range map[string]func(*pgtest.Proxy){
		"before the commit": func(p *pgtest.Proxy) { p.EatReplies("/* edit */", 1) },
		"the commit":        func(p *pgtest.Proxy) { p.EatCommits("/* edit */", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			f, proxy := openLossy(t)
			job := f.createJob(t, 5, allowParallel)
			lose(proxy)
			retryUnknown(t, proxy, func() error {
				_, err := f.EditJob(ctx, job.Namespace, job.ID, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
					if job.State == belfry.JobPaused {
						return nil, nil
					}
					job.Revision++
					return pause(t)(job, p, now)
				})
				return err
			})
			got, p := f.getJob(t, job), f.plan(t, job.ID)
			if got.State != belfry.JobPaused || got.Revision != 2 || p.Version != 2 || len(f.jobRuns(t, job)) != 2 {
				t.Errorf("the job is %s at revision %d, its plan %+v, with %d runs", got.State, got.Revision, p, len(f.jobRuns(t, job)))
			}
		})
	}
}

func TestOtherCallsWhoseReplyIsLostDoTheirWorkOnce(t *testing.T) {
	f, proxy := openLossy(t)
	job := f.createJob(t, 5, withBase(0))
	trigger := f.newTrigger(job, "")
	proxy.EatReplies("/* trigger */", 1)
	retryUnknown(t, proxy, func() error { return f.Trigger(ctx, []plan.Trigger{trigger}, nil) })
	if triggers := f.pendingTriggers(t); len(triggers) != 1 {
		t.Errorf("%d triggers are there, wants 1", len(triggers))
	}

	worker := newID()
	heartbeat := belfry.Heartbeat{WorkerID: worker, Node: "here", Slots: 1, Lanes: []string{lane}, Register: true}
	proxy.EatReplies("/* heartbeat */", 1)
	retryUnknown(t, proxy, func() error {
		_, err := f.Heartbeat(ctx, heartbeat)
		return err
	})
	if workers, err := f.Workers(ctx); err != nil || len(workers) != 1 {
		t.Errorf("%d workers are there (%v), wants 1", len(workers), err)
	}

	f.fire(t, f.step(t, job))
	run := f.claimOne(t, worker)
	f.finishAs(t, run, belfry.OutcomeFailed)
	proxy.EatReplies("/* promote */", 1)
	retryUnknown(t, proxy, func() error {
		_, _, err := f.Promote(ctx, f.allShards(), 10)
		return err
	})
	second := f.claimOne(t, worker)
	f.silenceWorker(t, worker, time.Hour)
	proxy.EatReplies("/* finish */", 1)
	retryUnknown(t, proxy, func() error {
		_, err := f.Reap(ctx, time.Minute, 10)
		return err
	})
	if row := f.liveRow(t, second.ID); row.State != belfry.RunReady || row.Lost != 1 || row.Failures != 1 {
		t.Errorf("the run is %+v", row)
	}

	proxy.EatReplies("/* hold */", 1)
	var leases []store.Lease
	retryUnknown(t, proxy, func() (err error) {
		leases, err = f.Hold(ctx, owner, []string{"duty"}, time.Minute)
		return err
	})
	if len(leases) != 1 || leases[0].Epoch != 1 {
		t.Errorf("the leases are %+v", leases)
	}
}

func TestAStoreGoesOnAfterItsDatabaseWasAway(t *testing.T) {
	f, proxy := openLossy(t)
	job := f.createJob(t, 5, allowParallel)
	step := f.step(t, job)
	proxy.Cut()
	short, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := f.Ping(short); err == nil {
		t.Error("a store without its database answers a ping")
	}
	if fired, err := f.Fire(short, owner, []plan.Step{step}, store.FreeSlots{}); err == nil {
		t.Errorf("a store without its database fired %+v", fired)
	}
	proxy.Heal()
	deadline := time.Now().Add(patience)
	for f.Ping(ctx) != nil && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	f.fire(t, step)
	if runs := f.jobRuns(t, job); len(runs) != 1 {
		t.Errorf("there are %d runs, wants 1", len(runs))
	}
}

// lostReplies are the ways to lose what is said of a statement: its own reply, or that
// of the commit after it.
func lostReplies(match string) map[string]func(*pgtest.Proxy) {
	return map[string]func(*pgtest.Proxy){
		"before the commit": func(p *pgtest.Proxy) { p.EatReplies(match, 1) },
		"the commit":        func(p *pgtest.Proxy) { p.EatCommits(match, 1) },
	}
}

func TestACancelWhoseReplyIsLostCancelsOnce(t *testing.T) {
	f, proxy := openLossy(t)
	job := f.createJob(t, 10, withQueueLimit(5))
	first, second, third := f.fireNext(t, job), f.fireNext(t, job), f.fireNext(t, job)
	lose := func(run belfry.ID) {
		t.Helper()
		proxy.EatReplies("/* cancel */", 1)
		retryUnknown(t, proxy, func() error { return f.Cancel(ctx, namespace, run) })
	}
	lose(first.ID)
	f.wantState(t, "a ready run", first.ID, belfry.RunCancelled)
	checkWaiting(t, f) // whoever cancelled it did not get to see to those behind it
	f.wantState(t, "the one behind it", second.ID, belfry.RunReady)
	run := f.claimOne(t, f.registerWorker(t))
	lose(run.ID)
	if reply := f.heartbeat(t, belfry.Heartbeat{WorkerID: run.WorkerID}); len(reply.Cancel) != 1 {
		t.Errorf("the worker got %+v", reply)
	}
	f.finishAs(t, run, belfry.OutcomeCancelled)
	f.wantState(t, "a running run", second.ID, belfry.RunCancelled)
	f.wantState(t, "the one behind it", third.ID, belfry.RunReady)

	trigger := f.trigger(t, job, "")
	proxy.EatCommits("/* cancel */", 1)
	retryUnknown(t, proxy, func() error { return f.Cancel(ctx, namespace, trigger.RunID()) })
	f.wantState(t, "one that was only asked for", trigger.RunID(), belfry.RunCancelled)
	if n := f.count(t, `SELECT count(*) FROM history WHERE state = 'cancelled'`); n != 3 {
		t.Errorf("%d runs are cancelled, wants 3", n)
	}
}

func TestARedriveOrDiscardWhoseReplyIsLostIsDoneOnce(t *testing.T) {
	for verb, match := range map[string]string{"redrive": "/* redrive */", "discard": "/* discard */"} {
		for name, lose := range lostReplies(match) {
			t.Run(verb+", "+name, func(t *testing.T) {
				f, proxy := openLossy(t)
				a, b := f.deadRun(t), f.deadRun(t)
				version := f.plan(t, a.JobID).Version
				lose(proxy)
				found := 0
				retryUnknown(t, proxy, func() (err error) {
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
				if run := f.claimOne(t, f.registerWorker(t)); run.ID != b.ID || run.Attempt != 2 {
					t.Errorf("claimed %+v", run)
				}
			})
		}
	}
}

func TestAListOfTriggersWhoseReplyIsLostIsRecordedOnce(t *testing.T) {
	f, proxy := openLossy(t)
	job := f.createJob(t, -60, allowParallel)
	triggers := []plan.Trigger{f.newTrigger(job, ""), f.backfill(job, f.minutesAgo(60)), f.backfill(job, f.minutesAgo(50))}
	proxy.EatReplies("/* trigger */", 1)
	retryUnknown(t, proxy, func() error { return f.Trigger(ctx, triggers, nil) })
	if n := len(f.pendingTriggers(t)); n != 3 {
		t.Errorf("%d triggers are recorded, wants 3", n)
	}
	f.fire(t, plan.Fire(subject(t, namespace, 1, job.Spec), f.plan(t, job.ID), triggers))
	if err := f.Trigger(ctx, triggers, nil); err != nil || len(f.pendingTriggers(t)) != 0 {
		t.Errorf("once they were fired, asking again gives %v and %d triggers", err, len(f.pendingTriggers(t)))
	}
}

func TestAnArchiveWhoseReplyIsLostIsDoneOnce(t *testing.T) {
	for name, lose := range lostReplies("/* archive */") {
		t.Run(name, func(t *testing.T) {
			f, proxy := openLossy(t)
			job := f.createOneOff(t, 5)
			f.edit(t, job, pause(t))
			f.finishAs(t, f.claimOne(t, f.registerWorker(t)), belfry.OutcomeSucceeded)
			f.exec(t, `UPDATE jobs SET state = 'active'`)
			lose(proxy)
			retryUnknown(t, proxy, func() error {
				_, _, err := f.Archive(ctx, f.allShards(), belfry.ID{}, 10)
				return err
			})
			f.archiveSoon(t, job)
			f.wantEnded(t, name, job, belfry.StatusCompleted)
		})
		t.Run("of a run, "+name, func(t *testing.T) {
			f, proxy := openLossy(t)
			job := f.createOneOff(t, 5)
			f.fire(t, f.step(t, job))
			run := f.claimOne(t, f.registerWorker(t))
			if name == "the commit" { // with only one run there is none: it is archived by one statement
				f.exec(t, `UPDATE plans SET runs_made = 2`)
			}
			lose(proxy)
			retryUnknown(t, proxy, func() error {
				_, err := f.Finish(ctx, []belfry.Result{result(run, belfry.OutcomeSucceeded)})
				return err
			})
			f.archiveSoon(t, job)
			f.wantEnded(t, name, job, belfry.StatusCompleted)
		})
	}
}

// archiveSoon archives until a job has ended. A server that has not noticed yet that a
// connection was lost keeps its locks, and jobs that are locked are left out.
func (f *fixture) archiveSoon(t tb, job belfry.Job) {
	t.Helper()
	for deadline := time.Now().Add(patience); f.getJob(t, job).State != belfry.JobEnded && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		f.archiveAll(t, 10)
	}
}

func TestFollowUpsOfALostReplyHappenLater(t *testing.T) {
	f, proxy := openLossy(t)
	job := f.createJob(t, 10, withQueueLimit(5))
	f.fire(t, f.step(t, job))
	behind := f.fireNext(t, job)
	run := f.claimOne(t, f.registerWorker(t))
	proxy.EatReplies("/* advance */", 1)
	retryUnknown(t, proxy, func() error {
		_, err := f.Finish(ctx, []belfry.Result{result(run, belfry.OutcomeSucceeded)})
		return err
	})
	checkWaiting(t, f)
	f.wantState(t, "the one behind it", behind.ID, belfry.RunReady)

	for name, lose := range lostReplies("/* edit */") {
		other := f.createJob(t, 10, withQueueLimit(5), withQueue(name))
		f.fireNext(t, other)
		waiting := f.fireNext(t, other)
		lose(proxy)
		retryUnknown(t, proxy, func() error {
			_, err := f.EditJob(ctx, namespace, other.ID, deleteAndCancel(t))
			if belfry.CodeOf(err) == belfry.NotFound {
				return nil // it was done before
			}
			return err
		})
		f.wantState(t, name, waiting.ID, belfry.RunCancelled)
	}

	proxy.EatReplies("/* quarantine */", 1)
	retryUnknown(t, proxy, func() error { return f.Quarantine(ctx, job.ID, "it cannot be rendered") })
	if got := f.getJob(t, job); got.Quarantined != "it cannot be rendered" {
		t.Errorf("the job is quarantined with %q", got.Quarantined)
	}
}
