package store_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/store"
)

// everyRun is all runs and skips, wherever they are.
const everyRun = `(
	SELECT id, job_id, shard, revision, kind, state, '' AS reason, scheduled_at, fired_at, attempt, key, 'runs' AS place FROM runs
	UNION ALL SELECT id, job_id, shard, revision, kind, 'dead', reason, scheduled_at, fired_at, attempt, key, 'dead' FROM dead
	UNION ALL SELECT id, job_id, shard, revision, kind, state, reason, scheduled_at, fired_at, attempt, key, 'history' FROM history
) r`

// isNote is a condition on rows of history: they only note beside the occurrences that
// the clock skipped something, or that an occurrence was planned there once.
const isNote = ` (reason IN ('dst_gap', 'zone_change') OR reason = 'cancelled' AND state = 'skipped' AND scheduled_at > fired_at) `

// decision is a condition on runs and skips: they decide an occurrence.
const decision = ` r.kind = 'scheduled' AND NOT (r.reason IN ('dst_gap', 'zone_change') OR r.reason = 'cancelled' AND r.state = 'skipped' AND r.scheduled_at > r.fired_at) `

// everySpec is all revisions of all jobs, wherever they are.
const everySpec = `SELECT id AS job_id, revision, spec FROM jobs UNION ALL SELECT id, revision, spec FROM ended UNION ALL SELECT job_id, revision, spec FROM revisions`

