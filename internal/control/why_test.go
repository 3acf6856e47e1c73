package control_test

import (
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

func TestWhyOfWhatWasDecided(t *testing.T) {
	for _, tt := range []struct {
		name     string
		play     func(g *stage) belfry.Job
		at       string
		decision belfry.Decision
		reason   belfry.Reason
		want     string
	}{
		{"a success", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.fired("09:00")
			run := g.claim(1)[0]
			g.until("09:00:02")
			g.finish(run, belfry.OutcomeSucceeded)
			return job
		}, "09:00", belfry.DecisionRan, "", "2000-01-03 09:00 +01:00 ran: it succeeded at 09:00:02."},
		{"a success after a failure", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *", func(s *belfry.Spec) { s.RetryBackoff = "immediate" })
			g.fired("09:00")
			g.finish(g.claim(1)[0], belfry.OutcomeFailed)
			g.promote()
			g.finish(g.claim(1)[0], belfry.OutcomeSucceeded)
			return job
		}, "09:00", belfry.DecisionRan, "", "2000-01-03 09:00 +01:00 ran: it succeeded at 09:00, at attempt 2."},
		{"one that was made up for", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.fired("12:03:10")
			g.finish(g.claim(1)[0], belfry.OutcomeSucceeded)
			return job
		}, "12:00", belfry.DecisionRan, "", "2000-01-03 12:00 +01:00 ran: it succeeded at 12:03:10. It was fired at 12:03:10, which was 3 minutes 10 seconds late."},
		{"one that runs", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.fired("09:00:00")
			g.claim(1)
			return job
		}, "09:00", belfry.DecisionRunning, "", "2000-01-03 09:00 +01:00 is running since 09:00 (attempt 1)."},
		{"one that runs and is cancelled", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.fired("09:00")
			g.cancelRun(g.claim(1)[0].ID)
			return job
		}, "09:00", belfry.DecisionRunning, "", "2000-01-03 09:00 +01:00 is running since 09:00 (attempt 1). Somebody cancelled it: it ends when its worker lets go of it."},
		{"one that is to be tried again", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *", func(s *belfry.Spec) { s.RetryBackoff, s.RetryBaseSeconds = "fixed", 90 })
			g.fired("09:00")
			g.finish(g.claim(1)[0], belfry.OutcomeFailed)
			g.until("09:01:30")
			g.promote()
			g.finish(g.claim(1)[0], belfry.OutcomeTimedOut, func(r *belfry.Result) { r.Error = "it took\n too long" })
			return job
		}, "09:00", belfry.DecisionRetrying, "", "2000-01-03 09:00 +01:00 failed 2 of 4 attempts; the next attempt is at 09:03. The last error was: it took too long."},
		{"one that was put off", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.fired("09:00")
			g.finish(g.claim(1)[0], belfry.OutcomeSnoozed, func(r *belfry.Result) { r.RetryAfterSeconds = 600 })
			return job
		}, "09:00", belfry.DecisionRetrying, "", "2000-01-03 09:00 +01:00 was put off by its handler; the next attempt is at 09:10."},
		{"one that is dead", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *", func(s *belfry.Spec) { s.MaxRetries = 0 })
			g.fired("09:00")
			g.finish(g.claim(1)[0], belfry.OutcomeFailed)
			return job
		}, "09:00", belfry.DecisionDead, belfry.ReasonOutOfRetries, "2000-01-03 09:00 +01:00 ran and failed for good at 09:00: it is out of retries after 1 attempt; the last error was: no such customer. It is a dead letter until somebody redrives or discards it."},
		{"one that was discarded", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.fired("09:00")
			g.discard(g.die(1)[0])
			return job
		}, "09:00", belfry.DecisionDiscarded, belfry.ReasonPermanent, "2000-01-03 09:00 +01:00 ran and failed for good: a failure that no retry would change, after 1 attempt; the last error was: no such customer. Somebody discarded the dead letter."},
		{"one that was redriven", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.fired("09:00")
			run := g.die(1)[0]
			g.redrive(run)
			g.claim(1)
			return job
		}, "09:00", belfry.DecisionRunning, "", "2000-01-03 09:00 +01:00 is running since 09:00 (attempt 2)."},
		{"one that was cancelled before it started", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.fired("09:00")
			g.cancelRun(g.runs(job)[0].ID)
			return job
		}, "09:00", belfry.DecisionCancelled, "", "2000-01-03 09:00 +01:00 was cancelled at 09:00, before it started."},
		{"one that was run again", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.fired("09:00")
			g.finish(g.claim(1)[0], belfry.OutcomeSucceeded)
			g.backfill(job, "09:00")
			g.fired("09:00:01")
			g.finish(g.claim(1)[0], belfry.OutcomeSucceeded)
			return job
		}, "09:00", belfry.DecisionRan, "", "2000-01-03 09:00 +01:00 ran: it succeeded at 09:00. Somebody asked for it again: that run succeeded."},
		{"one that was run before the job was there", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.backfill(job, "08:00")
			g.fired("08:59")
			g.finish(g.claim(1)[0], belfry.OutcomeSucceeded)
			return job
		}, "08:00", belfry.DecisionRan, "", "The backfill of 2000-01-03 08:00 +01:00 ran: it succeeded at 08:59."},
	} {
		staged(t, tt.name, func(g *stage) {
			job := tt.play(g)
			g.why(job, tt.at, tt.decision, tt.reason, tt.want)
		})
	}
}

