//go:build unix

package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	remote "github.com/belfry-sh/belfry/client"
	"github.com/belfry-sh/belfry/worker"
)

// envWorker makes the test binary a worker, built with nothing but the SDK. Its
// value is a workerOptions.
const envWorker = "BELFRY_TEST_CHAOS_WORKER"

// workerOptions says what a worker process is.
type workerOptions struct {
	Server string
	Name   string        // in deliveries
	Slots  int           // how many handlers may run at once
	Drain  time.Duration // how long they may go on after SIGTERM; 30 s
}

// byWorkers is what a job says that a Go worker runs, and bySnakes a Python one.
var (
	byWorkers = spec{"type": "worker", "handler": "chaos"}
	bySnakes  = spec{"type": "worker", "handler": "chaos-python"}
)

// runWorker works until SIGTERM.
func runWorker() {
	var o workerOptions
	err := json.Unmarshal([]byte(os.Getenv(envWorker)), &o)
	var server *remote.Client
	if err == nil {
		server, err = remote.New(o.Server)
	}
	if err == nil {
		mux := worker.NewMux()
		worker.HandleJSON(mux, "chaos", o.deliver)
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		fmt.Println("serving", mux.Handlers())
		err = worker.New(server, mux, worker.Concurrency(o.Slots), worker.DrainTimeout(o.Drain)).Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// handlerPayload is the payload of a job: where to report to.
type handlerPayload struct{ URL string }

// deliver is the handler: it reports its start to the receiver, does as the response
// says, and reports how it ended before it returns.
func (o workerOptions) deliver(ctx context.Context, run *belfry.Run, p handlerPayload) error {
	run.Report.Output = strconv.AppendInt(nil, int64(run.Attempt), 10)
	begun := o.report(ctx, run, p.URL, "")
	ended := "succeeded"
	if begun != nil {
		ended = begun.Error()
	}
	if cause := context.Cause(ctx); cause != nil {
		ended = cause.Error()
	}
	last, err := url.Parse(p.URL)
	if err != nil {
		return err
	}
	last.Path = "/ended"
	if err := o.report(context.WithoutCancel(ctx), run, last.String(), ended); err != nil {
		return err
	}
	return begun
}

// unrepeated never sends a request a second time: on a connection that is used again
// net/http does, if there is an idempotency key and no answer.
var unrepeated = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (o workerOptions) report(ctx context.Context, run *belfry.Run, url, ended string) error {
	req, err := http.NewRequestWithContext(ctx, "POST", url, nil)
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		"Belfry-Run-Id": run.ID.String(), "Belfry-Job-Id": run.JobID.String(), "Belfry-Attempt": strconv.Itoa(run.Attempt),
		"Belfry-Scheduled-At": run.ScheduledAt.Format(time.RFC3339Nano), "Idempotency-Key": run.Key(),
		headerBy: o.Name, headerEnded: ended,
	} {
		req.Header.Set(name, value)
	}
	resp, err := unrepeated.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the receiver responded with %s", resp.Status)
	}
	return nil
}

// newWorkDriver creates jobs that workers run.
func newWorkDriver(tb testing.TB, at func() string) *driver {
	d := newDriver(tb, at)
	d.common = byWorkers
	return d
}

var serving = regexp.MustCompile(`^serving (.+)`)

// goWorker starts a worker process that is built on the SDK.
func goWorker(tb testing.TB, o workerOptions) *process {
	tb.Helper()
	o.Drain = cmp.Or(o.Drain, 30*time.Second)
	text, err := json.Marshal(o)
	if err != nil {
		tb.Fatal(err)
	}
	p := &process{tb: tb, what: "worker " + o.Name, program: os.Executable, ready: serving, env: environment(envWorker + "=" + string(text))}
	p.begin()
	return p
}

// pythonSlots is how many handlers the Python worker runs at once.
const pythonSlots = 4

// pythonWorker starts a worker process that is built on the SDK in Python.
func pythonWorker(tb testing.TB, server, name string) *process {
	tb.Helper()
	p := &process{tb: tb, what: "worker " + name, program: python, ready: serving, args: []string{"testdata/chaos_worker.py"},
		env: environment("BELFRY_SERVER="+server, "PYTHONPATH=../../sdk/python", "PYTHONDONTWRITEBYTECODE=1", "CHAOS_WORKER="+name)}
	p.begin()
	return p
}

func python() (string, error) { return exec.LookPath("python3") }

// havePython says, loudly, if there is none.
func havePython(tb testing.TB) bool {
	_, err := python()
	if err != nil {
		tb.Logf("THE PYTHON WORKER IS NOT TESTED: %v", err)
	}
	return err == nil
}
