package explain_test

import (
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control/controltest"
)

func TestExplainRuns(t *testing.T) {
	for _, tt := range []struct {
		name     string
		prepare  func(sc *controltest.Scenario) belfry.Job
		at       string
		decision belfry.Decision
		reason   belfry.Reason
		want     string
	}{
		{"a success", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.FireAt("09:00")
			run := sc.Claim(1)[0]
			sc.SleepUntil("09:00:02")
			sc.Finish(run, belfry.OutcomeSucceeded)
			return job
		}, "09:00", belfry.DecisionRan, "", "2000-01-03 09:00 +01:00 ran: it succeeded at 09:00:02."},
		{"a success after a failure", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *", func(s *belfry.Spec) { s.RetryBackoff = "immediate" })
			sc.FireAt("09:00")
			sc.Finish(sc.Claim(1)[0], belfry.OutcomeFailed)
			sc.Promote()
			sc.Finish(sc.Claim(1)[0], belfry.OutcomeSucceeded)
			return job
		}, "09:00", belfry.DecisionRan, "", "2000-01-03 09:00 +01:00 ran: it succeeded at 09:00 in attempt 2."},
		{"one that caught up", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.FireAt("12:03:10")
			sc.Finish(sc.Claim(1)[0], belfry.OutcomeSucceeded)
			return job
		}, "12:00", belfry.DecisionRan, "", "2000-01-03 12:00 +01:00 ran: it succeeded at 12:03:10. It was fired at 12:03:10, 3 minutes 10 seconds late."},
		{"one that runs", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.FireAt("09:00:00")
			sc.Claim(1)
			return job
		}, "09:00", belfry.DecisionRunning, "", "2000-01-03 09:00 +01:00 has been running since 09:00 (attempt 1)."},
		{"one that runs and is cancelled", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.FireAt("09:00")
			sc.CancelRun(sc.Claim(1)[0].ID)
			return job
		}, "09:00", belfry.DecisionRunning, "", "2000-01-03 09:00 +01:00 has been running since 09:00 (attempt 1). It was cancelled: it ends when its worker stops it."},
		{"one that is retried", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *", func(s *belfry.Spec) { s.RetryBackoff, s.RetryBaseSeconds = "fixed", belfry.Some(90.0) })
			sc.FireAt("09:00")
			sc.Finish(sc.Claim(1)[0], belfry.OutcomeFailed)
			sc.SleepUntil("09:01:30")
			sc.Promote()
			sc.Finish(sc.Claim(1)[0], belfry.OutcomeTimedOut, func(r *belfry.Result) { r.Error = "it took\n too long" })
			return job
		}, "09:00", belfry.DecisionRetrying, "", "2000-01-03 09:00 +01:00 failed 2 of 4 attempts; the next attempt is at 09:03. The last error was: it took too long."},
		{"one that was snoozed", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.FireAt("09:00")
			sc.Finish(sc.Claim(1)[0], belfry.OutcomeSnoozed, func(r *belfry.Result) { r.RetryAfterSeconds = 600 })
			return job
		}, "09:00", belfry.DecisionRetrying, "", "2000-01-03 09:00 +01:00 was snoozed by its handler; the next attempt is at 09:10."},
		{"one that is dead", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *", func(s *belfry.Spec) { s.MaxRetries = belfry.Some(0) })
			sc.FireAt("09:00")
			sc.Finish(sc.Claim(1)[0], belfry.OutcomeFailed)
			return job
		}, "09:00", belfry.DecisionDead, belfry.ReasonOutOfRetries, "2000-01-03 09:00 +01:00 ran and failed at 09:00: it is out of retries after 1 attempt; the last error was: no such customer. It is a dead letter until it is redriven or discarded."},
		{"one that was discarded", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.FireAt("09:00")
			sc.Discard(sc.FailForGood(1)[0])
			return job
		}, "09:00", belfry.DecisionDiscarded, belfry.ReasonPermanent, "2000-01-03 09:00 +01:00 ran and failed: retries cannot fix the failure, after 1 attempt; the last error was: no such customer. The dead letter was discarded."},
		{"one that was redriven", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.FireAt("09:00")
			run := sc.FailForGood(1)[0]
			sc.Redrive(run)
			sc.Claim(1)
			return job
		}, "09:00", belfry.DecisionRunning, "", "2000-01-03 09:00 +01:00 has been running since 09:00 (attempt 2)."},
		{"one that was cancelled before it started", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.FireAt("09:00")
			sc.CancelRun(sc.Runs(job)[0].ID)
			return job
		}, "09:00", belfry.DecisionCancelled, "", "2000-01-03 09:00 +01:00 was cancelled at 09:00, before it started."},
		{"one that was run again", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.FireAt("09:00")
			sc.Finish(sc.Claim(1)[0], belfry.OutcomeSucceeded)
			sc.Backfill(job, "09:00")
			sc.FireAt("09:00:01")
			sc.Finish(sc.Claim(1)[0], belfry.OutcomeSucceeded)
			return job
		}, "09:00", belfry.DecisionRan, "", "2000-01-03 09:00 +01:00 ran: it succeeded at 09:00. It was backfilled too: that run succeeded."},
		{"one that was run before the job was there", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.Backfill(job, "08:00")
			sc.FireAt("08:59")
			sc.Finish(sc.Claim(1)[0], belfry.OutcomeSucceeded)
			return job
		}, "08:00", belfry.DecisionRan, "", "The backfill of 2000-01-03 08:00 +01:00 ran: it succeeded at 08:59."},
	} {
		controltest.Run(t, tt.name, func(sc *controltest.Scenario) {
			job := tt.prepare(sc)
			explainAt(sc, job, tt.at, tt.decision, tt.reason, tt.want)
		})
	}
}