func TestWhyOfASkip(t *testing.T) {
	for _, tt := range []struct {
		name   string
		play   func(g *stage) belfry.Job
		at     string
		reason belfry.Reason
		want   string
	}{
		{"an earlier run", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.fired("09:00")
			g.claim(1)
			g.fired("09:05")
			return job
		}, "09:05", belfry.ReasonOverlap, "2000-01-03 09:05 +01:00 was skipped: the run of 09:00 was still running (overlap: skip)."},
		{"an earlier run that is over by now", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.fired("09:00")
			run := g.claim(1)[0]
			g.fired("09:05")
			g.finish(run, belfry.OutcomeSucceeded)
			g.fired("09:10")
			return job
		}, "09:05", belfry.ReasonOverlap, "2000-01-03 09:05 +01:00 was skipped: the run of 09:00 was still running (overlap: skip)."},
		{"an earlier run that nobody took", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.fired("09:00", "09:05")
			return job
		}, "09:05", belfry.ReasonOverlap, "2000-01-03 09:05 +01:00 was skipped: the run of 09:00 was not over yet (overlap: skip)."},
		{"a run that somebody asked for", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.until("08:59:30")
			g.trigger(job)
			fire(g.T, g.s)
			g.claim(1)
			g.fired("09:00")
			return job
		}, "09:00", belfry.ReasonOverlap, "2000-01-03 09:00 +01:00 was skipped: the manual run of 08:59:30 was still running (overlap: skip)."},
		{"a queue that is full", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *", func(s *belfry.Spec) { s.Overlap, s.MaxQueued = "queue", 1 })
			g.fired("09:00", "09:05", "09:10")
			return job
		}, "09:10", belfry.ReasonQueueFull, "2000-01-03 09:10 +01:00 was skipped: 1 run waited for an earlier one already, and no more may (overlap: queue, max_queued: 1)."},
		{"a missed window of which the latest runs", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.fired("11:02")
			return job
		}, "09:15", belfry.ReasonMissed, "2000-01-03 09:15 +01:00 was skipped: nobody was in charge (missed_window: run_once makes up for the latest only, which was 11:00). 24 occurrences from 09:00 to 10:55 are one record."},
		{"a missed window of which none runs", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *", func(s *belfry.Spec) { s.MissedWindow = "skip" })
			g.fired("09:02")
			return job
		}, "09:00", belfry.ReasonMissed, "2000-01-03 09:00 +01:00 was skipped: nobody was in charge (missed_window: skip makes up for nothing)."},
		{"a missed window that is too old", func(g *stage) belfry.Job {
			job := g.every("0 * * * *", func(s *belfry.Spec) { s.CatchUpSeconds = 90 * 60 })
			g.fired("11:30:01")
			g.fired("12:00")
			return job
		}, "09:00", belfry.ReasonMissed, "2000-01-03 09:00 +01:00 was skipped: nobody was in charge (missed_window: run_once makes up for the latest only, which was 11:00). 2 occurrences from 09:00 to 10:00 are one record."},
		{"the latest of a missed window that is too old", func(g *stage) belfry.Job {
			job := g.every("0 * * * *", func(s *belfry.Spec) { s.CatchUpSeconds = 29 * 60 })
			g.fired("11:30")
			g.fired("12:00")
			return job
		}, "11:00", belfry.ReasonMissed, "2000-01-03 11:00 +01:00 was skipped: nobody was in charge, and it was older than 29 minutes, which is how far back occurrences are made up for (catch_up_window_seconds). 3 occurrences from 09:00 to 11:00 are one record."},
		{"a missed window of a job that does not say how old", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *", func(s *belfry.Spec) { s.MissedWindow = "run_all" })
			g.fired("09:40:01")
			return job
		}, "09:05", belfry.ReasonMissed, "2000-01-03 09:05 +01:00 was skipped: nobody was in charge, and it was older than 30 minutes, which is how far back occurrences are made up for (catch_up_window_seconds). 3 occurrences from 09:00 to 09:10 are one record."},
		{"one of many that were missed", func(g *stage) belfry.Job {
			job := g.every("* * * * *", func(s *belfry.Spec) { s.MissedWindow, s.MaxMissed = "run_all", 2 })
			g.fired("09:05:30")
			return job
		}, "09:01", belfry.ReasonMaxMissed, "2000-01-03 09:01 +01:00 was skipped: nobody was in charge, and more occurrences were missed than are made up for (missed_window: run_all makes up for the newest 2, as max_missed says). 5 occurrences from 08:59 to 09:03 are one record."},
		{"a pause over midnight", func(g *stage) belfry.Job {
			job := g.every("0 */6 * * *")
			g.pause(job)
			g.until("2000-01-04 13:00")
			g.resume(job, false)
			return job
		}, "18:00", belfry.ReasonPaused, "2000-01-03 18:00 +01:00 was skipped: the job was paused. 5 occurrences from 12:00 to 2000-01-04 12:00 +01:00 are one record."},
		{"a job that was cancelled", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.cancelJob(job)
			return job
		}, "09:00", belfry.ReasonCancelled, "2000-01-03 09:00 +01:00 was skipped: the job was cancelled before it was due."},
		{"a key that was used", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *", func(s *belfry.Spec) { s.IdempotencyKeyTemplate = "{{date}}" })
			g.fired("09:00")
			g.finish(g.claim(1)[0], belfry.OutcomeSucceeded)
			g.fired("09:05")
			return job
		}, "09:05", belfry.ReasonDuplicateKey, "2000-01-03 09:05 +01:00 was skipped: its idempotency key is that of another run of the job, which was not over or had succeeded lately (idempotency_key_template: {{date}})."},
		{"a clock that was set forward", func(g *stage) belfry.Job {
			g.until("2000-03-25 12:00")
			job := g.every("30 2 * * *", func(s *belfry.Spec) { s.MissedWindow = "skip" })
			g.fired("2000-03-27 02:30")
			return job
		}, "2000-03-26 03:00", belfry.ReasonDSTGap, "2000-03-26 03:00 +02:00 is when the clock was set forward: 02:30 does not exist that day: left out (dst_gap follows missed_window: skip)."},
	} {
		staged(t, tt.name, func(g *stage) {
			job := tt.play(g)
			g.why(job, tt.at, belfry.DecisionSkipped, tt.reason, tt.want)
		})
	}
}

