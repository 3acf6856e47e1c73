package node

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/worker"
)

// BenchmarkRoleLag measures the lag of jobs whose runs start in another process than the
// one that fires them: on a node that is only a worker, and on a worker of a user, which
// claims over HTTP. It also measures that of a node which is 200 ms away from its database.
//
//	go test -run '^$' -bench RoleLag -benchtime 1x ./internal/node
func BenchmarkRoleLag(b *testing.B) {
	b.Run("worker-node", func(b *testing.B) {
		address := pgtest.Durable(b).URL()
		n := startRole(b, address, RoleAPI, RoleScheduler)
		startRole(b, address, RoleWorker)
		measureLag(b, n, 100, belfry.TypeHTTP)
	})
	b.Run("remote-worker", func(b *testing.B) {
		n := startRole(b, pgtest.Durable(b).URL(), RoleAPI, RoleScheduler)
		measureLag(b, n, 100, belfry.TypeWorker)
	})
	for _, rate := range []int{20, 100} {
		b.Run(fmt.Sprintf("far-database/%d", rate), func(b *testing.B) {
			n := startRole(b, farAway(b, pgtest.Durable(b).URL(), 100*time.Millisecond), RoleAPI, RoleScheduler, RoleWorker)
			measureLag(b, n, rate, belfry.TypeHTTP)
		})
	}
}

// startRole starts a node that runs until the benchmark ends.
func startRole(b *testing.B, address string, roles ...string) *Node {
	n, stop := startBenchNode(b, address, roles...)
	b.Cleanup(stop)
	return n
}

func measureLag(b *testing.B, n *Node, rate int, kind string) {
	const lasts = 10 * time.Second
	sink := newLagReceiver(b)
	if kind == belfry.TypeWorker {
		api, err := client.New("http://" + n.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		mux := worker.NewMux()
		mux.HandleFunc("lag", func(_ context.Context, run *belfry.Run) error {
			sink.note(time.Since(run.ScheduledAt))
			return nil
		})
		ctx, cancel := context.WithCancel(context.Background())
		var pool sync.WaitGroup
		pool.Go(func() { worker.New(api, mux, worker.Concurrency(100)).Run(ctx) })
		b.Cleanup(func() {
			cancel()
			pool.Wait()
		})
	}
	total := int(lasts.Seconds()) * rate
	measure := func() []time.Duration {
		sink.lags = nil
		start := n.store.Now().Add(5 * time.Second).Truncate(time.Second)
		createJobs(b, n.store, total, sink.URL, kind, func(i int) time.Time { return start.Add(time.Duration(i) * time.Second / time.Duration(rate)) })
		return sink.wait(b, total)
	}
	measure() // until connections are open and statements prepared
	for b.Loop() {
		reportLags(b, measure())
	}
}

// farAway is the address of a database through a network that delays what passes.
func farAway(b *testing.B, address string, delay time.Duration) string {
	u, err := url.Parse(address)
	if err != nil {
		b.Fatal(err)
	}
	server := u.Host
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { listener.Close() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", server)
			if err != nil {
				near.Close()
				continue
			}
			go delayed(far, near, delay)
			go delayed(near, far, delay)
		}
	}()
	u.Host = listener.Addr().String()
	return u.String()
}

// delayed copies bytes, each of which arrives some time later.
func delayed(to, from net.Conn, delay time.Duration) {
	type packet struct {
		bytes []byte
		at    time.Time
	}
	packets := make(chan packet, 10_000)
	go func() {
		defer to.Close()
		for p := range packets {
			time.Sleep(time.Until(p.at))
			if _, err := to.Write(p.bytes); err != nil {
				io.Copy(io.Discard, from)
				return
			}
		}
	}()
	defer close(packets)
	for {
		buffer := make([]byte, 32<<10)
		n, err := from.Read(buffer)
		if n > 0 {
			packets <- packet{buffer[:n], time.Now().Add(delay)}
		}
		if err != nil {
			return
		}
	}
}
