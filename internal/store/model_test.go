package store_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
)

func TestAnyOrderOfCallsLeavesEveryRunSettledOnce(t *testing.T) {
	t.Parallel()
	for _, b := range backends[:2] {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			f := open(t, b)
			rapid.Check(t, func(t *rapid.T) {
				f.deleteAll(t)
				m := &model{f: f, jobs: map[belfry.ID]*belfry.Job{}, first: map[belfry.ID]time.Time{}, runs: map[belfry.ID]*modelRun{}, made: map[belfry.ID]int64{}, held: map[belfry.ID]*belfry.Run{}, serial: map[belfry.ID]bool{}}
				m.workers = []belfry.ID{f.registerWorker(t), f.registerWorker(t)}
				m.create(t)
				t.Repeat(map[string]func(*rapid.T){
					"create": m.create, "fire": m.fire, "trigger": m.trigger, "fire triggers": m.fireTriggers,
					"claim": m.claim, "finish": m.finish, "promote": m.promote,
					"lose a worker": m.loseWorker, "pass a deadline": m.passDeadline, "forget a claim": m.forget,
					"pause or resume": m.togglePause, "delete": m.deleteJob, "delete and cancel": m.deleteAndCancel,
					"cancel": m.cancel, "pass the grace": m.passGrace, "redrive": m.redrive, "discard": m.discard,
					"": m.compareLive,
				})
				m.drain(t)
				m.compare(t)
				checkInvariants(t, f)
			})
		})
	}
}

// deleteAll makes the store as good as new.
func (f *fixture) deleteAll(t tb) {
	for _, table := range []string{"jobs", "revisions", "plans", "triggers", "runs", "attempts", "history", "dead", "leases", "workers", "requests", "keys", "ended", "events", "failing"} {
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
	past    []endedAttempt
	stale   []plan.Step // applied before
}

type modelRun struct {
	id, job belfry.ID
	kind    belfry.RunKind
	at      time.Time
	key     string
	state   belfry.RunStatus
	delayed bool // it is not due yet, although it waits
	attempt int
	counts  belfry.AttemptCounts
}

type endedAttempt struct {
	run     *belfry.Run
	outcome belfry.Outcome
}

// count counts the runs in a state, of one job or, for the zero id, of all.
func (m *model) count(job belfry.ID, states ...belfry.RunStatus) int {
	n := 0
	for _, r := range m.runs {
		if (job.IsZero() || r.job == job) && slices.Contains(states, r.state) {
			n++
		}
	}
	return n
}

// notWaiting are the states of the live runs that do not wait for others.
var notWaiting = []belfry.RunStatus{belfry.RunReady, belfry.RunRunning, belfry.RunRetry}

// liveRow counts the live runs of a job.
func (m *model) live(job belfry.ID) int {
	return m.count(job, notWaiting...) + m.count(job, belfry.RunWaiting)
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
		case m.keyTaken(job, r):
			made.state = belfry.RunSkipped
		case !r.Serial || m.live(job) == 0:
		case r.Kind != belfry.KindBackfill && m.countOwn(job, belfry.RunReady, belfry.RunRunning, belfry.RunRetry, belfry.RunWaiting) == 0:
			made.state = belfry.RunWaiting // behind backfills alone
		case m.countOwn(job, belfry.RunWaiting) < r.Queue:
			made.state = belfry.RunWaiting
		default:
			made.state = belfry.RunSkipped
		}
		note(made)
	}
	m.stale = append(m.stale, step)
}

// countOwn counts the runs of a job in some states that are not backfills.
func (m *model) countOwn(job belfry.ID, states ...belfry.RunStatus) (n int) {
	for _, r := range m.runs {
		if r.job == job && r.kind != belfry.KindBackfill && slices.Contains(states, r.state) {
			n++
		}
	}
	return n
}

// keyTaken tells whether a scheduled run has the key of another that is alive or has
// succeeded.
func (m *model) keyTaken(job belfry.ID, r plan.Run) bool {
	if r.Key == "" || r.Kind != belfry.KindScheduled {
		return false
	}
	for _, other := range m.runs {
		if other.job == job && other.kind == r.Kind && other.key == r.Key &&
			(other.state == belfry.RunWaiting || other.state == belfry.RunSucceeded || slices.Contains(notWaiting, other.state)) {
			return true
		}
	}
	return false
}

// start is what a claim does.
func (m *model) start(t tb, run *belfry.Run, worker belfry.ID) {
	t.Helper()
	r := m.runs[run.ID]
	if r == nil || r.state != belfry.RunReady || run.Attempt != r.attempt+1 || run.WorkerID != worker || m.held[run.ID] != nil {
		t.Fatalf("attempt %d of run %s was handed out; the model says %+v", run.Attempt, run.ID, r)
	}
	r.state, r.attempt = belfry.RunRunning, run.Attempt
	m.held[run.ID] = run
}

// settle is what the end of an attempt does.
func (m *model) settle(run *belfry.Run, r belfry.Result) {
	was := m.runs[run.ID]
	s := belfry.Settle(run.ID, was.counts, run.Spec.Retry(), r)
	was.state, was.counts = s.State, s.Counts
	delete(m.held, run.ID)
	m.past = append(m.past, endedAttempt{run, r.Outcome})
	m.promoteNext(was.job)
}

// before tells whether a waiting run comes before another of its job: backfills come last.
func (r *modelRun) before(other *modelRun) bool {
	if backfill := r.kind == belfry.KindBackfill; backfill != (other.kind == belfry.KindBackfill) {
		return !backfill
	}
	return r.at.Before(other.at) || r.at.Equal(other.at) && r.id.Compare(other.id) < 0
}

// promoteNext is what the end of a run does to those of its job that wait.
func (m *model) promoteNext(job belfry.ID) {
	if m.count(job, notWaiting...) > 0 {
		return
	}
	var first *modelRun
	for _, r := range m.runs {
		if r.job != job || r.state != belfry.RunWaiting {
			continue
		}
		if first == nil || r.before(first) {
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
