package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

const (
	leastPoll = 200 * time.Millisecond
	mostPoll  = 2 * time.Second
	patience  = time.Minute // with a server that does not answer
)

// poll calls look again and again, soon after something changed and less often
// while nothing does, until it says that it is done. A server that does not answer
// for a while, perhaps because it is restarted, is waited for.
func (d *door) poll(ctx context.Context, look func() (changed, done bool, err error)) error {
	pause := leastPoll
	var silent time.Time // since when there is no answer
	for {
		changed, done, err := look()
		switch {
		case err != nil && (exitCode(err) != exitUnreachable || ctx.Err() != nil):
			return err
		case err != nil && silent.IsZero():
			silent = time.Now()
			d.say("The server does not answer; still trying.")
		case err != nil && time.Since(silent) > patience:
			return err
		case err == nil:
			silent = time.Time{}
		}
		if done {
			return nil
		}
		pause = min(pause*3/2, mostPoll)
		if changed {
			pause = leastPoll
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// follow tells every change of a run until it is over.
func (d *door) follow(ctx context.Context, id belfry.ID) (client.Run, error) {
	var run client.Run
	w := &watched{door: d, out: d.out}
	if d.format != "table" {
		w.out = d.err // The run itself is printed at the end.
	}
	err := d.poll(ctx, func() (changed, done bool, err error) {
		now, err := d.Run(ctx, id)
		if err != nil {
			return false, false, err
		}
		run = now
		changed, err = w.tell(run, "")
		return changed, over(run.Status), err
	})
	return run, err
}

// over tells whether a state is final.
func over(state belfry.RunStatus) bool {
	return slices.Contains([]belfry.RunStatus{belfry.RunSucceeded, belfry.RunDead, belfry.RunSkipped, belfry.RunCancelled, belfry.RunDiscarded}, state)
}

// followJob tells every change of the latest runs of a job, until it is interrupted.
func (d *door) followJob(ctx context.Context, ref string) error {
	const most = 20
	runs := make(map[belfry.ID]*watched)
	first := true
	err := d.poll(ctx, func() (changed, done bool, err error) {
		latest, _, err := take(d.RunsOf(ctx, ref), most)
		if err != nil {
			return false, false, err
		}
		if first {
			d.say("Watching the runs of %s. Interrupt to end.", safe(ref))
		}
		for _, run := range slices.Backward(latest) {
			w := runs[run.ID]
			if w == nil {
				w = &watched{door: d, out: d.out, quiet: first && over(run.Status), whole: d.format != "table"}
				runs[run.ID] = w
			}
			news, err := w.tell(run, run.ID.String()+"  ")
			if err != nil {
				return false, false, err
			}
			changed = changed || news
		}
		first = false
		return changed, false, nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// watched is a run that is followed, as it was seen last.
type watched struct {
	*door
	out      io.Writer
	quiet    bool // what is over already is not told
	whole    bool // the whole run is printed, for programs
	state    belfry.RunStatus
	attempt  int
	attempts int
}

// tell prints what changed of a run since it was seen last.
func (w *watched) tell(run client.Run, prefix string) (changed bool, err error) {
	if run.Status == w.state && run.Attempt == w.attempt && len(run.Attempts) == w.attempts {
		return false, nil
	}
	failed := run.Attempts[min(w.attempts, len(run.Attempts)):]
	w.state, w.attempt, w.attempts = run.Status, run.Attempt, len(run.Attempts)
	if w.quiet {
		return false, nil
	}
	if w.whole {
		return true, w.print(run, nil)
	}
	for _, a := range failed {
		if err := w.line(prefix, cell{"attempt " + fmt.Sprint(a.Number), yellow}, fmt.Sprintf("%s after %s: %s", a.Outcome, took(a.FinishedAt.Sub(a.StartedAt)), saidOf(a.HTTPStatus, a.Error))); err != nil {
			return true, err
		}
	}
	return true, w.line(prefix, statusCell(run.Status), w.more(run))
}

// more says what belongs to the state of a run.
func (w *watched) more(run client.Run) string {
	switch run.Status {
	case belfry.RunReady:
		return "waits for a worker"
	case belfry.RunRunning:
		return fmt.Sprintf("attempt %d", run.Attempt)
	case belfry.RunWaiting:
		return "waits for an earlier run of the job"
	case belfry.RunRetry:
		return "next attempt " + relative(w.now(), run.ReadyAt)
	case belfry.RunSucceeded:
		text := fmt.Sprintf("attempt %d", run.Attempt)
		if t := lasted(run.Run); t != "" {
			text += ", took " + t
		}
		if said := saidOf(run.HTTPStatus, run.Error); said != "" {
			text += ", " + said
		}
		return text
	}
	return detail(run.Run)
}

func (w *watched) line(prefix string, state cell, more string) error {
	padded := cell{fmt.Sprintf("%-9s", safe(state.text)), state.colour}
	return line(w.out, "%s  %s%s  %s", w.now().Format(time.TimeOnly), prefix, w.palette.paint(padded.colour, padded.text), safe(more))
}
