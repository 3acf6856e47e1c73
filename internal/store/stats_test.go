package store_test

import (
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

func (f *fixture) stats(t tb) store.Stats {
	t.Helper()
	stats, err := f.Stats(ctx)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return stats
}

// startIn starts a run of a job in any queue and with any handler.
func (f *fixture) startIn(t tb, changes ...func(*belfry.Job)) *belfry.Run {
	t.Helper()
	job := f.createJob(t, 5, changes...)
	f.fire(t, f.step(t, job))
	runs := f.claim(t, f.registerWorker(t), 1, job.Spec.Lane(job.Namespace))
	if len(runs) != 1 {
		t.Fatalf("claimed %d runs", len(runs))
	}
	return runs[0]
}

// byType adds up counts by queue and type.
func byType(counts map[string]int) map[string]int {
	sums := map[string]int{}
	for lane, n := range counts {
		queue, kind := belfry.LaneType(lane)
		sums[queue+" "+kind] += n
	}
	return sums
}

func TestStatsOfAnEmptyStore(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		s := f.stats(t)
		if len(s.Due)+len(s.Dead)+len(s.Running) > 0 || !s.OldestDue.IsZero() || s.HistoryRows != 0 || s.HistoryBytes == 0 {
			t.Errorf("got %+v", s)
		}
	})
}

func TestStatsCountWhatThereIs(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		for range 3 {
			f.finishAs(t, f.startIn(t, withQueue("mail"), withRetries(0)), belfry.OutcomeFailed)
		}
		f.finishAs(t, f.startIn(t, withHandler("send"), withRetries(0)), belfry.OutcomeFailed)
		running := f.startRun(t)
		f.finishAs(t, f.startRun(t), belfry.OutcomeSucceeded)
		if f.server {
			f.exec(t, `VACUUM ANALYZE`) // for the estimate
		}
		f.exec(t, `UPDATE plans SET next_at = NULL`)
		for range 5 {
			f.createJob(t, 30, withQueue("mail"), withHandler("send"))
		}
		f.createJob(t, 10)
		f.createJob(t, -60) // later

		s := f.stats(t)
		for what, counts := range map[string][2]map[string]int{
			"due plans":    {{"mail worker": 5, "default http": 1}, byType(s.Due)},
			"dead letters": {{"mail http": 3, "default worker": 1}, byType(s.Dead)},
		} {
			if diff := cmp.Diff(counts[0], counts[1]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		if diff := cmp.Diff(map[belfry.ID]int{running.WorkerID: 1}, s.Running); diff != "" {
			t.Errorf("running attempts (-want +got):\n%s", diff)
		}
		if !s.OldestDue.Equal(f.minutesAgo(30)) {
			t.Errorf("the oldest plan was due at %s, want %s", s.OldestDue, f.minutesAgo(30))
		}
		if s.HistoryRows != 1 {
			t.Errorf("the history has %d rows", s.HistoryRows)
		}
		if age := f.Now().Sub(s.OldestHistory); age < 0 || age > 49*time.Hour {
			t.Errorf("the oldest history is of %s", s.OldestHistory)
		}
	})
}

// Many due plans and dead letters are estimated, and read no more than a limit.
func TestStatsEstimateWhatIsMuch(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		const due = 2 * store.MaxDueSampled
		jobs := make([]store.NewJob, due)
		for i := range jobs {
			jobs[i] = f.job(f.minutesAgo(5), withQueue([]string{"a", "a", "a", "b"}[i%4]))
		}
		f.createJobs(t, jobs...)
		f.finishAs(t, f.startIn(t, withQueue("dead"), withRetries(0)), belfry.OutcomeFailed)
		const copies = store.MaxDeadCounted + 5000
		columns := `shard, namespace, job_id, revision, kind, lane, reason, scheduled_at, ready_at, fired_at, fired_by, epoch, timeout_ms, attempt, failures, lost, died_at, fingerprint`
		if f.server {
			f.exec(t, `INSERT INTO dead (id, `+columns+`) SELECT gen_random_uuid(), `+columns+` FROM dead, generate_series(1, `+fmt.Sprint(copies)+`)`)
			f.exec(t, `ANALYZE dead`)
		} else {
			f.exec(t, `INSERT INTO dead (id, `+columns+`) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < `+fmt.Sprint(copies)+`) SELECT randomblob(16), `+columns+` FROM dead, n`)
		}
		s := f.stats(t)
		sums := byType(s.Due)
		if a, b := sums["a http"], sums["b http"]; a+b < due-10 || a+b > due || a < due/2 || b < due/8 {
			t.Errorf("the due plans are %v, want about three in four of %d in queue a", sums, due)
		}
		if dead := byType(s.Dead)["dead http"]; dead < copies*9/10 || dead > copies*11/10 {
			t.Errorf("there are about %d dead letters, want %d", dead, copies+1)
		}
		f.exec(t, `DELETE FROM dead`) // they have no jobs of their own
	})
}

