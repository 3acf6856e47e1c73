package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

var (
	// findNotPlain returns the numbers of the steps that must be applied one by one: they
	// may not be applied, or their job has a live run.
	findNotPlain = newBatchStatement(`WITH time (now) AS (SELECT ?1), step (n, job, version, first) AS (VALUES `, `(#, ?, ?, ?)`, `)
SELECT n FROM time CROSS JOIN step LEFT JOIN plans p ON p.job_id = job
WHERE p.version IS NOT step.version OR coalesce(p.next_at > now, true) OR p.fired_for >= first OR EXISTS (SELECT 1 FROM runs r WHERE r.job_id = job)`)

	// advancePlans only updates: findNotPlain has seen the plans in the same transaction.
	// An UPDATE with a list would collect all rows before it writes the first one. What
	// fails ends the transaction, so that no statement needs a journal to undo it alone.
	advancePlans = newBatchStatement(`INSERT OR FAIL INTO plans (zone_version, one_off, job_id, shard, version, next_at, nominal_at, fired_for, runs_made) VALUES `,
		`(?1, ?2, ?, ?, ?, ?, ?, ?, ?)`, ` ON CONFLICT (job_id) DO UPDATE SET version = excluded.version, next_at = excluded.next_at, nominal_at = excluded.nominal_at,
fired_for = excluded.fired_for, runs_made = excluded.runs_made, zone_version = excluded.zone_version, one_off = excluded.one_off, quarantined = NULL`)

	insertRuns = newBatchStatement(`INSERT OR FAIL INTO runs (namespace, revision, lane, fired_at, fired_by, epoch, timeout_ms, weight, one_off, retention_days,
state, attempt, worker, started_at, deadline_at, kind, failures, lost, id, shard, job_id, rank, scheduled_at, ready_at, token) VALUES `,
		`(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, 'scheduled', 0, 0, ?, ?, ?, ?, ?, ?, ?)`, ``)

	selectPayloads = newBatchStatement(`SELECT id, revision, payload FROM jobs WHERE id IN (`, `?`, `)`)
)

// fireClass is what the runs of many steps have in common.
type fireClass struct {
	policy      *plan.Policy
	namespace   string
	revision    int
	epoch       int64
	zoneVersion string
	once        bool
	worker      belfry.ID // that has a free slot; zero: anybody may claim them
}

// plainSteps are simple steps of jobs without a live run, which are applied many at once.
type plainSteps struct {
	lanes   lanes
	classes map[fireClass][]*plan.Step
}

// lanes remembers the lane of the last step, which mostly is that of the next one.
type lanes struct {
	policy          *plan.Policy
	namespace, lane string
}

func (l *lanes) of(s *plan.Step) string {
	if l.policy != s.Policy || l.namespace != s.Namespace {
		*l = lanes{s.Policy, s.Namespace, s.Lane()}
	}
	return l.lane
}

// findPlain says which steps are plain.
func (f *fireTx) findPlain(steps []plan.Step) (plain []bool, err error) {
	plain = make([]bool, len(steps))
	simple := make([]int, 0, len(steps))
	for i := range steps {
		if plain[i] = steps[i].IsSimple(); plain[i] {
			simple = append(simple, i)
		}
	}
	return plain, forBatches(simple, func(batch []int) error {
		args := append(f.args[:0], micro(f.now))
		for _, i := range batch {
			s := &steps[i]
			args = append(args, s.Seen.JobID[:], s.Seen.Version, micro(s.Runs[0].ScheduledAt))
		}
		f.args = args
		others, err := all(f.tx, scanInto(func(n *int) []any { return []any{n} }), findNotPlain[len(batch)], args...)
		for _, n := range others {
			plain[batch[n]] = false
		}
		return err
	})
}

// addPlain adds a step to those that are applied together, and takes a slot for it.
func (f *fireTx) addPlain(s *plan.Step) {
	p := &f.plain
	if p.classes == nil {
		p.classes = map[fireClass][]*plan.Step{}
	}
	worker := store.TakeSlot(f.slots, p.lanes.of(s))
	class := fireClass{s.Policy, s.Namespace, s.Revision, s.Epoch, s.Next.ZoneVersion, s.Next.Once, worker}
	p.classes[class] = append(p.classes[class], s)
}

// applyPlain applies the steps that were added.
func (f *fireTx) applyPlain() error {
	for class, steps := range f.plain.classes {
		if err := forBatches(steps, func(batch []*plan.Step) error { return f.applyClass(&class, batch) }); err != nil {
			return err
		}
	}
	clear(f.plain.classes)
	return nil
}

