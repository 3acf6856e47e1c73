package sqlstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// The columns of dead letters x, with their last attempts a and their jobs j.
const (
	DeadLetterColumns = DeadColumns + `, x.fingerprint, coalesce(j.name, ''), CASE WHEN j.state <> 'deleted' THEN j.revision ELSE 0 END, x.payload IS NOT NULL`
	JoinJobName       = ` LEFT JOIN belfry.jobs j ON j.id = x.job_id`
	joinRevision      = ` LEFT JOIN belfry.revisions v ON v.job_id = x.job_id AND v.revision = x.revision`

	// FindDeadLetter reads the spec and the payload of the revision that the run was fired from,
	// unless the run has a payload of its own.
	FindDeadLetter = DeadLetterColumns + `, CASE WHEN x.payload IS NOT NULL THEN x.payload WHEN j.revision = x.revision THEN j.payload ELSE v.payload END,
       coalesce(CASE WHEN j.revision = x.revision THEN j.spec ELSE v.spec END, '')
  FROM belfry.dead x` + JoinLastAttempt + JoinJobName + joinRevision + ` WHERE x.namespace = $1 AND x.id = $2`
)

// DeadLetterFields is where the columns of a dead letter belong.
func DeadLetterFields(l *belfry.DeadLetter) []any {
	return append(RunFields(&l.Run), &l.Fingerprint, &l.JobName, &l.JobRevision, &l.HasPayload)
}

func (s Store) DeadLetter(ctx context.Context, namespace string, run belfry.ID) (letter belfry.DeadLetter, err error) {
	err = s.DB.Do(ctx, Read, "look up a dead letter", func(t Tx) error {
		spec, found := "", false
		err := t.Query(append(DeadLetterFields(&letter), &letter.Payload, &spec), func() { found = true }, FindDeadLetter, namespace, run)
		if err == nil && !found {
			err = store.NoSuch("dead letter", run)
		}
		if err != nil {
			return err
		}
		letter.Spec = s.Specs.OrZero(spec)
		letter.Attempts, err = attempts(t, run)
		return err
	})
	return letter, err
}

// arguments are the arguments of a statement that is put together.
type arguments []any

// add adds an argument and returns its placeholder.
func (a *arguments) add(value any) string {
	*a = append(*a, value)
	return fmt.Sprintf("$%d", len(*a))
}

// deadCondition is the filter on a dead letter x of a namespace.
func (s Store) deadCondition(namespace string, f belfry.DeadFilter) (where string, args arguments) {
	where = ` WHERE x.namespace = ` + args.add(namespace)
	for _, c := range []struct {
		condition string
		value     any // nil: there is none
	}{
		{"x.job_id = ", orNull(f.JobID)}, {"x.died_at >= ", orNull(f.Since)}, {"x.died_at < ", orNull(f.Until)},
		{"x.fingerprint = ", orNull(f.Fingerprint)}, {"x.reason = ", orNull(string(f.Reason))},
	} {
		if c.value != nil {
			where += ` AND ` + c.condition + args.add(c.value)
		}
	}
	if f.Error != "" { // A lookup for each: there are far more attempts.
		where += ` AND ` + s.DB.Contains(`(SELECT error FROM belfry.attempts WHERE run_id = x.id AND attempt = x.attempt)`, f.Error, args.add)
	}
	return where, args
}

// ListDeadLetters joins attempts and jobs to the dead letters of the page only.
func (s Store) ListDeadLetters(ctx context.Context, namespace string, filter belfry.DeadFilter, page store.Page) ([]belfry.DeadLetter, error) {
	where, args := s.deadCondition(namespace, filter)
	if !page.After.At.IsZero() {
		where += ` AND (x.died_at, x.id) < (` + args.add(page.After.At) + `, ` + args.add(page.After.ID) + `)`
	}
	const order = ` ORDER BY x.died_at DESC, x.id DESC`
	return list(ctx, s, Search, "list dead letters", DeadLetterFields, `/* list dead */ `+DeadLetterColumns+`
  FROM (SELECT x.* FROM belfry.dead x`+where+order+` LIMIT `+args.add(max(page.Limit, 0))+`) x`+JoinLastAttempt+JoinJobName+order, args...)
}