func TestPoolsAreShown(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		pools := f.Pools()
		for _, p := range pools {
			if p.Name == "" || p.Max < 1 || p.InUse < 0 || p.InUse > p.Max {
				t.Errorf("got %+v", p)
			}
		}
		if len(pools) < 2 {
			t.Errorf("got %d pools", len(pools))
		}
	})
}

// series returns the values of what the store has measured.
func (f *fixture) series(t tb) map[string]string {
	t.Helper()
	w := httptest.NewRecorder()
	f.metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	text, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatalf("%v", err)
	}
	found := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok {
			found[name+"}"] = value
		}
	}
	return found
}

func (f *fixture) wantSeries(t tb, want map[string]string) {
	t.Helper()
	got := f.series(t)
	for series, value := range want {
		if got[series] != value {
			t.Errorf("%s is %q, want %q", series, got[series], value)
		}
	}
}

func attemptsOf(queue, kind string, outcome belfry.Outcome) string {
	return fmt.Sprintf(`belfry_job_attempts_total{outcome="%s",queue="%s",type="%s"}`, outcome, queue, kind)
}

// Every way in which an attempt starts and ends is measured once.
func TestAttemptsAreMeasured(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		f.finishAs(t, f.startRun(t), belfry.OutcomeSucceeded)                                // a batch of one
		f.finishAs(t, f.startIn(t, withQueue("mail"), withRetries(0)), belfry.OutcomeFailed) // dead
		f.finishAs(t, f.startRun(t, withRetries(1)), belfry.OutcomeTimedOut)
		keyed := f.startRun(t, withKeys("k-{{unix}}"))
		f.finishAs(t, keyed, belfry.OutcomeSucceeded)
		f.finishAs(t, keyed, belfry.OutcomeSucceeded) // a repetition
		once := f.createOneOff(t, 5, withHandler("send"))
		worker := f.registerWorker(t)
		fired := f.fireInto(t, store.FreeSlots{Worker: worker, Lanes: []string{belfry.DefaultNamespace + ":default/send"}, Free: 1}, f.step(t, once))
		f.finish(t, successes(fired.Claimed)...)
		f.wantSeries(t, map[string]string{
			attemptsOf("default", "http", belfry.OutcomeSucceeded):                              "2",
			attemptsOf("default", "http", belfry.OutcomeTimedOut):                               "1",
			attemptsOf("mail", "http", belfry.OutcomeFailed):                                    "1",
			attemptsOf("default", "worker", belfry.OutcomeSucceeded):                            "1",
			`belfry_runs_dead_total{queue="mail",reason="out_of_retries",type="http"}`:          "1",
			`belfry_runs_dead_total{queue="default",reason="out_of_retries",type="http"}`:       "0",
			`belfry_job_schedule_lag_seconds_count{queue="default",type="http"}`:                "3",
			`belfry_job_schedule_lag_seconds_count{queue="default",type="worker"}`:              "1",
			`belfry_job_schedule_lag_seconds_bucket{queue="default",type="worker",le="60"}`:     "0",
			`belfry_job_schedule_lag_seconds_bucket{queue="default",type="worker",le="1800"}`:   "1",
			`belfry_job_execution_duration_seconds_count{queue="default",type="http"}`:          "3",
			`belfry_job_execution_duration_seconds_bucket{queue="default",type="http",le="60"}`: "3",
			`belfry_database_errors_total{statement="finish"}`:                                  "0",
		})
	})
}

func TestLostAttemptsAreMeasured(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		run := f.startRun(t)
		f.exec(t, `DELETE FROM workers`)
		f.reap(t, 0)
		f.wantState(t, "the loss of its worker", run.ID, belfry.RunReady)
		f.wantSeries(t, map[string]string{attemptsOf("default", "http", belfry.OutcomeLost): "1"})
	})
}

func TestStatementsAreMeasured(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		f.finishAs(t, f.startRun(t), belfry.OutcomeSucceeded)
		f.stats(t)
		got := f.series(t)
		for _, what := range []string{"create", "fire", "claim", "finish", "heartbeat", "stats"} {
			if n := got[fmt.Sprintf(`belfry_database_statement_duration_seconds_count{statement="%s"}`, what)]; n == "" || n == "0" {
				t.Errorf("no statement of %q was measured", what)
			}
		}
		for series := range got {
			if strings.HasPrefix(series, "belfry_database_errors_total") && got[series] != "0" {
				t.Errorf("%s is %s", series, got[series])
			}
		}
	})
}
