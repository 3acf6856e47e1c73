package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// logChunk is a part of the log of the attempt that holds a run.
func logChunk(run *belfry.Run, offset int64, text string) belfry.LogChunk {
	return belfry.LogChunk{Namespace: run.Namespace, RunID: run.ID, Attempt: run.Attempt, Token: run.Token, Offset: offset, Text: text}
}

// writeLog sends parts of logs with a heartbeat.
func (f *fixture) writeLog(t tb, run *belfry.Run, chunks ...belfry.LogChunk) {
	t.Helper()
	f.heartbeat(t, belfry.Heartbeat{WorkerID: run.WorkerID, Node: "here", Slots: 10, Lanes: []string{lane}, Logs: chunks})
}

// log reads a log.
func (f *fixture) log(t tb, run *belfry.Run, q belfry.LogQuery) belfry.RunLog {
	t.Helper()
	log, err := f.RunLog(ctx, run.Namespace, run.ID, q)
	if err != nil {
		t.Fatalf("read the log of run %s: %v", run.ID, err)
	}
	return log
}

func (f *fixture) wantLog(t tb, what string, run *belfry.Run, q belfry.LogQuery, attempt int, offset int64, text string) {
	t.Helper()
	want := belfry.RunLog{RunID: run.ID, Attempt: attempt, Offset: offset, Text: text, NextOffset: offset + int64(len(text))}
	if got := f.log(t, run, q); got != want {
		t.Errorf("%s: got %d bytes of attempt %d at %d: %.100q, wants %d of attempt %d at %d: %.100q", what, len(got.Text), got.Attempt, got.Offset, got.Text, len(text), attempt, offset, text)
	}
}

func TestALogIsKeptWhileItsAttemptRuns(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		run := f.startRun(t, withRetries(5), withBase(1000))
		f.wantLog(t, "nothing was written", run, belfry.LogQuery{}, 0, 0, "")
		f.writeLog(t, run, logChunk(run, 0, "one\n"))
		f.writeLog(t, run, logChunk(run, 4, "two\n"), logChunk(run, 8, "dréi\n"))
		f.writeLog(t, run, logChunk(run, 4, "two\n"))                                 // late
		f.writeLog(t, run, logChunk(run, 8, "dréi\n"), logChunk(run, 8, "dréi\nx\n")) // a repetition that overlaps
		f.writeLog(t, run, logChunk(run, 16, ""))
		f.wantLog(t, "the whole log", run, belfry.LogQuery{}, 1, 0, "one\ntwo\ndréi\nx\n")
		f.wantLog(t, "from an offset", run, belfry.LogQuery{Attempt: 1, Offset: 5}, 1, 5, "wo\ndréi\nx\n")
		f.wantLog(t, "from within a character", run, belfry.LogQuery{Attempt: 1, Offset: 11}, 1, 12, "i\nx\n")
		f.wantLog(t, "from the end", run, belfry.LogQuery{Attempt: 1, Offset: 16}, 1, 16, "")
		f.wantLog(t, "of another attempt", run, belfry.LogQuery{Attempt: 2}, 2, 0, "")

		failed := result(run, belfry.OutcomeFailed)
		failed.Log = "one\ntwo\ndréi\nx\nthe end\n"
		f.finish(t, failed, failed)
		f.wantLog(t, "after a failure", run, belfry.LogQuery{}, 1, 0, failed.Log)
		if n := f.count(t, `SELECT count(*) FROM attempt_logs`); n != 1 {
			t.Errorf("the log has %d pieces, wants one", n)
		}
		f.backdate(t, 5*time.Hour, "runs", "ready_at", "state = 'retry'")
		if _, _, err := f.Promote(ctx, f.allShards(), 10); err != nil {
			t.Fatal(err)
		}
		again := f.claimOne(t, f.registerWorker(t))
		f.wantLog(t, "the latest attempt wrote nothing", again, belfry.LogQuery{}, 1, 0, failed.Log)
		f.writeLog(t, again, logChunk(again, 0, "again\n"))
		f.finishAs(t, again, belfry.OutcomeSucceeded)
		f.wantLog(t, "the latest attempt", again, belfry.LogQuery{}, 2, 0, "again\n")
		f.wantLog(t, "the first attempt", again, belfry.LogQuery{Attempt: 1}, 1, 0, failed.Log)

		for _, where := range []struct {
			namespace string
			run       belfry.ID
		}{{"elsewhere", run.ID}, {run.Namespace, newID()}} {
			_, err := f.RunLog(ctx, where.namespace, where.run, belfry.LogQuery{})
			wantCode(t, "read the log of a run that does not exist", err, belfry.NotFound)
		}
	})
}