func TestExplainSkips(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prepare func(sc *controltest.Scenario) belfry.Job
		at      string
		reason  belfry.Reason
		want    string
	}{
		{"an earlier run", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.FireAt("09:00")
			sc.Claim(1)
			sc.FireAt("09:05")
			return job
		}, "09:05", belfry.ReasonOverlap, "2000-01-03 09:05 +01:00 was skipped: the run of 09:00 was still running (overlap: skip)."},
		{"an earlier run that is over by now", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.FireAt("09:00")
			run := sc.Claim(1)[0]
			sc.FireAt("09:05")
			sc.Finish(run, belfry.OutcomeSucceeded)
			sc.FireAt("09:10")
			return job
		}, "09:05", belfry.ReasonOverlap, "2000-01-03 09:05 +01:00 was skipped: the run of 09:00 was still running (overlap: skip)."},
		{"an earlier run that was not claimed", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.FireAt("09:00", "09:05")
			return job
		}, "09:05", belfry.ReasonOverlap, "2000-01-03 09:05 +01:00 was skipped: the run of 09:00 had not finished (overlap: skip)."},
		{"a triggered run", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.SleepUntil("08:59:30")
			sc.Trigger(job)
			sc.Fire()
			sc.Claim(1)
			sc.FireAt("09:00")
			return job
		}, "09:00", belfry.ReasonOverlap, "2000-01-03 09:00 +01:00 was skipped: the manual run of 08:59:30 was still running (overlap: skip)."},
		{"a queue that is full", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *", func(s *belfry.Spec) { s.Overlap, s.MaxQueued = "queue", 1 })
			sc.FireAt("09:00", "09:05", "09:10")
			return job
		}, "09:10", belfry.ReasonQueueFull, "2000-01-03 09:10 +01:00 was skipped: 1 run waited for an earlier one already, which is the limit (overlap: queue, max_queued: 1)."},
		{"a missed window of which the latest runs", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.FireAt("11:02")
			return job
		}, "09:15", belfry.ReasonMissed, "2000-01-03 09:15 +01:00 was skipped: no scheduler was running (missed_window: run_once catches up on the latest only, which was 11:00). 24 occurrences from 09:00 to 10:55 share this record."},
		{"a missed window of which none runs", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *", func(s *belfry.Spec) { s.MissedWindow = "skip" })
			sc.FireAt("09:02")
			return job
		}, "09:00", belfry.ReasonMissed, "2000-01-03 09:00 +01:00 was skipped: no scheduler was running (missed_window: skip does not catch up)."},
		{"a missed window that is too old", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("0 * * * *", func(s *belfry.Spec) { s.CatchUpSeconds = 90 * 60 })
			sc.FireAt("11:30:01")
			sc.FireAt("12:00")
			return job
		}, "09:00", belfry.ReasonMissed, "2000-01-03 09:00 +01:00 was skipped: no scheduler was running (missed_window: run_once catches up on the latest only, which was 11:00). 2 occurrences from 09:00 to 10:00 share this record."},
		{"the latest of a missed window that is too old", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("0 * * * *", func(s *belfry.Spec) { s.CatchUpSeconds = 29 * 60 })
			sc.FireAt("11:30")
			sc.FireAt("12:00")
			return job
		}, "11:00", belfry.ReasonMissed, "2000-01-03 11:00 +01:00 was skipped: no scheduler was running, and it was older than 29 minutes, the limit for catching up (catch_up_window_seconds). 3 occurrences from 09:00 to 11:00 share this record."},
		{"a missed window of a job that does not say how old", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *", func(s *belfry.Spec) { s.MissedWindow = "run_all" })
			sc.FireAt("09:40:01")
			return job
		}, "09:05", belfry.ReasonMissed, "2000-01-03 09:05 +01:00 was skipped: no scheduler was running, and it was older than 30 minutes, the limit for catching up (catch_up_window_seconds). 3 occurrences from 09:00 to 09:10 share this record."},
		{"one of many that were missed", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("* * * * *", func(s *belfry.Spec) { s.MissedWindow, s.MaxMissed = "run_all", 2 })
			sc.FireAt("09:05:30")
			return job
		}, "09:01", belfry.ReasonMaxMissed, "2000-01-03 09:01 +01:00 was skipped: no scheduler was running, and more occurrences were missed than max_missed allows (missed_window: run_all catches up on the newest 2). 5 occurrences from 08:59 to 09:03 share this record."},
		{"a pause over midnight", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("0 */6 * * *")
			sc.Pause(job)
			sc.SleepUntil("2000-01-04 13:00")
			sc.Resume(job, false)
			return job
		}, "18:00", belfry.ReasonPaused, "2000-01-03 18:00 +01:00 was skipped: the job was paused. 5 occurrences from 12:00 to 2000-01-04 12:00 +01:00 share this record."},
		{"a job that was cancelled", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.CancelJob(job)
			return job
		}, "09:00", belfry.ReasonCancelled, "2000-01-03 09:00 +01:00 was skipped: the job was cancelled before it was due."},
		{"a key that was used", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *", func(s *belfry.Spec) { s.IdempotencyKeyTemplate = "{{date}}" })
			sc.FireAt("09:00")
			sc.Finish(sc.Claim(1)[0], belfry.OutcomeSucceeded)
			sc.FireAt("09:05")
			return job
		}, "09:05", belfry.ReasonDuplicateKey, "2000-01-03 09:05 +01:00 was skipped: another run of the job with the same idempotency key was alive or had succeeded in the last 7 days (idempotency_key_template: {{date}})."},
		{"a clock that was set forward", func(sc *controltest.Scenario) belfry.Job {
			sc.SleepUntil("2000-03-25 12:00")
			job := sc.Create("30 2 * * *", func(s *belfry.Spec) { s.MissedWindow = "skip" })
			sc.FireAt("2000-03-27 02:30")
			return job
		}, "2000-03-26 03:00", belfry.ReasonDSTGap, "2000-03-26 03:00 +02:00 is when the clock was set forward: 02:30 does not exist that day: left out (dst_gap follows missed_window: skip)."},
	} {
		controltest.Run(t, tt.name, func(sc *controltest.Scenario) {
			job := tt.prepare(sc)
			explainAt(sc, job, tt.at, belfry.DecisionSkipped, tt.reason, tt.want)
		})
	}
}

