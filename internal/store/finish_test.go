package store_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestAnAttemptIsSettledAsTheRulesSay(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		worker := f.registerWorker(t)
		for _, outcomes := range [][]belfry.Outcome{
			{belfry.OutcomeSucceeded},
			{belfry.OutcomeFailed, belfry.OutcomeTimedOut, belfry.OutcomeSucceeded},
			{belfry.OutcomeInterrupted, belfry.OutcomeInterrupted, belfry.OutcomeFailed, belfry.OutcomeInterrupted, belfry.OutcomeSucceeded},
			{belfry.OutcomeFailed, belfry.OutcomeFailed, belfry.OutcomeTimedOut},
			{belfry.OutcomeTimedOut, belfry.OutcomeInterrupted, belfry.OutcomeTimedOut, belfry.OutcomeFailed},
		} {
			job := f.createJob(t, 5, withRetries(2), withBase(1000))
			f.fire(t, f.step(t, job))
			counts := belfry.AttemptCounts{}
			for i, outcome := range outcomes {
				run := f.claimOne(t, worker)
				if run.Attempt != i+1 {
					t.Fatalf("%v: attempt %d has number %d", outcomes, i+1, run.Attempt)
				}
				f.finishAs(t, run, outcome)
				want := belfry.Settle(run.ID, counts, job.Retry(), result(run, outcome))
				f.wantSettled(t, run, want)
				counts = want.Counts
				if want.State == belfry.RunRetry {
					f.backdate(t, 5*time.Hour, "runs", "ready_at", "state = 'retry'")
					if n, _, err := f.Promote(ctx, f.allShards(), 10); n != 1 || err != nil {
						t.Fatalf("promoted %d (%v), wants 1", n, err)
					}
				}
			}
		}
	})
}

// wantSettled expects a run to be where a settlement puts it.
func (f *fixture) wantSettled(t tb, run *belfry.Run, want belfry.Settlement) {
	t.Helper()
	if got := f.state(t, run.ID); got != want.State {
		t.Fatalf("the run is %s, wants %s", got, want.State)
	}
	switch want.State {
	case belfry.RunReady, belfry.RunRetry:
		row := f.liveRow(t, run.ID)
		if row.Failures != want.Counts.Failures || row.Lost != want.Counts.Lost {
			t.Errorf("the run remembers %d failures and %d lost, wants %+v", row.Failures, row.Lost, want.Counts)
		}
		if ready := f.Now().Add(want.Delay); want.State == belfry.RunRetry && !near(row.ReadyAt, ready, 20*time.Second) {
			t.Errorf("the retry is due at %v, wants about %v", row.ReadyAt, ready)
		}
		if row.ReadyAt.After(f.Now().Add(time.Second)) && want.State == belfry.RunReady {
			t.Errorf("the run is ready at %v, wants at once", row.ReadyAt)
		}
	case belfry.RunDead:
		got := f.run(t, run.Namespace, run.ID)
		if got.Status != belfry.RunDead || got.Reason != want.Reason || got.FinishedAt == nil || !near(*got.FinishedAt, f.Now(), 20*time.Second) {
			t.Errorf("the dead letter is %+v, wants reason %s", got, want.Reason)
		}
	case belfry.RunSucceeded:
		got := f.run(t, run.Namespace, run.ID)
		if got.Status != belfry.RunSucceeded || got.FinishedAt == nil || !near(*got.FinishedAt, f.Now(), 20*time.Second) || got.WorkerID != run.WorkerID ||
			got.StartedAt == nil || !got.StartedAt.Equal(*run.StartedAt) || got.Attempt != run.Attempt || len(got.Attempts) != run.Attempt-1 {
			t.Errorf("the settled run is %+v", got)
		}
	}
}