// why asks about a time and compares the answer.
func (g *stage) why(job belfry.Job, at string, decision belfry.Decision, reason belfry.Reason, want string) control.Why {
	g.Helper()
	why, err := g.c.Why(g.Context(), ns, job.ID, g.at(at))
	if err != nil || why.Decision != decision || why.Reason != reason || why.Sentence != want {
		g.Errorf("got  %s %s %s, error %v\nwant %s %s %s", why.Decision, why.Reason, why.Sentence, err, decision, reason, want)
	}
	return why
}

func TestWhyTellsOfTheRule(t *testing.T) {
	staged(t, "an answer in all its parts", func(g *stage) {
		job := g.every("H/15 * * * *", func(s *belfry.Spec) { s.MaxRetries = 0 })
		first := *job.NextRunAt
		time.Sleep(time.Until(first))
		fire(g.T, g.s)
		g.finish(g.claim(1)[0], belfry.OutcomeFailed)
		edit(g.T, g.c, job.ID, func(d *control.Draft) { d.Spec.Schedule = "0 * * * *" })
		why, err := g.c.Why(g.Context(), ns, job.ID, first)
		g.ok(err)
		if why.Revision != 1 || why.Rule.Schedule != "H/15 * * * *" || why.Rule.Resolved != job.Resolved || why.Rule.Timezone != "Europe/Paris" || why.Rule.Description == "" {
			g.Errorf("got revision %d and the rule %+v", why.Revision, why.Rule)
		}
		if why.Before == nil || !why.Before.Equal(first.Add(-15*time.Minute)) || why.After == nil || !why.After.Equal(first.Add(15*time.Minute)) {
			g.Errorf("got %v and %v around it", why.Before, why.After)
		}
		beside, err := g.c.Why(g.Context(), ns, job.ID, first.Add(-time.Second))
		if err != nil || !strings.Contains(beside.Sentence, "is not an occurrence of H/15 * * * * ("+job.Resolved+") in Europe/Paris;") {
			g.Errorf("beside it: %s, error %v", beside.Sentence, err)
		}
		if why.Run == nil || len(why.Run.Attempts) != 1 || why.Run.Attempts[0].Error != "no such customer" || !why.At.Equal(first) || why.Job.ID != job.ID {
			g.Errorf("got the run %+v", why.Run)
		}
	})
}

