package node

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/store/postgres"
	"github.com/belfry-sh/belfry/worker"
)

// tenants receives the calls of jobs of several namespaces. Those to /hang end with it.
type tenants struct {
	mu    sync.Mutex
	done  chan struct{}
	calls map[string]int             // by path
	lags  map[string][]time.Duration // by who executes the run

	running, most, ended int // short runs, and the most of them at once
}

func (r *tenants) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	at, _ := time.Parse(time.RFC3339Nano, req.Header.Get("Belfry-Scheduled-At"))
	path := req.URL.Path
	r.mu.Lock()
	r.calls[path]++
	r.mu.Unlock()
	switch {
	case path == "/lag":
		r.addLag(path, at)
	case path == "/hang":
		<-r.done
	case strings.HasPrefix(path, "/short"):
		r.short()
	}
}

// addLag records how late a run starts.
func (r *tenants) addLag(by string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lags[by] = append(r.lags[by], time.Since(at))
}

// short is the work of a short run.
func (r *tenants) short() {
	r.mu.Lock()
	r.running++
	r.most = max(r.most, r.running)
	r.mu.Unlock()
	time.Sleep(10 * time.Millisecond)
	r.mu.Lock()
	r.running--
	r.ended++
	r.mu.Unlock()
}

// cluster is nodes on one database, with namespaces that call a receiver.
type cluster struct {
	*tenants
	t      *testing.T
	nodes  []*Node
	target string
}

func startCluster(t *testing.T, onPostgres bool, slots int) *cluster {
	t.Helper()
	c := &cluster{tenants: &tenants{done: make(chan struct{}), calls: map[string]int{}, lags: map[string][]time.Duration{}}, t: t}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.target = server.URL
	config := Defaults()
	config.Listen, config.Data, config.Concurrency, config.RateLimit, config.DrainTimeout = "127.0.0.1:0", t.TempDir(), slots, 0, 0
	config.AllowTargets = []string{"127.0.0.1"}
	nodes := 1
	if onPostgres {
		nodes, config.DatabaseURL = 2, pgtest.Database(t, postgres.Migrate)
	}
	for range nodes {
		n, stop := runNode(t, config)
		t.Cleanup(stop)
		c.nodes = append(c.nodes, n)
	}
	t.Cleanup(func() { close(c.done) }) // before the nodes stop
	return c
}

// client is one of a namespace at the first node.
func (c *cluster) client(namespace string) *client.Client {
	c.t.Helper()
	of, err := client.New("http://"+c.nodes[0].Addr().String(), client.WithNamespace(namespace))
	if err != nil {
		c.t.Fatal(err)
	}
	return of
}

// create creates jobs of a namespace, and waits until all nodes know that it has some.
func (c *cluster) create(namespace, path string, n int, change func(*belfry.Manifest)) {
	c.t.Helper()
	jobs := make([]belfry.Manifest, n)
	for i := range jobs {
		m := &jobs[i]
		m.Name, m.Schedule, m.Payload = fmt.Sprintf("job-%s-%d", path[1:], i), soon(0), belfry.MustJSON(map[string]string{"url": c.target + path})
		m.TimeoutSeconds, m.MaxRetries = 86400, belfry.Some(0)
		if change != nil {
			change(m)
		}
	}
	_, err := c.client(namespace).ImportJobs(c.t.Context(), func(yield func(belfry.Manifest, error) bool) {
		for _, m := range jobs {
			if !yield(m, nil) {
				return
			}
		}
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.await("all nodes know the namespace "+namespace, func() bool {
		return !slices.ContainsFunc(c.nodes, func(n *Node) bool {
			_, known := n.quotas.All()[namespace]
			return !known
		})
	})
}

// await waits until something is so; done is called with the lock of the receiver.
func (c *cluster) await(what string, done func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(90 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		c.mu.Lock()
		isDone := done()
		c.mu.Unlock()
		if isDone {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("not in time: %s", what)
		}
	}
}

func later(m *belfry.Manifest) { m.Schedule = soon(time.Hour) }

func eachSecond(m *belfry.Manifest) {
	m.Schedule, m.Overlap = "* * * * * *", belfry.OverlapParallel
}

func soon(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339Nano) }

// onEachDatabase runs a test on SQLite, and on PostgreSQL with two nodes.
func onEachDatabase(t *testing.T, test func(t *testing.T, onPostgres bool)) {
	t.Parallel()
	for name, onPostgres := range map[string]bool{"sqlite": false, "postgres": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, onPostgres)
		})
	}
}