func TestAResultIsStoredWithItsRun(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		run := f.startRun(t, withNamespace("ours"), withRetries(5), withBase(0))
		failed := result(run, belfry.OutcomeFailed)
		failed.HTTPStatus, failed.Error, failed.Output = 503, "no upstream", "try later"
		f.finish(t, failed)
		if n, _, err := f.Promote(ctx, f.allShards(), 1); n != 1 || err != nil {
			t.Fatalf("promoted %d (%v), wants 1", n, err)
		}
		second := f.claimOne(t, run.WorkerID)
		done := result(second, belfry.OutcomeSucceeded)
		done.HTTPStatus, done.Output = 200, "all well"
		f.finish(t, done)

		got := f.run(t, "ours", run.ID)
		if len(got.Attempts) != 1 || got.Attempts[0].FinishedAt.Before(got.Attempts[0].StartedAt) {
			t.Fatalf("the attempts are %+v, wants one that ended after its start", got.Attempts)
		}
		f.wantRecent(t, "the end", got.FinishedAt)
		wantEqual(t, "the settled run", got, belfry.Run{
			ID: run.ID, JobID: run.JobID, Namespace: "ours", Revision: 1, Kind: run.Kind, Status: belfry.RunSucceeded, ScheduledAt: run.ScheduledAt,
			ReadyAt: second.ReadyAt, FiredAt: run.FiredAt, Attempt: 2, StartedAt: second.StartedAt, FinishedAt: got.FinishedAt, WorkerID: run.WorkerID,
			HTTPStatus: 200, Output: "all well",
			Attempts: []belfry.Attempt{{
				Number: 1, Outcome: belfry.OutcomeFailed, WorkerID: run.WorkerID, StartedAt: *run.StartedAt, FinishedAt: got.Attempts[0].FinishedAt,
				HTTPStatus: 503, Error: "no upstream", Output: "try later",
			}},
		})
	})
}

func TestSuccessesOfOneCallAreStoredEachWithItsOwnTexts(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		texts := []string{"", "é界😀", "plain", "", strings.Repeat("界", 2000), "last"}
		results := make([]belfry.Result, len(texts))
		for i, text := range texts {
			results[i] = result(f.startRun(t, withNamespace([]string{"ours", "theirs", "other"}[i%3])), belfry.OutcomeSucceeded)
			results[i].HTTPStatus, results[i].Error, results[i].Output = 200+i, texts[len(texts)-1-i], text
		}
		slices.Reverse(results)
		for i, v := range f.finish(t, results...) {
			if v != belfry.VerdictAccepted {
				t.Errorf("result %d is %s", i, v)
			}
		}
		for _, r := range results {
			if got := f.run(t, r.Namespace, r.RunID); got.Status != belfry.RunSucceeded || got.HTTPStatus != r.HTTPStatus || got.Error != sanitize.Text(r.Error, store.MaxError) || got.Output != r.Output {
				t.Errorf("status %d: the run is %s with status %d, error %.20q and output %.20q", r.HTTPStatus, got.Status, got.HTTPStatus, got.Error, got.Output)
			}
		}
	})
}

func TestResultsOfOneCallAreSettledEachByItself(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		tests := []struct {
			retries        int
			outcome        belfry.Outcome
			delay          time.Duration
			want           belfry.RunStatus
			failures, lost int
		}{
			{5, belfry.OutcomeFailed, 10 * time.Minute, belfry.RunRetry, 1, 0},
			{5, belfry.OutcomeInterrupted, 0, belfry.RunReady, 0, 0},
			{0, belfry.OutcomeFailed, 0, belfry.RunDead, 0, 0},
			{5, belfry.OutcomeSnoozed, time.Minute, belfry.RunRetry, 0, 0},
			{5, belfry.OutcomeLost, 0, belfry.RunReady, 0, 1},
			{5, belfry.OutcomeCancelled, 0, belfry.RunCancelled, 0, 0},
			{5, belfry.OutcomeTimedOut, time.Hour, belfry.RunRetry, 1, 0},
			{5, belfry.OutcomeSucceeded, 0, belfry.RunSucceeded, 0, 0},
		}
		results := make([]belfry.Result, len(tests))
		for i, tt := range tests {
			results[i] = result(f.startRun(t, withRetries(tt.retries)), tt.outcome)
			results[i].RetryAfterSeconds = tt.delay.Seconds()
		}
		f.finish(t, results...)
		for i, tt := range tests {
			got := f.run(t, results[i].Namespace, results[i].RunID)
			if got.Status != tt.want {
				t.Errorf("%+v: the run is %s", tt, got.Status)
			}
			if tt.want != belfry.RunRetry && tt.want != belfry.RunReady {
				continue
			}
			row := f.liveRow(t, got.ID)
			if row.Failures != tt.failures || row.Lost != tt.lost || !near(row.ReadyAt, f.Now().Add(tt.delay), 20*time.Second) || row.Rank != row.ReadyAt.UnixMicro()+row.Weight {
				t.Errorf("%+v: the run is %+v", tt, row)
			}
		}
	})
}

