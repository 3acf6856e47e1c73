package store_test

import (
	"database/sql"
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// What may happen to the store and to the model of it.

func (m *model) create(t *rapid.T) {
	job := m.f.createJob(t, rapid.IntRange(1, 40).Draw(t, "due for minutes"), withRetries(rapid.IntRange(0, 2).Draw(t, "retries")), func(j *belfry.Job) {
		j.Overlap = pick(t, []belfry.Overlap{belfry.OverlapSkip, belfry.OverlapQueue, belfry.OverlapParallel}, "overlap")
		j.MaxQueued = rapid.IntRange(1, 3).Draw(t, "queue")
		j.Priority = pick(t, []belfry.Priority{belfry.PriorityNormal, belfry.PriorityHigh, belfry.PriorityLow}, "priority")
		j.IdempotencyKeyTemplate = pick(t, []string{"", "", "t-{{unix}}", "hour-{{hour}}"}, "keys")
		if rapid.Bool().Draw(t, "makes up for all") {
			j.MissedWindow, j.MaxMissed = belfry.MissedRunAll, rapid.IntRange(1, 4).Draw(t, "most")
		}
	})
	m.jobs[job.ID], m.first[job.ID], m.serial[job.ID] = &job, m.f.plan(t, job.ID).NominalAt, job.Serial()
}

func (m *model) fire(t *rapid.T) {
	due := m.f.due(t)
	if len(due) == 0 {
		t.Skip("nothing is due")
	}
	steps := m.f.decide(t, due)
	if rapid.IntRange(0, 3).Draw(t, "missed") == 0 {
		for i, s := range steps {
			steps[i] = plan.Decide(s.Subject, s.Seen, m.f.Now(), m.f.Now())
		}
	}
	steps = steps[:rapid.IntRange(1, len(steps)).Draw(t, "steps")]
	fresh := len(steps)
	if len(m.stale) > 0 {
		steps = append(steps, pick(t, m.stale, "stale step"))
	}
	room := slots(pick(t, m.workers, "worker"), rapid.IntRange(0, 3).Draw(t, "free"))
	fired, err := m.f.Fire(ctx, owner, steps, room)
	if err != nil {
		t.Fatalf("fire: %v", err)
	}
	ready := -m.count(belfry.ID{}, belfry.RunReady)
	for i, step := range steps {
		if fired.Applied[i] != (i < fresh) {
			t.Fatalf("step %d of %d (%d fresh) was applied: %v", i, len(steps), fresh, fired.Applied[i])
		}
		if i < fresh {
			m.apply(t, step)
		}
	}
	for _, run := range fired.Claimed {
		m.start(t, run, room.Worker)
	}
	if ready += m.count(belfry.ID{}, belfry.RunReady); ready != fired.ReadyCount() || len(fired.Claimed) > room.Free {
		t.Fatalf("%d runs are ready and %d claimed with room for %d, was told %d", ready, len(fired.Claimed), room.Free, fired.ReadyCount())
	}
}

func (m *model) trigger(t *rapid.T) {
	job := *m.anyJob(t)
	var triggers []plan.Trigger
	for range rapid.IntRange(1, 3).Draw(t, "triggers") {
		trigger := m.f.newTrigger(job, `"mine"`)
		if rapid.Bool().Draw(t, "backfill") {
			trigger = m.f.backfill(job, m.f.minutesAgo(rapid.IntRange(0, 90).Draw(t, "minutes ago")))
		}
		triggers = append(triggers, trigger)
	}
	for range rapid.IntRange(1, 2).Draw(t, "times") {
		if err := m.f.Trigger(ctx, triggers, nil); err != nil {
			t.Fatalf("trigger: %v", err)
		}
	}
}

func (m *model) fireTriggers(t *rapid.T) {
	pending := m.f.pendingTriggers(t)
	if len(pending) == 0 {
		t.Skip("no trigger is pending")
	}
	job := pick(t, pending, "trigger").Due
	var triggers []plan.Trigger
	for _, p := range pending {
		if p.Trigger.JobID == job.Plan.JobID {
			triggers = append(triggers, p.Trigger)
		}
	}
	step := plan.Fire(m.f.decide(t, []store.Due{job})[0].Subject, job.Plan, triggers)
	m.f.fire(t, step)
	m.apply(t, step)
}

func (m *model) claim(t *rapid.T) {
	worker, limit := pick(t, m.workers, "worker"), rapid.IntRange(1, 5).Draw(t, "limit")
	want := min(limit, m.count(belfry.ID{}, belfry.RunReady))
	runs := m.f.claim(t, worker, limit)
	if len(runs) != want {
		t.Fatalf("claimed %d runs, wants %d", len(runs), want)
	}
	for _, run := range runs {
		m.start(t, run, worker)
	}
}

// outcomes are those that a worker hands in.
var outcomes = []belfry.Outcome{
	belfry.OutcomeSucceeded, belfry.OutcomeFailed, belfry.OutcomeTimedOut, belfry.OutcomeInterrupted, belfry.OutcomeSnoozed, belfry.OutcomeCancelled,
}

// anyResult draws how an attempt ended.
func anyResult(t *rapid.T, run *belfry.Run) belfry.Result {
	r := result(run, pick(t, outcomes, "outcome"))
	switch rapid.IntRange(0, 5).Draw(t, "advice") {
	case 0:
		r.Permanent = true
	case 1:
		r.RetryAfterSeconds = 600
	}
	return r
}

func (m *model) finish(t *rapid.T) {
	var results []belfry.Result
	var want []belfry.Verdict
	if len(m.past) > 0 && rapid.Bool().Draw(t, "late") {
		past, outcome := pick(t, m.past, "attempt"), pick(t, outcomes, "late outcome")
		results = append(results, result(past.run, outcome))
		want = append(want, map[bool]belfry.Verdict{true: belfry.VerdictAccepted, false: belfry.VerdictLate}[outcome == past.outcome])
	}
	for _, run := range m.someHeld(t) {
		r := anyResult(t, run)
		results, want = append(results, r), append(want, belfry.VerdictAccepted)
		m.settle(run, r)
	}
	if got := m.f.finish(t, results...); !slices.Equal(got, want) {
		t.Fatalf("the verdicts are %v, wants %v", got, want)
	}
}

func (m *model) promote(t *rapid.T) {
	want := m.count(belfry.ID{}, belfry.RunRetry)
	if n := m.f.promoteAll(t); n != want {
		t.Fatalf("promoted %d, wants %d", n, want)
	}
	for _, r := range m.runs {
		if r.state == belfry.RunRetry {
			r.state, r.delayed = belfry.RunReady, false
		}
	}
}

// reap expects the reaper to find exactly the attempts whose worker is gone,
// and those given, which end in the given way.
func (m *model) reap(t *rapid.T, silence time.Duration, end belfry.Outcome, late ...*belfry.Run) {
	want := 0
	for _, run := range m.anyOrder() {
		switch {
		case !slices.Contains(m.workers, run.WorkerID):
			m.settle(run, result(run, belfry.OutcomeLost))
		case slices.Contains(late, run):
			m.settle(run, result(run, end))
		default:
			continue
		}
		want++
	}
	if n := m.f.reap(t, silence); n != want {
		t.Fatalf("reaped %d attempts, wants %d", n, want)
	}
}

func (m *model) loseWorker(t *rapid.T) {
	i := rapid.IntRange(0, len(m.workers)-1).Draw(t, "worker")
	if rapid.Bool().Draw(t, "says goodbye") {
		m.f.heartbeat(t, belfry.Heartbeat{WorkerID: m.workers[i], Leave: true})
		for _, run := range m.anyOrder() {
			if run.WorkerID == m.workers[i] {
				m.settle(run, result(run, belfry.OutcomeUnconfirmed))
			}
		}
	} else {
		m.f.silenceWorker(t, m.workers[i], time.Hour)
	}
	m.workers[i] = m.f.registerWorker(t)
	m.reap(t, time.Minute, "")
}

func (m *model) passDeadline(t *rapid.T) {
	late := m.someHeld(t)
	for _, run := range late {
		m.f.ageAttempt(t, run, time.Hour)
	}
	m.reap(t, 0, belfry.OutcomeTimedOut, late...)
}

func (m *model) forget(t *rapid.T) {
	worker := pick(t, m.workers, "worker")
	heartbeat := belfry.Heartbeat{WorkerID: worker, Complete: true}
	for _, run := range m.anyOrder() {
		if run.WorkerID != worker {
			continue
		}
		if rapid.Bool().Draw(t, "is listed") {
			heartbeat.Held = append(heartbeat.Held, belfry.HeldAttempt{RunID: run.ID, Attempt: run.Attempt})
			continue
		}
		m.f.ageAttempt(t, run, store.ConfirmAfter+time.Second)
		m.settle(run, result(run, belfry.OutcomeUnconfirmed))
	}
	var want []belfry.HeldAttempt
	for _, held := range heartbeat.Held {
		if m.runs[held.RunID].counts.Cancelled {
			want = append(want, held)
		}
	}
	reply := m.f.heartbeat(t, heartbeat)
	slices.SortFunc(reply.Cancel, func(a, b belfry.HeldAttempt) int { return a.RunID.Compare(b.RunID) })
	if reply.Unknown || len(reply.Lost) != 0 || !slices.Equal(reply.Cancel, want) {
		t.Fatalf("the heartbeat answers %+v, wants that %v are cancelled", reply, want)
	}
}

// edit changes a job, and notes what that decides.
func (m *model) edit(t *rapid.T, job *belfry.Job, edit store.Edit) {
	var step plan.Step
	*job = m.f.edit(t, *job, func(job belfry.Job, p plan.Plan, now time.Time) (*store.Change, error) {
		change, err := edit(job, p, now)
		step = change.Step
		return change, err
	})
	m.apply(t, step)
}

func (m *model) togglePause(t *rapid.T) {
	job := m.anyJob(t)
	if job.State == belfry.JobPaused {
		m.edit(t, job, resume(t))
	} else {
		m.edit(t, job, pause(t))
	}
}

func (m *model) deleteJob(t *rapid.T) {
	job := m.anyJob(t)
	for _, p := range m.f.pendingTriggers(t) {
		if g := p.Trigger; g.JobID == job.ID { // It is recorded as cancelled.
			m.runs[g.RunID()] = &modelRun{id: g.RunID(), job: job.ID, kind: g.Kind, at: g.At, state: belfry.RunCancelled}
		}
	}
	m.edit(t, job, deleteJob(t))
	delete(m.jobs, job.ID)
}

// drain lets everything that is alive come to its end.
func (m *model) drain(t *rapid.T) {
	for m.live(belfry.ID{}) > 0 {
		m.promote(t)
		for _, run := range m.f.claim(t, m.workers[0], 1000) {
			m.start(t, run, m.workers[0])
		}
		for _, run := range m.anyOrder() {
			m.f.finishAs(t, run, belfry.OutcomeSucceeded)
			m.settle(run, result(run, belfry.OutcomeSucceeded))
		}
	}
}

// What the model knows of users who end runs, and of those who bring them back.

// randomOneOffCall is what cancelling does to a live run.
func (m *model) settleOneOff(r *modelRun) {
	if r.state == belfry.RunRunning {
		r.counts.Cancelled = true
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
		m.settleOneOff(r)
		m.promoteNext(r.job)
	}
	if err != nil {
		t.Fatalf("cancel a run that is %s: %v", r.state, err)
	}
}

// passGrace has the reaper come so late that cancelled attempts are taken from their
// workers.
func (m *model) passGrace(t *rapid.T) {
	var late []*belfry.Run
	for _, run := range m.anyOrder() {
		if m.runs[run.ID].counts.Cancelled {
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
	r.counts, r.delayed = belfry.AttemptCounts{}, again.After > 0
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

// deleteAndCancel deletes a job of which nothing is only triggered for, and cancels its runs.
func (m *model) deleteAndCancel(t *rapid.T) {
	job := m.anyJob(t)
	for _, w := range m.f.pendingTriggers(t) {
		if w.Trigger.JobID == job.ID {
			t.Skip("the job has triggers")
		}
	}
	m.edit(t, job, deleteAndCancel(t))
	for _, r := range m.runs {
		if r.job == job.ID && (r.state == belfry.RunWaiting || slices.Contains(notWaiting, r.state)) {
			m.settleOneOff(r)
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
		moves := slices.Contains(notWaiting, r.state)
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