func TestExplanationHasTheScheduleOfItsRevision(t *testing.T) {
	controltest.Run(t, "an answer in all its parts", func(sc *controltest.Scenario) {
		job := sc.Create("H/15 * * * *", func(s *belfry.Spec) { s.MaxRetries = belfry.Some(0) })
		first := *job.NextRunAt
		time.Sleep(time.Until(first))
		sc.Fire()
		sc.Finish(sc.Claim(1)[0], belfry.OutcomeFailed)
		sc.Edit(job, func(m *belfry.Manifest) { m.Schedule = "0 * * * *" })
		why, err := explainInstant(sc, sc.Store, job.ID, first)
		sc.OK(err)
		if why.Revision != 1 || why.Rule.Schedule != "H/15 * * * *" || why.Rule.Resolved != job.Resolved || why.Rule.Timezone != "Europe/Paris" || why.Rule.Description == "" {
			sc.Errorf("got revision %d and the rule %+v", why.Revision, why.Rule)
		}
		if why.Previous == nil || !why.Previous.Equal(first.Add(-15*time.Minute)) || why.Next == nil || !why.Next.Equal(first.Add(15*time.Minute)) {
			sc.Errorf("got %v and %v around it", why.Previous, why.Next)
		}
		beside, err := explainInstant(sc, sc.Store, job.ID, first.Add(-time.Second))
		if err != nil || !strings.Contains(beside.Sentence, "is not an occurrence of H/15 * * * * ("+job.Resolved+") in Europe/Paris;") {
			sc.Errorf("beside it: %s, error %v", beside.Sentence, err)
		}
		if why.Run == nil || len(why.Run.Attempts) != 1 || why.Run.Attempts[0].Error != "no such customer" || !why.At.Equal(first) {
			sc.Errorf("got the run %+v", why.Run)
		}
	})
}

