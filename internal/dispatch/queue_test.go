package dispatch

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/servertest"
)

const lane = "default/http"

// brokers are the real servers, and how to reach them.
var brokers = map[string]func(t testing.TB) (server *servertest.Server, address string){
	"nats": func(t testing.TB) (*servertest.Server, string) { s := servertest.NATS(t); return s, "nats://" + s.Addr },
	"nats 2.9": func(t testing.TB) (*servertest.Server, string) {
		s := servertest.DebianNATS(t)
		return s, "nats://" + s.Addr
	},
	"kafka": func(t testing.TB) (*servertest.Server, string) {
		s, password := servertest.KafkaSASL(t), filepath.Join(t.TempDir(), "password")
		if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return s, "kafka://" + s.Addr + "?sasl=scram-sha-256&username=belfry&password_file=" + password
	},
	"amqp": func(t testing.TB) (*servertest.Server, string) {
		s := servertest.RabbitMQ(t)
		return s, "amqp://" + s.Addr
	},
	"sqs": func(t testing.TB) (*servertest.Server, string) {
		s := servertest.SQS(t, "other")
		return s, "sqs://us-east-1?username=key&password_env=HOME&endpoint=http://" + s.Addr
	},
}

func eachBroker(t *testing.T, test func(t *testing.T, server *servertest.Server, address string)) {
	for _, name := range slices.Sorted(maps.Keys(brokers)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, address := brokers[name](t)
			test(t, server, address)
		})
	}
}

func open(t testing.TB, address string) Queue {
	t.Helper()
	q, err := Open(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Close)
	return q
}

// inGroups are ids as they are announced.
func inGroups(ids []belfry.ID) [][]belfry.ID { return slices.Collect(slices.Chunk(ids, 3)) }

func newIDs(n int) (ids []belfry.ID) {
	for range n {
		ids = append(ids, belfry.NewID(time.Now()))
	}
	return ids
}

// receiver collects what queues receive.
type receiver struct {
	mu  sync.Mutex
	got map[belfry.ID]int
}

func (r *receiver) listen(ctx context.Context, q Queue, max int) {
	for ctx.Err() == nil {
		ids, err := q.Receive(ctx, lane, max)
		if err != nil {
			sleep(ctx, 100*time.Millisecond)
		}
		r.mu.Lock()
		for _, id := range ids {
			r.got[id]++
		}
		r.mu.Unlock()
	}
}

func (r *receiver) has(ids []belfry.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(ids, func(id belfry.ID) bool { return r.got[id] == 0 })
}

// waitLimit only ends a test that would hang.
const waitLimit = time.Minute

func await(t testing.TB, what string, so func() bool) {
	t.Helper()
	for start := time.Now(); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > waitLimit {
			t.Fatalf("after %v still not: %s", waitLimit, what)
		}
	}
}

// announce repeats an announcement until it is received, as an Announcer does.
func announce(t testing.TB, q Queue, r *receiver, ids []belfry.ID) {
	t.Helper()
	for start := time.Now(); !r.has(ids); {
		if time.Since(start) > waitLimit {
			t.Fatalf("announcements do not arrive after %v", waitLimit)
		}
		call, cancel := context.WithTimeout(t.Context(), announceTimeout)
		err := q.Announce(call, lane, inGroups(ids))
		cancel()
		if err != nil {
			t.Logf("announce: %v", err)
			sleep(t.Context(), 200*time.Millisecond)
			continue
		}
		for again := time.Now().Add(3 * time.Second); !r.has(ids) && time.Now().Before(again); {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// Announcements reach one of two workers each, also after the broker was killed, which both
// sides notice or survive.
func TestQueues(t *testing.T) {
	eachBroker(t, func(t *testing.T, server *servertest.Server, address string) {
		announcer := open(t, address)
		ctx, stop := context.WithCancel(t.Context())
		var listening sync.WaitGroup
		defer listening.Wait()
		defer stop()
		r := &receiver{got: map[belfry.ID]int{}}
		for range 2 {
			q := open(t, address)
			listening.Go(func() { r.listen(ctx, q, 100) })
		}
		announce(t, announcer, r, newIDs(1)) // all are there
		start := time.Now()
		ids := newIDs(1000)
		announce(t, announcer, r, ids)
		t.Logf("1000 announcements took %v", time.Since(start))
		server.Kill()
		call, cancel := context.WithTimeout(t.Context(), announceTimeout)
		err := announcer.Announce(call, lane, inGroups(newIDs(10)))
		cancel()
		t.Logf("without the broker: %v", err)
		server.Start()
		start = time.Now()
		announce(t, announcer, r, newIDs(100))
		t.Logf("after the restart they arrive within %v", time.Since(start))
	})
}
