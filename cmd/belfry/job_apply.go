package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/secret"
	"github.com/belfry-sh/belfry/internal/validate"
)

type apply struct {
	*cli
	paths     []string
	dryRun    bool
	keepGoing bool
	prune     bool
	yes       bool
	tag       string
	variables variables

	results []applyResult
	errors  fileErrors
}

func jobApplyCommand(f *connectionFlags) *cobra.Command {
	a := &apply{}
	cmd := &cobra.Command{
		Use: "apply -f FILE", Short: "Create and update jobs from files",
		Long: `Create the jobs of files, or update the existing jobs of the same names, and print
what changed. A field that is not in the file gets its default, except that a
paused job stays paused unless the file has "status: active".

A file is YAML or JSON: a job, several documents, a list of jobs, or the key jobs
with a list. A directory stands for its .yaml, .yml and .json files.

With --env, ${NAME} in a value is the value of an environment variable, which must be
set, and $${ is ${ itself. A string stays a string, whatever the variable contains,
and what changed is printed without the values. Keys are not substituted.

The server first validates all jobs. If it refuses one, nothing is changed, and
every error is printed with its file and line; --keep-going applies the valid jobs.

With --prune, jobs that have the tag but are not in the files are deleted. Nothing
is deleted if a job was refused, or if a file has no jobs, unless --yes is given.`,
		Example: `  belfry job apply -f jobs.yaml --dry-run
  belfry job apply -f jobs/ -f more.yaml
  TOKEN=... belfry job apply -f jobs.yaml --env
  belfry job apply -f jobs/ --prune --tag team-a`,
	}
	p := cmd.Flags()
	p.StringArrayVarP(&a.paths, "file", "f", nil, "`FILE` or directory with jobs; - is standard input; may be repeated")
	p.BoolVar(&a.variables.substitute, "env", false, "substitute environment variables: ${NAME} in a value is the value of NAME")
	p.BoolVar(&a.dryRun, "dry-run", false, "print what would change, but change nothing")
	p.BoolVar(&a.keepGoing, "keep-going", false, "apply the valid jobs although others are refused")
	p.BoolVar(&a.prune, "prune", false, "delete the jobs with the tag that are not in the files")
	p.StringVar(&a.tag, "tag", "", "`TAG` of the jobs that --prune may delete")
	p.BoolVar(&a.yes, "yes", false, "prune even if a file has no jobs")
	return f.command(cmd, func(c *cli, _ []string) error {
		a.cli = c
		return a.run()
	})
}

// applyResult is what was done to a job, as programs get it.
type applyResult struct {
	Result string   `json:"result"`
	Name   string   `json:"name,omitempty"`
	JobID  string   `json:"job_id,omitempty"`
	File   string   `json:"file,omitempty"`
	Fields []string `json:"fields,omitempty"`
	Errors []string `json:"errors,omitempty"`

	Changes []belfry.FieldChange `json:"changes,omitempty"`
	note    string
}

// The results, in the order of the summary.
const (
	resultCreated   = string(belfry.DiffCreated)
	resultUpdated   = string(belfry.DiffUpdated)
	resultUnchanged = string(belfry.DiffUnchanged)
	resultDeleted   = "deleted"
	resultRefused   = "refused"
	resultSkipped   = "skipped" // valid, but not applied because others were refused
)

var applyResults = []string{resultCreated, resultUpdated, resultUnchanged, resultDeleted, resultRefused, resultSkipped}

// plannedVerbs are what a dry run prints for the results.
var plannedVerbs = map[string]string{resultCreated: "create", resultUpdated: "update", resultDeleted: "delete", resultUnchanged: resultUnchanged}

type plannedJob struct {
	manifest
	applyResult
	version string     // of the job that is updated
	planned belfry.Job // as it would be, with warnings of the server
}

