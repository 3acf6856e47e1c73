package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry/internal/bench"
)

func benchCommand() *cobra.Command {
	return group(&cobra.Command{
		Use: "bench", Short: "Measure how fast a node is on this machine and database",
		Long: `Measure how fast a node is on this machine and database. No server is needed: the
command runs a node with the settings of belfry serve.

Without --database-url it uses SQLite in a temporary directory, which should be on the
disk that is to be measured: see --data. The jobs are in the namespace ` + bench.Namespace + `, which
belongs to this command and is deleted at the end, also after Ctrl-C. A database that
has other jobs, or on which nodes are running, is refused.

The exit code is 1 if a run was early, was executed twice or is missing.`,
	}, benchHotSecondCommand(), benchSteadyCommand(), benchCreateCommand(), benchWorkerCommand())
}

// benchFlags are the flags of all benchmarks.
type benchFlags struct {
	bench.Config
	*outputFlags
	http, worker bool
}

func addBenchFlags(cmd *cobra.Command, jobs int) *benchFlags {
	f := &benchFlags{}
	p := cmd.Flags()
	p.IntVar(&f.Jobs, "jobs", jobs, "how many jobs to register")
	p.StringVar(&f.DatabaseURL, "database-url", "", "PostgreSQL database, as postgres://user:password@host/database, instead of SQLite")
	p.StringVar(&f.Data, "data", "", "`DIRECTORY` of the SQLite database (default a temporary one)")
	p.BoolVar(&f.AllowOtherJobs, "allow-other-jobs", false, "use a database that has other jobs, which the node runs too, or on which other nodes are running")
	p.BoolVar(&f.Keep, "keep", false, "keep the jobs and their history, in the namespace "+bench.Namespace)
	f.outputFlags = addOutputFlags(cmd)
	return f
}

// addRunFlags adds the flags of benchmarks that execute runs.
func (f *benchFlags) addRunFlags(cmd *cobra.Command) {
	p := cmd.Flags()
	f.Mode = bench.ModeNode
	p.BoolVar(&f.http, "http", false, "execute runs by HTTP callbacks to a receiver that the command starts")
	p.BoolVar(&f.worker, "worker", false, "execute runs in worker processes that the command starts")
	p.IntVar(&f.Workers, "workers", 1, "how many processes --worker starts")
	p.IntVar(&f.Nodes, "nodes", 1, "how many nodes in this process share the work, on PostgreSQL")
	d := bench.DefaultConcurrency
	p.IntVar(&f.Concurrency, "concurrency", 0, fmt.Sprintf("how many runs each node, or each worker process, executes at a time (default %d, with --http %d, with --worker %d)",
		d[bench.ModeNode], d[bench.ModeHTTP], d[bench.ModeWorker]))
	p.DurationVar(&f.Lead, "lead", 0, "time between the end of registering and the first instant, in which the node loads the plans (default 5s, and 1s more for every 10,000 jobs that are due soon)")
}

// runBench checks the flags, calls a benchmark with a progress bar and prints its result,
// which is not OK if runs were early, duplicate or missing.
func runBench[R interface{ OK() bool }](
	cmd *cobra.Command, f *benchFlags, measure func(context.Context, bench.Config) (R, error), show func(*details, R),
) error {
	o, err := f.open(cmd)
	if err := cmp.Or(f.check(), err); err != nil {
		return err
	}
	bar := &progressBar{out: o.err, on: isTerminal(cmd.ErrOrStderr())}
	f.Version, f.Progress, f.Log, f.WorkerCommand = version(), bar.show, benchLog(bar), workerCommand(bar)
	r, err := measure(cmd.Context(), f.Config)
	bar.clear()
	if err := o.printAnswer(r, err, func() {
		var d details
		show(&d, r)
		o.writeDetails(d)
	}); err != nil {
		return err
	}
	if !r.OK() {
		return errors.New("there are early, duplicate or missing runs, which must not be")
	}
	return nil
}

func (f *benchFlags) check() error {
	switch {
	case f.Jobs < 1:
		return usagef("--jobs: must be at least 1, not %d", f.Jobs)
	case f.http && f.worker:
		return usagef("use either --http or --worker")
	case f.DatabaseURL != "" && f.Data != "":
		return usagef("use either --database-url or --data")
	case f.Workers < 1 && f.worker:
		return usagef("--workers: must be at least 1, not %d", f.Workers)
	case f.Nodes < 0 || f.Nodes > 1 && f.DatabaseURL == "":
		return usagef("--nodes: must be at least 1, and several need --database-url")
	case f.Concurrency < 0:
		return usagef("--concurrency: must be positive, not %d", f.Concurrency)
	case f.Lead < 0:
		return usagef("--lead: must be positive, not %s", f.Lead)
	case f.http:
		f.Mode = bench.ModeHTTP
	case f.worker:
		f.Mode = bench.ModeWorker
	}
	return nil
}

func benchHotSecondCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "hot-second", Short: "Run many recurring jobs that are due at one instant",
		Long: `Register recurring jobs that are all due at one instant, run them, and print how fast
they were registered, when the last one was fired and was in the history, the delay
from the instant until a run was fired (lag), and whether runs were early, executed
twice or are missing.

The runs do nothing. They are executed in the node; with --http by HTTP callbacks to a
receiver in this process, and what the same HTTP client reaches with nothing else
running is measured before and after; or with --worker in a process of its own, by the
packages client and worker.`,
		Example: `  belfry bench hot-second --jobs 500000 --database-url postgres://user@localhost/bench
  belfry bench hot-second --http
  belfry bench hot-second --worker --workers 2 -o json`,
	}
	f := addBenchFlags(cmd, 100_000)
	f.addRunFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return runBench(cmd, f, bench.HotSecond, func(d *details, r bench.HotSecondResult) {
			d.addAbout(r.About)
			d.add("Registered", grouped(r.CreatedPerSecond)+" jobs/s", "Last fired", fmt.Sprintf("%.2f s after the instant", r.FiredSeconds),
				"Last finished", fmt.Sprintf("%.2f s after the instant, in the history", r.FinishedSeconds), "Runs", grouped(r.RunsPerSecond)+"/s")
			d.addIf(r.ClientPerSecond > 0, "HTTP client alone", fmt.Sprintf("%s/s; the runs reach %.2f of it", grouped(r.ClientPerSecond), r.ClientRatio))
			d.addQuality(r.Quality)
		})
	}
	return cmd
}

func benchSteadyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "steady", Short: "Run recurring jobs at a steady rate",
		Long: `Register recurring jobs so that the same number is due in every second, run them for a
while, and print the delay from the time at which a run was due until it was fired
(lag), whether runs were early, executed twice or are missing, the memory of this
process and the dead tuples of PostgreSQL.

The jobs are due every hour if there are 3,600 times as many as the rate, otherwise
every minute. Those that are not needed for the rate are not due for months. Their
jitter spreads them over the second. The runs are executed as by hot-second.`,
		Example: `  belfry bench steady --rate 2800 --jobs 10000000 --duration 5m --database-url postgres://user@localhost/bench
  belfry bench steady --rate 500 --jobs 30000 --duration 10s --http`,
	}
	f := addBenchFlags(cmd, 1_000_000)
	f.addRunFlags(cmd)
	steady := bench.SteadyConfig{}
	cmd.Flags().IntVar(&steady.Rate, "rate", 2800, "how many runs are due in a second")
	cmd.Flags().DurationVar(&steady.Duration, "duration", time.Minute, "for how long runs are measured")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		steady.Config = f.Config
		if err := steady.Validate(); err != nil {
			return asUsage(err)
		}
		return runBench(cmd, f, func(ctx context.Context, c bench.Config) (bench.SteadyResult, error) {
			steady.Config = c
			return bench.Steady(ctx, steady)
		}, func(d *details, r bench.SteadyResult) {
			d.addAbout(r.About)
			d.add("Registered", fmt.Sprintf("%s jobs/s, %s bytes each on disk", grouped(r.CreatedPerSecond), grouped(r.BytesPerJob)),
				"Runs", fmt.Sprintf("%s in %s, %s/s", grouped(float64(r.Runs)), steady.Duration, grouped(float64(r.Rate))))
			d.addQuality(r.Quality)
			d.add("Memory", samplesText(r.MemoryBytes, 1<<20, " MiB"))
			if t := r.DeadTuples; t != nil {
				d.add("Dead tuples", "plans "+samplesText(t.Plans, 1, "")+"; runs "+samplesText(t.Runs, 1, ""))
			}
		})
	}
	return cmd
}

func samplesText(s bench.Samples, unit float64, name string) string {
	return fmt.Sprintf("%s%s at the beginning, %s at the end, %s at most", grouped(float64(s.Begin)/unit), name, grouped(float64(s.End)/unit), grouped(float64(s.Max)/unit))
}

func benchCreateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "create", Short: "Register many jobs",
		Long: `Register recurring jobs that are not due for months, with a payload of about 100 bytes,
and print how many in a second and what each of them occupies on disk.`,
		Example: `  belfry bench create --jobs 1000000 --database-url postgres://user@localhost/bench
  belfry bench create --http-bulk`,
	}
	f := addBenchFlags(cmd, 1_000_000)
	bulk := cmd.Flags().Bool("http-bulk", false, "register through the API of a node (POST /api/v1/jobs/bulk) instead of the store")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return runBench(cmd, f, func(ctx context.Context, c bench.Config) (bench.CreateResult, error) {
			return bench.Create(ctx, bench.CreateConfig{Config: c, HTTPBulk: *bulk})
		}, func(d *details, r bench.CreateResult) {
			d.addAbout(r.About)
			d.add("Registered", grouped(r.CreatedPerSecond)+" jobs/s "+map[string]string{"store": "by the store", "http": "by POST /api/v1/jobs/bulk"}[r.Path])
			d.add("On disk", grouped(r.BytesPerJob)+" bytes/job, with its plan and all indexes")
		})
	}
	return cmd
}

