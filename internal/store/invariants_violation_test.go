package store_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
)

// recorder is a test that only listens.
type recorder struct {
	*testing.T
	messages []string
}

func (c *recorder) Errorf(format string, args ...any) {
	c.messages = append(c.messages, fmt.Sprintf(format, args...))
}

// violation is one way to break a store behind its back, and what has to be said of it.
type violation struct{ sentence, sql string }

var violations = []violation{
	{"occurrences have two decisions", `UPDATE runs SET scheduled_at = (SELECT scheduled_at FROM history WHERE state = 'succeeded') WHERE state = 'ready'`},
	{"runs have an id that another row has too", `UPDATE dead SET id = (SELECT id FROM history WHERE state = 'succeeded')`},
	{"decisions lie within a recorded range of skips", `UPDATE history SET skipped_to = skipped_to + 60000000 WHERE state = 'skipped' AND reason = 'missed_window'`},
	{"has id", `UPDATE history SET scheduled_at = scheduled_at + 1, skipped_to = skipped_to + 1 WHERE reason = 'zone_change'`},
	{"were made early", `UPDATE history SET fired_at = scheduled_at - 1 WHERE reason = 'dst_gap'`},
	{"skips have no reason", `UPDATE history SET reason = '' WHERE state = 'skipped'`},
	{"rows of history are not settled", `UPDATE history SET state = 'dead' WHERE state = 'succeeded'`},
	{"succeeded without an attempt", `UPDATE history SET attempt = 0 WHERE state = 'succeeded'`},
	{"dead letters have no reason", `UPDATE dead SET reason = ''`},
	{"not beyond their high-water mark", `UPDATE plans SET nominal_at = fired_for`},
	{"due without an occurrence or before it", `UPDATE plans SET next_at = nominal_at - 1`},
	{"lie beyond the plan's high-water mark", `UPDATE plans SET fired_for = fired_for - 600000000`},
	{"live runs have no job", `UPDATE runs SET job_id = zeroblob(16) WHERE state = 'ready'`},
	{"plans have no job", `INSERT INTO plans (job_id, shard, version, runs_made, zone_version) SELECT zeroblob(16), shard, version, runs_made, zone_version FROM plans LIMIT 1`},
	{"jobs have no plan", `DELETE FROM plans`},
	{"deleted or paused jobs are planned", `UPDATE jobs SET state = 'paused'`},
	{"live runs have an unknown state", `UPDATE runs SET state = 'odd' WHERE state = 'ready'`},
	{"running runs lack a worker", `UPDATE runs SET token = NULL WHERE state = 'running'`},
	{"unheld runs have a worker", `UPDATE runs SET worker = fired_by WHERE state = 'ready'`},
	{"a number that their run has not reached", `UPDATE attempts SET attempt = 9`},
	{"still holds them or won with them", `UPDATE attempts SET run_id = (SELECT id FROM runs WHERE state = 'running') WHERE run_id IN (SELECT id FROM dead)`},
	{"attempts are missing", `DELETE FROM attempts`},
	{"were made early", `UPDATE runs SET fired_at = scheduled_at - 1 WHERE kind = 'scheduled'`},
	{"shards differ", `UPDATE runs SET shard = shard + 1 WHERE state = 'ready'`},
	{"attempts are in another shard", `UPDATE attempts SET shard = shard + 1`},
	{"a revision that is kept nowhere", `UPDATE runs SET revision = 9 WHERE state = 'ready'`},
	{"and has rank", `UPDATE runs SET rank = rank + 1 WHERE state = 'ready'`},
	{"and has rank", `UPDATE runs SET ready_at = ready_at + 1 WHERE state = 'ready'`},
	{"its spec says", `UPDATE runs SET weight = weight + 1, rank = rank + 1 WHERE state = 'ready'`},
	{"its spec says", `UPDATE runs SET retention_days = 3 WHERE state = 'running'`},
	{"discarded runs have no reason", `UPDATE history SET reason = '' WHERE state = 'discarded'`},
	{"attempts are missing", `DELETE FROM attempts WHERE run_id IN (SELECT id FROM history WHERE state = 'cancelled')`},
	{"marked as cancelled", `UPDATE runs SET cancel_requested_at = 1 WHERE state = 'ready'`},
	{"a job without a template", `INSERT INTO keys SELECT id, 'k', shard, zeroblob(16), 0, NULL FROM jobs WHERE spec NOT LIKE '%template%'`},
	{"has another, or is not scheduled", `UPDATE keys SET key = 'other'`},
	{"whether their run succeeded", `UPDATE keys SET succeeded_at = 1`},
	{"a key that is not kept", `DELETE FROM keys`},
	{"ended jobs are in a live table", `UPDATE runs SET job_id = (SELECT id FROM ended) WHERE state = 'running'`},
	{"ended jobs are in a live table", `UPDATE triggers SET fired_at = NULL, job_id = (SELECT id FROM ended)`},
	{"ended jobs have another status", `UPDATE ended SET status = 'running'`},
	{"expire before", `UPDATE history SET retain_until = settled_at WHERE state = 'succeeded'`},
	{"is in shard", `UPDATE jobs SET shard = 1 - shard`},
	{"has 3 runs that do not wait", `UPDATE jobs SET spec = replace(spec, '"parallel"', '"skip"')`},
	{"differ from its spec", `UPDATE jobs SET queue = 'other'`},
	{"differ from its spec", `UPDATE jobs SET type = 'other'`},
	{"differ from its spec", `UPDATE jobs SET handler = 'other'`},
	{"the tags of job", `UPDATE jobs SET tags = '["b", "a"]'`},
	{"the tags of job", `UPDATE jobs SET tags = '["a", "a"]'`},
	{"revisions are not below", `INSERT INTO revisions SELECT id, revision, shard, spec, payload, 0 FROM jobs`},
	{"keys of runs are empty", `UPDATE dead SET key = ''`},
	{"requests have no key or hash", `INSERT INTO requests VALUES ('default', 'k', x'00', x'00', 0)`},
	{"a trigger (fired: false) has 1 runs", `UPDATE triggers SET fired_at = NULL`},
}