// TestHangingNamespaceLeavesSlots has one namespace with far more callbacks that never answer
// than there are slots, and another one with a run a second, which is never late.
func TestHangingNamespaceLeavesSlots(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, onPostgres bool) {
		slots := atScale(20, 100)
		c := startCluster(t, onPostgres, slots)
		c.create("patient", "/later", 1, later) // so that it has a reserve
		c.create("greedy", "/hang", atScale(300, 10_000), nil)
		most := (slots*3/4 - 1) * len(c.nodes) // half of the fair part of the other one is in reserve, and one slot for others
		c.await("the other slots hang", func() bool { return c.calls["/hang"] >= most })
		c.serve("patient", func(r *belfry.Run) { c.addLag("worker", r.ScheduledAt) })
		c.create("patient", "/lag", 1, eachSecond)
		c.create("patient", "/send", 1, func(m *belfry.Manifest) {
			eachSecond(m)
			m.Type, m.Handler, m.Payload = belfry.TypeWorker, handler, nil
		})
		c.create("newcomer", "/new", 1, eachSecond) // which nobody has reserved anything for
		c.await("the run of a new namespace", func() bool { return c.calls["/new"] >= 1 })
		for _, by := range []string{"/lag", "worker"} {
			c.await("some runs of "+by, func() bool { return len(c.lags[by]) >= atScale(3, 60) })
			c.mu.Lock()
			lags := slices.Clone(c.lags[by])
			c.mu.Unlock()
			if worst := slices.Max(lags); worst > time.Second+slack() {
				t.Errorf("a run of the other namespace (%s) was %v late: %v", by, worst, lags)
			}
			slices.Sort(lags)
			t.Logf("%s: of %d runs the median was %v late, the worst %v", by, len(lags), lags[len(lags)/2].Round(time.Millisecond), lags[len(lags)-1].Round(time.Millisecond))
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.calls["/hang"] > most {
			t.Errorf("%d callbacks hang, and more than %d should not", c.calls["/hang"], most)
		}
	})
}

// TestNamespacesShareByWeight has two namespaces with many short runs that are due at one
// instant.
func TestNamespacesShareByWeight(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, onPostgres bool) {
		c := startCluster(t, onPostgres, 20)
		c.setQuota("light", belfry.Quota{Weight: 1})
		c.setQuota("heavy", belfry.Quota{Weight: 3})
		n, at := atScale(600, 10_000), soon(time.Duration(atScale(3, 15))*time.Second)
		together := func(m *belfry.Manifest) { m.Schedule = at }
		c.create("light", "/short-light", n, together)
		c.create("heavy", "/short-heavy", n, together)
		light := 0
		c.await("one namespace is nearly done", func() bool {
			light = c.calls["/short-light"]
			return c.calls["/short-heavy"] >= n*9/10
		})
		if ratio := float64(n*9/10) / float64(light); ratio < 2 || ratio > 4.5 {
			t.Errorf("%d runs of weight 3 were executed meanwhile, and %d of weight 1", n*9/10, light)
		}
		t.Logf("%d to %d", n*9/10, light)
	})
}

// TestMaxRunningHoldsInTheCluster has many short runs of a namespace that may run only a few,
// also in workers of its own.
func TestMaxRunningHoldsInTheCluster(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, onPostgres bool) {
		c := startCluster(t, onPostgres, 20)
		c.setQuota("limited", belfry.Quota{MaxRunning: 3})
		c.serve("limited", func(*belfry.Run) { c.short() })
		n := atScale(60, 1000)
		c.create("limited", "/short", n, nil)
		c.create("limited", "/send", n, func(m *belfry.Manifest) {
			m.Type, m.Handler, m.Payload = belfry.TypeWorker, handler, nil
		})
		c.await("all runs", func() bool { return c.ended >= 2*n })
		if c.most > 3 {
			t.Errorf("%d runs were executed at once, and at most 3 may be", c.most)
		}
	})
}

const handler = "send"

// serve runs a worker of a namespace until the test ends.
func (c *cluster) serve(namespace string, run func(*belfry.Run)) {
	mux := worker.NewMux()
	mux.HandleFunc(handler, func(_ context.Context, r *belfry.Run) error {
		run(r)
		return nil
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- worker.New(c.client(namespace), mux, worker.Concurrency(10), worker.Log(slog.New(slog.DiscardHandler))).Run(ctx)
	}()
	c.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			c.t.Error(err)
		}
	})
}

func (c *cluster) setQuota(namespace string, q belfry.Quota) {
	c.t.Helper()
	_, err := c.nodes[0].store.EditNamespace(c.t.Context(), namespace, func(n belfry.Namespace) (belfry.Namespace, error) {
		n.Quota = q
		return n, nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.await("all nodes know the quota", func() bool {
		return !slices.ContainsFunc(c.nodes, func(n *Node) bool { return n.quotas.All()[namespace] != q })
	})
}
