package explain_test

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control/controltest"
)

func TestExplainUnrecordedInstants(t *testing.T) {
	for _, tt := range []struct {
		name     string
		prepare  func(sc *controltest.Scenario) belfry.Job
		at       string
		decision belfry.Decision
		want     string
	}{
		{"the next occurrence", func(sc *controltest.Scenario) belfry.Job { return sc.Create("*/5 * * * *") }, "09:00", belfry.DecisionPlanned,
			"2000-01-03 09:00 +01:00 is planned: the job is due then."},
		{"one that is far away", func(sc *controltest.Scenario) belfry.Job { return sc.Create("*/5 * * * *") }, "2000-07-03 09:00", belfry.DecisionPlanned,
			"2000-07-03 09:00 +02:00 is planned: the job is due then."},
		{"one with jitter", func(sc *controltest.Scenario) belfry.Job {
			return sc.Create("0 * * * *", func(s *belfry.Spec) { s.JitterSeconds = 1 })
		}, "09:00", belfry.DecisionPlanned,
			"2000-01-03 09:00 +01:00 is planned: its run may start at 09:00 (jitter_seconds)."},
		{"a wall time that the clock will skip", func(sc *controltest.Scenario) belfry.Job { return sc.Create("30 2 * * *") }, "2000-03-26 03:00", belfry.DecisionPlanned,
			"2000-03-26 03:00 +02:00 is planned: the job is due then. The clock changes: 02:30 does not exist that day: runs at 03:00."},
		{"a wall time that the clock will skip, and so does the job", func(sc *controltest.Scenario) belfry.Job {
			return sc.Create("30 2 * * *", func(s *belfry.Spec) { s.DSTGap = belfry.GapSkip })
		}, "2000-03-26 03:00", belfry.DecisionNone, "2000-03-26 03:00 +02:00 is when the clock is set forward: 02:30 does not exist that day: left out (dst_gap: skip)."},
		{"a wall time that the clock will skip, and so does what is missed", func(sc *controltest.Scenario) belfry.Job {
			return sc.Create("30 2 * * *", func(s *belfry.Spec) { s.MissedWindow = belfry.MissedSkip })
		}, "2000-03-26 03:00", belfry.DecisionNone, "2000-03-26 03:00 +02:00 is when the clock is set forward: 02:30 does not exist that day: left out (dst_gap follows missed_window: skip)."},
		{"a wall time that the clock will skip after the end", func(sc *controltest.Scenario) belfry.Job {
			return sc.Create("30 2 * * *", func(s *belfry.Spec) { s.DSTGap, s.EndsAt = belfry.GapSkip, sc.At("2000-03-25 12:00") })
		}, "2000-03-26 03:00", belfry.DecisionNone, "2000-03-26 03:00 +02:00 is not an occurrence of 30 2 * * * in Europe/Paris; the last is 2000-03-25 02:30 +01:00."},
		{"a wall time that comes twice", func(sc *controltest.Scenario) belfry.Job { return sc.Create("30 2 * * *") }, "2000-10-29T00:30:00Z", belfry.DecisionPlanned,
			"2000-10-29 02:30 +02:00 is planned: the job is due then. The clock changes: 02:30 comes twice: runs the first time."},
		{"the second time of it", func(sc *controltest.Scenario) belfry.Job { return sc.Create("30 2 * * *") }, "2000-10-29T01:30:00Z", belfry.DecisionNone,
			"2000-10-29 02:30 +01:00 is not an occurrence of 30 2 * * * in Europe/Paris; the nearest are 2000-10-29 02:30 +02:00 and 2000-10-30 02:30 +01:00. The clock changes: 02:30 comes twice: runs the first time."},
		{"no occurrence", func(sc *controltest.Scenario) belfry.Job { return sc.Create("*/5 * * * *") }, "09:07", belfry.DecisionNone,
			"2000-01-03 09:07 +01:00 is not an occurrence of */5 * * * * in Europe/Paris; the nearest are 09:05 and 09:10."},
		{"no occurrence in a range of skips", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.FireAt("11:02")
			return job
		}, "09:07", belfry.DecisionNone, "2000-01-03 09:07 +01:00 is not an occurrence of */5 * * * * in Europe/Paris; the nearest are 09:05 and 09:10."},
		{"before the job", func(sc *controltest.Scenario) belfry.Job { return sc.Create("*/5 * * * *") }, "08:55", belfry.DecisionNone,
			"2000-01-03 08:55 +01:00 is before the job was created, at 08:58:30."},
		{"before its start", func(sc *controltest.Scenario) belfry.Job {
			return sc.Create("*/5 * * * *", func(s *belfry.Spec) { s.StartsAt = sc.At("10:01") })
		}, "10:00", belfry.DecisionNone, "2000-01-03 10:00 +01:00 does not run: it is before starts_at, which is 10:01."},
		{"after its end", func(sc *controltest.Scenario) belfry.Job {
			return sc.Create("*/5 * * * *", func(s *belfry.Spec) { s.EndsAt = sc.At("10:01") })
		}, "10:05", belfry.DecisionNone, "2000-01-03 10:05 +01:00 does not run: it is after ends_at, which is 10:01."},
		{"after the last", func(sc *controltest.Scenario) belfry.Job {
			return sc.Create("*/5 * * * *", func(s *belfry.Spec) { s.EndsAt = sc.At("10:01") })
		}, "10:07", belfry.DecisionNone, "2000-01-03 10:07 +01:00 is not an occurrence of */5 * * * * in Europe/Paris; the last is 10:00."},
		{"a one-off at another time", func(sc *controltest.Scenario) belfry.Job { return sc.Create("2000-01-03T09:30") }, "09:00", belfry.DecisionNone,
			"2000-01-03 09:00 +01:00 is not the instant of the job, which runs once, at 09:30."},
		{"a one-off", func(sc *controltest.Scenario) belfry.Job { return sc.Create("2000-01-03T09:30") }, "09:30", belfry.DecisionPlanned,
			"2000-01-03 09:30 +01:00 is planned: the job is due then."},
		{"a one-off that is paused", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("2000-01-03T09:30")
			sc.Pause(job)
			return job
		}, "09:30", belfry.DecisionPaused, "2000-01-03 09:30 +01:00 is planned, but the job is paused: it runs when the job is resumed, however late."},
		{"a pause", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.Pause(job)
			return job
		}, "09:00", belfry.DecisionPaused, "2000-01-03 09:00 +01:00 is planned, but the job is paused: it will be skipped unless the job is resumed before then."},
		{"in a pause", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.Pause(job)
			sc.SleepUntil("09:12")
			return job
		}, "09:10", belfry.DecisionPaused, "2000-01-03 09:10 +01:00 became due in a pause that has not ended: it will be skipped when the job is resumed, unless the resume catches up (catch_up)."},
		{"a job that cannot be fired", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.OK(sc.Store.Quarantine(sc.Context(), job.ID, "its spec is of a newer version"))
			return job
		}, "09:00", belfry.DecisionQuarantined, "2000-01-03 09:00 +01:00 is planned, but the job cannot be fired: its spec is of a newer version."},
		{"a job that is due and cannot be fired", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.OK(sc.Store.Quarantine(sc.Context(), job.ID, "its spec is of a newer version"))
			sc.SleepUntil("09:01")
			return job
		}, "09:00", belfry.DecisionQuarantined, "2000-01-03 09:00 +01:00 is due, but the job cannot be fired: its spec is of a newer version."},
		{"one that is due", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.SleepUntil("09:01:05")
			return job
		}, "09:00", belfry.DecisionDue, "2000-01-03 09:00 +01:00 has been due for 1 minute 5 seconds and is about to be decided; due jobs are fired as fast as workers can take them."},
		{"beyond the number of runs", func(sc *controltest.Scenario) belfry.Job {
			return sc.Create("*/5 * * * *", func(s *belfry.Spec) { s.MaxRuns = 2 })
		}, "09:10", belfry.DecisionNone,
			"2000-01-03 09:10 +01:00 will not run: the job will have used all its runs by then, unless some are skipped (max_runs: 2)."},
		{"the last of the runs", func(sc *controltest.Scenario) belfry.Job {
			return sc.Create("*/5 * * * *", func(s *belfry.Spec) { s.MaxRuns = 2 })
		}, "09:05", belfry.DecisionPlanned,
			"2000-01-03 09:05 +01:00 is planned: the job is due then."},
		{"after all runs", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *", func(s *belfry.Spec) { s.MaxRuns = 1 })
			sc.FireAt("09:00")
			return job
		}, "09:05", belfry.DecisionNone, "2000-01-03 09:05 +01:00 does not run: the job has used all its runs (max_runs: 1)."},
		{"after the job was cancelled", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.CancelJob(job)
			return job
		}, "09:05", belfry.DecisionNone, "2000-01-03 09:05 +01:00 does not run: the job was cancelled, and nothing is planned until it is resumed."},
		{"by the rule of that time", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.FireAt("09:00")
			sc.SleepUntil("09:08")
			return sc.Edit(job, func(m *belfry.Manifest) { m.Schedule = "0 * * * *" })
		}, "09:07", belfry.DecisionNone, "2000-01-03 09:07 +01:00 is not an occurrence of */5 * * * * in Europe/Paris; the nearest are 09:05 and 09:10."},
		{"by the rule of now", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.FireAt("09:00")
			sc.SleepUntil("09:08")
			return sc.Edit(job, func(m *belfry.Manifest) { m.Schedule = "0 * * * *" })
		}, "09:10", belfry.DecisionNone, "2000-01-03 09:10 +01:00 is not an occurrence of 0 * * * * in Europe/Paris; the nearest are 09:00 and 10:00."},
		{"while the job was cancelled", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *")
			sc.CancelJob(job)
			sc.SleepUntil("09:08")
			job = sc.Edit(job, func(m *belfry.Manifest) { m.Schedule = "*/10 * * * *" })
			sc.FireAt("09:10")
			return job
		}, "09:05", belfry.DecisionNone, "2000-01-03 09:05 +01:00 did not run: the job was cancelled at that time, and nothing was planned."},
		{"while the job had all its runs", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *", func(s *belfry.Spec) { s.MaxRuns = 1 })
			sc.FireAt("09:00")
			sc.SleepUntil("09:08")
			return sc.Edit(job, func(m *belfry.Manifest) { m.MaxRuns = 2 })
		}, "09:05", belfry.DecisionUnknown, "2000-01-03 09:05 +01:00 has no record: the job had used all its runs by then (max_runs: 1), or the record was pruned, since history is kept as long as the server is configured to."},
		{"a pruned record", func(sc *controltest.Scenario) belfry.Job {
			job := sc.Create("*/5 * * * *", func(s *belfry.Spec) { s.RetentionDays = 3 })
			sc.FireAt("09:00")
			sc.Finish(sc.Claim(1)[0], belfry.OutcomeSucceeded)
			sc.FireAt("2000-01-08 09:00")
			_, err := sc.Store.Prune(sc.Context(), 90*24*time.Hour)
			sc.OK(err)
			return job
		}, "09:00", belfry.DecisionUnknown, "2000-01-03 09:00 +01:00 was decided, but its record was pruned: history is kept for 3 days (retention_days)."},
	} {
		controltest.Run(t, tt.name, func(sc *controltest.Scenario) {
			job := tt.prepare(sc)
			explainAt(sc, job, tt.at, tt.decision, "", tt.want)
		})
	}
}