func TestOnlyTheHolderOfAnAttemptWritesItsLog(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		run := f.startRun(t, withRetries(0))
		f.writeLog(t, run, logChunk(run, 0, "mine\n"))
		for what, change := range map[string]func(*belfry.LogChunk){
			"another token":     func(c *belfry.LogChunk) { c.Token = belfry.NewToken() },
			"another attempt":   func(c *belfry.LogChunk) { c.Attempt++ },
			"another namespace": func(c *belfry.LogChunk) { c.Namespace = "elsewhere" },
			"another run":       func(c *belfry.LogChunk) { c.RunID = newID() },
		} {
			c := logChunk(run, 5, "not mine\n")
			change(&c)
			f.writeLog(t, run, c)
			r := belfry.Result{Namespace: c.Namespace, RunID: c.RunID, Attempt: c.Attempt, Token: c.Token, Outcome: belfry.OutcomeSucceeded, Log: "not mine\n"}
			if got := f.finish(t, r)[0]; got != belfry.VerdictLate {
				t.Errorf("%s: the result is %s", what, got)
			}
			f.wantLog(t, what, run, belfry.LogQuery{}, 1, 0, "mine\n")
		}
		f.finishAs(t, run, belfry.OutcomeFailed)
		f.writeLog(t, run, logChunk(run, 5, "after the end\n"))
		f.wantLog(t, "after the end", run, belfry.LogQuery{}, 1, 0, "mine\n")
	})
}

func TestTheNewestOfALogIsKept(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		run := f.startRun(t)
		line := strings.Repeat("é", 511) + "x\n" // 1024 bytes
		for i := range int64(100) {
			f.writeLog(t, run, logChunk(run, i*1024, line))
		}
		f.wantLog(t, "after 100 KiB", run, belfry.LogQuery{}, 1, 36<<10, strings.Repeat(line, 64))
		f.wantLog(t, "from an offset that was cut", run, belfry.LogQuery{Offset: 5}, 1, 36<<10, strings.Repeat(line, 64))
		if n := f.count(t, `SELECT count(*) FROM attempt_logs`); n > 65 {
			t.Errorf("there are %d pieces, wants about 64", n)
		}
		f.writeLog(t, run, logChunk(run, 200<<10, line)) // more was written than a worker keeps
		f.wantLog(t, "after a gap", run, belfry.LogQuery{}, 1, 200<<10, line)
		for i := range int64(50) { // offsets that only a faulty worker sends
			f.writeLog(t, run, logChunk(run, 100<<10-i, line))
		}
		done := result(run, belfry.OutcomeSucceeded)
		done.LogOffset, done.Log = 150<<10, "\xff\x00"+strings.Repeat("é", 60<<10)
		f.finish(t, done)
		f.wantLog(t, "at the end", run, belfry.LogQuery{}, 1, 206<<10+2, strings.Repeat("é", 32<<10))
		if n := f.count(t, `SELECT count(*) FROM attempt_logs`); n > 2 {
			t.Errorf("there are %d pieces, wants one or two", n)
		}
	})
}

func TestALogIsText(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		run := f.startRun(t)
		f.writeLog(t, run, logChunk(run, 0, "a\x00b\xff\xfec\x1b[31m<b>é\xc3"))
		f.writeLog(t, run, logChunk(run, 17, "next"))
		f.wantLog(t, "bytes that are no text", run, belfry.LogQuery{}, 1, 0, "a?b??c\x1b[31m<b>é?next")
	})
}

