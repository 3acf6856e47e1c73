package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry/internal/bench"
)

func benchCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "bench",
		Short: "Measure how fast a node is on this machine, without a server",
	}, benchHotSecondCommand())
}

// benchFlags are the flags of all benchmarks.
type benchFlags struct {
	bench.Config
	http, worker bool
	format       string
	noColor      bool
}

func addBenchFlags(cmd *cobra.Command, jobs int) *benchFlags {
	f := &benchFlags{}
	p := cmd.Flags()
	p.IntVar(&f.Jobs, "jobs", jobs, "how many jobs to register")
	p.StringVar(&f.DatabaseURL, "database-url", "", "PostgreSQL database, as postgres://user:password@host/database, instead of SQLite")
	p.StringVar(&f.Data, "data", "", "`DIRECTORY` of the SQLite database (default a temporary one)")
	p.BoolVar(&f.AllowOtherJobs, "allow-other-jobs", false, "use a database that has jobs of others")
	p.BoolVar(&f.Keep, "keep", false, "keep the jobs and their history, in the namespace "+bench.Namespace)
	p.StringVarP(&f.format, "output", "o", "table", "output `FORMAT`: "+strings.Join(formats, ", "))
	p.BoolVar(&f.noColor, "no-color", false, "print without colours [NO_COLOR]")
	completeFlag(cmd, "output", formats...)
	return f
}

// addRunFlags adds the flags of benchmarks that execute runs.
func (f *benchFlags) addRunFlags(cmd *cobra.Command) {
	p := cmd.Flags()
	p.IntVar(&f.Concurrency, "concurrency", 0, "how many runs are executed at a time (default 2000)")
	p.DurationVar(&f.Lead, "lead", 0, "time between the end of registering and the first instant, in which the node loads the plans (default 3s and 1s for 25,000 jobs)")
}

// benchResult is what a benchmark returns; it is not OK if runs were early, duplicate or
// missing.
type benchResult interface{ OK() bool }

// runBench checks the flags, calls a benchmark with a progress bar and prints its result.
func runBench[R benchResult](cmd *cobra.Command, f *benchFlags, measure func(context.Context, bench.Config) (R, error), show func(*output, R)) error {
	if err := f.check(); err != nil {
		return err
	}
	o := newOutput(cmd, f.format, f.noColor)
	bar := &progressBar{out: o.err, on: isTerminal(cmd.ErrOrStderr())}
	f.Version, f.Progress = version(), bar.show
	f.Log = slog.New(slog.NewTextHandler(bar, &slog.HandlerOptions{Level: slog.LevelWarn}))
	r, err := measure(cmd.Context(), f.Config)
	bar.clear()
	if err := o.printAnswer(r, err, func() { show(&o, r) }); err != nil {
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
	case f.Concurrency < 0:
		return usagef("--concurrency: must be at least 1, not %d", f.Concurrency)
	case f.Lead < 0:
		return usagef("--lead: must be positive, not %s", f.Lead)
	}
	f.Mode = bench.ModeNode
	if f.http {
		f.Mode = bench.ModeHTTP
	}
	if f.worker {
		f.Mode = bench.ModeWorker
	}
	return checkFormat(f.format)
}

func benchHotSecondCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hot-second",
		Short: "Run many recurring jobs that are due at one instant",
		Args:  cobra.NoArgs,
	}
	f := addBenchFlags(cmd, 100_000)
	f.addRunFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return runBench(cmd, f, bench.HotSecond, func(o *output, r bench.HotSecondResult) {
			var d details
			d.addAbout(r.About)
			d.add("Registered", grouped(r.CreatedPerSecond)+" jobs/s")
			d.add("Last fired", fmt.Sprintf("%.2f s after the instant", r.FiredSeconds))
			d.add("Last finished", fmt.Sprintf("%.2f s after the instant, in the history", r.FinishedSeconds))
			d.add("Runs", grouped(r.RunsPerSecond)+"/s")
			d.addQuality(r.Quality)
			o.writeRows(d)
		})
	}
	return cmd
}

func (d *details) addAbout(a bench.About) {
	database := map[string]string{"sqlite": "SQLite", "postgres": "PostgreSQL"}[a.Database]
	where := map[bench.Mode]string{
		bench.ModeNode: ", executed in the node", bench.ModeHTTP: ", executed by HTTP callbacks", bench.ModeWorker: ", executed by worker processes",
	}[a.Mode]
	if a.Concurrency > 0 {
		where += fmt.Sprintf(", %s at a time", grouped(float64(a.Concurrency)))
	}
	d.add("Jobs", fmt.Sprintf("%s on %s%s", grouped(float64(a.Jobs)), database, where))
	d.add("Version", a.Version)
}

func (d *details) addQuality(q bench.Quality) {
	l := q.Lag
	d.add("Lag", fmt.Sprintf("p50 %s, p95 %s, p99 %s, at most %s ms", grouped(l.P50), grouped(l.P95), grouped(l.P99), grouped(l.Max)))
	count := func(name string, n int) {
		colour := green
		if n > 0 {
			colour = red
		}
		d.add(name, cell{grouped(float64(n)), colour})
	}
	count("Early", q.Early)
	count("Duplicates", q.Duplicates)
	count("Missing", q.Missing)
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
