package main

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

func runCommand(s *session) *cobra.Command {
	cmd := group(&cobra.Command{
		Use:     "run",
		Aliases: []string{"runs"},
		Short:   "Look at runs, follow and cancel them",
	})
	s.flags(cmd)
	cmd.AddCommand(runListCommand(s), runShowCommand(s), runWatchCommand(s), runCancelCommand(s))
	return cmd
}

func runListCommand(s *session) *cobra.Command {
	var filter client.RunFilter
	limit := 0
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the runs of all jobs, latest first",
		Example: `  belfry run list --status dead`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := s.open(cmd)
			if err != nil {
				return err
			}
			if filter.PageSize, err = sizeOf(limit); err != nil {
				return err
			}
			runs, more, err := take(d.Runs(cmd.Context(), filter), limit)
			if err != nil {
				return err
			}
			return d.list(runs, more, "runs", func() error {
				switch {
				case len(runs) == 0 && filter.Status != "":
					d.say("No runs like that.")
					return nil
				case len(runs) == 0:
					d.say("No runs yet. Run a job now with: belfry job trigger NAME")
					return nil
				}
				return d.runTable(runs, d.jobNames(cmd.Context(), jobsOf(runs...)))
			})
		},
	}
	cmd.Flags().StringVar((*string)(&filter.Status), "status", "", "only runs in this state: "+strings.Join(runStates, ", "))
	cmd.Flags().IntVar(&limit, "limit", 50, "how many to list; 0: all")
	words(cmd, "status", runStates)
	return cmd
}

var runStates = []string{
	string(belfry.RunReady), string(belfry.RunRunning), string(belfry.RunRetry), string(belfry.RunWaiting),
	string(belfry.RunSucceeded), string(belfry.RunDead), string(belfry.RunSkipped), string(belfry.RunCancelled), string(belfry.RunDiscarded),
}

// jobNames asks for the names of jobs, as far as that is quick. One that was deleted
// has none any more.
func (d *door) jobNames(ctx context.Context, ids iter.Seq[belfry.ID]) map[belfry.ID]string {
	const most = 20
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	names := make(map[belfry.ID]string)
	for id := range ids {
		if _, asked := names[id]; asked || len(names) == most || id.IsZero() {
			continue
		}
		names[id] = id.String()
		if job, err := d.Job(ctx, id.String()); err == nil {
			names[id] = title(job)
		}
	}
	return names
}

// jobsOf gives the jobs of runs.
func jobsOf(runs ...client.Run) iter.Seq[belfry.ID] {
	return func(yield func(belfry.ID) bool) {
		for _, r := range runs {
			if !yield(r.JobID) {
				return
			}
		}
	}
}

// runTable lists runs; with the names of their jobs if they are of several.
func (d *door) runTable(runs []client.Run, names map[belfry.ID]string) error {
	now := d.now()
	header := []string{"RUN", "STATUS", "KIND", "SCHEDULED", "TOOK", "ATTEMPT", "DETAIL"}
	if names != nil {
		header = append([]string{"RUN", "JOB"}, header[1:]...)
	}
	t := newTable(header...)
	for _, r := range runs {
		row := []any{r.ID}
		if names != nil {
			name := names[r.JobID]
			if name == "" {
				name = r.JobID.String()
			}
			row = append(row, name)
		}
		t.row(append(row, statusCell(r.Status), r.Kind, relative(now, r.ScheduledAt), lasted(r.Run), r.Attempt, shorten(safe(detail(r.Run)), 60))...)
	}
	return t.write(d.out, d.palette)
}

// lasted is how long the latest attempt of a run took; empty unless it is over. What
// was discarded finished when somebody decided so, long after its attempt.
func lasted(r belfry.Run) string {
	if r.StartedAt == nil || r.FinishedAt == nil || r.Status == belfry.RunDiscarded {
		return ""
	}
	return took(r.FinishedAt.Sub(*r.StartedAt))
}

// detail is what is most worth knowing of a run.
func detail(r belfry.Run) string {
	var parts []string
	if r.Reason != "" {
		parts = append(parts, string(r.Reason))
	}
	if r.SkippedCount > 1 {
		parts = append(parts, fmt.Sprintf("%d occurrences", r.SkippedCount))
	}
	if said := saidOf(r.HTTPStatus, r.Error); said != "" {
		parts = append(parts, said)
	}
	return strings.Join(parts, ": ")
}

// saidOf is what came back from an attempt.
func saidOf(status int, failure string) string {
	switch {
	case failure != "":
		return failure
	case status != 0:
		return fmt.Sprintf("HTTP %d", status)
	}
	return ""
}
