package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
	"github.com/belfry-sh/belfry/worker"
)

// work runs a worker with a handler until the test ends.
func (p *testCLI) work(name string, handler func(context.Context, *belfry.Run) error) {
	p.t.Helper()
	c, err := client.New(p.server)
	if err != nil {
		p.t.Fatal(err)
	}
	mux := worker.NewMux()
	mux.HandleFunc(name, handler)
	ctx, cancel := context.WithCancel(p.t.Context())
	done := make(chan error, 1)
	go func() { done <- worker.New(c, mux, worker.Log(slog.New(slog.DiscardHandler))).Run(ctx) }()
	p.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			p.t.Errorf("the worker ended with %v", err)
		}
		c.Close()
	})
}

// A worker's log is printed while the handler runs, and shown when it has ended.
func TestRunLog(t *testing.T) {
	p := withServer(t)
	proceed := make(chan struct{})
	p.work("crawl", func(_ context.Context, run *belfry.Run) error {
		run.Log("attempt", run.Attempt, "\x1b[31m<b>")
		fmt.Fprint(run.LogWriter(), "half a line")
		<-proceed
		run.Log(" and the rest")
		if run.Attempt == 1 {
			return errors.New("the site is busy")
		}
		fmt.Fprint(run.LogWriter(), "the\tend")
		return nil
	})
	p.ok("job", "create", "--name", "crawl", "--schedule", "@yearly", "--handler", "crawl", "--retry-base", "100ms")
	var asked belfry.TriggerResult
	p.json(&asked, "job", "trigger", "crawl")
	id := asked.RunID.String()
	out, _, _ := p.start("run", "watch", id)
	out.await(t, `log        attempt 1 \x1b[31m<b>`)
	if strings.Contains(out.String(), "half a line") {
		t.Errorf("a line that is not complete is printed:\n%s", out)
	}
	if r := p.ok("run", "show", id); !strings.Contains(r.out, "Log\n  attempt 1 \\x1b[31m<b>\n  half a line\n") {
		t.Errorf("run show of a running run:\n%s", r.out)
	}
	proceed <- struct{}{}
	out.await(t, `log        attempt 2 \x1b[31m<b>`)
	proceed <- struct{}{}
	out.await(t, "succeeded  attempt 2")
	var lines []string
	for line := range strings.Lines(out.String()) {
		if _, text, _ := strings.Cut(line, "  "); !strings.HasPrefix(text, "ready") && !strings.HasPrefix(text, "retry") {
			lines = append(lines, strings.Join(strings.Fields(text), " "))
		}
	}
	want := `running attempt 1|log attempt 1 \x1b[31m<b>|log half a line and the rest|attempt 1 failed after X: the site is busy|` +
		`running attempt 2|log attempt 2 \x1b[31m<b>|log half a line and the rest|log the end|succeeded attempt 2, took`
	got := strings.Join(lines, "|")
	for _, part := range strings.Split(want, "|") { // in this order
		head, tail, _ := strings.Cut(part, "X")
		_, rest, found := strings.Cut(got, head)
		if _, rest2, ok := strings.Cut(rest, tail); found && ok {
			got = rest2
		} else {
			t.Fatalf("there is no %q after what came before:\n%s", part, out)
		}
	}
	if r := p.ok("run", "show", id); !strings.Contains(r.out, "Log\n  attempt 2 \\x1b[31m<b>\n  half a line and the rest\n  the\tend\n") {
		t.Errorf("run show of a run that succeeded:\n%s", r.out)
	}
	if r := p.ok("run", "log", id, "--attempt", "1"); r.out != "attempt 1 \\x1b[31m<b>\nhalf a line and the rest\n" {
		t.Errorf("run log of the first attempt: %q", r.out)
	}
	var log belfry.RunLog
	if p.json(&log, "run", "log", id); log.Attempt != 2 || !strings.HasPrefix(log.Text, "attempt 2 \x1b[31m<b>\n") || log.NextOffset != int64(len(log.Text)) {
		t.Errorf("run log as JSON: %+v", log)
	}
	if r := p.ok("run", "log", id, "--attempt", "7"); r.out != "" || r.err != "There is no log.\n" {
		t.Errorf("run log of an attempt that does not exist: %+v", r)
	}
	if r := p.run("run", "log", belfry.ID{7}.String()); r.code != exitNotFound || !strings.Contains(r.err, "there is no run") {
		t.Errorf("run log of a run that does not exist: %+v", r)
	}
}

func TestACutLogSaysSo(t *testing.T) {
	p := withServer(t)
	p.work("crawl", func(_ context.Context, run *belfry.Run) error {
		for range 1200 {
			run.Log(strings.Repeat("x", 63))
		}
		return nil
	})
	p.ok("job", "create", "--name", "crawl", "--schedule", "@yearly", "--handler", "crawl")
	var asked belfry.TriggerResult
	p.json(&asked, "job", "trigger", "crawl")
	for _, command := range []string{"watch", "show", "log"} {
		if r := p.ok("run", command, asked.RunID.String()); strings.Count(r.out, "… 11,264 earlier bytes were cut\n") != 1 || strings.Count(r.out, strings.Repeat("x", 63)) != 1024 {
			t.Errorf("run %s does not say that the log was cut: %.300s", command, r.out)
		}
	}
}

// A run that waits for its retry shows why, in lists and while its job is watched.
func TestRunsThatWaitForARetrySayWhy(t *testing.T) {
	p := withServer(t)
	target := newReceiver(t)
	target.answer(503)
	p.ok("job", "create", "--name", "a", "--schedule", "@yearly", "--url", target.URL, "--retry-base", "1h")
	out, said, interrupt := p.start("run", "watch", "--job", "a")
	said.await(t, "Watching the runs of a.")
	p.ok("job", "trigger", "a")
	out.await(t, ", after attempt 1: the target answered 503 Service Unavailable\n")
	for _, args := range [][]string{{"run", "list"}, {"run", "list", "--status", "retry"}} {
		rows := columns(p.ok(args...).out)
		if last := rows[len(rows)-1]; len(rows) != 2 || last[2] != "retry" || last[len(last)-1] != "the target answered 503 Service Unavailable" {
			t.Errorf("%v: got %q", args, rows)
		}
	}
	interrupt()
}