func (s Store) GroupDeadLetters(ctx context.Context, namespace string, filter belfry.DeadFilter, limit int) ([]belfry.DeadGroup, error) {
	where, args := s.deadCondition(namespace, filter)
	return list(ctx, s, Search, "group dead letters", func(g *belfry.DeadGroup) []any {
		return []any{&g.Fingerprint, &g.Count, &g.Jobs, &g.FirstAt, &g.LastAt, &g.LatestRunID, &g.Error, &g.HTTPStatus}
	}, `/* group dead */
WITH per_job AS (SELECT x.fingerprint, count(*) AS n, min(x.died_at) AS since, max(x.died_at) AS latest FROM belfry.dead x`+where+` GROUP BY x.fingerprint, x.job_id),
grouped AS MATERIALIZED (SELECT fingerprint, sum(n)::bigint AS n, count(*) AS jobs, min(since) AS since, max(latest) AS latest FROM per_job
                          GROUP BY fingerprint ORDER BY sum(n) DESC, max(latest) DESC, fingerprint LIMIT `+args.add(max(limit, 0))+`),
found AS MATERIALIZED (SELECT g.*, (SELECT x.id FROM belfry.dead x`+where+` AND x.died_at = g.latest AND x.fingerprint = g.fingerprint ORDER BY x.id DESC LIMIT 1) AS run_id FROM grouped g)
SELECT g.fingerprint, g.n, g.jobs, g.since, g.latest, x.id, coalesce(a.error, ''), coalesce(a.http_status, 0)
  FROM found g JOIN belfry.dead x ON x.id = g.run_id`+JoinLastAttempt+` ORDER BY g.n DESC, g.latest DESC, g.fingerprint`, args...)
}

// Statements that redrive and discard dead letters.
const (
	// A fire that has not seen a redriven run must decide again.
	raiseVersions = `/* redrive */
WITH locked AS MATERIALIZED (
  SELECT job_id FROM belfry.plans WHERE job_id IN (SELECT job_id FROM belfry.dead WHERE namespace = $1 AND id = ANY($2::uuid[])) ORDER BY job_id FOR UPDATE)
UPDATE belfry.plans AS p SET version = p.version + 1 FROM locked WHERE p.job_id = locked.job_id`

	FindRedriven = `/* redrive */
SELECT x.id, x.job_id, x.revision, x.lane, x.timeout_ms, x.weight, x.retention_days, coalesce(CASE WHEN j.revision = x.revision THEN j.spec ELSE v.spec END, ''),
       EXISTS (SELECT 1 FROM belfry.runs r WHERE r.job_id = x.job_id)
  FROM belfry.dead x` + JoinJobName + joinRevision + ` WHERE x.namespace = $1 AND x.id = ANY($2::uuid[]) ORDER BY x.id FOR UPDATE OF x`

	AddRedriven = `/* redrive */
INSERT INTO belfry.runs (id, shard, namespace, job_id, revision, kind, lane, state, rank, scheduled_at, ready_at, fired_at, fired_by, epoch,
                         timeout_ms, attempt, failures, lost, payload, key, weight, one_off, retention_days)
SELECT id, shard, namespace, job_id, $2, kind, $3, $4, $5, scheduled_at, $6, fired_at, fired_by, epoch, $7, attempt, 0, 0, coalesce($8, payload), key, $9, one_off, $10
  FROM belfry.dead WHERE id = $1 ON CONFLICT (id) DO NOTHING`
	deleteRedriven = `/* redrive */ DELETE FROM belfry.dead WHERE id = ANY($1::uuid[])`

	// A dead letter may be redriven after its key was pruned, or given to another run.
	keepKeys = `/* redrive */
INSERT INTO belfry.keys (job_id, key, shard, run_id, created_at)
SELECT job_id, key, shard, id, clock_timestamp() FROM belfry.runs WHERE id = ANY($1::uuid[]) AND key IS NOT NULL AND kind = 'scheduled' ON CONFLICT (job_id, key) DO NOTHING`

	ListDiscarded = `/* discard */ SELECT id, job_id, one_off FROM belfry.dead WHERE namespace = $1 AND id = ANY($2::uuid[]) ORDER BY id FOR UPDATE`
	AddDiscarded  = `/* discard */
INSERT INTO belfry.history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by, epoch,
                            attempt, worker, token, started_at, settled_at, http_status, error, output, skipped_count, key, retain_until)
SELECT x.id, x.shard, x.namespace, x.job_id, x.revision, x.kind, 'discarded', x.reason, x.scheduled_at, x.ready_at, x.fired_at, x.fired_by, x.epoch,
       x.attempt, a.worker, a.token, x.started_at, clock_timestamp(), coalesce(a.http_status, 0), coalesce(a.error, ''), coalesce(a.output, ''), 0, x.key,
       clock_timestamp() + x.retention_days * interval '24 hours'
  FROM belfry.dead x` + JoinLastAttempt + ` WHERE x.namespace = $1 AND x.id = ANY($2::uuid[])`
	deleteDiscarded = `/* discard */ DELETE FROM belfry.dead WHERE namespace = $1 AND id = ANY($2::uuid[])`
)

