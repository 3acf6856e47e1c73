package election

import (
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/servertest"
	"github.com/belfry-sh/belfry/internal/store"
)

// Everything that elects keeps the same promises, with real servers.
func TestElections(t *testing.T) {
	t.Parallel()
	const soon, later = 5 * time.Second, 10 * time.Second
	atOnce(t, map[string]func(t *testing.T){
		"database": func(t *testing.T) { testElection(t, backend{kind: belfry.ElectionDatabase, limit: soon}) },
		"etcd":     func(t *testing.T) { testElection(t, backend{belfry.ElectionEtcd, servertest.Etcd(t), soon, true}) },
		"debian etcd": func(t *testing.T) {
			testElection(t, backend{belfry.ElectionEtcd, servertest.DebianEtcd(t), soon, false})
		},
		"zookeeper": func(t *testing.T) {
			testElection(t, backend{belfry.ElectionZooKeeper, servertest.ZooKeeper(t), later, true})
		},
	})
}

func testElection(t *testing.T, b backend) {
	with := func(test func(*cluster)) func(t *testing.T) {
		return func(t *testing.T) {
			c := newCluster(t, b)
			test(c)
			c.checkEpochs()
		}
	}
	tests := map[string]func(t *testing.T){"come and go": with(testComeAndGo), "dead owner": with(testDeadOwner), "cut off": with(testCutOff)}
	if b.server != nil && b.current {
		tests["without the database"] = with(testWithoutDatabase)
		tests["switch"] = with(testSwitch)
		tests["lost"] = with(testLost)
	}
	atOnce(t, tests)
	if b.server != nil {
		t.Run("server", with(testServer))
	}
}

// Each shard has one leader. A node that leaves is replaced at once.
func testComeAndGo(c *cluster) {
	x, y := c.join(), c.join()
	c.waitLeaders(x, y)
	z := c.join()
	c.waitLeaders(x, y, z)
	start := time.Now()
	z.resign()
	c.waitLeaders(x, y)
	c.within("graceful leave", time.Since(start), 500*time.Millisecond)
}

func testDeadOwner(c *cluster) {
	x, y := c.join(), c.join()
	c.waitLeaders(x, y)
	began := c.count()
	c.kill(y)
	died := time.Now()
	c.within("replacement of a dead owner", c.waitLeaders(x), c.limit)
	for _, term := range c.since(began) {
		if gap := term.DownSince.Sub(died); gap < -2*time.Second || gap > c.limit+2*time.Second || term.DownSince.After(term.Since) {
			c.t.Errorf("shard %d: the term before %v ended at %v; its owner died at %v", term.Shard, term.Since, term.DownSince, died)
		}
	}
}

// A node whose connection is silent leads nothing by the time that another does, which
// cluster.lead checks, and takes its share again afterwards.
func testCutOff(c *cluster) {
	x, y := c.join(), c.join()
	c.waitLeaders(x, y)
	y.gate.mu.Lock()
	c.waitLeaders(x)
	y.gate.mu.Unlock()
	c.waitLeaders(x, y)
}

// While the service is frozen or gone nobody leads. It recovers by itself.
func testServer(c *cluster) {
	x, y := c.join(), c.join()
	c.waitLeaders(x, y)
	c.server.Pause()
	c.waitLeaders()
	if why := x.failure(); !strings.Contains(why, string(c.kind)) {
		c.t.Errorf("the reason does not name the service: %q", why)
	}
	c.server.Resume()
	c.within("recovery of a frozen service", c.waitLeaders(x, y), 10*time.Second)
	began := c.count()
	c.server.Kill()
	c.waitLeaders()
	gone := time.Now()
	c.server.Start()
	c.within("recovery of a restarted service", c.waitLeaders(x, y), 10*time.Second)
	checked := map[int]bool{}
	for _, term := range c.since(began) {
		if checked[term.Shard] { // The node that came first has shared.
			continue
		}
		if checked[term.Shard] = true; term.DownSince.IsZero() || term.DownSince.After(gone.Add(4*time.Second)) {
			c.t.Errorf("shard %d: the term before ended at %v; the service was gone at %v", term.Shard, term.DownSince, gone)
		}
	}
}

// A term lasts while the service answers, also without the database.
func testWithoutDatabase(c *cluster) {
	x := c.join()
	c.waitLeaders(x)
	began := c.count()
	x.database.mu.Lock()
	c.wait("the database does not answer", func() bool { return strings.Contains(x.failure(), "could not be recorded") })
	for start := time.Now(); time.Since(start) < ttl+2*margin; { // Its record has expired.
		_ = x.failure() // The next attempt.
		if len(c.leaders()) != c.leases.shards {
			c.t.Fatal("a shard is not led although the service answers")
		}
	}
	x.database.mu.Unlock()
	c.wait("the database answers again", func() bool { return x.failure() == "" })
	if c.waitLeaders(x); c.count() != began {
		c.t.Errorf("%d terms began although nobody else could lead", c.count()-began)
	}
}

// A cluster elects as the node that started first does. Epochs grow across the change.
func testSwitch(c *cluster) {
	other := c.backend
	c.backend = backend{kind: belfry.ElectionDatabase}
	x := c.join()
	c.waitLeaders(x)
	c.backend = other
	y := c.join()
	c.wait("the second node says why it leads nothing", func() bool {
		why := y.failure()
		return strings.Contains(why, "this node elects by "+string(c.kind)) && strings.Contains(why, x.id.String()+" of the same cluster by database")
	})
	c.waitLeaders(x)
	x.resign()
	c.waitLeaders(y)
	c.backend = backend{kind: belfry.ElectionDatabase}
	z := c.join()
	c.wait("the third node leads nothing", func() bool { return z.failure() != "" })
	c.waitLeaders(y)
	y.resign()
	c.waitLeaders(z)
}

// What is deleted behind the back of its holder is taken again.
func testLost(c *cluster) {
	x := c.join()
	c.waitLeaders(x)
	observer := c.connect(c.server.Addr)
	defer observer.Close()
	c.deleteAll(observer)
	c.wait("the node takes its leases again", func() bool {
		names, err := observer.Held(c.t.Context(), store.ShardLease)
		return err == nil && len(names) == c.leases.shards
	})
	c.waitLeaders(x)
}