// benchWorkerCommand is the process that --worker starts.
func benchWorkerCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "worker", Short: "Execute the runs of a benchmark", Hidden: true}
	server := cmd.Flags().String("server", "", "address of the server")
	concurrency := cmd.Flags().Int("concurrency", 100, "how many runs are executed at a time")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return bench.RunWorker(cmd.Context(), *server, *concurrency, cmd.InOrStdin(), cmd.OutOrStdout(), benchLog(cmd.ErrOrStderr()))
	}
	return cmd
}

// workerCommand starts this program as benchWorkerCommand.
func workerCommand(errOut io.Writer) func(context.Context, string, int) *exec.Cmd {
	return func(ctx context.Context, server string, concurrency int) *exec.Cmd {
		program, err := os.Executable()
		if err != nil {
			program = os.Args[0]
		}
		cmd := exec.CommandContext(ctx, program, "bench", "worker", "--server", server, "--concurrency", strconv.Itoa(concurrency))
		cmd.Stderr = errOut
		return cmd
	}
}

// benchLog has only what the user of a benchmark should know.
func benchLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func (d *details) addAbout(a bench.About) {
	database := map[string]string{"sqlite": "SQLite", "postgres": "PostgreSQL"}[a.Database]
	where := map[bench.Mode]string{
		bench.ModeNode: ", executed in the node", bench.ModeHTTP: ", executed by HTTP callbacks", bench.ModeWorker: ", executed by " + plural(a.Workers, "worker"),
	}[a.Mode]
	if a.Nodes > 1 {
		where += ", " + plural(a.Nodes, "node")
	}
	if a.Concurrency > 0 {
		where += fmt.Sprintf(", %s at a time", grouped(float64(a.Concurrency)))
	}
	d.add("Jobs", fmt.Sprintf("%s on %s%s", grouped(float64(a.Jobs)), database, where), "Version", a.Version, "Kept in", a.Data)
}

func (d *details) addQuality(q bench.Quality) {
	count := func(n int) cell {
		if n > 0 {
			return cell{grouped(float64(n)), red}
		}
		return cell{"0", green}
	}
	l := q.Lag
	d.add("Lag", fmt.Sprintf("p50 %s, p95 %s, p99 %s, at most %s ms", grouped(l.P50), grouped(l.P95), grouped(l.P99), grouped(l.Max)),
		"Early", count(q.Early), "Duplicates", count(q.Duplicates), "Missing", count(q.Missing))
}

// grouped is a number with its thousands apart, and one decimal if it is small.
func grouped(n float64) string {
	text := fmt.Sprintf("%.0f", n)
	if n < 100 && n != float64(int(n)) {
		text = fmt.Sprintf("%.1f", n)
	}
	whole, _, _ := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

const (
	progressWidth    = 30 // of the bar
	progressInterval = 100 * time.Millisecond
	clearLine        = "\r\x1b[K"
)

// progressBar shows on a terminal how far something is. What others write to the same
// stream passes through it.
type progressBar struct {
	out io.Writer
	on  bool // it is a terminal

	mu    sync.Mutex
	shown time.Time
	text  string
}

// show replaces the bar. A total of 0 is unknown.
func (b *progressBar) show(stage string, done, total int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.on || time.Since(b.shown) < progressInterval && done < total {
		return
	}
	b.shown, b.text = time.Now(), progressText(stage, done, total)
	fmt.Fprint(b.out, clearLine+b.text)
}

func progressText(stage string, done, total int) string {
	if total <= 0 {
		return stage + " …"
	}
	share := min(1, float64(done)/float64(total))
	full := int(share * progressWidth)
	return fmt.Sprintf("%s %s%s %3.0f%% %s of %s", stage, strings.Repeat("█", full), strings.Repeat("░", progressWidth-full), 100*share,
		grouped(float64(done)), grouped(float64(total)))
}

// clear removes the bar.
func (b *progressBar) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.text != "" {
		fmt.Fprint(b.out, clearLine)
	}
	b.text = ""
}

// Write writes lines of others above the bar.
func (b *progressBar) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.text == "" {
		return b.out.Write(p)
	}
	_, err := fmt.Fprint(b.out, clearLine+string(p)+b.text)
	return len(p), err
}
