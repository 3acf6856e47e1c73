package node

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/metrics"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/servertest"
)

// dispatches is how workers learn of ready runs, each with a real server.
var dispatches = map[string]func(t *testing.T) string{
	DispatchDatabase: func(*testing.T) string { return DispatchDatabase },
	"nats":           func(t *testing.T) string { return "nats://" + servertest.NATS(t).Addr },
	"kafka":          func(t *testing.T) string { return "kafka://" + servertest.Kafka(t).Addr },
	"amqp":           func(t *testing.T) string { return "amqp://" + servertest.RabbitMQ(t).Addr },
	"sqs": func(t *testing.T) string {
		return "sqs://us-east-1?username=key&password_env=HOME&endpoint=http://" + servertest.SQS(t, "other").Addr
	},
}

// TestWorkersOverEveryDispatch is the suite of what workers do, whichever way they learn of
// runs: an owner of all shards, and two nodes that only work.
func TestWorkersOverEveryDispatch(t *testing.T) {
	for name, start := range dispatches {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &dispatchFixture{t: t, attempts: map[string]int{}, held: make(chan struct{}, 10)}
			f.receiver = httptest.NewServer(f)
			t.Cleanup(f.receiver.Close)
			f.config = Defaults()
			f.config.Listen, f.config.DatabaseURL, f.config.AllowTargets, f.config.RateLimit = "127.0.0.1:0", pgtest.Database(t, nil), []string{"127.0.0.1"}, 0
			f.config.Dispatch, f.config.Concurrency, f.config.DrainTimeout = start(t), 5, 0
			owner, stop := f.start(RoleAPI, RoleScheduler)
			t.Cleanup(stop)
			f.base = "http://" + owner.Addr().String()
			for range 2 {
				n, stop := f.start(RoleWorker)
				t.Cleanup(stop)
				f.workers, f.stops = append(f.workers, n), append(f.stops, stop)
			}
			t.Run("all runs run once, on both workers", f.runsOnce)
			t.Run("a failed attempt is repeated", f.retries)
			t.Run("a run is cancelled", f.cancels)
			t.Run("a worker that stops returns its runs", f.drains)
		})
	}
}

type dispatchFixture struct {
	t        *testing.T
	config   Config
	base     string
	workers  []*Node
	stops    []func()
	receiver *httptest.Server
	held     chan struct{} // a request is held

	mu       sync.Mutex
	attempts map[string]int // by run
}

func (f *dispatchFixture) start(roles ...string) (*Node, func()) {
	f.t.Helper()
	c := f.config
	c.Roles = roles
	return runNode(f.t, c)
}

// ServeHTTP is the target of the jobs: /ok, /fail fails the first attempt, and /hold holds it
// until its caller gives up.
func (f *dispatchFixture) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	run := r.Header.Get("Belfry-Run-Id")
	f.mu.Lock()
	f.attempts[run]++
	first := f.attempts[run] == 1
	f.mu.Unlock()
	switch {
	case r.URL.Path == "/fail" && first:
		w.WriteHeader(http.StatusInternalServerError)
	case r.URL.Path == "/hold" && first:
		f.held <- struct{}{}
		<-r.Context().Done()
	}
}

// create creates a job that is due now.
func (f *dispatchFixture) create(t *testing.T, path string) (job belfry.Job) {
	t.Helper()
	body := fmt.Sprintf(`{"schedule":%q,"max_retries":3,"retry_base_seconds":0.01,"payload":{"url":%q}}`, time.Now().UTC().Format(time.RFC3339Nano), f.receiver.URL+path)
	if status := request(t, "POST", f.base+"/api/v1/jobs", body, &job); status != http.StatusCreated {
		t.Fatalf("creating a job: %d", status)
	}
	return job
}

