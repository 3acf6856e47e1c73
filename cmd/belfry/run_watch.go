package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

func runWatchCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "watch ID | watch --job REF", Short: "Watch a run until it has ended, or the runs of a job",
		Long: `Watch a run until it has ended, and print every change of its status and what its
worker logs. The exit code is 0 if it succeeded, and 5 if it is dead, skipped or
cancelled.

With --job, watch the runs of a job until you interrupt the command, which ends it
with exit code 130.`,
		Args: cobra.MaximumNArgs(1),
	}
	job := cmd.Flags().String("job", "", "watch the runs of this job instead")
	_ = cmd.RegisterFlagCompletionFunc("job", f.complete(false, completeJobs)) // The flag exists.
	return f.command(cmd, func(c *cli, args []string) error {
		switch {
		case (len(args) == 1) == (*job != ""):
			return usagef("name a run, or a job with --job")
		case *job != "":
			return c.followJob(*job)
		}
		id, err := parseID(args[0], "run")
		if err != nil {
			return err
		}
		run, err := c.followRun(id)
		if err != nil {
			return err
		}
		return printAll(&c.output, 1, []belfry.Run{run}, runError(run))
	})
}

func runError(run belfry.Run) error {
	if run.Status == belfry.RunSucceeded {
		return nil
	}
	message := fmt.Sprintf("run %s is %s", run.ID, run.Status)
	if run.Attempt > 0 {
		message += fmt.Sprintf(" after attempt %d", run.Attempt)
	}
	if detail := runDetail(run); detail != "" {
		message += ": " + detail
	}
	return exitError{errors.New(message), exitNoSuccess}
}

const (
	minPollInterval = 200 * time.Millisecond
	maxPollInterval = 2 * time.Second
	maxUnreachable  = time.Minute // that polling continues while the server does not answer
)

// explainAfter is how long a run waits until the command says for what. It is shorter in
// tests.
var explainAfter = 10 * time.Second

// poll calls check until it is done, less often while nothing changes. It continues
// while the server does not answer, perhaps because it restarts.
func (c *cli) poll(check func() (changed, done bool, err error)) error {
	interval := minPollInterval
	var failingSince time.Time
	for {
		changed, done, err := check()
		switch {
		case err != nil && (exitCode(err) != exitUnreachable || c.ctx.Err() != nil):
			return err
		case err != nil && failingSince.IsZero():
			failingSince = time.Now()
			c.message("The server does not answer. Trying again.")
		case err != nil && time.Since(failingSince) > maxUnreachable:
			return err
		case err == nil:
			failingSince = time.Time{}
		}
		if done || c.out.err != nil {
			return c.out.err
		}
		interval = min(interval*3/2, maxPollInterval)
		if changed {
			interval = minPollInterval
		}
		select {
		case <-time.After(interval):
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
	}
}

// followRun prints every change of a run until it has ended.
func (c *cli) followRun(id belfry.ID) (run belfry.Run, err error) {
	w := &runWatcher{output: &c.output, to: c.out}
	if !c.humanReadable() {
		w.to = c.err // The run itself is printed at the end.
	}
	since, explained := time.Now(), false
	err = c.poll(func() (changed, done bool, err error) {
		latest, err := c.Run(c.ctx, id)
		if err != nil {
			return false, false, err
		}
		run = latest
		if changed, err = w.updateWithLog(c, run); err != nil {
			return changed, false, err
		}
		if changed {
			since, explained = time.Now(), false
		} else if !explained && time.Since(since) > explainAfter {
			explained = true
			c.explainWait(run)
		}
		return changed, !run.Status.Live(), nil
	})
	return run, err
}

// explainWait says what a run waits for that does not start.
func (c *cli) explainWait(run belfry.Run) {
	if run.Status != belfry.RunReady && run.Status != belfry.RunWaiting {
		return
	}
	if e, err := c.ExplainJob(c.ctx, run.JobID.String(), run.ScheduledAt.UTC().Format(time.RFC3339Nano)); err == nil && e.WaitsFor != nil {
		c.message("%s", escape(e.Sentence))
	}
}

// followJob prints every change of the latest runs of a job until it is interrupted.
func (c *cli) followJob(ref string) error {
	const maxRuns = 20
	watchers := make(map[belfry.ID]*runWatcher)
	first := true
	return c.poll(func() (changed, done bool, err error) {
		latest, _, err := collect(c.JobRuns(c.ctx, ref, belfry.JobRunFilter{}), maxRuns)
		if err != nil {
			return false, false, err
		}
		if first {
			c.message("Watching the runs of %s. Interrupt to stop.", escape(ref))
		}
		for _, run := range slices.Backward(latest) {
			w := watchers[run.ID]
			if w == nil {
				w = &runWatcher{output: &c.output, to: c.out, ended: first && !run.Status.Live(), whole: !c.humanReadable()}
				watchers[run.ID] = w
			}
			changed = w.update(run, run.ID.String()+"  ") || changed
		}
		first = false
		return changed, false, nil
	})
}

// runWatcher prints the changes of a run. It keeps what it printed last.
type runWatcher struct {
	*output
	to       io.Writer
	ended    bool // before the command started: nothing is printed
	whole    bool // print the run, for programs
	status   belfry.RunStatus
	attempt  int
	attempts int
	next     belfry.LogQuery // what to read of the log next
	rest     string          // a line of the log that is not complete
}

func (w *runWatcher) update(run belfry.Run, prefix string) (changed bool) {
	if run.Status == w.status && run.Attempt == w.attempt && len(run.Attempts) == w.attempts {
		return false
	}
	failed := run.Attempts[min(w.attempts, len(run.Attempts)):]
	w.status, w.attempt, w.attempts = run.Status, run.Attempt, len(run.Attempts)
	switch {
	case w.ended:
		return false
	case w.whole:
		_ = w.print(run, nil) // The output keeps the error.
		return true
	}
	for _, a := range failed {
		detail := fmt.Sprintf("%s after %s: %s", a.Outcome, elapsedText(a.FinishedAt.Sub(a.StartedAt)), resultText(a.HTTPStatus, a.Error))
		w.printLine(prefix, cell{fmt.Sprintf("attempt %d", a.Number), yellow}, detail)
	}
	w.printLine(prefix, statusCell(run.Status), w.statusDetail(run))
	return true
}

func (w *runWatcher) statusDetail(run belfry.Run) string {
	switch run.Status {
	case belfry.RunReady:
		return "waits for a worker"
	case belfry.RunRunning:
		return fmt.Sprintf("attempt %d", run.Attempt)
	case belfry.RunWaiting:
		return "waits for an earlier run of the job"
	case belfry.RunRetry:
		text := "next attempt " + w.relativeTime(run.ReadyAt)
		if len(run.Attempts) == 0 && run.Error != "" { // in a list; otherwise a line before this one says it
			text += ", after attempt " + fmt.Sprintf("%d: %s", run.Attempt, run.Error)
		}
		return text
	case belfry.RunSucceeded:
		text := fmt.Sprintf("attempt %d", run.Attempt)
		if took := tookText(run); took != "" {
			text += ", took " + took
		}
		if result := resultText(run.HTTPStatus, run.Error); result != "" {
			text += ", " + result
		}
		return text
	}
	return runDetail(run)
}

func (w *runWatcher) printLine(prefix string, status cell, detail string) {
	padded := w.palette.paint(status.colour, fmt.Sprintf("%-9s", escape(status.text)))
	fmt.Fprintf(w.to, "%s  %s%s  %s\n", w.now().Format(time.TimeOnly), prefix, padded, escape(detail))
}

func runLogCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "log ID", Short: "Show what a worker logged in a run",
		Long: `Show what the handler of a worker wrote to the log of a run, also while it runs; run
watch prints it as it comes. The newest 64 KiB of each attempt are kept. What HTTP
targets answer is the output of a run, see: belfry run show.`,
	}
	attempt := cmd.Flags().Int("attempt", 0, "number of the attempt (default the latest that has a log)")
	return byID("run", func(c *cli, ctx context.Context, id belfry.ID) (belfry.RunLog, error) {
		return c.RunLog(ctx, id, belfry.LogQuery{Attempt: *attempt})
	}).command(f, cmd, func(c *cli, log belfry.RunLog) {
		if log.Text == "" {
			c.message("There is no log.")
			return
		}
		c.line("%s", strings.TrimSuffix(cutNotice(log.Offset)+escapeLines(log.Text), "\n"))
	})
}