func TestWhyWithoutAnInstant(t *testing.T) {
	for _, tt := range []struct {
		name string
		play func(g *stage) belfry.Job
		want string
	}{
		{"the next if there is none yet", func(g *stage) belfry.Job { return g.every("*/5 * * * *") }, "2000-01-03 09:00 +01:00 is planned: the job is due then."},
		{"the latest", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.fired("09:00", "09:05")
			g.backfill(job, "08:00")
			g.until("09:06")
			return job
		}, "2000-01-03 09:05 +01:00 was skipped: the run of 09:00 was not over yet (overlap: skip)."},
		{"a run that somebody asked for and that waits", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.fired("09:00")
			g.finish(g.claim(1)[0], belfry.OutcomeSucceeded)
			g.until("09:01")
			g.trigger(job)
			fire(g.T, g.s)
			return job
		}, "The manual run of 2000-01-03 09:01 +01:00 is queued: no run comes first, and 0 of 10 slots of the worker that serves default/send are busy; it starts as soon as one of them takes it."},
		{"not one that is over", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.trigger(job)
			fire(g.T, g.s)
			g.finish(g.claim(1)[0], belfry.OutcomeSucceeded)
			return job
		}, "2000-01-03 09:00 +01:00 is planned: the job is due then."},
		{"the end of many", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *", func(s *belfry.Spec) { s.MissedWindow = "skip" })
			g.fired("09:12")
			return job
		}, "2000-01-03 09:10 +01:00 was skipped: nobody was in charge (missed_window: skip makes up for nothing). 3 occurrences from 09:00 to 09:10 are one record."},
	} {
		staged(t, tt.name, func(g *stage) {
			job := tt.play(g)
			why, err := g.c.Why(g.Context(), ns, job.ID, time.Time{})
			if err != nil || why.Sentence != tt.want {
				g.Errorf("got  %s, error %v\nwant %s", why.Sentence, err, tt.want)
			}
		})
	}
	staged(t, "nothing at all", func(g *stage) {
		_, err := g.c.Why(g.Context(), ns, belfry.NewID(time.Now()), time.Time{})
		codeOf(g.T, err, belfry.NotFound)
	})
}