func TestARunOutOfRetriesIsADeadLetter(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		finger := func(text string) string {
			run := f.startRun(t, withRetries(0), withNamespace("ours"))
			r := result(run, belfry.OutcomeFailed)
			r.Error, r.HTTPStatus, r.Output = text, 500, "see the log"
			f.finish(t, r)
			got := f.run(t, "ours", run.ID)
			if got.Status != belfry.RunDead || got.Reason != belfry.ReasonOutOfRetries || got.Attempt != 1 || len(got.Attempts) != 1 ||
				got.Attempts[0].Error != text || got.Attempts[0].Output != "see the log" {
				t.Errorf("the dead letter is %+v", got)
			}
			prints := read(t, f, scanText, `SELECT fingerprint FROM dead WHERE id = ?`, run.ID)
			if len(prints) != 1 || prints[0] != belfry.Fingerprint(r) {
				t.Errorf("the fingerprint is %v, wants %s", prints, belfry.Fingerprint(r))
			}
			if again := f.claim(t, run.WorkerID, 1); len(again) != 0 {
				t.Error("a dead letter was claimed")
			}
			return prints[0]
		}
		if finger("refused by 10.0.0.1") != finger("refused by 10.0.0.2") || finger("refused by 10.0.0.1") == finger("no route") {
			t.Error("dead letters are not grouped by what went wrong")
		}
	})
}

func TestTheSameResultTwiceIsAcceptedTwiceAndCountsOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for _, outcome := range []belfry.Outcome{belfry.OutcomeSucceeded, belfry.OutcomeFailed, belfry.OutcomeTimedOut, belfry.OutcomeInterrupted} {
			for _, retries := range []int{1, 0} {
				f.finishTwice(t, outcome, retries)
			}
		}
		first, second := f.startRun(t), f.startRun(t)
		a, b := result(first, belfry.OutcomeSucceeded), result(second, belfry.OutcomeFailed)
		for _, v := range f.finish(t, a, b, a, b) {
			if v != belfry.VerdictAccepted {
				t.Errorf("a result given twice in one call is %s", v)
			}
		}
		if row := f.liveRow(t, second.ID); row.Failures != 1 {
			t.Errorf("a failure given twice in one call counted %d times", row.Failures)
		}
	})
}

// finishTwice finishes a run with the same result again and again.
func (f *fixture) finishTwice(t tb, outcome belfry.Outcome, retries int) {
	t.Helper()
	run := f.startRun(t, withRetries(retries))
	r := result(run, outcome)
	for _, results := range [][]belfry.Result{{r}, {r}, {r, r}} {
		for _, v := range f.finish(t, results...) {
			if v != belfry.VerdictAccepted {
				t.Errorf("%s: the repeated result is %s", outcome, v)
			}
		}
	}
	f.wantSettled(t, run, belfry.Settle(run.ID, belfry.AttemptCounts{}, run.Spec.Retry(), r))
	got := f.run(t, run.Namespace, run.ID)
	if outcome != belfry.OutcomeSucceeded && (len(got.Attempts) != 1 || got.Attempts[0].LateOutcome != "" || got.Attempts[0].Outcome != outcome) {
		t.Errorf("%s: the attempts are %+v", outcome, got.Attempts)
	}
	f.settleAll(t)
}

// settleAll lets every live run succeed, so that the next case starts afresh.
func (f *fixture) settleAll(t tb) {
	t.Helper()
	worker := f.registerWorker(t)
	for {
		f.backdate(t, 24*time.Hour, "runs", "ready_at", "state = 'retry'")
		if _, _, err := f.Promote(ctx, f.allShards(), 1000); err != nil {
			t.Fatalf("promote: %v", err)
		}
		runs := f.claim(t, worker, 100)
		if len(runs) == 0 {
			return
		}
		for _, run := range runs {
			f.finishAs(t, run, belfry.OutcomeSucceeded)
		}
	}
}

