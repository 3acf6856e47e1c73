package store_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

func TestAnyOrderOfCallsLeavesEveryRunSettledOnce(t *testing.T) {
	t.Parallel()
	for _, b := range backends[:2] {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			f := open(t, b)
			rapid.Check(t, func(t *rapid.T) {
				f.wipe(t)
				m := &model{f: f, jobs: map[belfry.ID]*belfry.Job{}, first: map[belfry.ID]time.Time{}, runs: map[belfry.ID]*modelRun{}, made: map[belfry.ID]int64{}, held: map[belfry.ID]*belfry.Run{}}
				m.workers = []belfry.ID{f.worker(t), f.worker(t)}
				m.create(t)
				t.Repeat(map[string]func(*rapid.T){
					"create": m.create, "fire": m.fire, "trigger": m.trigger, "fire triggers": m.fireTriggers,
					"claim": m.claim, "finish": m.finish, "promote": m.promote,
					"lose a worker": m.lose, "pass a deadline": m.overrun, "forget a claim": m.forget,
					"pause or resume": m.toggle, "delete": m.remove,
				})
				m.drain(t)
				m.compare(t)
				check(t, f)
			})
		})
	}
}

// wipe makes the store as good as new.
func (f *fixture) wipe(t tb) {
	for _, table := range []string{"jobs", "revisions", "plans", "triggers", "runs", "attempts", "history", "dead", "leases", "workers", "requests"} {
		f.exec(t, `DELETE FROM `+table)
	}
}

// model is what the store should know, in the simplest form.
type model struct {
	f       *fixture
	jobs    map[belfry.ID]*belfry.Job
	first   map[belfry.ID]time.Time // occurrence of every job there ever was
	runs    map[belfry.ID]*modelRun
	made    map[belfry.ID]int64       // scheduled runs of every job, also those that were skipped beside another
	workers []belfry.ID               // registered
	held    map[belfry.ID]*belfry.Run // attempts that hold their run
	past    []pastAttempt
	stale   []plan.Step // applied before
}

type modelRun struct {
	job     belfry.ID
	state   belfry.RunState
	attempt int
	tally   belfry.Tally
}

type pastAttempt struct {
	run     *belfry.Run
	outcome belfry.Outcome
}

// count counts the runs in a state, of one job or, for the zero id, of all.
func (m *model) count(job belfry.ID, states ...belfry.RunState) int {
	n := 0
	for _, r := range m.runs {
		if (job.IsZero() || r.job == job) && slices.Contains(states, r.state) {
			n++
		}
	}
	return n
}

func (m *model) live(job belfry.ID) int {
	return m.count(job, belfry.RunReady, belfry.RunRunning, belfry.RunRetry)
}

// apply is what an applied step does.
func (m *model) apply(t tb, step plan.Step) {
	t.Helper()
	job := step.Seen.JobID
	note := func(id belfry.ID, state belfry.RunState) {
		if _, twice := m.runs[id]; twice {
			t.Fatalf("run %s was decided twice", id)
		}
		m.runs[id] = &modelRun{job: job, state: state}
	}
	for _, skip := range step.Skips {
		note(skip.ID, belfry.RunSkipped)
	}
	for _, r := range step.Runs {
		if r.Kind == belfry.KindScheduled {
			m.made[job]++
		}
		if r.Limit > 0 && m.live(job) >= r.Limit {
			note(r.ID, belfry.RunSkipped)
		} else {
			note(r.ID, belfry.RunReady)
		}
	}
	m.stale = append(m.stale, step)
}

// start is what a claim does.
func (m *model) start(t tb, run *belfry.Run, worker belfry.ID) {
	t.Helper()
	r := m.runs[run.ID]
	if r == nil || r.state != belfry.RunReady || run.Attempt != r.attempt+1 || run.Worker != worker || m.held[run.ID] != nil {
		t.Fatalf("attempt %d of run %s was handed out; the model says %+v", run.Attempt, run.ID, r)
	}
	r.state, r.attempt = belfry.RunRunning, run.Attempt
	m.held[run.ID] = run
}