// invariants are counts that must be zero at every moment, with what they count.
var invariants = []struct{ sentence, query string }{
	{"occurrences have two decisions",
		`SELECT count(*) FROM (SELECT 1 FROM ` + everyRun + ` WHERE` + decision + `GROUP BY job_id, scheduled_at HAVING count(*) > 1) x`},
	{"runs have an id that another row has too",
		`SELECT count(*) FROM (SELECT 1 FROM ` + everyRun + ` GROUP BY id HAVING count(*) > 1) x`},
	{"decisions lie within a recorded range of skips",
		`SELECT count(*) FROM history s JOIN ` + everyRun + ` ON r.job_id = s.job_id
		 WHERE s.id IN (SELECT id FROM history WHERE state = 'skipped' AND kind = 'scheduled' AND NOT` + isNote + `) AND r.id <> s.id AND` + decision + `
		 AND r.scheduled_at >= s.scheduled_at AND r.scheduled_at <= s.skipped_to`},
	{"skips have no reason, no count or no end",
		`SELECT count(*) FROM history WHERE state = 'skipped' AND (reason = '' OR skipped_count < 1 OR skipped_to IS NULL OR skipped_to < scheduled_at)`},
	{"rows of history are not settled",
		`SELECT count(*) FROM history WHERE state NOT IN ('succeeded', 'skipped', 'cancelled', 'discarded')`},
	{"discarded runs have no reason or attempt",
		`SELECT count(*) FROM history WHERE state = 'discarded' AND (reason = '' OR attempt < 1)`},
	{"runs succeeded without an attempt",
		`SELECT count(*) FROM history WHERE state = 'succeeded' AND (attempt < 1 OR worker IS NULL OR token IS NULL OR started_at IS NULL)`},
	{"dead letters have no reason, attempt or fingerprint",
		`SELECT count(*) FROM dead WHERE reason = '' OR attempt < 1 OR fingerprint = ''`},
	{"plans are not beyond their high-water mark",
		`SELECT count(*) FROM plans WHERE nominal_at <= fired_for`},
	{"plans are due without an occurrence or before it",
		`SELECT count(*) FROM plans WHERE next_at IS NOT NULL AND (nominal_at IS NULL OR next_at < nominal_at)`},
	{"scheduled decisions lie beyond the plan's high-water mark",
		`SELECT count(*) FROM ` + everyRun + ` JOIN plans p ON p.job_id = r.job_id
		 WHERE` + decision + `AND (p.fired_for IS NULL OR r.scheduled_at > p.fired_for)`},
	{"live runs have no job", `SELECT count(*) FROM runs r LEFT JOIN jobs j ON j.id = r.job_id WHERE j.id IS NULL`},
	{"plans have no job", `SELECT count(*) FROM plans p LEFT JOIN jobs j ON j.id = p.job_id WHERE j.id IS NULL`},
	{"jobs have no plan", `SELECT count(*) FROM jobs j LEFT JOIN plans p ON p.job_id = j.id WHERE p.job_id IS NULL AND j.state <> 'deleted'`},
	{"deleted or paused jobs are planned",
		`SELECT count(*) FROM jobs j JOIN plans p ON p.job_id = j.id WHERE j.state IN ('deleted', 'paused') AND p.next_at IS NOT NULL`},
	{"live names are not unique",
		`SELECT count(*) FROM (SELECT 1 FROM jobs WHERE state <> 'deleted' AND name IS NOT NULL GROUP BY namespace, name HAVING count(*) > 1) x`},
	{"live runs have an unknown state",
		`SELECT count(*) FROM runs WHERE state NOT IN ('ready', 'running', 'retry', 'waiting')`},
	{"running runs lack a worker, token, deadline, start or attempt",
		`SELECT count(*) FROM runs WHERE state = 'running' AND (worker IS NULL OR token IS NULL OR deadline_at IS NULL OR started_at IS NULL OR attempt < 1)`},
	{"unheld runs have a worker, token or deadline",
		`SELECT count(*) FROM runs WHERE state <> 'running' AND (worker IS NOT NULL OR token IS NOT NULL OR deadline_at IS NOT NULL)`},
	{"attempts of a run have the same number",
		`SELECT count(*) FROM (SELECT 1 FROM attempts GROUP BY run_id, attempt HAVING count(*) > 1) x`},
	{"attempts have a number that their run has not reached",
		`SELECT count(*) FROM attempts a JOIN ` + everyRun + ` ON r.id = a.run_id WHERE a.attempt > r.attempt OR a.attempt < 1`},
	{"attempts are recorded of a run that still holds them or won with them",
		`SELECT count(*) FROM attempts a JOIN ` + everyRun + ` ON r.id = a.run_id WHERE a.attempt = r.attempt AND r.state IN ('running', 'succeeded')`},
	{"attempts are missing of a run that did not succeed",
		`SELECT count(*) FROM (SELECT r.id, CASE WHEN r.state = 'running' THEN r.attempt - 1 ELSE r.attempt END AS wants FROM ` + everyRun + `
		 WHERE r.state NOT IN ('succeeded', 'skipped')) x WHERE wants <> (SELECT count(*) FROM attempts a WHERE a.run_id = x.id)`},
	{"scheduled decisions were made early",
		`SELECT count(*) FROM ` + everyRun + ` WHERE kind = 'scheduled' AND reason <> 'zone_change' AND NOT (reason = 'cancelled' AND state = 'skipped') AND fired_at < scheduled_at`},
	{"shards differ between the tables of a job",
		`SELECT (SELECT count(*) FROM plans x JOIN jobs j ON j.id = x.job_id WHERE x.shard <> j.shard) +
		 (SELECT count(*) FROM revisions x JOIN jobs j ON j.id = x.job_id WHERE x.shard <> j.shard) +
		 (SELECT count(*) FROM triggers x JOIN jobs j ON j.id = x.job_id WHERE x.shard <> j.shard) +
		 (SELECT count(*) FROM keys x JOIN jobs j ON j.id = x.job_id WHERE x.shard <> j.shard) +
		 (SELECT count(*) FROM events x JOIN jobs j ON j.id = x.job_id WHERE x.shard <> j.shard) +
		 (SELECT count(*) FROM ` + everyRun + ` JOIN jobs j ON j.id = r.job_id WHERE r.shard <> j.shard)`},
	{"attempts are in another shard than their run",
		`SELECT count(*) FROM attempts a JOIN ` + everyRun + ` ON r.id = a.run_id WHERE a.shard <> r.shard`},
	{"logs are in another shard than their run, or of an attempt that it has not reached",
		`SELECT count(*) FROM attempt_logs a JOIN ` + everyRun + ` ON r.id = a.run_id WHERE a.shard <> r.shard OR a.attempt > r.attempt OR a.attempt < 1`},
	{"logs have pieces of another length than they say",
		`SELECT count(*) FROM attempt_logs WHERE start < 0 OR stop - start < length(text) OR stop - start > 4 * length(text) OR text = ''`},
	{"live or dead runs have a revision that is kept nowhere",
		`SELECT count(*) FROM ` + everyRun + ` JOIN jobs j ON j.id = r.job_id WHERE r.place <> 'history' AND r.revision <> j.revision
		 AND NOT EXISTS (SELECT 1 FROM revisions v WHERE v.job_id = r.job_id AND v.revision = r.revision)`},
	{"revisions are not below that of their job",
		`SELECT count(*) FROM revisions v JOIN jobs j ON j.id = v.job_id WHERE v.revision >= j.revision`},
	{"keys of runs are empty rather than null",
		`SELECT (SELECT count(*) FROM runs WHERE key = '') + (SELECT count(*) FROM dead WHERE key = '') + (SELECT count(*) FROM history WHERE key = '')`},
	{"runs that are not running are marked as cancelled",
		`SELECT count(*) FROM runs WHERE cancel_requested_at IS NOT NULL AND state <> 'running'`},
	{"keys are kept of a job without a template",
		`SELECT count(*) FROM keys k WHERE NOT EXISTS (SELECT 1 FROM (` + everySpec + `) x WHERE x.job_id = k.job_id AND x.spec LIKE '%"idempotency_key_template"%')`},
	{"keys are of a run that has another, or is not scheduled",
		`SELECT count(*) FROM keys k JOIN ` + everyRun + ` ON r.id = k.run_id WHERE r.key IS NULL OR r.key <> k.key OR r.job_id <> k.job_id OR r.kind <> 'scheduled'`},
	{"keys do not say whether their run succeeded",
		`SELECT count(*) FROM keys k JOIN ` + everyRun + ` ON r.id = k.run_id WHERE (k.succeeded_at IS NOT NULL) <> (r.state = 'succeeded')`},
	{"live scheduled runs have a key that is not kept",
		`SELECT count(*) FROM runs r WHERE r.kind = 'scheduled' AND r.key IS NOT NULL AND NOT EXISTS (SELECT 1 FROM keys k WHERE k.job_id = r.job_id AND k.key = r.key)`},
	{"ended jobs are in a live table",
		`SELECT count(*) FROM ended e WHERE EXISTS (SELECT 1 FROM jobs x WHERE x.id = e.id) OR EXISTS (SELECT 1 FROM plans x WHERE x.job_id = e.id) OR EXISTS (SELECT 1 FROM runs x WHERE x.job_id = e.id)
		 OR EXISTS (SELECT 1 FROM dead x WHERE x.job_id = e.id) OR EXISTS (SELECT 1 FROM triggers x WHERE x.job_id = e.id AND x.fired_at IS NULL)`},
	{"ended jobs have another status than ended ones have",
		`SELECT count(*) FROM ended WHERE status NOT IN ('completed', 'failed', 'cancelled', 'deleted')`},
	{"rows of history expire before they were settled",
		`SELECT count(*) FROM history WHERE retain_until <= settled_at`},
	{"requests have no key or hash",
		`SELECT count(*) FROM requests WHERE key = '' OR length(hash) <> 32`},
}

