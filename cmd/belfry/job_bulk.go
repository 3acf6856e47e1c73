package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

// bulkStep is how many jobs a server is asked to do something to at once, so that
// it answers soon.
const bulkStep = 500

// action is what is done to many jobs at once, and how it is told.
type action struct {
	name     belfry.Action
	question string // with % for the jobs
	done     string
}

// The actions.
var (
	pauseAction   = action{belfry.ActionPause, "Pause %?", "paused"}
	resumeAction  = action{belfry.ActionResume, "Resume %?", "resumed"}
	triggerAction = action{belfry.ActionTrigger, "Trigger %?", "triggered"}
	deleteAction  = action{belfry.ActionDelete, "Delete %?", deletedResult}
	cancelAction  = action{belfry.ActionCancel, "Cancel %?", "cancelled"}
	retryAction   = action{belfry.ActionRetry, "Retry the dead letters of %?", "retried"}
)

// bulked is what became of a bulk action, as it is printed for programs.
type bulked struct {
	Matched int                  `json:"matched"`
	Done    int                  `json:"done"`
	Failed  []client.BulkFailure `json:"failed"`
}

// bulk does something to all jobs that were found, if a person agrees.
func (b *selection) bulk(cmd *cobra.Command, d *door, act action) error {
	if !b.yes && !b.dryRun && !terminal(d.in) {
		_, err := d.agree(false, string(act.name), "")
		return err
	}
	order := client.Bulk{Action: act.name, Filter: b.filter, All: b.all}
	counting := order
	counting.DryRun = true
	count, err := d.bulk(cmd, counting)
	if err != nil {
		return err
	}
	if agreed, err := b.agree(d, act, count.Matched); err != nil || !agreed {
		return err
	}
	order.Limit = bulkStep
	done, err := d.bulk(cmd, order)
	if err != nil {
		done.before(d, act)
		return err
	}
	return d.tellBulk(cmd, act, done)
}

// oneByOne does to all jobs that were found what there is no bulk action for.
func (b *selection) oneByOne(cmd *cobra.Command, d *door, act action, do func(ref string) error) error {
	b.filter.PageSize = pageSize
	jobs, _, err := take(d.Jobs(cmd.Context(), b.filter), 0)
	if err != nil {
		return err
	}
	if agreed, err := b.agree(d, act, len(jobs)); err != nil || !agreed {
		return err
	}
	done := bulked{Matched: len(jobs), Failed: []client.BulkFailure{}}
	for _, job := range jobs {
		err := do(job.ID.String())
		if err == nil {
			done.Done++
			continue
		}
		if exitCode(err) != exitRefused && exitCode(err) != exitNotFound {
			done.before(d, act)
			return &about{title(job), err} // The others would fail alike.
		}
		done.Failed = append(done.Failed, client.BulkFailure{JobID: job.ID, Name: job.Name, Error: strings.Join(explain(err), "; ")})
	}
	return d.tellBulk(cmd, act, done)
}

// before says what was done before something went wrong.
func (b bulked) before(d *door, act action) {
	if b.Done > 0 {
		d.say("Before this went wrong, %s had been %s.", howMany(b.Done, "job"), act.done)
	}
}

// bulk asks the server again and again until it has seen all jobs.
func (d *door) bulk(cmd *cobra.Command, order client.Bulk) (all bulked, err error) {
	all.Failed = []client.BulkFailure{}
	for more := true; more; more = order.Cursor != "" {
		done, err := d.Bulk(cmd.Context(), order)
		if err != nil {
			return all, err
		}
		all.Matched += done.Matched
		all.Done += done.Done
		all.Failed = append(all.Failed, done.Failed...)
		order.Cursor = done.Next
	}
	return all, nil
}

// tellBulk tells what was done, and for which jobs it could not be.
func (d *door) tellBulk(cmd *cobra.Command, act action, done bulked) error {
	err := d.print(done, func() error { return d.done(act.done, howMany(done.Done, "job"), "") })
	if err != nil || len(done.Failed) == 0 {
		return err
	}
	for _, f := range done.Failed {
		name := f.Name
		if name == "" {
			name = f.JobID.String()
		}
		tell(d.err, cmd, fmt.Errorf("%s: %s", name, f.Error))
	}
	return told{exitRefused}
}
