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
				m := &model{f: f, jobs: map[belfry.ID]*belfry.Job{}, first: map[belfry.ID]time.Time{}, runs: map[belfry.ID]*modelRun{}, made: map[belfry.ID]int64{}, held: map[belfry.ID]*belfry.Run{}, serial: map[belfry.ID]bool{}}
				m.workers = []belfry.ID{f.worker(t), f.worker(t)}
				m.create(t)
				t.Repeat(map[string]func(*rapid.T){
					"create": m.create, "fire": m.fire, "trigger": m.trigger, "fire triggers": m.fireTriggers,
					"claim": m.claim, "finish": m.finish, "promote": m.promote,
					"lose a worker": m.lose, "pass a deadline": m.overrun, "forget a claim": m.forget,
					"pause or resume": m.toggle, "delete": m.remove, "delete and cancel": m.removeAll,
					"cancel": m.cancel, "pass the grace": m.insist, "redrive": m.redrive, "discard": m.discard,
					"": m.compareLive,
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
	for _, table := range []string{"jobs", "revisions", "plans", "triggers", "runs", "attempts", "history", "dead", "leases", "workers", "requests", "keys", "ended", "events"} {
		f.exec(t, `DELETE FROM `+table)
	}
}

// model is what the store should know, in the simplest form.
type model struct {
	f       *fixture
	jobs    map[belfry.ID]*belfry.Job
	first   map[belfry.ID]time.Time // occurrence of every job there ever was
	serial  map[belfry.ID]bool      // jobs whose runs follow one after another
	runs    map[belfry.ID]*modelRun
	made    map[belfry.ID]int64       // scheduled runs of every job, also those that were skipped beside another
	workers []belfry.ID               // registered
	held    map[belfry.ID]*belfry.Run // attempts that hold their run
	past    []pastAttempt
	stale   []plan.Step // applied before
}

type modelRun struct {
	id, job belfry.ID
	kind    belfry.Kind
	at      time.Time
	key     string
	state   belfry.RunState
	delayed bool // it is not due yet, although it waits
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

// moving are the states of the live runs that do not wait for others.
var moving = []belfry.RunState{belfry.RunReady, belfry.RunRunning, belfry.RunRetry}

// live counts the live runs of a job.
func (m *model) live(job belfry.ID) int {
	return m.count(job, moving...) + m.count(job, belfry.RunWaiting)
}

// apply is what an applied step does.
func (m *model) apply(t tb, step plan.Step) {
	t.Helper()
	job := step.Seen.JobID
	note := func(r modelRun) {
		if _, twice := m.runs[r.id]; twice {
			t.Fatalf("run %s was decided twice", r.id)
		}
		r.job = job
		m.runs[r.id] = &r
	}
	for _, skip := range step.Skips {
		note(modelRun{id: skip.ID, kind: belfry.KindScheduled, at: skip.From, state: belfry.RunSkipped})
	}
	for _, r := range step.Runs {
		if r.Kind == belfry.KindScheduled {
			m.made[job]++
		}
		made := modelRun{id: r.ID, kind: r.Kind, at: r.ScheduledAt, key: r.Key, state: belfry.RunReady}
		switch {
		case m.taken(job, r):
			made.state = belfry.RunSkipped
		case !r.Serial || m.live(job) == 0:
		case m.count(job, belfry.RunWaiting) < r.Queue:
			made.state = belfry.RunWaiting
		default:
			made.state = belfry.RunSkipped
		}
		note(made)
	}
	m.stale = append(m.stale, step)
}

// taken tells whether a scheduled run has the key of another that is alive or has
// succeeded.
func (m *model) taken(job belfry.ID, r plan.Run) bool {
	if r.Key == "" || r.Kind != belfry.KindScheduled {
		return false
	}
	for _, other := range m.runs {
		if other.job == job && other.kind == r.Kind && other.key == r.Key &&
			(other.state == belfry.RunWaiting || other.state == belfry.RunSucceeded || slices.Contains(moving, other.state)) {
			return true
		}
	}
	return false
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
func (m *model) settle(run *belfry.Run, r belfry.Result) {
	was := m.runs[run.ID]
	s := belfry.Settle(run.ID, was.tally, run.Spec.Retry(), r)
	was.state, was.tally = s.State, s.Tally
	delete(m.held, run.ID)
	m.past = append(m.past, pastAttempt{run, r.Outcome})
	m.goAhead(was.job)
}

// goAhead is what the end of a run does to those of its job that wait.
func (m *model) goAhead(job belfry.ID) {
	if m.count(job, moving...) > 0 {
		return
	}
	var first *modelRun
	for _, r := range m.runs {
		if r.job != job || r.state != belfry.RunWaiting {
			continue
		}
		if first == nil || r.at.Before(first.at) || r.at.Equal(first.at) && r.id.Compare(first.id) < 0 {
			first = r
		}
	}
	switch {
	case first == nil:
	case first.delayed:
		first.state = belfry.RunRetry
	default:
		first.state = belfry.RunReady
	}
}

func (m *model) create(t *rapid.T) {
	job := m.f.created(t, rapid.IntRange(1, 40).Draw(t, "due for minutes"), withRetries(rapid.IntRange(0, 2).Draw(t, "retries")), func(j *belfry.Job) {
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
	if ready += m.count(belfry.ID{}, belfry.RunReady); ready != fired.Ready || len(fired.Claimed) > room.Free {
		t.Fatalf("%d runs are ready and %d claimed with room for %d, was told %d", ready, len(fired.Claimed), room.Free, fired.Ready)
	}
}

func (m *model) trigger(t *rapid.T) {
	job := *m.anyJob(t)
	var wishes []plan.Trigger
	for range rapid.IntRange(1, 3).Draw(t, "wishes") {
		wish := m.f.wish(job, `"mine"`)
		if rapid.Bool().Draw(t, "backfill") {
			wish = m.f.backfill(job, m.f.minutesAgo(rapid.IntRange(0, 90).Draw(t, "minutes ago")))
		}
		wishes = append(wishes, wish)
	}
	for range rapid.IntRange(1, 2).Draw(t, "times") {
		if err := m.f.Trigger(ctx, wishes, nil); err != nil {
			t.Fatalf("trigger: %v", err)
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
		case !slices.Contains(m.workers, run.Worker):
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

func (m *model) lose(t *rapid.T) {
	i := rapid.IntRange(0, len(m.workers)-1).Draw(t, "worker")
	if rapid.Bool().Draw(t, "says goodbye") {
		m.f.beat(t, belfry.Beat{Worker: m.workers[i], Leave: true})
		for _, run := range m.anyOrder() {
			if run.Worker == m.workers[i] {
				m.settle(run, result(run, belfry.OutcomeUnconfirmed))
			}
		}
	} else {
		m.f.silent(t, m.workers[i], time.Hour)
	}
	m.workers[i] = m.f.worker(t)
	m.reap(t, time.Minute, "")
}

func (m *model) overrun(t *rapid.T) {
	late := m.someHeld(t)
	for _, run := range late {
		m.f.aged(t, run, time.Hour)
	}
	m.reap(t, 0, belfry.OutcomeTimedOut, late...)
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
		m.settle(run, result(run, belfry.OutcomeUnconfirmed))
	}
	var want []belfry.Held
	for _, held := range beat.Held {
		if m.runs[held.RunID].tally.Cancelled {
			want = append(want, held)
		}
	}
	orders := m.f.beat(t, beat)
	slices.SortFunc(orders.Cancel, func(a, b belfry.Held) int { return a.RunID.Compare(b.RunID) })
	if orders.Unknown || len(orders.Lost) != 0 || !slices.Equal(orders.Cancel, want) {
		t.Fatalf("the heartbeat answers %+v, wants that %v are cancelled", orders, want)
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
			m.settle(run, result(run, belfry.OutcomeSucceeded))
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
