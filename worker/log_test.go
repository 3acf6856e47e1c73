package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

// logs lists the logs that heartbeats brought, with when.
func (b *testPool) logs(since time.Time) (all []string) {
	for _, h := range b.seenHeartbeats() {
		for _, c := range h.Logs {
			all = append(all, fmt.Sprintf("%v %d %q", h.at.Sub(since), c.Offset, c.Text))
		}
	}
	return all
}

func TestLogsAreSentEverySecondWhileAHandlerWrites(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		start := time.Now()
		f := newFakeSource()
		id := f.add(1, nil)[0]
		b := startPool(f, nil, func(_ context.Context, run *belfry.Run) error {
			run.Log("page", 1)
			run.Log("page", 2)
			time.Sleep(3200 * time.Millisecond)
			w := run.LogWriter()
			fmt.Fprint(w, "h\xc3")
			time.Sleep(100 * time.Millisecond)
			io.WriteString(w, "\xa9 half")
			time.Sleep(10 * time.Second)
			run.Log("done")
			return nil
		})
		sleepAndWait(14 * time.Second)
		// A heartbeat at the instant of the last line may find the handler before its return.
		got := strings.TrimSuffix(strings.Join(b.logs(start), "\n"), "\n13.3s 22 \"done\\n\"")
		if want := "1s 0 \"page 1\\npage 2\\n\"\n3.2s 14 \"h\"\n4.2s 15 \"é half\""; got != want {
			t.Errorf("the heartbeats brought\n%s\nwant\n%s", got, want)
		}
		heartbeats := b.seenHeartbeats()
		if n := len(heartbeats); n > 7 {
			t.Errorf("%d heartbeats in 14s: more than the logs need", n)
		}
		if r := b.outcome(t, id); r.Log != "page 1\npage 2\nhé halfdone\n" || r.LogOffset != 0 {
			t.Errorf("the result has the log %q at %d", r.Log, r.LogOffset)
		}
		b.end(t)
	})
}

func TestHandlersThatLogNothingCauseNoHeartbeats(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		f.add(1, nil)
		b := startPool(f, nil, func(_ context.Context, run *belfry.Run) error {
			time.Sleep(20 * time.Second)
			return nil
		})
		sleepAndWait(19 * time.Second)
		f.add(10, nil)
		b.pool.logged <- struct{}{} // such as of a handler that has returned
		if n := len(b.seenHeartbeats()); n != 4 {
			t.Errorf("%d heartbeats in 19s, want 4", n)
		}
		sleepAndWait(500 * time.Millisecond)
		b.stop()
		<-b.done
	})
}

// A heartbeat that fails is repeated without the logs: they must not cost the lease.
func TestLogsDoNotEndangerHeartbeats(t *testing.T) {
	for name, tt := range map[string]struct {
		err   error
		again bool // logs are sent later
	}{
		"the source is busy":         {errors.New("timeout"), true},
		"the source does not accept": {belfry.Errorf(belfry.Invalid, "logs is unknown"), false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				f := newFakeSource()
				id := f.add(1, nil)[0]
				refuse := true
				f.heartbeat = func(ctx context.Context, b belfry.Heartbeat) (belfry.HeartbeatReply, error) {
					if len(b.Logs) > 0 && refuse {
						refuse = false
						return belfry.HeartbeatReply{}, tt.err
					}
					return f.fakeStore.heartbeat(ctx, b)
				}
				b := startPool(f, nil, func(_ context.Context, run *belfry.Run) error {
					run.Log("one")
					time.Sleep(20 * time.Second)
					return nil
				})
				sleepAndWait(21 * time.Second)
				brought := b.logs(time.Now())
				if want := map[bool]int{true: 2, false: 1}[tt.again]; len(brought) != want {
					t.Errorf("heartbeats brought %q, want %d", brought, want)
				}
				var last time.Time
				for _, h := range b.seenHeartbeats() {
					if len(h.Logs) == 0 && !last.IsZero() && h.at.Sub(last) > 6*time.Second {
						t.Errorf("%v without a heartbeat", h.at.Sub(last))
					}
					last = h.at
				}
				if r := b.outcome(t, id); r.Log != "one\n" {
					t.Errorf("the result has the log %q", r.Log)
				}
				b.end(t)
			})
		})
	}
}

