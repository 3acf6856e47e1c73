package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

// jobFilterFlags adds the flags that say what jobs have in common.
func jobFilterFlags(cmd *cobra.Command, f *pflag.FlagSet, filter *client.JobFilter) {
	f.StringVar((*string)(&filter.Status), "status", "", "only jobs in this state: "+strings.Join(jobStatuses, ", "))
	f.StringVar(&filter.Type, "type", "", "only jobs of this type: http or worker")
	f.StringVar(&filter.Handler, "handler", "", "only jobs that this handler runs")
	f.StringVar(&filter.Queue, "queue", "", "only jobs in this queue")
	f.StringArrayVar(&filter.Tags, "tag", nil, "only jobs with this tag; several: with all of them")
	f.StringVar(&filter.Search, "search", "", "only jobs with this in their name")
	words(cmd, "status", jobStatuses)
	words(cmd, "type", []string{belfry.TypeHTTP, belfry.TypeWorker})
}

var jobFilterNames = []string{"status", "type", "handler", "queue", "tag", "search"}

// selection is which jobs a command is about: those that are named, or those that
// have something in common.
type selection struct {
	filter      client.JobFilter
	all         bool
	dryRun, yes bool
}

// flags adds the flags of a selection to a command.
func (b *selection) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	jobFilterFlags(cmd, f, &b.filter)
	f.BoolVar(&b.all, "all", false, "every job of the namespace")
	f.BoolVar(&b.dryRun, "dry-run", false, "only count the jobs that are not named but found")
	f.BoolVarP(&b.yes, "yes", "y", false, "do not ask")
}

// check tells whether jobs are found instead of named, and refuses what is neither
// or both.
func (b *selection) check(cmd *cobra.Command, args []string) (found bool, err error) {
	given, err := filters(cmd, jobFilterNames)
	switch {
	case err != nil:
		return false, err
	case b.all && given != "":
		return false, usagef("give --all or --%s, not both: --all is every job of the namespace", given)
	case b.all:
		given = "all"
	}
	switch {
	case len(args) > 0 && given != "":
		return false, usagef("name jobs, or give --%s, not both", given)
	case len(args) > 0 && b.dryRun:
		return false, usagef("--dry-run counts jobs that are found by a filter such as --tag; those that you name are known")
	case len(args) == 0 && given == "":
		return false, usagef("name the jobs, or say what they have in common with --%s, or give --all for every job", strings.Join(jobFilterNames, ", --"))
	}
	return given != "", nil
}

// filters names a flag of a filter that was given; empty if none was. One that is
// given without a value is refused: what it should have kept out would pass.
func filters(cmd *cobra.Command, names []string) (given string, err error) {
	for _, name := range names {
		flag := cmd.Flags().Lookup(name)
		if !flag.Changed {
			continue
		}
		value := []string{flag.Value.String()}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			value = list.GetSlice()
		}
		if slices.Contains(value, "") {
			return "", usagef("--%s: is empty; leave it out, or say what to look for", name)
		}
		given = name
	}
	return given, nil
}

// agree tells how many jobs there are, and asks whether to go on.
func (b *selection) agree(d *door, act action, matched int) (bool, error) {
	jobs := howMany(matched, "job")
	switch {
	case matched == 0:
		d.say("No jobs like that.")
		return false, d.print(bulked{Failed: []client.BulkFailure{}}, func() error { return nil })
	case b.dryRun:
		return false, d.print(bulked{Matched: matched, Failed: []client.BulkFailure{}}, func() error {
			return line(d.out, "%s would be %s.", jobs, act.done)
		})
	}
	return d.agree(b.yes, string(act.name), strings.Replace(act.question, "%", jobs, 1))
}

// agree asks a person, unless they agreed before.
func (d *door) agree(yes bool, verb, question string) (bool, error) {
	if yes {
		return true, nil
	}
	if !terminal(d.in) {
		return false, usagef("give --yes to %s without being asked, which needs a terminal", verb)
	}
	return d.ask(question)
}