func TestOnlyTheAttemptThatHoldsARunFinishesIt(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		run := f.startRun(t)
		for name, change := range map[string]func(*belfry.Result){
			"another token":     func(r *belfry.Result) { r.Token = belfry.NewToken() },
			"no token":          func(r *belfry.Result) { r.Token = belfry.Token{} },
			"an earlier number": func(r *belfry.Result) { r.Attempt = 0 },
			"a later number":    func(r *belfry.Result) { r.Attempt = 2 },
			"another namespace": func(r *belfry.Result) { r.Namespace = "theirs" },
			"another run":       func(r *belfry.Result) { r.RunID = newID() },
		} {
			r := result(run, belfry.OutcomeSucceeded)
			change(&r)
			if v := f.finish(t, r)[0]; v != belfry.VerdictLate {
				t.Errorf("%s: the verdict is %s, wants late", name, v)
			}
			if got := f.run(t, run.Namespace, run.ID); got.Status != belfry.RunRunning || got.WorkerID != run.WorkerID || len(got.Attempts) != 0 {
				t.Errorf("%s: the run is %+v", name, got)
			}
		}
		f.finishAs(t, run, belfry.OutcomeInterrupted)
		foreign := result(run, belfry.OutcomeInterrupted)
		foreign.Namespace = "theirs"
		if v := f.finish(t, foreign)[0]; v != belfry.VerdictLate {
			t.Errorf("a result that was accepted is %s when another namespace repeats it, wants late", v)
		}
		run = f.claimOne(t, run.WorkerID)
		f.finishAs(t, run, belfry.OutcomeSucceeded)
		other := result(run, belfry.OutcomeFailed)
		other.Token = belfry.NewToken()
		if v := f.finish(t, other)[0]; v != belfry.VerdictLate || f.state(t, run.ID) != belfry.RunSucceeded {
			t.Errorf("a stranger's result for a settled run is %s, and it is %s", v, f.state(t, run.ID))
		}
		f.finish(t, result(run, belfry.OutcomeFailed))
		if got := f.run(t, run.Namespace, run.ID); got.Status != belfry.RunSucceeded || got.Error != "" {
			t.Errorf("a change of mind made the settled run %+v", got)
		}
		f.finish(t)
	})
}

func TestALateResultIsEvidenceAndChangesNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		lost := f.startRun(t)
		f.backdate(t, time.Hour, "workers", "last_seen", "")
		if n := f.reap(t, time.Minute); n != 1 {
			t.Fatalf("reaped %d, wants 1", n)
		}
		second := f.claimOne(t, f.registerWorker(t))
		late := func(when string, want belfry.RunStatus) {
			t.Helper()
			if v := f.finish(t, result(lost, belfry.OutcomeSucceeded))[0]; v != belfry.VerdictLate {
				t.Errorf("%s: the verdict is %s, wants late", when, v)
			}
			got := f.run(t, lost.Namespace, lost.ID)
			if got.Status != want || len(got.Attempts) < 1 {
				t.Fatalf("%s: the run is %+v", when, got)
			}
			a := got.Attempts[0]
			if a.Outcome != belfry.OutcomeLost || a.LateOutcome != belfry.OutcomeSucceeded || a.LateAt == nil || !near(*a.LateAt, f.Now(), 20*time.Second) {
				t.Errorf("%s: the evidence is %+v", when, a)
			}
		}
		late("while another attempt holds the run", belfry.RunRunning)
		if row := f.liveRow(t, lost.ID); row.Worker != second.WorkerID || row.Attempt != 2 {
			t.Errorf("the late result made the row %+v", row)
		}
		f.finishAs(t, second, belfry.OutcomeSucceeded)
		late("after the run was settled", belfry.RunSucceeded)

		// In one call, a late result does not stop the others.
		third := f.startRun(t)
		verdicts := f.finish(t, result(lost, belfry.OutcomeFailed), result(third, belfry.OutcomeSucceeded), belfry.Result{Namespace: "no", RunID: newID(), Attempt: 1})
		if verdicts[0] != belfry.VerdictLate || verdicts[1] != belfry.VerdictAccepted || verdicts[2] != belfry.VerdictLate {
			t.Errorf("the verdicts are %v", verdicts)
		}
	})
}

