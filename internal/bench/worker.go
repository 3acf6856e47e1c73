package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
	"github.com/belfry-sh/belfry/internal/target"
	"github.com/belfry-sh/belfry/worker"
)

const (
	reportInterval = 50 * time.Millisecond // in which a worker process reports what it executed
	workerDrain    = 15 * time.Second      // for a worker process to end
	recordBytes    = 24                    // the id of a run and the time in microseconds
)

// RunWorker is the main function of a worker process: it executes runs of the server until
// in ends, and writes to out which and when.
func RunWorker(ctx context.Context, server string, concurrency int, in io.Reader, out io.Writer, log *slog.Logger) error {
	c, err := client.New(server, client.WithNamespace(Namespace))
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, in) // until the other process closes it, or is no more
		stop()
	}()
	report := &executionWriter{out: bufio.NewWriterSize(out, 1<<20)}
	mux := worker.NewMux()
	mux.HandleFunc(handlerName, func(_ context.Context, run *belfry.Run) error {
		return report.add(execution{run.ID, time.Now().UnixMicro()})
	})
	var flushing sync.WaitGroup
	flushing.Go(func() { report.flushUntil(ctx) })
	err = worker.New(c, mux, worker.Concurrency(concurrency), worker.DrainTimeout(workerDrain/2), worker.Log(log)).Run(ctx)
	stop()
	flushing.Wait()
	return errors.Join(err, report.flush())
}

// executionWriter writes records of executions.
type executionWriter struct {
	mu  sync.Mutex
	out *bufio.Writer
}

func (w *executionWriter) add(e execution) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.out.Write(binary.BigEndian.AppendUint64(e.run[:], uint64(e.at)))
	return err
}

func (w *executionWriter) flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Flush()
}

func (w *executionWriter) flushUntil(ctx context.Context) {
	for sleep(ctx, reportInterval) == nil {
		_ = w.flush() // the last one returns the error
	}
}

// readExecutions adds the records of a worker process until it ends.
func readExecutions(in io.Reader, r *recorder) error {
	records := bufio.NewReaderSize(in, 1<<20)
	for {
		var record [recordBytes]byte
		if _, err := io.ReadFull(records, record[:]); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		r.add(execution{belfry.ID(record[:16]), int64(binary.BigEndian.Uint64(record[16:]))})
	}
}

// withWorkers runs worker processes of a server while f runs, and then lets them drain.
func (s *session) withWorkers(ctx context.Context, server string, f func(ctx context.Context) error) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	during, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, s.Workers)
	started := 0
	var err error
	for ; started < s.Workers && err == nil; started++ {
		err = s.startWorker(running, server, func(err error) {
			cancel(errors.New("a worker process ended"))
			ended <- err
		})
	}
	if err == nil {
		err = f(during)
	} else {
		started--
	}
	stop()
	for range started {
		err = errors.Join(err, <-ended)
	}
	return err
}

// startWorker starts a worker process, which drains when ctx ends, and calls ended then.
func (s *session) startWorker(ctx context.Context, server string, ended func(error)) error {
	cmd := s.WorkerCommand(ctx, server, s.Concurrency)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Cancel, cmd.WaitDelay = in.Close, workerDrain
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a worker process: %w", err)
	}
	go func() {
		err := readExecutions(out, &s.executed)
		_ = cmd.Wait() // returns the end of ctx, too
		s.workerCPU.Add(int64(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()))
		if !cmd.ProcessState.Success() {
			err = fmt.Errorf("a worker process failed: %s", cmd.ProcessState)
		}
		ended(err)
	}()
	return nil
}

// clientRequests is at most how many requests measure what the HTTP client alone reaches.
const clientRequests = 50_000

// sink receives HTTP callbacks and records them.
type sink struct {
	server *http.Server
	url    string
}

func newSink(r *recorder) (*sink, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /run", func(w http.ResponseWriter, req *http.Request) {
		id, err := belfry.ParseID(req.Header.Get("Belfry-Run-Id"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.add(execution{id, time.Now().UnixMicro()})
	})
	mux.HandleFunc("POST /client", func(_ http.ResponseWriter, req *http.Request) {
		_, _ = belfry.ParseID(req.Header.Get("Belfry-Run-Id")) // the same work, without a record
	})
	k := &sink{server: &http.Server{Handler: mux, ErrorLog: log.New(io.Discard, "", 0)}, url: "http://" + listener.Addr().String()}
	go k.server.Serve(listener)
	return k, nil
}

func (k *sink) close() { k.server.Close() }

func (s *session) measureClient(ctx context.Context) (rate float64, err error) {
	s.progress("measuring the HTTP client", 0, 0)
	return s.sink.measureClient(ctx, min(clientRequests, s.Jobs), s.Concurrency)
}

// measureClient returns how many requests a second the HTTP client of a node makes to the
// sink while nothing else runs.
func (k *sink) measureClient(ctx context.Context, requests, concurrency int) (rate float64, err error) {
	client := target.NewHTTP(target.HTTPOptions{Guard: target.NewGuard(true, nil), Concurrency: concurrency})
	defer client.Close()
	call := func(int) error {
		now := time.Now()
		run := &belfry.Run{ID: belfry.NewID(now), JobID: belfry.NewID(now), Attempt: 1, Kind: belfry.KindScheduled, ScheduledAt: now, Payload: payload(k.url + "/client")}
		return client.Handle(ctx, run)
	}
	if err := inParallel(concurrency, concurrency, call); err != nil { // opens the connections
		return 0, fmt.Errorf("measure the HTTP client: %w", err)
	}
	started := time.Now()
	if err := inParallel(requests, concurrency, call); err != nil {
		return 0, fmt.Errorf("measure the HTTP client: %w", err)
	}
	return perSecond(requests, started), nil
}

// inParallel calls f with 0, 1, 2 and so on, at most so many at a time, until one fails.
func inParallel(calls, concurrency int, f func(i int) error) error {
	var next atomic.Int64
	failures := make([]error, concurrency)
	var all sync.WaitGroup
	for c := range concurrency {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < calls && failures[c] == nil; i = int(next.Add(1)) - 1 {
				failures[c] = f(i)
			}
		})
	}
	all.Wait()
	return errors.Join(failures...)
}