func TestInvariantsDetectEveryViolation(t *testing.T) {
	t.Parallel()
	for i, c := range violations {
		t.Run(fmt.Sprint(i, " ", c.sentence), func(t *testing.T) {
			f := openSQLite(t)
			f.tables.SetMaxOpenConns(1)
			f.populate(t)
			checkInvariants(t, f)
			f.exec(t, `PRAGMA ignore_check_constraints = ON`)
			if n := f.exec(t, c.sql); n == 0 {
				t.Fatal("the statement changed nothing")
			}
			seen := &recorder{T: t}
			checkInvariants(seen, f)
			if all := strings.Join(seen.messages, "\n"); !strings.Contains(all, c.sentence) {
				t.Errorf("the check says %q, wants %q", all, c.sentence)
			}
		})
	}
}

// populate makes a job with a run in every place, and notes beside them.
func (f *fixture) populate(t tb) {
	t.Helper()
	f.populateSettled(t)
	job, worker := f.createJob(t, 30, allowParallel, withRetries(0)), f.registerWorker(t)
	f.fire(t, plan.Decide(subject(t, job.Namespace, 1, job.Spec), f.plan(t, job.ID), f.minutesAgo(20), f.Now()))
	f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeSucceeded)
	f.fire(t, f.step(t, job))
	f.finishAs(t, f.claimOne(t, worker), belfry.OutcomeFailed)
	noted := f.step(t, job)
	noted.Skips = []plan.Skip{noteSkip(job.ID, belfry.ReasonDSTGap, noted.Runs[0].ScheduledAt, 1), noteSkip(job.ID, belfry.ReasonZoneChange, f.minutesAgo(-60), 1)}
	f.fire(t, noted)
	f.claimOne(t, worker)
	f.fire(t, f.step(t, job))
	f.fire(t, plan.Fire(subject(t, job.Namespace, 1, job.Spec), f.plan(t, job.ID), []plan.Trigger{f.trigger(t, job, "")}))
}

// populateSettled makes what has to do with cancelling, discarding, keys and ends.
func (f *fixture) populateSettled(t tb) {
	t.Helper()
	given := f.deadRun(t)
	f.discard(t, given.Namespace, given.ID)
	cancelled := f.startRun(t)
	f.cancel(t, cancelled.Namespace, cancelled.ID)
	f.finishAs(t, cancelled, belfry.OutcomeCancelled)
	f.edit(t, f.createJob(t, -60), cancelJob(t))
	once := f.createOneOff(t, 5)
	step := f.step(t, once)
	f.fire(t, step)
	f.cancel(t, once.Namespace, step.Runs[0].ID)
	f.fire(t, f.step(t, f.createJob(t, 5, withQueue("keyed"), withKeys("k-{{unix}}"))))
}
