//go:build unix

package chaos

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/servertest"
)

// TestDispatchOverABrokerLosesNothing kills the broker, a worker node and the owner of the
// shards while runs pass that are announced over the broker, and measures how many runs per
// second there were before the broker was killed, and how many five seconds later. All
// brokers only with BELFRY_TEST_CHAOS=1.
func TestDispatchOverABrokerLosesNothing(t *testing.T) {
	t.Parallel()
	brokers := []struct {
		name  string
		start func(testing.TB) *servertest.Server
		url   string
	}{
		{"nats", servertest.NATS, "nats://%s"},
		{"kafka", servertest.Kafka, "kafka://%s"},
		{"amqp", servertest.RabbitMQ, "amqp://%s"},
		{"sqs", func(tb testing.TB) *servertest.Server { return servertest.SQS(tb, "other") }, "sqs://us-east-1?username=key&password_env=HOME&endpoint=http://%s"},
	}
	if !longRun {
		brokers = brokers[:1]
	}
	for _, b := range brokers {
		t.Run(b.name, func(t *testing.T) {
			broker := b.start(t)
			killWhileDispatching(t, broker, fmt.Sprintf(b.url, broker.Addr))
		})
	}
}

// The jobs of killWhileDispatching take 200 ms each: its workers run so many per second.
const dispatchTakes = 200 * time.Millisecond

func killWhileDispatching(t *testing.T, broker *servertest.Server, address string) {
	total, slots := 1200, 10
	if longRun {
		total, slots = 10_000, 60
	}
	url := pgtest.Database(t, nil)
	node := func(roles string) *process {
		return onPostgres(t, url, "--dispatch", address, "--roles", roles, "--concurrency", fmt.Sprint(slots))
	}
	started := time.Now()
	owners := []*process{node("api,scheduler"), node("api,scheduler")}
	workers := []*process{node("api,worker"), node("api,worker")}
	d := newDriver(t, anyOf(append(owners, workers...)))
	due := time.Now().Add(time.Duration(total) * 3 * time.Millisecond)
	createAtOnce(d, total, due)
	if late := time.Since(due); late > 0 {
		t.Logf("the last job was created %v after they were due", late)
		due = time.Now()
	}
	sleepUntil(due.Add(time.Second))
	workers[0].kill() // first: its attempts are taken from it when it was silent for 20 seconds
	workers[0].start()
	measured := time.Now().Add(time.Second)
	sleepUntil(measured.Add(2 * time.Second))
	killed := time.Now()
	before := d.receiver.rate(measured, killed)
	broker.Kill()
	sleepUntil(killed.Add(7 * time.Second))
	without := d.receiver.rate(killed.Add(5*time.Second), time.Now())
	broker.Start()
	owners[0].kill()
	time.Sleep(time.Second)
	owners[0].start()
	eventually(t, "all runs have ended", 3*time.Minute, func() bool {
		return len(d.receiver.all()) >= total && query[int64](t, url, `SELECT count(*) FROM belfry.runs`) == 0
	})
	h := d.awaitClean(3*time.Minute, true)
	t.Logf("%.0f runs per second before the broker was killed, %.0f from 5 s after it: %.2f of that; %s", before, without, without/before, address)
	if without < before/2 {
		t.Errorf("without the broker there are %.0f runs per second, before it was killed there were %.0f", without, before)
	}
	report(t, h, 3)
	t.Logf("it took %v", time.Since(started).Round(time.Second))
	for _, n := range append(owners, workers...) {
		n.drain(time.Minute)
	}
}

// createAtOnce creates jobs that are due at the same instant.
func createAtOnce(d *driver, total int, due time.Time) {
	var creating sync.WaitGroup
	next := make(chan struct{})
	for range 16 {
		creating.Go(func() {
			for range next {
				d.once(due, fmt.Sprintf("/slow/%d", dispatchTakes.Milliseconds()), quick(nil))
			}
		})
	}
	for range total {
		next <- struct{}{}
	}
	close(next)
	creating.Wait()
}

func sleepUntil(at time.Time) { time.Sleep(time.Until(at)) }

// rate is how many deliveries per second came between two instants.
func (l *receiver) rate(from, to time.Time) float64 {
	n := 0
	for _, d := range l.all() {
		if !d.Arrived.Before(from) && d.Arrived.Before(to) {
			n++
		}
	}
	return float64(n) / to.Sub(from).Seconds()
}
