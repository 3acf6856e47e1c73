package node

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// load is requests that several clients make one after the other, while something is changed of which
// they must not notice anything.
type load struct {
	t       *testing.T
	served  []atomic.Int64 // by client
	failed  atomic.Int64
	stop    context.CancelFunc
	clients sync.WaitGroup
}

// startLoad makes requests, numbered from 0, until the load ends. An error fails the test.
func startLoad(t *testing.T, clients int, request func(ctx context.Context, n int64) error) *load {
	l := &load{t: t, served: make([]atomic.Int64, clients)}
	ctx, stop := context.WithCancel(t.Context())
	l.stop = stop
	var number atomic.Int64
	for i := range clients {
		l.clients.Go(func() {
			for ctx.Err() == nil {
				n := number.Add(1) - 1
				switch err := request(context.WithoutCancel(ctx), n); { // what has begun ends
				case err == nil:
					l.served[i].Add(1)
				case l.failed.Add(1) <= 5:
					t.Errorf("request %d of the load: %v", n, err)
				}
			}
		})
	}
	t.Cleanup(func() { l.end() })
	return l
}

// during makes a change, and waits until each client has made so many requests after it.
func (l *load) during(requests int64, change func()) {
	l.t.Helper()
	change()
	for i := range l.served {
		want := l.served[i].Load() + 1 + requests // one may have begun before
		for ; l.served[i].Load() < want; time.Sleep(time.Millisecond) {
			if l.failed.Load() > 0 {
				l.t.FailNow()
			}
		}
	}
}

// end stops the load and returns how many requests were served.
func (l *load) end() (served int64) {
	l.stop()
	l.clients.Wait()
	for i := range l.served {
		served += l.served[i].Load()
	}
	return served
}