func TestLogsArePrunedWithTheirRuns(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		const keep = 7 * 24 * time.Hour
		settled := func(age time.Duration, changes ...func(*belfry.Job)) *belfry.Run {
			run := f.startRun(t, append(changes, allowParallel)...)
			f.writeLog(t, run, logChunk(run, 0, "one\n"), logChunk(run, 4, "two\n"))
			f.finishAs(t, run, belfry.OutcomeSucceeded)
			f.backdate(t, age, "history", "settled_at", "id = ?", run.ID)
			f.backdate(t, age, "history", "retain_until", "retain_until IS NOT NULL AND id = ?", run.ID)
			f.backdate(t, age, "attempt_logs", "updated_at", "run_id = ?", run.ID)
			return run
		}
		dead := f.startRun(t, withRetries(0))
		f.writeLog(t, dead, logChunk(dead, 0, "dead\n"))
		f.finishAs(t, dead, belfry.OutcomeFailed)
		f.backdate(t, 90*24*time.Hour, "attempt_logs", "updated_at", "run_id = ?", dead.ID)
		kept := []*belfry.Run{settled(0), settled(keep - 26*time.Hour), settled(keep+50*time.Hour, withRetention(300)), dead}
		gone := []*belfry.Run{settled(keep + 50*time.Hour), settled(40 * 24 * time.Hour), settled(50*time.Hour, withRetention(1))}
		purged := settled(0)
		f.edit(t, belfry.Job{ID: purged.JobID, Namespace: purged.Namespace}, purgeJob(t))
		if _, err := f.Prune(ctx, keep); err != nil {
			t.Fatal(err)
		}
		for i, run := range append(gone, purged) {
			if n := f.count(t, `SELECT count(*) FROM attempt_logs WHERE run_id = ?`, run.ID); n != 0 {
				t.Errorf("%d pieces of the log of pruned run %d are left", n, i)
			}
		}
		for i, run := range kept {
			if f.log(t, run, belfry.LogQuery{}).Text == "" {
				t.Errorf("the log of kept run %d is gone", i)
			}
		}
	})
}

func TestRunsThatWaitForARetryShowTheErrorOfTheLastAttempt(t *testing.T) {
	eachStore(t, func(t *testing.T, f *fixture) {
		run := f.startRun(t, withRetries(5), withBase(1000))
		failed := result(run, belfry.OutcomeFailed)
		failed.HTTPStatus, failed.Error, failed.Output = 503, "the printer is on fire", "smoke"
		f.finish(t, failed)
		job := belfry.Job{ID: run.JobID, Namespace: run.Namespace}
		want := func(what string, runs []belfry.Run, status belfry.RunStatus, text string) {
			t.Helper()
			if len(runs) != 1 || runs[0].Status != status || runs[0].Error != text || (runs[0].HTTPStatus == 503) != (text != "") {
				t.Errorf("%s: got %+v, wants the error %q", what, runs, text)
			}
		}
		check := func(status belfry.RunStatus, text string) {
			t.Helper()
			want("the runs of the job", f.jobRuns(t, job), status, text)
			for _, filter := range []belfry.RunStatus{"", status} {
				list, err := f.ListRuns(ctx, run.Namespace, belfry.RunFilter{JobRunFilter: belfry.JobRunFilter{Status: filter}}, store.Page{Limit: 10})
				if err != nil {
					t.Fatal(err)
				}
				want("all runs", list.Runs, status, text)
			}
			at, err := f.RunsAt(ctx, run.Namespace, run.JobID, run.ScheduledAt)
			if err != nil {
				t.Fatal(err)
			}
			want("the runs of the instant", at, status, text)
			want("the run", []belfry.Run{f.run(t, run.Namespace, run.ID)}, status, text)
		}
		check(belfry.RunRetry, failed.Error)
		f.backdate(t, 5*time.Hour, "runs", "ready_at", "state = 'retry'")
		if _, _, err := f.Promote(ctx, f.allShards(), 10); err != nil {
			t.Fatal(err)
		}
		check(belfry.RunReady, failed.Error)
		f.claimOne(t, f.registerWorker(t))
		check(belfry.RunRunning, "")
	})
}