// checkInvariants looks for what must never be, whatever a test did.
func checkInvariants(t tb, f *fixture) {
	t.Helper()
	for _, w := range invariants {
		if n := f.count(t, w.query); n != 0 {
			t.Errorf("invariant: %d %s", n, w.sentence)
		}
	}
	checkShards(t, f)
	checkLive(t, f)
	checkTriggers(t, f)
	checkNotes(t, f)
	checkColumns(t, f)
}

// checkShards expects every job in the shard that its id says.
func checkShards(t tb, f *fixture) {
	t.Helper()
	type place struct {
		job   belfry.ID
		shard int
	}
	places := read(t, f, func(rows *sql.Rows) (place, error) {
		var id idColumn
		var shard int
		err := rows.Scan(&id, &shard)
		return place{id.ID, shard}, err
	}, `SELECT id, shard FROM jobs`)
	for _, p := range places {
		if want := belfry.ShardOf(p.job, f.Shards()); p.shard != want {
			t.Errorf("invariant: job %s is in shard %d, wants %d", p.job, p.shard, want)
		}
	}
}

// checkTriggers expects one run or skip of every fired trigger, and none of the
// others. Pruning may have taken either away.
func checkTriggers(t tb, f *fixture) {
	t.Helper()
	type row struct {
		run   belfry.ID
		fired bool
	}
	rows := read(t, f, func(rows *sql.Rows) (row, error) {
		var id, job idColumn
		var kind belfry.RunKind
		var at, fired timeColumn
		err := rows.Scan(&id, &job, &kind, &at, &fired)
		return row{belfry.RunID(job.ID, kind, at.Time, id.ID), !fired.IsZero()}, err
	}, `SELECT id, job_id, kind, at, fired_at FROM triggers`)
	asked := map[belfry.ID]int{}
	for _, id := range read(t, f, scanID, `SELECT id FROM `+everyRun+` WHERE kind <> 'scheduled'`) {
		asked[id]++
	}
	for _, r := range rows {
		if n := asked[r.run]; n > 1 || n > 0 && !r.fired {
			t.Errorf("invariant: a trigger (fired: %v) has %d runs", r.fired, n)
		}
	}
}