func TestALateResultDoesNotHideAValidOneInTheSameBatch(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for _, outcome := range []belfry.Outcome{belfry.OutcomeFailed, belfry.OutcomeSucceeded, belfry.OutcomeInterrupted} {
			lost := f.startRun(t, withRetries(3))
			f.silenceWorker(t, lost.WorkerID, time.Hour)
			f.reap(t, time.Minute)
			second := f.claimOne(t, f.registerWorker(t))
			forged, stale := result(second, belfry.OutcomeFailed), result(lost, belfry.OutcomeSucceeded)
			forged.Token = belfry.NewToken()
			verdicts := f.finish(t, result(lost, belfry.OutcomeFailed), stale, forged, result(second, outcome), stale)
			for i, v := range verdicts {
				if (v == belfry.VerdictAccepted) != (i == 3) {
					t.Errorf("%s: the verdicts are %v, wants the fourth accepted and the others late", outcome, verdicts)
				}
			}
			if want := belfry.Settle(lost.ID, belfry.AttemptCounts{Lost: 1}, lost.Spec.Retry(), result(second, outcome)).State; f.state(t, lost.ID) != want {
				t.Errorf("%s: the run is %s, wants %s", outcome, f.state(t, lost.ID), want)
				f.finish(t, result(second, outcome))
			}
			f.settleAll(t)
		}
	})
}

func TestHostileResultsAreSanitized(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for _, text := range []string{
			"zero\x00byte", "not \xff\xfe utf-8", `'; DROP TABLE runs; -- "quoted" \ $1 ? %s`, "😀🏳️‍🌈 é", strings.Repeat("界\x00", belfry.MaxOutput),
			strings.Repeat("x", belfry.MaxOutput), "",
		} {
			for _, outcome := range []belfry.Outcome{belfry.OutcomeSucceeded, belfry.OutcomeFailed} {
				run, other := f.startRun(t, withRetries(0)), f.startRun(t)
				r := result(run, outcome)
				r.Error, r.Output = text, text
				stray := belfry.Result{Namespace: text, RunID: newID(), Attempt: 1, Outcome: outcome}
				for i, v := range f.finish(t, r, result(other, belfry.OutcomeSucceeded), stray) {
					if (v == belfry.VerdictAccepted) != (i < 2) {
						t.Errorf("%.20q: result %d is %s", text, i, v)
					}
				}
				got := f.run(t, run.Namespace, run.ID)
				said, answered := got.Error, got.Output
				if outcome == belfry.OutcomeFailed {
					said, answered = got.Attempts[0].Error, got.Attempts[0].Output
				}
				if want := sanitize.Text(text, belfry.MaxOutput); answered != want || len(said) > len(want) || !strings.HasPrefix(want, said) {
					t.Errorf("%.20q: kept %d bytes %.40q and %d bytes %.40q, wants %d", text, len(said), said, len(answered), answered, len(want))
				}
			}
		}
	})
}

func TestConcurrentFinishesOfOneAttemptDecideItOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		stores := []store.Store{f.Store}
		if f.reopen != nil {
			stores = append(stores, f.reopen(t))
		}
		worker := f.registerWorker(t)
		const size = 600
		jobs := make([]store.NewJob, size)
		for i := range jobs {
			jobs[i] = f.job(f.minutesAgo(5), withRetries(5))
		}
		f.createJobs(t, jobs...)
		f.fireDue(t)
		runs := f.claim(t, worker, size)
		var wait sync.WaitGroup
		for i := range 4 {
			results := make([]belfry.Result, size)
			for j, run := range runs {
				results[j] = result(run, []belfry.Outcome{belfry.OutcomeSucceeded, belfry.OutcomeFailed}[j%2])
			}
			// Each names the runs in another order, which must not lock them out.
			rand.Shuffle(size, func(a, b int) { results[a], results[b] = results[b], results[a] })
			wait.Go(func() {
				verdicts, err := stores[i%len(stores)].Finish(ctx, results)
				if err != nil {
					t.Errorf("finish: %v", err)
				}
				for _, v := range verdicts {
					if v != belfry.VerdictAccepted {
						t.Errorf("a repeated result is %s", v)
					}
				}
			})
		}
		wait.Wait()
		done := f.count(t, `SELECT count(*) FROM history WHERE state = 'succeeded'`)
		again := f.count(t, `SELECT count(*) FROM runs WHERE state = 'retry' AND failures = 1`)
		if done != size/2 || again != size/2 {
			t.Errorf("%d runs succeeded and %d failed once, wants %d each", done, again, size/2)
		}
	})
}