func (a *apply) run() error {
	switch {
	case len(a.paths) == 0:
		return usagef("name the files with -f, as in: belfry job apply -f jobs.yaml")
	case a.prune && a.tag == "":
		return usagef("--prune needs --tag: only jobs with this tag are deleted")
	case !a.prune && a.tag != "":
		return usagef("--tag needs --prune: it says which jobs may be deleted")
	}
	manifests, empty, err := readManifests(jobManifests, a.paths, a.in, &a.variables)
	a.noteVariables(&a.variables)
	if err == nil {
		err = a.checkManifests(manifests, empty)
	}
	if err != nil {
		return err
	}
	jobs := make([]plannedJob, len(manifests)) // The server validates and compares all of them first.
	for i, m := range manifests {
		jobs[i] = plannedJob{manifest: m, applyResult: applyResult{Name: m.name, File: fmt.Sprintf("%s:%d", m.file, m.line)}}
		if err := a.diff(&jobs[i]); err != nil {
			return err
		}
	}
	// If the server refuses one job, none is applied, except with --keep-going.
	skipped := len(a.errors) > 0 && !a.keepGoing && !a.dryRun
	for _, job := range jobs {
		if skipped && job.Result != resultRefused {
			job.Result = resultSkipped
		}
		if err := a.execute(job); err != nil {
			return err
		}
	}
	if a.prune && len(a.errors) == 0 {
		if err := a.deleteOthers(manifests); err != nil {
			return err
		}
	}
	if err := a.print(append([]applyResult{}, a.results...), func() {}); err != nil {
		return err
	}
	a.printSummary()
	return a.errors.orNil()
}

// checkManifests refuses jobs without a name. For --prune it also refuses jobs that the
// next prune would not find, and files without jobs, which are probably a mistake.
func (a *apply) checkManifests(jobs []manifest, empty []string) error {
	var all fileErrors
	for _, j := range jobs {
		var tags []string
		switch {
		case j.name == "":
			all = append(all, fileError{j.file, j.line, "name: is required; it identifies the job"})
		case a.prune && (json.Unmarshal(j.fields["tags"], &tags) != nil || !slices.Contains(tags, a.tag)):
			all = append(all, fileError{j.file, j.lineOf("tags"), "tags: " + j.name + " does not have the tag " + a.tag + ", so --prune would not find it"})
		}
	}
	if a.prune && !a.yes && len(all) == 0 && len(empty) > 0 {
		all = append(all, fileError{empty[0], 1, "has no jobs; --prune would delete the jobs that it had. If you want that, use --yes"})
	}
	return all.orNil()
}

// diff has the server validate a job and compare it with the one of the same name.
func (a *apply) diff(job *plannedJob) error {
	before, version, err := a.JobWithVersion(a.ctx, job.name)
	switch {
	case err != nil && exitCode(err) != exitNotFound:
		return &subjectError{job.name, err}
	case err == nil && before.EndedAt != nil:
		if job.declaresSame(before, a.now()) {
			job.Result, job.JobID, job.note = resultUnchanged, before.ID.String(), "(it has ended)"
			return nil
		}
	case err == nil:
		job.version, job.JobID = version, before.ID.String()
	}
	diff, err := a.DiffJob(a.ctx, job.name, job.fields, client.IfMatch(job.version))
	if err != nil {
		return a.refuse(job, err)
	}
	job.planned = diff.Job
	job.mask(diff.Changes)
	job.Result, job.Changes, job.Fields = string(diff.Result), diff.Changes, changedFields(diff.Changes)
	return nil
}

func (a *apply) execute(job plannedJob) error {
	if !a.dryRun && (job.Result == resultCreated || job.Result == resultUpdated) {
		var done belfry.Job
		err := a.Do(a.ctx, http.MethodPut, client.JobPath(job.name), job.fields, &done, client.IfMatch(job.version))
		if err == nil {
			job.JobID = done.ID.String()
		} else if err := a.refuse(&job, err); err != nil {
			return err
		}
	}
	a.add(job.applyResult)
	if job.Result == resultCreated || job.Result == resultUpdated {
		a.warn(job.planned)
	}
	return nil
}