func (f *fireTx) applyClass(c *fireClass, steps []*plan.Step) error {
	args := append(f.args[:0], c.zoneVersion, c.once)
	for _, s := range steps {
		next := &s.Next
		args = append(args, s.Seen.JobID[:], int64(s.Seen.Shard), s.Seen.Version+1, nullTime(next.NextAt), nullTime(next.NominalAt), nullTime(next.FiredFor), next.RunsMade)
	}
	if err := f.run(advancePlans[len(steps)], args...); err != nil {
		return err
	}
	lane, weight, timeout, now := steps[0].Lane(), c.policy.Weight(), c.policy.Timeout(), micro(f.now)
	state, attempt, started, until := belfry.RunReady, int64(0), any(nil), any(nil)
	if !c.worker.IsZero() {
		state, attempt, started, until = belfry.RunRunning, 1, now, micro(deadline(f.now, timeout))
	}
	args = append(args[:0], c.namespace, int64(c.revision), lane, now, f.owner[:], c.epoch, timeout.Milliseconds(), weight, c.once, nullDays(c.policy.RetentionDays),
		string(state), attempt, nullID(c.worker), started, until)
	for _, s := range steps {
		r := &s.Runs[0]
		args = append(args, r.ID[:], int64(s.Seen.Shard), s.Seen.JobID[:], plan.Rank(r.ReadyAt, weight), micro(r.ScheduledAt), micro(r.ReadyAt))
		if c.worker.IsZero() {
			args = append(args, nil)
			f.AddReady(lane)
			continue
		}
		run := f.claimedRun(s, r, c.worker)
		args = append(args, run.Token[:])
		if err := f.addPayload(run); err != nil {
			return err
		}
		f.Claimed = append(f.Claimed, run)
	}
	f.args = args
	return f.run(insertRuns[len(steps)], args...)
}

// fewPayloads are read in the transaction: another one would cost more.
const fewPayloads = 10

// revisionOf is one revision of a job, whose payload never changes.
type revisionOf struct {
	job      belfry.ID
	revision int
}

// readPayloads reads the payloads of runs that will probably be claimed, before the
// transaction: it then holds up no other writer.
func (s *Store) readPayloads(ctx context.Context, steps []plan.Step, slots []store.FreeSlots) (map[revisionOf]json.RawMessage, error) {
	slots = slices.Clone(slots)
	var jobs []belfry.ID
	var lanes lanes
	for i := range steps {
		if steps[i].IsSimple() && !store.TakeSlot(slots, lanes.of(&steps[i])).IsZero() {
			jobs = append(jobs, steps[i].Seen.JobID)
		}
	}
	if len(jobs) < fewPayloads {
		return nil, nil
	}
	payloads := make(map[revisionOf]json.RawMessage, len(jobs))
	return payloads, s.read(ctx, "read payloads", func(t *tx) error {
		return forBatches(jobs, func(batch []belfry.ID) error {
			args := t.args[:0]
			for i := range batch {
				args = append(args, batch[i][:])
			}
			t.args = args
			_, err := all(t, func(rows *sql.Rows, _ *struct{}) error {
				var of revisionOf
				var payload json.RawMessage
				err := rows.Scan(bytesColumn{of.job[:]}, &of.revision, jsonColumn{&payload})
				payloads[of] = payload
				return err
			}, selectPayloads[len(batch)], args...)
			return err
		})
	})
}

// batchSizes are the numbers of rows for which statements are prepared, largest first.
// Many rows in one statement cost half as much as each in one of its own.
var batchSizes = []int{100, 10, 1}

// batchStatement is a statement with a list of rows, by how many they are.
type batchStatement map[int]string

// newBatchStatement repeats the text of a row, in which # is its number, from 0. Parameters
// that all rows share have a number and come first.
func newBatchStatement(begin, row, end string) batchStatement {
	s := batchStatement{}
	for _, size := range batchSizes {
		rows := make([]string, size)
		for i := range rows {
			rows[i] = strings.ReplaceAll(row, "#", strconv.Itoa(i))
		}
		s[size] = begin + strings.Join(rows, ", ") + end
	}
	return s
}

// forBatches calls do with as many rows at once as a statement is prepared for.
func forBatches[T any](rows []T, do func([]T) error) error {
	for _, size := range batchSizes {
		for len(rows) >= size {
			if err := do(rows[:size]); err != nil {
				return err
			}
			rows = rows[size:]
		}
	}
	return nil
}
