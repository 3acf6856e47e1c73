package node

import (
	"fmt"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

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
	nodes := []*Node{start(RoleAPI, RoleScheduler)}
	for range workers {
		nodes = append(nodes, start(RoleWorker))
	}
	sink := newLagReceiver(b)
	measure := func() {
		sink.lags = nil
		total := int(lasts.Seconds()) * rate
		first := nodes[0].store.Now().Add(3 * time.Second).Truncate(time.Second)
		createJobs(b, nodes[0].store, total, sink.URL, belfry.TypeHTTP, func(i int) time.Time { return first.Add(time.Duration(i) * time.Second / rate) })
		reportLags(b, sink.wait(b, total))
	}
	measure() // until connections are open and statements prepared
	for b.Loop() {
		statements, took := statementsOf(nodes)
		time.Sleep(lasts)
		idle, idleTook := statementsOf(nodes)
		measure()
		busy, busyTook := statementsOf(nodes)
		runs := rate * lasts.Seconds()
		b.ReportMetric((idle-statements)/lasts.Seconds(), "idle-statements/s")
		b.ReportMetric(1000*(idleTook-took)/lasts.Seconds(), "idle-database-ms/s")
		b.ReportMetric((busy-idle)/runs, "statements/run")
		b.ReportMetric(1000*(busyTook-idleTook)/runs, "database-ms/run")
	}
}

// statementsOf is how many statements nodes have sent, and how many seconds these took.
func statementsOf(nodes []*Node) (count, seconds float64) {
	for _, n := range nodes {
		w := httptest.NewRecorder()
		n.metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		for line := range strings.Lines(w.Body.String()) {
			rest, found := strings.CutPrefix(line, "belfry_database_statement_duration_seconds_")
			value, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' ')+1:]), 64)
			switch {
			case !found || err != nil:
			case strings.HasPrefix(rest, "count"):
				count += value
			case strings.HasPrefix(rest, "sum"):
				seconds += value
			}
		}
	}
	return count, seconds
}