// cutNotice says in a line of its own that the beginning of a log is not there.
func cutNotice(bytes int64) string {
	if bytes <= 0 {
		return ""
	}
	return "… " + grouped(float64(bytes)) + " earlier bytes were cut\n"
}

// latestLog is the log of the latest attempt of a run. A server of an earlier version has
// none.
func (c *cli) latestLog(run belfry.Run) (text string, err error) {
	if run.Attempt == 0 || !c.humanReadable() {
		return "", nil
	}
	log, err := c.RunLog(c.ctx, run.ID, belfry.LogQuery{Attempt: run.Attempt})
	if belfry.CodeOf(err) == belfry.NotFound {
		return "", nil
	}
	return cutNotice(log.Offset) + log.Text, err
}

// follow prints what is new in the logs of the attempts up to the last one, which has
// ended or not, in whole lines. It reports whether that was anything.
func (w *runWatcher) follow(c *cli, run belfry.ID, last int, ended bool) (changed bool, err error) {
	for w.next.Attempt > 0 && w.next.Attempt <= last {
		log, err := c.RunLog(c.ctx, run, w.next)
		if err != nil && belfry.CodeOf(err) != belfry.NotFound { // which a server of an earlier version answers
			return changed, err
		}
		complete := ended || w.next.Attempt < last
		text := w.rest + cutNotice(log.Offset-w.next.Offset) + log.Text
		if complete && text != "" {
			text = strings.TrimSuffix(text, "\n") + "\n"
		}
		lines := strings.SplitAfter(text, "\n")
		w.rest, w.next.Offset = lines[len(lines)-1], max(w.next.Offset, log.NextOffset)
		for _, line := range lines[:len(lines)-1] {
			w.printLine("", cell{"log", grey}, strings.ReplaceAll(strings.TrimRight(line, "\r\n"), "\t", "    "))
			changed = true
		}
		if !complete {
			break
		}
		w.next, w.rest = belfry.LogQuery{Attempt: w.next.Attempt + 1}, ""
	}
	return changed, nil
}

// updateWithLog is update with the log of the run, each in its place: what an attempt
// logged comes before the line that it has ended.
func (w *runWatcher) updateWithLog(c *cli, run belfry.Run) (changed bool, err error) {
	w.next.Attempt = cmp.Or(w.next.Attempt, run.Attempt)
	ended := run.Attempt
	if run.Status == belfry.RunRunning {
		ended--
	}
	before, err := w.follow(c, run.ID, ended, true)
	if err != nil {
		return before, err
	}
	changed = w.update(run, "") || before
	after, err := w.follow(c, run.ID, run.Attempt, false)
	return changed || after, err
}
