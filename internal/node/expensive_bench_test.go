package node

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
)

// BenchmarkExpensiveSchedules measures the lag of ordinary jobs while 50 clients send
// schedules that take as long as any: they create and edit jobs with them, which also
// fire, have others refused, and preview, explain and backfill. Some leave before the
// answer.
//
//	go test -run '^$' -bench ExpensiveSchedules -benchtime 1x ./internal/node
func BenchmarkExpensiveSchedules(b *testing.B) {
	for _, clients := range []int{0, 50} {
		b.Run(fmt.Sprintf("sqlite/%d", clients), func(b *testing.B) { benchmarkExpensiveSchedules(b, "", clients) })
		b.Run(fmt.Sprintf("postgres/%d", clients), func(b *testing.B) {
			benchmarkExpensiveSchedules(b, pgtest.Durable(b).URL(), clients)
		})
	}
}

func benchmarkExpensiveSchedules(b *testing.B, url string, clients int) {
	const lasts, rate = 15 * time.Second, 100
	for range b.N {
		n, stop := startBenchNode(b, url)
		sink := newLagReceiver(b)
		measure := func(lasts time.Duration) []time.Duration {
			sink.lags = nil
			start := n.store.Now().Add(3 * time.Second).Truncate(time.Second)
			total := int(lasts.Seconds()) * rate
			createJobs(b, n.store, total, sink.URL, belfry.TypeHTTP, func(i int) time.Time { return start.Add(time.Duration(i) * time.Second / rate) })
			return sink.wait(b, total)
		}
		measure(3 * time.Second) // until connections are open and statements prepared
		ctx, cancel := context.WithCancel(b.Context())
		load := &expensiveClients{base: "http://" + n.Addr().String() + "/api/v1"}
		var group sync.WaitGroup
		for i := range clients {
			group.Go(func() { load.run(ctx, i) })
		}
		lags := measure(lasts)
		cancel()
		group.Wait()
		stop()
		reportLags(b, lags)
		b.ReportMetric(float64(load.answers.Load()), "answers")
		b.ReportMetric(float64(load.refused.Load()), "422s")
		b.ReportMetric(float64(load.busy.Load()), "503s")
	}
}

// expensiveClients send schedules no two of which are equal.
type expensiveClients struct {
	base                   string
	number                 atomic.Int64
	answers, refused, busy atomic.Int64
}

// accepted is a schedule that fires every minute and takes as long to read as a new one
// may.
func (e *expensiveClients) accepted() string {
	return fmt.Sprintf("DTSTART:20260302T090000\nRRULE:FREQ=MINUTELY\nRRULE:FREQ=HOURLY;BYDAY=MO,TU,WE,TH,FR;COUNT=%d", 950_000+e.number.Add(1)%50_000)
}

// tooExpensive is a schedule that is refused as late as possible.
func (e *expensiveClients) tooExpensive() string {
	line := fmt.Sprintf("\nRRULE:FREQ=SECONDLY;INTERVAL=86401;BYHOUR=9;BYMINUTE=0;BYSECOND=0;COUNT=%d", 950_000+e.number.Add(1)%50_000)
	return "DTSTART:20260302T090000" + strings.Repeat(line, 16)
}

func (e *expensiveClients) run(ctx context.Context, client int) {
	job := fmt.Sprintf("%s/jobs/expensive-%d", e.base, client)
	manifest := func(schedule string) map[string]any {
		return map[string]any{"schedule": schedule, "overlap": "skip", "payload": map[string]string{"url": "http://127.0.0.1:9/"}}
	}
	e.send(ctx, "PUT", job, manifest(e.accepted()))
	for i := client; ctx.Err() == nil; i++ {
		switch i % 7 {
		case 0:
			e.send(ctx, "POST", e.base+"/jobs", manifest(e.accepted()))
		case 1:
			e.send(ctx, "POST", e.base+"/jobs", manifest(e.tooExpensive()))
		case 2:
			e.send(ctx, "PATCH", job, map[string]any{"schedule": e.accepted()})
		case 3:
			e.send(ctx, "POST", e.base+"/schedules/preview", map[string]any{"schedule": e.accepted(), "count": 1000})
		case 4:
			e.send(ctx, "GET", job+"/why", nil)
		case 5:
			e.send(ctx, "POST", job+"/backfill", map[string]any{"from": "2026-03-02T09:00:00Z", "limit": 1000, "dry_run": true})
		case 6:
			hasty, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
			e.send(hasty, "POST", e.base+"/schedules/preview", map[string]any{"schedule": e.tooExpensive(), "count": 1000})
			cancel()
		}
	}
}

func (e *expensiveClients) send(ctx context.Context, method, address string, body any) {
	text, _ := json.Marshal(body)
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(text))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	e.answers.Add(1)
	switch resp.StatusCode {
	case http.StatusUnprocessableEntity:
		e.refused.Add(1)
	case http.StatusServiceUnavailable:
		e.busy.Add(1)
	}
}