// refuse keeps the server's errors about a job. Any other failure would affect all jobs.
func (a *apply) refuse(job *plannedJob, err error) error {
	errs, refused := job.errorsOf(err)
	if !refused {
		return &subjectError{job.name, err}
	}
	if codeOf(err) == belfry.Changed {
		errs = fileErrors{{job.file, job.line, job.name + " was changed by somebody else at the same time; apply again"}}
	}
	job.Result, job.Fields, job.Changes = resultRefused, nil, nil
	job.Errors = append(job.Errors, mapSlice(errs, fileError.text)...)
	a.errors = append(a.errors, errs...)
	return nil
}

// add adds a result and prints it for people. Errors are printed at the end.
func (a *apply) add(r applyResult) {
	a.results = append(a.results, r)
	name := cmp.Or(r.Name, r.JobID)
	switch {
	case !a.humanReadable() || r.Result == resultRefused || r.Result == resultSkipped:
	case !a.dryRun && r.Result == resultUpdated:
		a.result(r.Result, name, strings.Join(r.Fields, ", "))
	case !a.dryRun:
		a.result(r.Result, name, r.note)
	default:
		a.result(plannedVerbs[r.Result], name, r.note)
		for _, c := range r.Changes {
			a.line("    %s", a.changeText(c))
		}
	}
}

func (a *apply) deleteOthers(manifests []manifest) error {
	tagged, _, err := collect(a.Jobs(a.ctx, belfry.JobFilter{Tags: []string{a.tag}, PageSize: maxPageSize}), 0)
	if err != nil {
		return err
	}
	for _, job := range tagged {
		if slices.ContainsFunc(manifests, func(m manifest) bool { return m.name == job.Name }) {
			continue
		}
		if !a.dryRun {
			if err := a.DeleteJob(a.ctx, job.ID.String()); err != nil && exitCode(err) != exitNotFound {
				return &subjectError{jobTitle(job), err}
			}
		}
		a.add(applyResult{Result: resultDeleted, Name: job.Name, JobID: job.ID.String()})
	}
	return nil
}

func (a *apply) printSummary() {
	counts := make(map[string]int)
	for _, r := range a.results {
		counts[r.Result]++
	}
	var parts []string
	for _, result := range applyResults {
		if n := counts[result]; n > 0 {
			if verb := plannedVerbs[result]; a.dryRun && verb != "" && verb != result {
				result = "to " + verb
			}
			parts = append(parts, fmt.Sprintf("%d %s", n, result))
		}
	}
	text := cmp.Or(strings.Join(parts, ", "), "the files have no jobs")
	if a.dryRun {
		text = "dry run: " + text
	}
	a.message("%s.", strings.ToUpper(text[:1])+text[1:])
	switch {
	case counts[resultSkipped] > 0:
		a.message("Nothing was changed. To apply the valid jobs, use --keep-going.")
	case a.prune && len(a.errors) > 0:
		a.message("Nothing was pruned.")
	}
}

// declaresSame is true for an archived one-off as it was, which is not created again.
func (m manifest) declaresSame(ended belfry.Job, now time.Time) bool {
	fields := maps.Clone(m.fields)
	maps.DeleteFunc(fields, func(name string, _ json.RawMessage) bool {
		return schema.For[belfry.Job]().Field(name) != nil && schema.For[belfry.Manifest]().Field(name) == nil
	})
	var in validate.Input
	in.Fields, in.Errors, _ = schema.Decoder{}.Decode(belfry.MustJSON(fields), &in.Manifest) // It is an object.
	out, errs := validate.New(now, plan.Defaults{}).Edit(ended, in)
	declared := out.Manifest
	declared.Payload, declared.Status = secret.Mask(declared.Payload), ended.Status
	return len(errs) == 0 && sameJSON(declared, ended.Manifest)
}

// sameJSON compares the JSON of two values, apart from the order of members.
func sameJSON(a, b any) bool {
	return reflect.DeepEqual(decodeJSON(belfry.MustJSON(a)), decodeJSON(belfry.MustJSON(b)))
}

// decodeJSON decodes JSON so that equal values compare equal; numbers keep their notation.
func decodeJSON(text []byte) (out any) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&out); err != nil {
		return err
	}
	return out
}
