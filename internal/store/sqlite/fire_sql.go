package sqlite

// advancePlan moves a plan to its next version. It changes nothing if the plan has
// moved since it was seen, is not due, or has passed the first occurrence that the
// step decides.
const advancePlan = `UPDATE plans SET version = version + 1, next_at = ?, nominal_at = ?, fired_for = ?, runs_made = ?, zone_version = ?, one_off = ?, quarantined = NULL
WHERE job_id = ? AND version = ? AND (NOT ? OR next_at <= ?) AND (fired_for IS NULL OR fired_for < ?)`

const fireTrigger = `UPDATE triggers SET fired_at = ? WHERE id = ? AND fired_at IS NULL`

const newRunColumns = `id, shard, namespace, job_id, revision, kind, lane, rank, scheduled_at, ready_at, fired_at, fired_by, epoch, timeout_ms, payload, key,
weight, one_off, retention_days, lost, failures, `

const (
	insertRun = `INSERT INTO runs (` + newRunColumns + `attempt, state)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, ?) ON CONFLICT (id) DO NOTHING`

	insertClaimed = `INSERT INTO runs (` + newRunColumns + `attempt, state, worker, token, started_at, deadline_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 1, 'running', ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`

	insertSkip = `INSERT INTO history (id, shard, namespace, job_id, revision, kind, state, reason, scheduled_at, ready_at, fired_at, fired_by,
epoch, attempt, settled_at, http_status, error, output, skipped_to, skipped_count, retain_until)
VALUES (?, ?, ?, ?, ?, ?, 'skipped', ?, ?, ?, ?, ?, ?, 0, ?, 0, '', '', ?, ?, ?)`
)

// What decides where a new run begins.
const (
	jobHasLiveRun = `SELECT EXISTS (SELECT 1 FROM runs WHERE job_id = ?)`
	runIsLive     = `SELECT EXISTS (SELECT 1 FROM runs WHERE id = ?)`
	countWaiting  = `SELECT count(*) FROM (SELECT 1 FROM runs WHERE job_id = ? AND state = 'waiting' LIMIT ?)`
)

// The idempotency keys of scheduled runs.
const (
	keyIsTaken = `SELECT EXISTS (SELECT 1 FROM runs WHERE job_id = ? AND key = ? AND kind = 'scheduled' AND id <> ?)
OR EXISTS (SELECT 1 FROM keys WHERE job_id = ? AND key = ? AND run_id <> ? AND succeeded_at > ?)`

	insertKey = `INSERT INTO keys (job_id, key, shard, run_id, created_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (job_id, key) DO UPDATE SET run_id = excluded.run_id, created_at = excluded.created_at, succeeded_at = NULL`

	// A dead letter may be redriven after its key was pruned, or given to another run.
	redriveKey = `INSERT INTO keys (job_id, key, shard, run_id, created_at)
SELECT job_id, key, shard, id, ? FROM runs WHERE id = ? AND key IS NOT NULL AND kind = 'scheduled' ON CONFLICT (job_id, key) DO NOTHING`

	// A run that was dead for a while may succeed after another run had its key.
	succeedKey = `INSERT INTO keys (job_id, key, shard, run_id, created_at, succeeded_at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (job_id, key) DO UPDATE SET run_id = excluded.run_id, succeeded_at = excluded.succeeded_at`
)
