package main

import (
	"cmp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

// selection is what a command acts on: jobs or dead letters that its arguments name, or
// that a filter matches.
type selection struct {
	noun         string // "job"
	verb, past   string // "pause", "paused"
	object       string // that the question names if it is not the noun: "the dead letters of %"
	confirmNamed bool   // ask even if the arguments name everything
	dryRunNamed  bool   // a dry run is possible for named things too
	namedOnly    []string
	matchedOnly  []string // flags that make no sense with names, or with a filter

	filter      fieldFlags
	all         bool
	dryRun, yes bool
}

func (s *selection) addFlags(cmd *cobra.Command, filter fieldFlags) {
	s.filter = filter
	f := cmd.Flags()
	f.BoolVar(&s.all, "all", false, "every "+s.noun+" of the namespace")
	f.BoolVar(&s.dryRun, "dry-run", false, "print what would be "+s.past+", but change nothing")
	f.BoolVarP(&s.yes, "yes", "y", false, "do not ask for confirmation")
}

// usesFilter refuses a command line that selects nothing, or in two ways, and one that
// needs a confirmation for which nobody can be asked.
func (s *selection) usesFilter(c *cli, args []string) (bool, error) {
	if err := s.filter.checkNotEmpty(); err != nil {
		return false, err
	}
	given := s.filter.changedFlag()
	if s.all && given != "" {
		return false, usagef("use either --all or --%s: --all is every %s of the namespace", given, s.noun)
	}
	if s.all {
		given = "all"
	}
	misused, needed := s.namedOnly, "names, not with a filter"
	if len(args) > 0 {
		misused, needed = s.matchedOnly, "a filter, not with names"
	}
	switch {
	case len(args) > 0 && given != "":
		return false, usagef("use either names or --%s", given)
	case len(args) == 0 && given == "":
		return false, usagef("name each %s, or use a filter (--%s), or --all", s.noun, strings.Join(s.filter.names(), ", --"))
	case len(args) > 0 && s.dryRun && !s.dryRunNamed:
		return false, usagef("--dry-run counts what a filter such as --tag matches; it does nothing for names")
	}
	for _, flag := range misused {
		if c.cmd.Flags().Changed(flag) {
			return false, usagef("--%s works only with %s", flag, needed)
		}
	}
	if (given != "" || s.confirmNamed) && !s.yes && !s.dryRun && !isTerminal(c.in) {
		return false, usagef("%s needs --yes when there is no terminal to ask at", s.verb)
	}
	return given != "", nil
}

// confirm asks "Pause 3 jobs?", unless --yes was given.
func (s *selection) confirm(c *cli, things string) error {
	if s.yes {
		return nil
	}
	if s.object != "" {
		things = strings.Replace(s.object, "%", things, 1)
	}
	return c.ask(strings.ToUpper(s.verb[:1]) + s.verb[1:] + " " + things + "?")
}

func (s *selection) reportPartial(c *cli, done int) {
	if done > 0 {
		c.message("%s %s before the failure.", plural(done, s.noun), s.past)
	}
}

type actionResult struct {
	answer any    // for programs
	verb   string // empty: the past of the selection
	name   string
	detail string
}

// runNamed acts on named things, one after another. It continues after a failure.
func (s *selection) runNamed(c *cli, names []string, act func(name string) (actionResult, error)) error {
	if s.confirmNamed && !s.dryRun {
		if err := s.confirm(c, strings.Join(names, ", ")); err != nil {
			return err
		}
	}
	answers, err := forEach(c, names, func(name string) (any, error) {
		o, err := act(name)
		if err == nil && c.humanReadable() {
			c.result(cmp.Or(o.verb, s.past), o.name, o.detail)
		}
		return o.answer, err
	})
	return printAll(&c.output, len(names), answers, err)
}

// forEach does something to everything that is named, and continues after a failure. It
// reports failures at once and returns the first.
func forEach[T any](c *cli, names []string, do func(name string) (T, error)) (answers []T, first error) {
	for _, name := range names {
		answer, err := do(name)
		if err == nil {
			answers = append(answers, answer)
			continue
		}
		if c.ctx.Err() != nil {
			return answers, err
		}
		if len(names) > 1 {
			err = &subjectError{name, c.suggestJob(name, err)}
		}
		if code := exitCode(err); len(names) == 1 || code == exitUnreachable || code == exitNotAllowed {
			return answers, err // The others would fail in the same way.
		}
		reportError(c.err, c.cmd, err)
		if first == nil {
			first = exitError{errReported, exitCode(err)}
		}
	}
	return answers, first
}

// bulkBatch is how many jobs one request changes, so that it takes little time.
const bulkBatch = 500

func newJobSelection(f *connectionFlags, cmd *cobra.Command, action belfry.Action, past string) *selection {
	s := &selection{noun: "job", verb: string(action), past: past}
	cmd.Use = string(action) + " REF... | --FILTER"
	s.addFlags(cmd, addFilterFlags[belfry.JobFilter](f, cmd))
	return s
}

// run acts on the jobs: each by its name, or all that match. With oneByOne, jobs that
// match are changed like named ones, since no bulk action does the same.
func (s *selection) run(c *cli, args []string, oneByOne bool, each jobAction) error {
	matched, err := s.usesFilter(c, args)
	var filter belfry.JobFilter
	switch {
	case err != nil:
		return err
	case !matched:
		return s.runNamed(c, args, func(ref string) (actionResult, error) { return each(c, ref) })
	}
	if err := s.filter.decode(&filter); err != nil {
		return err
	}
	if oneByOne {
		filter.PageSize = maxPageSize
		jobs, _, err := collect(c.Jobs(c.ctx, filter), 0)
		if err != nil {
			return err
		}
		return s.runMatched(c, len(jobs), func() (belfry.BulkResult, error) { return each.oneByOne(c, jobs) })
	}
	request := belfry.Bulk{Action: belfry.Action(s.verb), Filter: filter, All: s.all, DryRun: true}
	found, err := c.bulk(request)
	if err != nil {
		return err
	}
	request.DryRun, request.Limit = false, bulkBatch
	return s.runMatched(c, found.Matched, func() (belfry.BulkResult, error) { return c.bulk(request) })
}

// runMatched prints how many jobs match, asks whether to continue, and acts on them.
func (s *selection) runMatched(c *cli, matched int, act func() (belfry.BulkResult, error)) error {
	found := belfry.BulkResult{Matched: matched, Failed: []belfry.BulkFailure{}}
	jobs := plural(matched, s.noun)
	switch {
	case matched == 0:
		c.message("No matching jobs.")
		return c.print(found, func() {})
	case s.dryRun:
		return c.print(found, func() { c.line("%s would be %s.", jobs, s.past) })
	}
	if err := s.confirm(c, jobs); err != nil {
		return err
	}
	done, err := act()
	if err != nil {
		s.reportPartial(c, done.Done)
		return err
	}
	err = c.print(done, func() { c.result(s.past, plural(done.Done, s.noun), "") })
	if err != nil || len(done.Failed) == 0 {
		return err
	}
	for _, f := range done.Failed {
		reportError(c.err, c.cmd, &subjectError{cmp.Or(f.Name, f.JobID.String()), belfry.Errorf(belfry.Conflict, "%s", f.Error)})
	}
	return exitError{errReported, exitRefused}
}

func (each jobAction) oneByOne(c *cli, jobs []belfry.Job) (belfry.BulkResult, error) {
	done := belfry.BulkResult{Matched: len(jobs), Failed: []belfry.BulkFailure{}}
	for _, job := range jobs {
		_, err := each(c, job.ID.String())
		if err == nil {
			done.Done++
			continue
		}
		if exitCode(err) != exitRefused && exitCode(err) != exitNotFound {
			return done, &subjectError{jobTitle(job), err} // The others would fail in the same way.
		}
		done.Failed = append(done.Failed, belfry.BulkFailure{JobID: job.ID, Name: job.Name, Error: strings.Join(errorLines(err), "; ")})
	}
	return done, nil
}

// bulk repeats a request until it has covered all jobs.
func (c *cli) bulk(request belfry.Bulk) (all belfry.BulkResult, err error) {
	all.Failed = []belfry.BulkFailure{}
	for more := true; more; more = request.Cursor != "" {
		done, err := c.BulkJobs(c.ctx, request)
		if err != nil {
			return all, err
		}
		all.Matched += done.Matched
		all.Done += done.Done
		all.Failed = append(all.Failed, done.Failed...)
		request.Cursor = done.Next
	}
	return all, nil
}
