package control_test

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
)

func TestWhyOfWhatIsNotDecided(t *testing.T) {
	for _, tt := range []struct {
		name     string
		play     func(g *stage) belfry.Job
		at       string
		decision belfry.Decision
		want     string
	}{
		{"the next occurrence", func(g *stage) belfry.Job { return g.every("*/5 * * * *") }, "09:00", belfry.DecisionPlanned,
			"2000-01-03 09:00 +01:00 is planned: the job is due then."},
		{"one that is far away", func(g *stage) belfry.Job { return g.every("*/5 * * * *") }, "2000-07-03 09:00", belfry.DecisionPlanned,
			"2000-07-03 09:00 +02:00 is planned: the job is due then."},
		{"one with jitter", func(g *stage) belfry.Job { return g.every("0 * * * *", func(s *belfry.Spec) { s.JitterSeconds = 1 }) }, "09:00", belfry.DecisionPlanned,
			"2000-01-03 09:00 +01:00 is planned: its run may start at 09:00 (jitter_seconds)."},
		{"a wall time that the clock will skip", func(g *stage) belfry.Job { return g.every("30 2 * * *") }, "2000-03-26 03:00", belfry.DecisionPlanned,
			"2000-03-26 03:00 +02:00 is planned: the job is due then. The clock changes: 02:30 does not exist that day: runs at 03:00."},
		{"a wall time that the clock will skip, and so does the job", func(g *stage) belfry.Job {
			return g.every("30 2 * * *", func(s *belfry.Spec) { s.DSTGap = belfry.GapSkip })
		}, "2000-03-26 03:00", belfry.DecisionNone, "2000-03-26 03:00 +02:00 is when the clock is set forward: 02:30 does not exist that day: left out (dst_gap: skip)."},
		{"a wall time that the clock will skip, and so does what is missed", func(g *stage) belfry.Job {
			return g.every("30 2 * * *", func(s *belfry.Spec) { s.MissedWindow = belfry.MissedSkip })
		}, "2000-03-26 03:00", belfry.DecisionNone, "2000-03-26 03:00 +02:00 is when the clock is set forward: 02:30 does not exist that day: left out (dst_gap follows missed_window: skip)."},
		{"a wall time that the clock will skip after the end", func(g *stage) belfry.Job {
			return g.every("30 2 * * *", func(s *belfry.Spec) { s.DSTGap, s.EndsAt = belfry.GapSkip, g.at("2000-03-25 12:00") })
		}, "2000-03-26 03:00", belfry.DecisionNone, "2000-03-26 03:00 +02:00 is not an occurrence of 30 2 * * * in Europe/Paris; the last is 2000-03-25 02:30 +01:00."},
		{"a wall time that comes twice", func(g *stage) belfry.Job { return g.every("30 2 * * *") }, "2000-10-29T00:30:00Z", belfry.DecisionPlanned,
			"2000-10-29 02:30 +02:00 is planned: the job is due then. The clock changes: 02:30 comes twice: runs the first time."},
		{"the second time of it", func(g *stage) belfry.Job { return g.every("30 2 * * *") }, "2000-10-29T01:30:00Z", belfry.DecisionNone,
			"2000-10-29 02:30 +01:00 is not an occurrence of 30 2 * * * in Europe/Paris; the ones around it are 2000-10-29 02:30 +02:00 and 2000-10-30 02:30 +01:00. The clock changes: 02:30 comes twice: runs the first time."},
		{"no occurrence", func(g *stage) belfry.Job { return g.every("*/5 * * * *") }, "09:07", belfry.DecisionNone,
			"2000-01-03 09:07 +01:00 is not an occurrence of */5 * * * * in Europe/Paris; the ones around it are 09:05 and 09:10."},
		{"no occurrence in a range of skips", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.fired("11:02")
			return job
		}, "09:07", belfry.DecisionNone, "2000-01-03 09:07 +01:00 is not an occurrence of */5 * * * * in Europe/Paris; the ones around it are 09:05 and 09:10."},
		{"before the job", func(g *stage) belfry.Job { return g.every("*/5 * * * *") }, "08:55", belfry.DecisionNone,
			"2000-01-03 08:55 +01:00 lies before the job, which was created at 08:58:30."},
		{"before its start", func(g *stage) belfry.Job {
			return g.every("*/5 * * * *", func(s *belfry.Spec) { s.StartsAt = g.at("10:01") })
		}, "10:00", belfry.DecisionNone, "2000-01-03 10:00 +01:00 is not run: it lies before starts_at, which is 10:01."},
		{"after its end", func(g *stage) belfry.Job {
			return g.every("*/5 * * * *", func(s *belfry.Spec) { s.EndsAt = g.at("10:01") })
		}, "10:05", belfry.DecisionNone, "2000-01-03 10:05 +01:00 is not run: it lies after ends_at, which is 10:01."},
		{"after the last", func(g *stage) belfry.Job {
			return g.every("*/5 * * * *", func(s *belfry.Spec) { s.EndsAt = g.at("10:01") })
		}, "10:07", belfry.DecisionNone, "2000-01-03 10:07 +01:00 is not an occurrence of */5 * * * * in Europe/Paris; the last is 10:00."},
		{"a one-off at another time", func(g *stage) belfry.Job { return g.every("2000-01-03T09:30") }, "09:00", belfry.DecisionNone,
			"2000-01-03 09:00 +01:00 is not the instant of the job, which runs once, at 09:30."},
		{"a one-off", func(g *stage) belfry.Job { return g.every("2000-01-03T09:30") }, "09:30", belfry.DecisionPlanned,
			"2000-01-03 09:30 +01:00 is planned: the job is due then."},
		{"a one-off that is paused", func(g *stage) belfry.Job {
			job := g.every("2000-01-03T09:30")
			g.pause(job)
			return job
		}, "09:30", belfry.DecisionPaused, "2000-01-03 09:30 +01:00 is planned, but the job is paused: it runs when the job is resumed, however late."},
		{"a pause", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.pause(job)
			return job
		}, "09:00", belfry.DecisionPaused, "2000-01-03 09:00 +01:00 is planned, but the job is paused: it will be skipped unless the job is resumed before."},
		{"in a pause", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.pause(job)
			g.until("09:12")
			return job
		}, "09:10", belfry.DecisionPaused, "2000-01-03 09:10 +01:00 fell into a pause that is not over: it will be skipped when the job is resumed, unless that is asked to make up for it (catch_up)."},
		{"a job that cannot be fired", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.ok(g.s.Park(g.Context(), job.ID, "its spec is of a newer version"))
			return job
		}, "09:00", belfry.DecisionQuarantined, "2000-01-03 09:00 +01:00 is planned, but the job cannot be fired: its spec is of a newer version."},
		{"a job that is due and cannot be fired", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.ok(g.s.Park(g.Context(), job.ID, "its spec is of a newer version"))
			g.until("09:01")
			return job
		}, "09:00", belfry.DecisionQuarantined, "2000-01-03 09:00 +01:00 is due, but the job cannot be fired: its spec is of a newer version."},
		{"one that is due", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.until("09:01:05")
			return job
		}, "09:00", belfry.DecisionDue, "2000-01-03 09:00 +01:00 is due for 1 minute 5 seconds and about to be decided; what is due is fired as fast as workers can take it."},
		{"beyond the number of runs", func(g *stage) belfry.Job { return g.every("*/5 * * * *", func(s *belfry.Spec) { s.MaxRuns = 2 }) }, "09:10", belfry.DecisionNone,
			"2000-01-03 09:10 +01:00 will not be run: the job has all its runs by then, unless some are skipped (max_runs: 2)."},
		{"the last of the runs", func(g *stage) belfry.Job { return g.every("*/5 * * * *", func(s *belfry.Spec) { s.MaxRuns = 2 }) }, "09:05", belfry.DecisionPlanned,
			"2000-01-03 09:05 +01:00 is planned: the job is due then."},
		{"after all runs", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *", func(s *belfry.Spec) { s.MaxRuns = 1 })
			g.fired("09:00")
			return job
		}, "09:05", belfry.DecisionNone, "2000-01-03 09:05 +01:00 is not run: the job had all its runs by then (max_runs: 1)."},
		{"after the job was cancelled", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.cancelJob(job)
			return job
		}, "09:05", belfry.DecisionNone, "2000-01-03 09:05 +01:00 is not run: the job was cancelled, and nothing is planned until its schedule is edited."},
		{"by the rule of that time", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.fired("09:00")
			g.until("09:08")
			return edit(g.T, g.c, job.ID, func(d *control.Draft) { d.Spec.Schedule = "0 * * * *" })
		}, "09:07", belfry.DecisionNone, "2000-01-03 09:07 +01:00 is not an occurrence of */5 * * * * in Europe/Paris; the ones around it are 09:05 and 09:10."},
		{"by the rule of now", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.fired("09:00")
			g.until("09:08")
			return edit(g.T, g.c, job.ID, func(d *control.Draft) { d.Spec.Schedule = "0 * * * *" })
		}, "09:10", belfry.DecisionNone, "2000-01-03 09:10 +01:00 is not an occurrence of 0 * * * * in Europe/Paris; the ones around it are 09:00 and 10:00."},
		{"while the job was cancelled", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *")
			g.cancelJob(job)
			g.until("09:08")
			job = edit(g.T, g.c, job.ID, func(d *control.Draft) { d.Spec.Schedule = "*/10 * * * *" })
			g.fired("09:10")
			return job
		}, "09:05", belfry.DecisionNone, "2000-01-03 09:05 +01:00 was not run: the job was cancelled then, and nothing was planned."},
		{"while the job had all its runs", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *", func(s *belfry.Spec) { s.MaxRuns = 1 })
			g.fired("09:00")
			g.until("09:08")
			return edit(g.T, g.c, job.ID, func(d *control.Draft) { d.Spec.MaxRuns = 2 })
		}, "09:05", belfry.DecisionUnknown, "2000-01-03 09:05 +01:00 has no record: the job had all its runs by then (max_runs: 1), or it is no longer there, since history is kept as long as the server is set to."},
		{"what is forgotten", func(g *stage) belfry.Job {
			job := g.every("*/5 * * * *", func(s *belfry.Spec) { s.RetentionDays = 3 })
			g.fired("09:00")
			g.finish(g.claim(1)[0], belfry.OutcomeSucceeded)
			g.fired("2000-01-08 09:00")
			_, err := g.s.Prune(g.Context(), 90*24*time.Hour)
			g.ok(err)
			return job
		}, "09:00", belfry.DecisionUnknown, "2000-01-03 09:00 +01:00 was decided, but its record is no longer there: history is kept for 3 days (retention_days)."},
	} {
		staged(t, tt.name, func(g *stage) {
			job := tt.play(g)
			g.why(job, tt.at, tt.decision, "", tt.want)
		})
	}
}
