package store_test

import (
	"database/sql"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// What the model knows of people who end runs, and of those who bring them back.

// end is what cancelling does to a live run.
func (m *model) end(r *modelRun) {
	if r.state == belfry.RunRunning {
		r.tally.Cancelled = true
	} else {
		r.state = belfry.RunCancelled
	}
}

// anyRun draws a run that the model knows.
func (m *model) anyRun(t *rapid.T) *modelRun {
	if len(m.runs) == 0 {
		t.Skip("there is no run")
	}
	return m.runs[pick(t, slices.SortedFunc(maps.Keys(m.runs), belfry.ID.Compare), "run")]
}

// namespace is that of all jobs of the model.
const namespace = belfry.DefaultNamespace

func (m *model) cancel(t *rapid.T) {
	r := m.anyRun(t)
	err := m.f.Cancel(ctx, namespace, r.id)
	switch r.state {
	case belfry.RunSucceeded, belfry.RunDead, belfry.RunSkipped, belfry.RunDiscarded:
		wantCode(t, "cancel a run that is "+string(r.state), err, belfry.Conflict)
		return
	case belfry.RunCancelled:
	default:
		m.end(r)
		m.goAhead(r.job)
	}
	if err != nil {
		t.Fatalf("cancel a run that is %s: %v", r.state, err)
	}
}

// insist has the reaper come so late that cancelled attempts are taken from their
// workers.
func (m *model) insist(t *rapid.T) {
	var late []*belfry.Run
	for _, run := range m.anyOrder() {
		if m.runs[run.ID].tally.Cancelled {
			late = append(late, run)
		}
	}
	if len(late) == 0 {
		t.Skip("no attempt is cancelled")
	}
	late = late[:rapid.IntRange(1, len(late)).Draw(t, "how many")]
	for _, run := range late {
		m.f.backdate(t, store.CancelGrace+time.Second, "runs", "cancel_requested_at", "id = ?", run.ID)
	}
	m.reap(t, 0, belfry.OutcomeCancelled, late...)
}

// anyDead draws a dead letter.
func (m *model) anyDead(t *rapid.T) *modelRun {
	var dead []belfry.ID
	for id, r := range m.runs {
		if r.state == belfry.RunDead {
			dead = append(dead, id)
		}
	}
	if len(dead) == 0 {
		t.Skip("nothing is dead")
	}
	slices.SortFunc(dead, belfry.ID.Compare)
	return m.runs[pick(t, dead, "dead letter")]
}

func (m *model) redrive(t *rapid.T) {
	r := m.anyDead(t)
	again := store.Redrive{Run: r.id}
	if rapid.Bool().Draw(t, "later") {
		again.After = time.Hour
	}
	if n := m.f.redrive(t, namespace, again, store.Redrive{Run: newID()}); n != 1 {
		t.Fatalf("%d dead letters were redriven, wants 1", n)
	}
	live := m.live(r.job)
	r.tally, r.delayed = belfry.AttemptCounts{}, again.After > 0
	switch {
	case m.serial[r.job] && live > 0:
		r.state = belfry.RunWaiting
	case r.delayed:
		r.state = belfry.RunRetry
	default:
		r.state = belfry.RunReady
	}
}

func (m *model) discard(t *rapid.T) {
	r := m.anyDead(t)
	if n := m.f.discard(t, namespace, r.id, newID()); n != 1 {
		t.Fatalf("%d dead letters were discarded, wants 1", n)
	}
	r.state = belfry.RunDiscarded
}

// removeAll deletes a job of which nothing is only wished for, and cancels its runs.
func (m *model) removeAll(t *rapid.T) {
	job := m.anyJob(t)
	for _, w := range m.f.wishes(t) {
		if w.Trigger.JobID == job.ID {
			t.Skip("the job has wishes")
		}
	}
	m.edit(t, job, removeAll(t))
	for _, r := range m.runs {
		if r.job == job.ID && (r.state == belfry.RunWaiting || slices.Contains(moving, r.state)) {
			m.end(r)
		}
	}
	delete(m.jobs, job.ID)
}

// compareLive expects the live runs to be those of the model, no more of a job not
// to wait than it allows, and no more to wait than fit into its queue.
func (m *model) compareLive(t *rapid.T) {
	type row struct {
		id    belfry.ID
		state belfry.RunStatus
	}
	got := map[belfry.ID]belfry.RunStatus{}
	for _, r := range read(t, m.f, func(rows *sql.Rows) (row, error) {
		var id idColumn
		var r row
		err := rows.Scan(&id, &r.state)
		r.id = id.ID
		return r, err
	}, `SELECT id, state FROM runs`) {
		got[r.id] = r.state
	}
	want, ahead := map[belfry.ID]belfry.RunStatus{}, map[belfry.ID]int{}
	for id, r := range m.runs {
		moves := slices.Contains(moving, r.state)
		if moves || r.state == belfry.RunWaiting {
			want[id] = r.state
		}
		if moves && m.serial[r.job] {
			ahead[r.job]++
		}
	}
	if !maps.Equal(got, want) {
		t.Fatalf("the live runs are %v, wants %v", got, want)
	}
	for job, n := range ahead {
		if n > 1 {
			t.Fatalf("%d runs of job %s do not wait, and they follow one after another", n, job)
		}
	}
}