func TestExplainTheLatest(t *testing.T) {
	for _, tt := range []struct {
		name    string
		prepare func(sc *controltest.Scenario) belfry.Job
		want    string
	}{
		{"the next if there is none yet", func(sc *controltest.Scenario) belfry.Job { return sc.Create("*/5 * * * *") }, "2000-01-03 09:00 +01:00 is planned: the job is due then."},
		{"the latest", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.FireAt("09:00", "09:05")
			sc.Backfill(job, "08:00")
			sc.SleepUntil("09:06")
			return job
		}, "2000-01-03 09:05 +01:00 was skipped: the run of 09:00 had not finished (overlap: skip)."},
		{"a triggered run that waits", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.FireAt("09:00")
			sc.Finish(sc.Claim(1)[0], belfry.OutcomeSucceeded)
			sc.SleepUntil("09:01")
			sc.Trigger(job)
			sc.Fire()
			return job
		}, "The manual run of 2000-01-03 09:01 +01:00 is queued: no run is ahead of it, and 0 of 10 slots of the worker that serves default/send are busy; it starts as soon as one of them claims it."},
		{"a triggered run that is over", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.Trigger(job)
			sc.Fire()
			sc.Finish(sc.Claim(1)[0], belfry.OutcomeSucceeded)
			return job
		}, "The manual run of 2000-01-03 08:58:30 +01:00 ran: it succeeded at 08:58:30."},
		{"the pause", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.FireAt("09:00")
			sc.Finish(sc.Claim(1)[0], belfry.OutcomeSucceeded)
			sc.Pause(job)
			sc.SleepUntil("09:02")
			return job
		}, "2000-01-03 09:05 +01:00 is planned, but the job is paused: it will be skipped unless the job is resumed before then."},
		{"the next of a job that was cancelled and resumed", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.CancelJob(job)
			sc.Resume(job, false)
			return job
		}, "2000-01-03 09:00 +01:00 is planned: the job is due then."},
		{"the run of a job that was cancelled and resumed", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.CancelJob(job)
			sc.Resume(job, false)
			sc.FireAt("09:00")
			sc.Finish(sc.Claim(1)[0], belfry.OutcomeSucceeded)
			return job
		}, "2000-01-03 09:00 +01:00 ran: it succeeded at 09:00."},
		{"the end of many", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *", func(s *belfry.Spec) { s.MissedWindow = "skip" })
			sc.FireAt("09:12")
			return job
		}, "2000-01-03 09:10 +01:00 was skipped: no scheduler was running (missed_window: skip does not catch up). 3 occurrences from 09:00 to 09:10 share this record."},
	} {
		controltest.Run(t, tt.name, func(sc *controltest.Scenario) {
			job := tt.prepare(sc)
			why, err := explainInstant(sc, sc.Store, job.ID, time.Time{})
			if err != nil || why.Sentence != tt.want {
				sc.Errorf("got  %s, error %v\nwant %s", why.Sentence, err, tt.want)
			}
		})
	}
}