// settle is what the end of an attempt does.
func (m *model) settle(run *belfry.Run, outcome belfry.Outcome) {
	r := m.runs[run.ID]
	s := belfry.Settle(run.ID, r.tally, run.Spec.Retry(), outcome)
	r.state, r.tally = s.State, s.Tally
	delete(m.held, run.ID)
	m.past = append(m.past, pastAttempt{run, outcome})
}

func (m *model) create(t *rapid.T) {
	job := m.f.created(t, rapid.IntRange(1, 40).Draw(t, "due for minutes"), withRetries(rapid.IntRange(0, 2).Draw(t, "retries")), func(j *belfry.Job) {
		if rapid.Bool().Draw(t, "parallel") {
			parallel(j)
		}
	})
	m.jobs[job.ID], m.first[job.ID] = &job, m.f.plan(t, job.ID).NominalAt
}

func (m *model) fire(t *rapid.T) {
	steps := m.f.decide(t, m.f.due(t))
	if len(steps) == 0 {
		t.Skip("nothing is due")
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
	if ready += m.count(belfry.ID{}, belfry.RunReady); ready != fired.Ready || len(fired.Claimed) > room.Free {
		t.Fatalf("%d runs are ready and %d claimed with room for %d, was told %d", ready, len(fired.Claimed), room.Free, fired.Ready)
	}
}

func (m *model) trigger(t *rapid.T) {
	wish := m.f.trigger(t, *m.anyJob(t), `"mine"`)
	if rapid.Bool().Draw(t, "again") {
		if err := m.f.Trigger(ctx, wish, nil); err != nil {
			t.Fatalf("trigger again: %v", err)
		}
	}
}

func (m *model) fireTriggers(t *rapid.T) {
	wishes := m.f.wishes(t)
	if len(wishes) == 0 {
		t.Skip("nothing is wished for")
	}
	job := pick(t, wishes, "wish").Due
	var triggers []plan.Trigger
	for _, w := range wishes {
		if w.Trigger.JobID == job.Plan.JobID {
			triggers = append(triggers, w.Trigger)
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

var outcomes = []belfry.Outcome{belfry.OutcomeSucceeded, belfry.OutcomeFailed, belfry.OutcomeTimedOut, belfry.OutcomeInterrupted}

func (m *model) finish(t *rapid.T) {
	var results []belfry.Result
	var want []belfry.Verdict
	if len(m.past) > 0 && rapid.Bool().Draw(t, "late") {
		past, outcome := pick(t, m.past, "attempt"), pick(t, outcomes, "late outcome")
		results = append(results, result(past.run, outcome))
		want = append(want, map[bool]belfry.Verdict{true: belfry.VerdictAccepted, false: belfry.VerdictLate}[outcome == past.outcome])
	}
	for _, run := range m.someHeld(t) {
		outcome := pick(t, outcomes, "outcome")
		results, want = append(results, result(run, outcome)), append(want, belfry.VerdictAccepted)
		m.settle(run, outcome)
	}
	if got := m.f.finish(t, results...); !slices.Equal(got, want) {
		t.Fatalf("the verdicts are %v, wants %v", got, want)
	}
}

func (m *model) promote(t *rapid.T) {
	m.f.backdate(t, 24*time.Hour, "runs", "ready_at", "state = 'retry'")
	m.f.exec(t, `UPDATE runs SET rank = rank - ? WHERE state = 'retry'`, (24 * time.Hour).Microseconds())
	want := m.count(belfry.ID{}, belfry.RunRetry)
	n, next, err := m.f.Promote(ctx, m.f.all(), 1000)
	if err != nil || n != want || !next.IsZero() {
		t.Fatalf("promoted %d, the next at %v (%v), wants %d", n, next, err, want)
	}
	for _, r := range m.runs {
		if r.state == belfry.RunRetry {
			r.state = belfry.RunReady
		}
	}
}

// reap expects the reaper to find exactly the attempts whose worker is gone,
// and those given.
func (m *model) reap(t *rapid.T, silence time.Duration, late ...*belfry.Run) {
	want := 0
	for _, run := range m.anyOrder() {
		switch {
		case !slices.Contains(m.workers, run.Worker):
			m.settle(run, belfry.OutcomeLost)
		case slices.Contains(late, run):
			m.settle(run, belfry.OutcomeTimedOut)
		default:
			continue
		}
		want++
	}
	if n := m.f.reap(t, silence); n != want {
		t.Fatalf("reaped %d attempts, wants %d", n, want)
	}
}

func (m *model) lose(t *rapid.T) {
	i := rapid.IntRange(0, len(m.workers)-1).Draw(t, "worker")
	if rapid.Bool().Draw(t, "says goodbye") {
		m.f.beat(t, belfry.Beat{Worker: m.workers[i], Leave: true})
		for _, run := range m.anyOrder() {
			if run.Worker == m.workers[i] {
				m.settle(run, belfry.OutcomeUnconfirmed)
			}
		}
	} else {
		m.f.silent(t, m.workers[i], time.Hour)
	}
	m.workers[i] = m.f.worker(t)
	m.reap(t, time.Minute)
}

func (m *model) overrun(t *rapid.T) {
	late := m.someHeld(t)
	for _, run := range late {
		m.f.aged(t, run, time.Hour)
	}
	m.reap(t, 0, late...)
}

func (m *model) forget(t *rapid.T) {
	worker := pick(t, m.workers, "worker")
	beat := belfry.Beat{Worker: worker, Listed: true}
	for _, run := range m.anyOrder() {
		if run.Worker != worker {
			continue
		}
		if rapid.Bool().Draw(t, "is listed") {
			beat.Held = append(beat.Held, belfry.Held{RunID: run.ID, Attempt: run.Attempt})
			continue
		}
		m.f.aged(t, run, store.ConfirmAfter+time.Second)
		m.settle(run, belfry.OutcomeUnconfirmed)
	}
	if orders := m.f.beat(t, beat); orders.Unknown || len(orders.Lost) != 0 {
		t.Fatalf("the heartbeat answers %+v", orders)
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

func (m *model) toggle(t *rapid.T) {
	job := m.anyJob(t)
	if job.State == belfry.JobPaused {
		m.edit(t, job, resume(t))
	} else {
		m.edit(t, job, pause(t))
	}
}

func (m *model) remove(t *rapid.T) {
	job := m.anyJob(t)
	m.edit(t, job, remove(t))
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
			m.f.accepted(t, run, belfry.OutcomeSucceeded)
			m.settle(run, belfry.OutcomeSucceeded)
		}
	}
}

// compare expects the tables to say what the model says.
func (m *model) compare(t *rapid.T) {
	for id, r := range m.runs {
		if got := m.f.state(t, id); got != r.state {
			t.Errorf("run %s is %q, wants %s", id, got, r.state)
		}
	}
	for job, first := range m.first {
		m.f.wantCovered(t, job, first)
		if p := m.f.plan(t, job); p.RunsMade != m.made[job] {
			t.Errorf("the plan of job %s counts %d runs, wants %d", job, p.RunsMade, m.made[job])
		}
	}
	if n := m.f.count(t, `SELECT count(*) FROM `+everyRun); n != int64(len(m.runs)) {
		t.Errorf("there are %d runs and skips, wants %d", n, len(m.runs))
	}
}

// anyJob draws a job; the order of a map must not matter.
func (m *model) anyJob(t *rapid.T) *belfry.Job {
	if len(m.jobs) == 0 {
		t.Skip("there is no job")
	}
	ids := slices.SortedFunc(maps.Keys(m.jobs), belfry.ID.Compare)
	return m.jobs[pick(t, ids, "job")]
}

func (m *model) anyOrder() []*belfry.Run {
	ids := slices.SortedFunc(maps.Keys(m.held), belfry.ID.Compare)
	runs := make([]*belfry.Run, len(ids))
	for i, id := range ids {
		runs[i] = m.held[id]
	}
	return runs
}

// pick draws one of several.
func pick[T any](t *rapid.T, from []T, what string) T {
	return from[rapid.IntRange(0, len(from)-1).Draw(t, what)]
}

// someHeld draws attempts that hold their run.
func (m *model) someHeld(t *rapid.T) []*belfry.Run {
	runs := m.anyOrder()
	if len(runs) == 0 {
		t.Skip("nothing runs")
	}
	return runs[:rapid.IntRange(1, len(runs)).Draw(t, "how many")]
}
