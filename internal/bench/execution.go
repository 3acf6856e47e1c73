package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
	"github.com/belfry-sh/belfry/internal/target"
	"github.com/belfry-sh/belfry/worker"
)

// execution is one call of a handler, or one callback.
type execution struct {
	run belfry.ID
	at  int64 // Unix time in microseconds, by the clock of this machine
}

// recorder records executions. The zero value is empty.
type recorder struct {
	mu   sync.Mutex
	list []execution
}

func (r *recorder) add(e execution) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, e)
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.list)
}

// reserve takes the memory for so many executions, so that it does not grow meanwhile.
func (r *recorder) reserve(n int) {
	r.list = make([]execution, n)
	for i := range r.list {
		r.list[i].at = 1 // memory that was never written is not resident
	}
	r.list = r.list[:0]
}

// occurrence is a run as the history has it.
type occurrence struct {
	run, job    belfry.ID
	scheduledAt time.Time
	dueAt       time.Time // with jitter, unless it was repeated
	firedAt     time.Time
	settledAt   time.Time // zero: it is not settled
	succeeded   bool
}

func newOccurrence(r belfry.Run) occurrence {
	o := occurrence{run: r.ID, job: r.JobID, scheduledAt: r.ScheduledAt, dueAt: r.ReadyAt, firedAt: r.FiredAt, succeeded: r.Status == belfry.RunSucceeded}
	if r.Attempt > 1 {
		o.dueAt = r.ScheduledAt // ReadyAt is that of the last attempt
	}
	if r.FinishedAt != nil {
		o.settledAt = *r.FinishedAt
	}
	return o
}

// Quality is how correct and how punctual the runs were.
type Quality struct {
	Lag        Percentiles `json:"lag_ms"`
	Early      int         `json:"early"`      // runs that were fired or executed before they were due
	Duplicates int         `json:"duplicates"` // executions of a run, and records of an occurrence, after the first
	Missing    int         `json:"missing"`    // occurrences that were not executed, or are not in the history as succeeded
}

// OK reports whether every occurrence ran once and not before its time.
func (q Quality) OK() bool { return q.Early == 0 && q.Duplicates == 0 && q.Missing == 0 }

// Percentiles of delays, in milliseconds.
type Percentiles struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func percentiles(delays []time.Duration) (p Percentiles) {
	if len(delays) == 0 {
		return p
	}
	slices.Sort(delays)
	at := func(share float64) float64 {
		return float64(delays[max(0, int(math.Ceil(share*float64(len(delays))))-1)].Microseconds()) / 1000
	}
	return Percentiles{at(0.5), at(0.95), at(0.99), at(1)}
}

// assess compares what was due with what the history has and what was executed. The clock
// of the store may be ahead of that of the executions by so much.
func assess(expected int, history []occurrence, executions []execution, ahead time.Duration) (q Quality) {
	type key struct {
		job belfry.ID
		at  int64
	}
	first := make(map[belfry.ID]int64, len(executions))
	for _, e := range executions {
		at, again := first[e.run]
		if again {
			q.Duplicates++
			e.at = min(at, e.at)
		}
		first[e.run] = e.at
	}
	lags := make([]time.Duration, 0, len(history))
	seen := make(map[key]bool, len(history))
	done := 0
	for _, o := range history {
		k := key{o.job, o.scheduledAt.UnixMicro()}
		if seen[k] {
			q.Duplicates++
			continue
		}
		seen[k] = true
		at, executed := first[o.run]
		if o.firedAt.Before(o.dueAt) || executed && at < o.dueAt.Add(-ahead).UnixMicro() {
			q.Early++
		}
		if executed && o.succeeded {
			done++
		}
		lags = append(lags, o.firedAt.Sub(o.dueAt))
	}
	q.Missing, q.Lag = max(0, expected-done), percentiles(lags)
	return q
}

// latest is the last of the instants that f returns; zero without any.
func latest(history []occurrence, f func(occurrence) time.Time) (at time.Time) {
	for _, o := range history {
		if t := f(o); t.After(at) {
			at = t
		}
	}
	return at
}