// await waits until the run of a job has ended, and returns it and its attempts.
func (f *dispatchFixture) await(t *testing.T, job belfry.Job) (run belfry.Run, attempts int) {
	t.Helper()
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(10 * time.Millisecond) {
		var runs []belfry.Run
		request(t, "GET", f.base+"/api/v1/jobs/"+job.ID.String()+"/runs", "", &runs)
		if len(runs) == 1 && runs[0].FinishedAt != nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			return runs[0], f.attempts[runs[0].ID.String()]
		}
	}
	t.Fatal("a run has not ended after a minute")
	return run, 0
}

// announced is how many runs a node claimed because they were announced.
func announced(n *Node) (count int) {
	w := httptest.NewRecorder()
	n.metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if value, found := strings.CutPrefix(line, fmt.Sprintf(`belfry_dispatch_runs_total{event=%q} `, metrics.DispatchClaimed)); found {
			fmt.Sscan(value, &count)
		}
	}
	return count
}

// runsOnce runs jobs until both workers had some that were announced, if they are.
func (f *dispatchFixture) runsOnce(t *testing.T) {
	for start := time.Now(); ; {
		var jobs []belfry.Job
		for range 40 {
			jobs = append(jobs, f.create(t, "/ok"))
		}
		for _, job := range jobs {
			if run, attempts := f.await(t, job); run.Status != belfry.RunSucceeded || attempts != 1 || run.Attempt != 1 {
				t.Fatalf("a run is %s after %d attempts, and was called %d times", run.Status, run.Attempt, attempts)
			}
		}
		one, other := announced(f.workers[0]), announced(f.workers[1])
		if f.config.Dispatch == DispatchDatabase && one+other == 0 || one > 0 && other > 0 {
			return
		}
		if time.Since(start) > time.Minute {
			t.Fatalf("the workers claimed %d and %d announced runs", one, other)
		}
	}
}

func (f *dispatchFixture) retries(t *testing.T) {
	if run, attempts := f.await(t, f.create(t, "/fail")); run.Status != belfry.RunSucceeded || run.Attempt != 2 || attempts != 2 {
		t.Errorf("the run is %s after %d attempts, and was called %d times", run.Status, run.Attempt, attempts)
	}
}

func (f *dispatchFixture) cancels(t *testing.T) {
	job := f.create(t, "/hold")
	<-f.held
	var runs []belfry.Run
	request(t, "GET", f.base+"/api/v1/jobs/"+job.ID.String()+"/runs", "", &runs)
	if status := request(t, "POST", f.base+"/api/v1/runs/"+runs[0].ID.String()+"/cancel", "", nil); status >= 300 {
		t.Fatalf("the run was not cancelled: %d", status)
	}
	if run, attempts := f.await(t, job); run.Status != belfry.RunCancelled || attempts != 1 {
		t.Errorf("the run is %s, and was called %d times", run.Status, attempts)
	}
}

// drains stops the workers, one of which holds a run, when there is another.
func (f *dispatchFixture) drains(t *testing.T) {
	job := f.create(t, "/hold")
	<-f.held
	_, stop := f.start(RoleWorker)
	defer stop()
	for _, stop := range f.stops {
		stop()
	}
	// The worker that is stopped last may have claimed the run in between, and returned it before or after its call.
	if run, attempts := f.await(t, job); run.Status != belfry.RunSucceeded || run.Attempt < 2 || run.Attempt > 3 || attempts < 2 || attempts > run.Attempt {
		t.Errorf("the run is %s after %d attempts, and was called %d times", run.Status, run.Attempt, attempts)
	}
}

func TestDispatchIsChecked(t *testing.T) {
	for address, want := range map[string]string{"nats://host": "set --database-url", "redis://host": "--dispatch: "} {
		c := Defaults()
		c.Listen, c.Data, c.Dispatch = "127.0.0.1:0", t.TempDir(), address
		if strings.HasPrefix(address, "redis") {
			c.DatabaseURL = "postgres://127.0.0.1:1/none" // it is not asked
		}
		if _, err := New(t.Context(), c, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
}
