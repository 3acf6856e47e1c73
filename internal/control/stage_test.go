package control_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

// stage is a store, somebody who asks it for things and one worker, on a Monday at
// nine in Paris, where nobody really waits.
type stage struct {
	*testing.T
	s      store.Store
	c      *control.Control
	worker belfry.ID
}

const lane = "default/send"

// staged runs a subtest on a stage.
func staged(t *testing.T, name string, test func(g *stage)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := open(t)
			g := &stage{T: t, s: s, c: control.New(s, plan.Defaults{})}
			g.until("08:58:30")
			test(g)
		})
	})
}

// at is a time of the day of the stage.
func (g *stage) at(clock string) time.Time {
	g.Helper()
	for _, form := range []string{"15:04", "15:04:05", "2006-01-02 15:04", "2006-01-02 15:04:05"} {
		text := clock
		if len(form) <= len("15:04:05") {
			form, text = "2006-01-02 "+form, "2000-01-03 "+clock
		}
		if at, err := time.ParseInLocation(form, text, paris); err == nil {
			return at.UTC()
		}
	}
	if at, err := time.Parse(time.RFC3339, clock); err == nil {
		return at.UTC()
	}
	g.Fatalf("there is no time %q", clock)
	return time.Time{}
}

var paris = func() *time.Location {
	zone, err := time.LoadLocation("Europe/Paris")
	if err != nil {
		panic(err)
	}
	return zone
}()

// until waits until a time.
func (g *stage) until(clock string) {
	g.Helper()
	time.Sleep(time.Until(g.at(clock)))
}

// fired fires at each of some times.
func (g *stage) fired(clocks ...string) {
	g.Helper()
	for _, clock := range clocks {
		g.until(clock)
		fire(g.T, g.s)
	}
}

// every is a job in Paris for the worker.
func (g *stage) every(schedule string, bend ...func(*belfry.Spec)) belfry.Job {
	g.Helper()
	d := forWorker("send")
	d.Spec.Schedule, d.Spec.Timezone, d.Spec.Overlap = schedule, "Europe/Paris", belfry.OverlapSkip
	d.Spec.RetryJitter = 0
	for _, b := range bend {
		b(&d.Spec)
	}
	return create(g.T, g.c, d)
}

// claim has the worker take so many runs.
func (g *stage) claim(n int) []*belfry.Run {
	g.Helper()
	if g.worker.IsZero() {
		g.worker = register(g.T, g.c, lane)
	}
	runs, err := g.c.Claim(g.Context(), ns, belfry.Claim{WorkerID: g.worker, Lanes: []string{lane}, Limit: n}, 0)
	if err != nil || len(runs) != n {
		g.Fatalf("claimed %d runs, want %d, error %v", len(runs), n, err)
	}
	return runs
}

// finish has the worker tell what came of a run.
func (g *stage) finish(run *belfry.Run, outcome belfry.Outcome, bend ...func(*belfry.Result)) {
	g.Helper()
	r := belfry.Result{RunID: run.ID, Attempt: run.Attempt, Token: run.Token, Outcome: outcome}
	if outcome == belfry.OutcomeFailed {
		r.Error = "no such customer"
	}
	for _, b := range bend {
		b(&r)
	}
	verdicts, err := g.c.Finish(g.Context(), ns, []belfry.Result{r})
	if err != nil || verdicts[0] != belfry.VerdictAccepted {
		g.Fatalf("got %v, error %v", verdicts, err)
	}
}

// die makes dead letters of so many ready runs.
func (g *stage) die(n int) (dead []belfry.ID) {
	g.Helper()
	for _, run := range g.claim(n) {
		g.finish(run, belfry.OutcomeFailed, func(r *belfry.Result) { r.Permanent = true })
		dead = append(dead, run.ID)
	}
	return dead
}

// run looks up a run.
func (g *stage) run(id belfry.ID) belfry.Run {
	g.Helper()
	run, err := g.c.Run(g.Context(), ns, id)
	if err != nil {
		g.Fatal(err)
	}
	return run
}

// job looks up a job.
func (g *stage) job(id belfry.ID) belfry.Job {
	g.Helper()
	job, err := g.c.Get(g.Context(), ns, id)
	if err != nil {
		g.Fatal(err)
	}
	return job
}

// runs lists the runs of a job, latest first.
func (g *stage) runs(job belfry.Job) []belfry.Run {
	g.Helper()
	runs, err := g.c.Runs(g.Context(), ns, job.ID, control.RunPage{Limit: 100})
	g.ok(err)
	return runs
}

// ok fails the test if an error came of something.
func (g *stage) ok(err error) {
	g.Helper()
	if err != nil {
		g.Fatal(err)
	}
}

// promote makes the retries ready that are due.
func (g *stage) promote() {
	g.Helper()
	_, _, err := g.s.Promote(g.Context(), shards, 100)
	g.ok(err)
}

func (g *stage) pause(job belfry.Job) {
	g.Helper()
	_, err := g.c.Pause(g.Context(), ns, job.ID)
	g.ok(err)
}

func (g *stage) resume(job belfry.Job, catchUp bool) {
	g.Helper()
	_, err := g.c.Resume(g.Context(), ns, job.ID, catchUp)
	g.ok(err)
}

func (g *stage) cancelJob(job belfry.Job) {
	g.Helper()
	_, err := g.c.CancelJob(g.Context(), ns, job.ID)
	g.ok(err)
}

func (g *stage) cancelRun(run belfry.ID) {
	g.Helper()
	_, err := g.c.CancelRun(g.Context(), ns, run)
	g.ok(err)
}

func (g *stage) trigger(job belfry.Job) belfry.ID {
	g.Helper()
	run, err := g.c.Trigger(g.Context(), ns, job.ID, nil, none)
	g.ok(err)
	return run
}

// backfill asks for the run of a time.
func (g *stage) backfill(job belfry.Job, clock string) {
	g.Helper()
	done, err := g.c.Backfill(g.Context(), ns, job.ID, control.Backfill{From: g.at(clock), To: g.at(clock)}, none)
	if err != nil || len(done.Runs) != 1 {
		g.Fatalf("got %+v, error %v", done, err)
	}
}

func (g *stage) redrive(run belfry.ID) {
	g.Helper()
	done, err := g.c.Redrive(g.Context(), ns, control.RedriveOrder{DeadOrder: control.DeadOrder{Run: run}})
	if err != nil || done.Done != 1 {
		g.Fatalf("got %+v, error %v", done, err)
	}
}

func (g *stage) discard(run belfry.ID) {
	g.Helper()
	done, err := g.c.Discard(g.Context(), ns, control.DeadOrder{Run: run})
	if err != nil || done.Done != 1 {
		g.Fatalf("got %+v, error %v", done, err)
	}
}