// cpuTime is the processor time that this process has used; 0 where there is no /proc.
func cpuTime() time.Duration {
	text, _ := os.ReadFile("/proc/self/stat")
	_, text, _ = bytes.Cut(text, []byte(") ")) // after the name of the program
	const tick = 10 * time.Millisecond         // on all Linux systems
	return time.Duration(number(text, 11)+number(text, 12)) * tick
}

// residentMemory is how many bytes of memory this process occupies; 0 where there is no
// /proc.
func residentMemory() int64 {
	text, _ := os.ReadFile("/proc/self/statm")
	return number(text, 1) * int64(os.Getpagesize())
}

// number is a field of a line of numbers, counted from 0.
func number(line []byte, i int) int64 {
	fields := bytes.Fields(line)
	if i >= len(fields) {
		return 0
	}
	n, _ := strconv.ParseInt(string(fields[i]), 10, 64)
	return n
}

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
	var mu sync.Mutex // guards the report
	report := bufio.NewWriterSize(out, 1<<20)
	flush := func() error {
		mu.Lock()
		defer mu.Unlock()
		return report.Flush()
	}
	mux := worker.NewMux()
	mux.HandleFunc(handlerName, func(_ context.Context, run *belfry.Run) error {
		mu.Lock()
		defer mu.Unlock()
		_, err := report.Write(binary.BigEndian.AppendUint64(run.ID[:], uint64(time.Now().UnixMicro())))
		return err
	})
	var flushing sync.WaitGroup
	flushing.Go(func() {
		for sleep(ctx, reportInterval) == nil {
			_ = flush() // the last one returns the error
		}
	})
	err = worker.New(c, mux, worker.Concurrency(concurrency), worker.DrainTimeout(workerDrain/2), worker.Log(log)).Run(ctx)
	stop()
	flushing.Wait()
	return errors.Join(err, flush())
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
	var workers errgroup.Group
	var err error
	for started := 0; started < s.Workers && err == nil; started++ {
		var wait func() error
		if wait, err = s.startWorker(running, server); err == nil {
			workers.Go(func() error {
				defer cancel(errors.New("a worker process ended"))
				return wait()
			})
		}
	}
	if err == nil {
		err = f(during)
	}
	stop()
	return errors.Join(err, workers.Wait())
}

// startWorker starts a worker process, which drains when ctx ends. Wait waits for that.
func (s *session) startWorker(ctx context.Context, server string) (wait func() error, err error) {
	cmd := s.WorkerCommand(ctx, server, s.Concurrency)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Cancel, cmd.WaitDelay = in.Close, workerDrain
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a worker process: %w", err)
	}
	return func() error {
		err := readExecutions(out, &s.executed)
		_ = cmd.Wait() // returns the end of ctx, too
		s.workerCPU.Add(int64(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()))
		if !cmd.ProcessState.Success() {
			err = fmt.Errorf("a worker process failed: %s", cmd.ProcessState)
		}
		return err
	}, nil
}

// clientRequests is at most how many requests measure what the HTTP client alone reaches.
const clientRequests = 50_000

// sink receives HTTP callbacks and records them.
type sink struct {
	*http.Server
	url string
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
	k := &sink{&http.Server{Handler: mux, ErrorLog: log.New(io.Discard, "", 0)}, "http://" + listener.Addr().String()}
	go k.Serve(listener)
	return k, nil
}

// measureClient returns how many requests a second the HTTP client of a node makes to the
// sink while nothing else runs.
func (s *session) measureClient(ctx context.Context) (rate float64, err error) {
	s.progress("measuring the HTTP client", 0, 0)
	client := target.NewHTTP(target.HTTPOptions{Guard: target.NewGuard(true, nil), Concurrency: s.Concurrency})
	defer client.Close()
	call := func(int) error {
		now := time.Now()
		run := &belfry.Run{ID: belfry.NewID(now), JobID: belfry.NewID(now), Attempt: 1, Kind: belfry.KindScheduled, ScheduledAt: now, Payload: payload(s.sink.url + "/client")}
		return client.Handle(ctx, run)
	}
	var started time.Time
	requests := min(clientRequests, s.Jobs)
	for _, calls := range []int{s.Concurrency, requests} { // the first ones open the connections
		started = time.Now()
		if err := inParallel(calls, s.Concurrency, call); err != nil {
			return 0, fmt.Errorf("measure the HTTP client: %w", err)
		}
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