// redriven is a dead letter that becomes a run.
type redriven struct {
	id, job           belfry.ID
	revision          int
	lane, spec        string
	timeoutMS, weight int64
	retention         *int
	live              bool // a run of its job is alive
}

func redrivenFields(r *redriven) []any {
	return []any{&r.id, &r.job, &r.revision, &r.lane, &r.timeoutMS, &r.weight, &r.retention, &r.spec, &r.live}
}

// Redrive makes runs of dead letters again. It locks the plans of their jobs and raises their
// versions first, so that a step that was decided before is not applied: it did not count the
// run. Of several of one job the one with the lowest id comes first, which is the earliest. A
// serial run waits for all that are live.
func (s Store) Redrive(ctx context.Context, namespace string, list []store.Redrive) (int, error) {
	requests, ids := map[belfry.ID]*store.Redrive{}, make([]belfry.ID, len(list))
	for i := len(list) - 1; i >= 0; i-- { // of repetitions the first counts
		requests[list[i].Run], ids[i] = &list[i], list[i].Run
	}
	var (
		runs  []belfry.ID
		jobs  = map[belfry.ID]bool{}
		ready bool
	)
	err := s.DB.Do(ctx, Change, "redrive dead letters", func(t Tx) error {
		if _, err := t.Exec(raiseVersions, namespace, ids); err != nil {
			return err
		}
		letters, err := all(t, redrivenFields, FindRedriven, namespace, ids)
		if err != nil {
			return err
		}
		at, err := now(t)
		if err != nil {
			return err
		}
		added, err := t.ExecEach(AddRedriven, argsOf(letters, func(r *redriven) []any {
			request, spec := requests[r.id], s.Specs.OrZero(r.spec)
			if request.Job != nil {
				spec = request.Job.Spec
				r.revision, r.lane, r.timeoutMS, r.weight, r.retention = request.Job.Revision, spec.Lane(namespace), spec.Timeout().Milliseconds(), request.Weight, nil
				if spec.RetentionDays > 0 {
					r.retention = &spec.RetentionDays
				}
			}
			readyAt, state := at.Add(max(request.After, 0)).Truncate(time.Microsecond), belfry.RunReady
			switch {
			case spec.Serial() && (r.live || jobs[r.job]):
				state = belfry.RunWaiting
			case request.After > 0:
				state = belfry.RunRetry
			}
			jobs[r.job], ready = true, ready || state == belfry.RunReady
			return []any{r.id, r.revision, r.lane, string(state), plan.Rank(readyAt, r.weight), readyAt, r.timeoutMS, orNull(string(request.Payload)), r.weight, r.retention}
		}))
		for i, n := range added {
			if n > 0 {
				runs = append(runs, letters[i].id)
			}
		}
		if err == nil {
			_, err = t.Exec(deleteRedriven, runs)
		}
		if err == nil {
			_, err = t.Exec(keepKeys, runs)
		}
		if len(runs) > 0 {
			store.AuditOf(ctx).Done(runs...)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	s.DB.NotifyWritten(slices.Collect(maps.Keys(jobs)), ready)
	return len(runs), nil
}

func (s Store) Discard(ctx context.Context, namespace string, runs []belfry.ID) (discarded int, err error) {
	err = s.DB.Do(ctx, Change, "discard dead letters", func(t Tx) error {
		var id, job belfry.ID
		var found, oneOffs []belfry.ID
		var oneOff bool
		err := t.Query([]any{&id, &job, &oneOff}, func() {
			if found = append(found, id); oneOff {
				oneOffs = append(oneOffs, job)
			}
		}, ListDiscarded, namespace, runs)
		if err == nil {
			_, err = t.Exec(AddDiscarded, namespace, runs)
		}
		if err == nil {
			discarded, err = t.Exec(deleteDiscarded, namespace, runs)
		}
		if err == nil {
			err = s.DB.ArchiveFinished(t, oneOffs)
		}
		if len(found) > 0 {
			store.AuditOf(ctx).Done(found...)
		}
		return err
	})
	return discarded, err
}

func (s Store) CountDead(ctx context.Context, namespace string, limit int) (int, error) {
	counts, err := list(ctx, s, Read, "count dead letters", func(n *int) []any { return []any{n} },
		`/* count dead */ SELECT count(*) FROM (SELECT 1 FROM belfry.dead WHERE namespace = $1 LIMIT $2) d`, namespace, limit)
	return first(counts, err, nil)
}