// checkNotes expects what is noted beside occurrences to have an id that no run
// and no decision can have.
func checkNotes(t tb, f *fixture) {
	t.Helper()
	type note struct {
		id, job belfry.ID
		reason  belfry.RunKind
		at      time.Time
	}
	notes := read(t, f, func(rows *sql.Rows) (note, error) {
		var id, job idColumn
		var n note
		var at timeColumn
		err := rows.Scan(&id, &job, &n.reason, &at)
		n.id, n.job, n.at = id.ID, job.ID, at.Time
		return n, err
	}, `SELECT id, job_id, reason, scheduled_at FROM history WHERE`+isNote)
	for _, n := range notes {
		want := belfry.RunID(n.job, n.reason, n.at, belfry.ID{})
		if n.reason == belfry.RunKind(belfry.ReasonCancelled) { // an instant may be planned and cancelled again
			if n.id == belfry.RunID(n.job, belfry.KindScheduled, n.at, belfry.ID{}) {
				t.Errorf("invariant: the note of %s at %v has id %s, which a run may have", n.reason, n.at, n.id)
			}
		} else if n.id != want {
			t.Errorf("invariant: the note of %s at %v has id %s, wants %s", n.reason, n.at, n.id, want)
		}
	}
}

// checkColumns expects what lists are filtered by to say the same as the spec, and
// tags to be sorted.
func checkColumns(t tb, f *fixture) {
	t.Helper()
	type columns struct {
		id, spec, queue, kind, handler, tags string
		job                                  belfry.Job
		digest                               []byte // null in a plan that only waits for its job to be purged
	}
	tags, digest := `coalesce(tags, '[]')`, `digest`
	if f.server {
		tags, digest = `coalesce(array_to_json(tags)::text, '[]')`, `uuid_send(digest)`
	}
	jobs := read(t, f, func(rows *sql.Rows) (columns, error) {
		var id idColumn
		var c columns
		err := rows.Scan(&id, &c.spec, &c.queue, &c.kind, &c.handler, &c.tags, &c.job.Namespace, &c.job.Name, &c.job.Revision, &c.digest)
		c.id = id.String()
		return c, err
	}, `SELECT id, spec, queue, type, coalesce(handler, ''), `+tags+`, namespace, coalesce(name, ''), revision, `+digest+` FROM jobs JOIN plans ON job_id = id`)
	for _, c := range jobs {
		var list []string
		spec, err := store.DecodeSpec(c.spec)
		if err := errors.Join(err, json.Unmarshal([]byte(c.tags), &list)); err != nil {
			t.Errorf("invariant: the job %+v: %v", c, err)
		}
		if !sameText(c.queue, spec.Queue) || !sameText(c.kind, spec.Type) || !sameText(c.handler, spec.Handler) {
			t.Errorf("invariant: the columns of job %+v differ from its spec", c)
		}
		c.job.Spec = spec
		if want := store.DigestOf(&c.job, c.spec); c.digest != nil && !bytes.Equal(c.digest, want[:]) {
			t.Errorf("invariant: the plan of job %+v has digest %x, wants %x", c, c.digest, want)
		}
		if !slices.IsSorted(list) || len(slices.Compact(list)) != len(list) {
			t.Errorf("invariant: the tags of job %s are %s", c.id, c.tags)
		}
	}
}

