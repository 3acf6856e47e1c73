package node

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/servertest"
)

// BenchmarkDispatch is what nodes that only work cost PostgreSQL, with nothing to do and with
// steady work, and how late their runs are: over the database and over NATS.
//
//	go test -run '^$' -bench Dispatch -benchtime 1x ./internal/node
func BenchmarkDispatch(b *testing.B) {
	for _, workers := range []int{2, 16} {
		for _, name := range []string{DispatchDatabase, "nats"} {
			b.Run(fmt.Sprintf("%s/%d", name, workers), func(b *testing.B) {
				address := DispatchDatabase
				if name != DispatchDatabase {
					address = name + "://" + servertest.NATS(b).Addr
				}
				benchmarkDispatch(b, address, workers)
			})
		}
	}
}

func benchmarkDispatch(b *testing.B, address string, workers int) {
	const rate, lasts = 300, 10 * time.Second
	url := pgtest.Durable(b).URL()
	c := Defaults()
	c.Listen, c.DatabaseURL, c.AllowTargets, c.RateLimit, c.Dispatch, c.Concurrency, c.Connections = "127.0.0.1:0", url, []string{"127.0.0.1"}, 0, address, 20, 8
	start := func(roles ...string) *Node {
		c.Roles = roles
		n, stop := runNode(b, c)
		b.Cleanup(stop)
		return n
	}
	owner := start(RoleAPI, RoleScheduler)
	for range workers {
		start(RoleWorker)
	}
	sink := newLagReceiver(b)
	measure := func() {
		sink.lags = nil
		total := int(lasts.Seconds()) * rate
		first := owner.store.Now().Add(3 * time.Second).Truncate(time.Second)
		createJobs(b, owner.store, total, sink.URL, belfry.TypeHTTP, func(i int) time.Time { return first.Add(time.Duration(i) * time.Second / rate) })
		reportLags(b, sink.wait(b, total))
	}
	measure() // until connections are open and statements prepared
	for b.Loop() {
		before := readLoad(b, url)
		time.Sleep(lasts)
		idle := readLoad(b, url)
		measure()
		busy := readLoad(b, url)
		b.ReportMetric(float64(idle.transactions-before.transactions)/lasts.Seconds(), "idle-transactions/s")
		b.ReportMetric((idle.busy-before.busy)/lasts.Seconds(), "idle-database-ms/s")
		b.ReportMetric(float64(busy.transactions-idle.transactions)/float64(rate*int(lasts.Seconds())), "transactions/run")
		b.ReportMetric((busy.busy-idle.busy)/float64(rate*int(lasts.Seconds())), "database-ms/run")
	}
}

type databaseLoad struct {
	transactions int64
	busy         float64 // milliseconds in which statements were executed
}

func readLoad(b *testing.B, url string) (load databaseLoad) {
	time.Sleep(2 * time.Second) // sessions report what they did once a second
	conn, err := pgx.Connect(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(b.Context())
	if err := conn.QueryRow(b.Context(), `SELECT sum(xact_commit), sum(active_time) FROM pg_stat_database`).Scan(&load.transactions, &load.busy); err != nil {
		b.Fatal(err)
	}
	return load
}