func TestTheNewestOfALogIsSent(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		ids := f.add(6, nil)
		b := startPool(f, nil, func(_ context.Context, run *belfry.Run) error {
			var writers sync.WaitGroup
			for i := range 8 {
				writers.Go(func() {
					for range 1000 {
						fmt.Fprintf(run.LogWriter(), "%d é%s\n", i, strings.Repeat("x", 28)) // 33 bytes
					}
				})
			}
			writers.Wait()
			time.Sleep(4 * time.Second)
			defer run.Log("never") // after the panic below is on its way
			panic("the printer is on fire")
		})
		sleepAndWait(3 * time.Second)
		if brought := b.logs(time.Now()); len(brought) != 6 {
			t.Errorf("heartbeats brought %d logs, want that of each attempt once", len(brought))
		}
		sleepAndWait(2 * time.Second)
		const written = 8*1000*33 + 6
		for _, h := range b.seenHeartbeats() {
			size := 0
			for _, c := range h.Logs {
				size += len(c.Text)
			}
			if size > maxLogBytes {
				t.Errorf("a heartbeat has %d bytes of logs", size)
			}
		}
		for _, id := range ids {
			r := b.outcome(t, id)
			if n := len(r.Log); r.Outcome != belfry.OutcomeFailed || n > belfry.MaxLog || n < belfry.MaxLog-4 || r.LogOffset+int64(n) != written || !strings.HasSuffix(r.Log, "\nnever\n") {
				t.Errorf("the log has %d bytes after %d of %d: …%q", n, r.LogOffset, written, r.Log[max(n-50, 0):])
			}
		}
		b.end(t)
	})
}

// A source keeps a piece for each chunk: once in a while one replaces them all.
func TestTheWholeLogIsSentOnceInAWhile(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		f.add(1, func(r *belfry.Run) { r.Spec.TimeoutSeconds = 3600 })
		b := startPool(f, nil, func(_ context.Context, run *belfry.Run) error {
			for range 130 {
				run.Log("x")
				time.Sleep(2 * time.Second)
			}
			return nil
		})
		sleepAndWait(265 * time.Second)
		whole := 0
		for _, h := range b.seenHeartbeats() {
			for _, c := range h.Logs {
				if c.Offset == 0 {
					whole++
				}
			}
		}
		if whole != 3 { // the first, and every 64th
			t.Errorf("the whole log was sent %d times", whole)
		}
		b.end(t)
	})
}

func TestARunWithoutAWorkerDiscardsItsLog(t *testing.T) {
	run := &belfry.Run{}
	run.Log("nobody reads this")
	if n, err := run.LogWriter().Write([]byte("abc")); n != 3 || err != nil {
		t.Errorf("wrote %d, error %v", n, err)
	}
	l := &attemptLog{written: make(chan struct{}, 1)}
	if offset, text := l.end(); offset != 0 || text != "" {
		t.Errorf("an empty log is %q", text)
	}
	if n, err := l.Write([]byte("after the end")); n != 13 || err != nil || l.text != nil {
		t.Errorf("after the end: wrote %d, error %v, kept %q", n, err, l.text)
	}
}

func TestAttemptsAreLoggedForDebugging(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFakeSource()
		f.add(1, func(r *belfry.Run) {
			r.JobName, r.JobID, r.Payload = "report", belfry.ID{7}, []byte(`{"password": "hunter2hunter2", "to": "ann"}`)
		})
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		b := startPool(f, with(Log(logger)), func(_ context.Context, run *belfry.Run) error {
			time.Sleep(time.Second)
			run.Report.HTTPStatus = 502
			return fmt.Errorf("login of ann with %s failed", run.Payload)
		})
		sleepAndWait(2 * time.Second)
		b.end(t)
		for _, want := range []string{
			`level=DEBUG msg="an attempt starts" job=` + belfry.ID{7}.String() + " run=",
			`level=DEBUG msg="an attempt ended" job=` + belfry.ID{7}.String() + " run=",
			`attempt=1 job_name=report outcome=failed took=1s http_status=502 error="login of ann with {\"password\": \"***\", \"to\": \"ann\"} failed"`,
		} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log does not have %s:\n%s", want, &log)
			}
		}
	})
}