// sameText reports whether a text was stored as well as the database can: not every
// one keeps zero bytes.
func sameText(column, text string) bool {
	return column == text || column == sanitize.Text(text, len(text)*len("\uFFFD"))
}

// liveRun is a live run with the spec of the revision that it was fired from.
type liveRun struct {
	run, job belfry.ID
	state    belfry.RunStatus
	spec     belfry.Spec
	freed    bool // the job ran in parallel later, so that it need not wait
}

// liveRuns returns all live runs.
func (f *fixture) liveRuns(t tb) []liveRun {
	t.Helper()
	return read(t, f, func(rows *sql.Rows) (liveRun, error) {
		var run, job idColumn
		var a liveRun
		var spec string
		if err := rows.Scan(&run, &job, &a.state, &spec, &a.freed); err != nil {
			return a, err
		}
		a.run, a.job = run.ID, job.ID
		var err error
		a.spec, err = store.DecodeSpec(spec)
		return a, err
	}, `SELECT r.id, r.job_id, r.state, x.spec,
		EXISTS (SELECT 1 FROM (`+everySpec+`) y WHERE y.job_id = r.job_id AND y.revision > r.revision AND y.spec LIKE '%"overlap":"parallel"%')
		FROM runs r JOIN (`+everySpec+`) x ON x.job_id = r.job_id AND x.revision = r.revision`)
}

// checkLive expects every live run to be as the spec says that it was fired from,
// ready ones to stand in the queue where plan.Rank puts them, and at most one run
// of a job whose runs follow one after another not to wait. Others may run beside
// that one if the job allowed it when they were fired, or since.
func checkLive(t tb, f *fixture) {
	t.Helper()
	ahead := map[belfry.ID]int{}
	for _, a := range f.liveRuns(t) {
		row := f.liveRow(t, a.run)
		weight := (&plan.Policy{Spec: a.spec}).Weight()
		if row.State == belfry.RunReady && row.Rank != plan.Rank(row.ReadyAt, weight) {
			t.Errorf("invariant: the run %s is ready since %v with priority %s and has rank %d", a.run, row.ReadyAt, a.spec.Priority, row.Rank)
		}
		if row.Weight != weight || row.RetentionDays != a.spec.RetentionDays {
			t.Errorf("invariant: the run %s has weight %d and is kept for %d days, its spec says %d and %d", a.run, row.Weight, row.RetentionDays, weight, a.spec.RetentionDays)
		}
		if a.spec.Serial() && !a.freed && a.state != belfry.RunWaiting {
			ahead[a.job]++
		}
	}
	for job, n := range ahead {
		if n > 1 {
			t.Errorf("invariant: job %s has %d runs that do not wait, and they follow one after another", job, n)
		}
	}
}

// stuckWaiting counts the runs that wait for nothing.
const stuckWaiting = `SELECT count(*) FROM runs w WHERE w.state = 'waiting' AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.job_id = w.job_id AND r.state <> 'waiting')`

// checkWaiting expects a sweep to leave no run that waits for nothing.
func checkWaiting(t tb, f *fixture) {
	t.Helper()
	if _, _, err := f.Promote(ctx, f.allShards(), 1000); err != nil {
		t.Errorf("promote: %v", err)
	}
	if n := f.count(t, stuckWaiting); n != 0 {
		t.Errorf("invariant: %d runs wait for nothing", n)
	}
}
