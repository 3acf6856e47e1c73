package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry/client"
)

func jobApplyCommand(s *session) *cobra.Command {
	a := &apply{}
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Make the jobs on the server what files say",
		Long: `Create the jobs of files, or update those that are there under the same name,
and say what changed. What a file leaves out gets its default, except that a job
stays paused or not unless the file has "status: paused" or "status: active".

A file is YAML or JSON: a job, several documents, a list of jobs, or jobs: with a
list. A folder stands for the .yaml, .yml and .json files in it. All files are
checked before anything is sent.

With --prune, jobs that have the tag and are in none of the files are deleted.
Nothing is deleted if anything was refused, or if a file has no jobs, unless
--yes says that this is meant.`,
		Example: `  belfry job apply -f jobs.yaml --dry-run
  belfry job apply -f jobs/ -f more.yaml
  belfry job apply -f jobs/ --prune --tag team-a`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.check(); err != nil {
				return err
			}
			d, err := s.open(cmd)
			if err != nil {
				return err
			}
			a.door, a.cmd = d, cmd
			return a.run()
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&a.paths, "file", "f", nil, "file or folder of jobs; - is standard input; may be repeated")
	f.BoolVar(&a.dryRun, "dry-run", false, "show what would change, and change nothing")
	f.BoolVar(&a.prune, "prune", false, "delete the jobs with the tag that are in none of the files")
	f.StringVar(&a.tag, "tag", "", "tag of the jobs that --prune may delete")
	f.BoolVar(&a.yes, "yes", false, "prune even if a file has no jobs")
	return cmd
}

// apply is one call of the command.
type apply struct {
	paths              []string
	dryRun, prune, yes bool
	tag                string

	*door
	cmd     *cobra.Command
	results []applied
	faults  misplacedAll
}

// applied is what was done about a job, as it is printed for programs.
type applied struct {
	Result string   `json:"result"`
	Name   string   `json:"name,omitempty"`
	ID     string   `json:"id,omitempty"`
	File   string   `json:"file,omitempty"`
	Fields []string `json:"fields,omitempty"`
	Errors []string `json:"errors,omitempty"`

	remark string // for people
}

func (a *apply) check() error {
	switch {
	case len(a.paths) == 0:
		return usagef("name the files with -f, as in: belfry job apply -f jobs.yaml")
	case a.prune && a.tag == "":
		return usagef("--prune needs --tag: only jobs with this tag are deleted")
	case !a.prune && a.tag != "":
		return usagef("--tag says what --prune may delete, and --prune is not given")
	}
	return nil
}

func (a *apply) run() error {
	read, err := readFiles(a.paths, a.in)
	if err != nil {
		return err
	}
	if err := nameless(read.jobs); err != nil {
		return err
	}
	if a.prune {
		if err := a.prunable(read); err != nil {
			return err
		}
	}
	for _, declared := range read.jobs {
		if err := a.one(declared); err != nil {
			return err
		}
	}
	if a.prune && len(a.faults) == 0 {
		if err := a.sweep(read.jobs); err != nil {
			return err
		}
	}
	if err := a.print(a.printable(), func() error { return nil }); err != nil {
		return err
	}
	a.summarise()
	if len(a.faults) > 0 {
		return a.faults
	}
	return nil
}

// printable is the list of results, never nil.
func (a *apply) printable() []applied {
	if a.results == nil {
		return []applied{}
	}
	return a.results
}

// prunable refuses to prune by files that look as if something went wrong, and
// jobs that the next prune would not find.
func (a *apply) prunable(read files) error {
	var faults misplacedAll
	for _, j := range read.jobs {
		if !j.has(a.tag) {
			faults = append(faults, misplaced{j.file, j.locate("tags"), "tags: " + j.name + " does not have the tag " + a.tag + ", so that --prune would not find it"})
		}
	}
	if len(faults) > 0 {
		return faults
	}
	if a.yes {
		return nil
	}
	for _, file := range read.empty {
		faults = append(faults, misplaced{file, 1, "has no jobs; --prune would delete those that were there. If this is meant, give --yes"})
	}
	if len(faults) > 0 {
		return faults
	}
	return nil
}

// note keeps a result, and prints it for people.
func (a *apply) note(r applied, list []change) error {
	a.results = append(a.results, r)
	if a.format != "table" {
		return nil
	}
	name := r.Name
	if name == "" {
		name = r.ID
	}
	if r.Result == refusedResult {
		return nil // It is told at the end, with its lines.
	}
	if !a.dryRun {
		return a.done(r.Result, name, strings.TrimSpace(strings.Join(r.Fields, ", ")+" "+r.remark))
	}
	if err := a.done(planned[r.Result], name, r.remark); err != nil {
		return err
	}
	for _, c := range list {
		if err := line(a.out, "    %s", a.palette.paint(c.colour(), c.String())); err != nil {
			return err
		}
	}
	return nil
}

// The results of applying a job.
const (
	createdResult   = "created"
	updatedResult   = "updated"
	unchangedResult = "unchanged"
	deletedResult   = "deleted"
	refusedResult   = "refused"
)

// planned are the results that a dry run announces.
var planned = map[string]string{createdResult: "create", updatedResult: "update", unchangedResult: unchangedResult, deletedResult: "delete"}

// summarise says how many jobs had which result.
func (a *apply) summarise() {
	counts := make(map[string]int)
	for _, r := range a.results {
		counts[r.Result]++
	}
	var parts []string
	for _, result := range []string{createdResult, updatedResult, unchangedResult, deletedResult, refusedResult} {
		if n := counts[result]; n > 0 {
			verb := result
			if a.dryRun {
				verb = "to " + planned[result]
			}
			if result == unchangedResult {
				verb = result
			}
			parts = append(parts, fmt.Sprintf("%d %s", n, verb))
		}
	}
	text := strings.Join(parts, ", ")
	if text == "" {
		text = "nothing to do: there are no jobs in the files"
	}
	if a.dryRun {
		text = "dry run: " + text
	}
	a.say("%s.", strings.ToUpper(text[:1])+text[1:])
	if a.prune && len(a.faults) > 0 {
		a.say("Nothing was pruned, since there are faults.")
	}
}

// sweep deletes the jobs with the tag that are in none of the files.
func (a *apply) sweep(jobs []declaration) error {
	kept := make(map[string]bool)
	for _, j := range jobs {
		kept[j.name] = true
	}
	ctx := a.cmd.Context()
	tagged, _, err := take(a.Jobs(ctx, client.JobFilter{Tags: []string{a.tag}, PageSize: pageSize}), 0)
	if err != nil {
		return err
	}
	for _, job := range tagged {
		if kept[job.Name] {
			continue
		}
		if !a.dryRun {
			if err := a.DeleteJob(ctx, job.ID.String()); err != nil && exitCode(err) != exitNotFound {
				return &about{title(job), err}
			}
		}
		if err := a.note(applied{Result: deletedResult, Name: job.Name, ID: job.ID.String()}, nil); err != nil {
			return err
		}
	}
	return nil
}
