package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
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
