package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
	"github.com/belfry-sh/belfry/internal/jsontext"
	"github.com/belfry-sh/belfry/internal/schema"
)

func jobCommand(f *connectionFlags) *cobra.Command {
	cmd := f.group("job", "jobs", "Create, change and show jobs",
		`Create, change and show jobs.

REF is the name or the id of a job. Commands that accept several jobs also accept
the filters --status, --type, --handler, --queue, --tag and --search instead of
names, or --all for every job of the namespace. They count the jobs first.

The server is --server, BELFRY_SERVER, or server: in the configuration file
~/.config/belfry/config.yaml, in this order; the default is `+defaultServer+`.
In the same way, the API key is --key or --key-file, BELFRY_KEY or key:, and the
namespace is --namespace, BELFRY_NAMESPACE or namespace:.`,
		jobCreateCommand(f), jobApplyCommand(f), jobEditCommand(f), jobWhyCommand(f), jobBackfillCommand(f), jobRollbackCommand(f),
		request[belfry.Job]((*cli).Job).command(f, &cobra.Command{Use: "show REF", Short: "Show a job"}, (*cli).showJob))
	cmd.AddCommand(append(jobLists(f), jobActions(f)...)...)
	return f.completeArguments(cmd, "REF", completeJobs)
}

// jobArgument is the job that a command names first; empty if it names none.
func jobArgument(cmd *cobra.Command, args []string) string {
	if flag := cmd.Flags().Lookup("job"); flag != nil && flag.Changed {
		return flag.Value.String()
	}
	if len(args) == 0 || cmd.Parent().Name() != "job" {
		return ""
	}
	return args[0]
}

// suggestJob adds a similar name, if one of the newest jobs has one, to an error that
// there is no such job.
func (c *cli) suggestJob(ref string, err error) error {
	answer, ok := errors.AsType[*client.Error](err)
	if _, notID := belfry.ParseID(ref); !ok || answer.Code != belfry.NotFound || ref == "" || notID == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.ctx, 2*time.Second)
	defer cancel()
	jobs, _, _ := collect(c.Jobs(ctx, belfry.JobFilter{PageSize: maxPageSize}), maxPageSize) // Without an answer there is no suggestion.
	if near := schema.Nearest(ref, mapSlice(jobs, func(job belfry.Job) string { return job.Name })); near != "" && near != ref {
		answer.Detail += fmt.Sprintf("; did you mean %q?", near)
	}
	return err
}

const jobsPath = "/api/v1/jobs"

func (c *cli) createJob(fields members, key string) (job belfry.Job, err error) {
	key = cmp.Or(key, belfry.NewID(time.Now()).String()) // Retries of a request count once.
	err = c.Do(c.ctx, http.MethodPost, jobsPath, fields, &job, client.IdempotencyKey(key))
	return job, err
}

// jobTitle is the name of a job, or its id without one.
func jobTitle(job belfry.Job) string {
	return cmp.Or(job.Name, job.ID.String())
}

func (o *output) nextRunText(job belfry.Job) string {
	switch {
	case job.Status == belfry.StatusPaused:
		return "paused"
	case job.NextRunAt == nil:
		return ""
	}
	return "next " + o.absoluteTimeIn(job.Timezone, job.NextRunAt)
}

func scheduleText(spec belfry.Spec) string {
	if spec.Timezone == "" || spec.Timezone == "UTC" {
		return spec.Schedule
	}
	return spec.Schedule + " (" + spec.Timezone + ")"
}

func targetText(spec belfry.Spec, payload json.RawMessage) string {
	if spec.Type == belfry.TypeMessage {
		var message belfry.MessagePayload
		_ = json.Unmarshal(payload, &message) // What is none has no topic.
		return strings.TrimSpace("message " + message.Connection + " " + message.Topic)
	}
	if spec.Type != belfry.TypeHTTP {
		return strings.TrimSpace(spec.Type + " " + spec.Handler)
	}
	var request belfry.HTTPPayload
	if json.Unmarshal(payload, &request) != nil || request.URL == "" {
		return spec.Type
	}
	return strings.ToUpper(cmp.Or(request.Method, http.MethodPost)) + " " + request.URL
}

func (o *output) changeText(c belfry.FieldChange) string {
	const width = 200 // of a value
	old, new, secret := o.clipTo(compactJSON(c.Old), width), o.clipTo(compactJSON(c.New), width), ""
	if string(c.Old) == string(c.New) {
		secret = " (a secret)"
	}
	switch {
	case c.Old == nil:
		return o.palette.paint(green, fmt.Sprintf("+ %s: %s", escape(c.Field), new))
	case c.New == nil:
		return o.palette.paint(red, fmt.Sprintf("- %s: %s", escape(c.Field), old))
	}
	return o.palette.paint(yellow, fmt.Sprintf("~ %s: %s -> %s%s", escape(c.Field), old, new, secret))
}

// changedFields lists the fields that differ, without the members of the payload.
func changedFields(changes []belfry.FieldChange) []string {
	names := []string{}
	for _, c := range changes {
		name, _, _ := strings.Cut(c.Field, ".")
		if string(c.Old) == string(c.New) {
			name += " (a secret)"
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// jobObject is the JSON object of a job whose flags were given. The payload of an HTTP
// job is composed of the flags of its request.
func jobObject(manifest, request fieldFlags) (members, error) {
	fields, httpPayload := manifest.object(), request.object()
	switch {
	case len(httpPayload) == 0 && fields["payload"] == nil && fields["handler"] == nil:
		return nil, usagef("say what to run: --url for an HTTP request, or --handler for a handler of a worker")
	case len(httpPayload) == 0:
		return fields, nil
	case httpPayload["url"] == nil:
		return nil, usagef("--%s needs --url", request.changedFlag())
	case fields["payload"] != nil:
		return nil, usagef("use either --url or --payload: a job makes a request or calls a handler")
	case fields["handler"] != nil:
		return nil, usagef("use either --url or --handler: a job makes a request or calls a handler")
	}
	fields["payload"] = belfry.MustJSON(httpPayload)
	return fields, nil
}

func jobCreateCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "create [NAME]", Short: "Create a job from flags, or jobs from a file",
		Long: `Create a job from flags, or the jobs of a YAML or JSON file (- is standard input).
If the server refuses one of several jobs, none is created. To keep jobs in files
and update them from there, see: belfry job apply --help`,
		Example: `  belfry job create hello --schedule '*/5 * * * *' --url https://example.com/hook
  belfry job create report --schedule '0 9 * * MON-FRI' --timezone Europe/Paris \
      --url https://example.com/report --header Accept=application/json --body '{"kind": "daily"}'
  belfry job create invoices --schedule @daily --handler send-invoices --payload @invoices.json
  belfry job create -f job.yaml`,
	}
	file := cmd.Flags().StringP("file", "f", "", "YAML or JSON `FILE` with jobs; - is standard input")
	key := cmd.Flags().String("idempotency-key", "", "create one job, however often this is called with the same key and job within seven days")
	manifest, request := addFieldFlags[belfry.Manifest](cmd, "status"), addFieldFlags[belfry.HTTPPayload](cmd)
	paused := cmd.Flags().Bool("paused", false, "create the job paused")
	return f.command(cmd, func(c *cli, args []string) error {
		if *file != "" {
			name := cmp.Or(manifest.changedFlag(), request.changedFlag())
			switch {
			case len(args) > 0:
				return usagef("use either --file or NAME: the file declares the whole job")
			case name == "" && *paused:
				name = "paused"
			}
			if name != "" {
				return usagef("use either --file or --%s: the file declares the whole job", name)
			}
			return c.createFromFile(*file, *key)
		}
		fields, err := jobObject(manifest, request)
		if err == nil {
			err = setName(fields, args)
		}
		if err != nil {
			return err
		}
		if *paused {
			fields["status"] = json.RawMessage(`"paused"`)
		}
		job, err := c.createJob(fields, *key)
		return c.printAnswer(job, err, func() { c.printCreated(job) })
	})
}

// setName sets the name that the argument of a command gives, if any.
func setName(fields members, args []string) error {
	if len(args) == 0 {
		return nil
	}
	name := jsontext.Quote(args[0])
	if given := fields["name"]; given != nil && string(given) != name {
		return usagef("the job is named %s and, by --name, %s; use one of them", name, given)
	}
	fields["name"] = json.RawMessage(name)
	return nil
}

// createFromFile creates the jobs of a file. The server first validates several jobs.
func (c *cli) createFromFile(path, key string) error {
	var v variables
	manifests, _, err := readManifests(jobManifests, []string{path}, c.in, &v)
	c.noteVariables(&v)
	switch {
	case err != nil:
		return err
	case len(manifests) == 0:
		return usagef("%s has no job", path)
	case key != "" && len(manifests) > 1:
		return usagef("--idempotency-key is for one job, but %s has %d", path, len(manifests))
	}
	if len(manifests) > 1 {
		validate := func(m manifest) error { return c.Do(c.ctx, http.MethodPost, jobsPath+"?dry_run=true", m.fields, nil) }
		if err := c.forManifests(manifests, validate); err != nil {
			return err
		}
	}
	var jobs []belfry.Job
	err = c.forManifests(manifests, func(m manifest) error {
		job, err := c.createJob(m.fields, key)
		if err != nil {
			return err
		}
		jobs = append(jobs, job)
		if c.humanReadable() {
			c.printCreated(job)
		}
		c.warn(job)
		return nil
	})
	return printAll(&c.output, len(manifests), jobs, err)
}

// forManifests does something to every job of a file, and collects what the server
// refuses. It stops at any other failure.
func (c *cli) forManifests(manifests []manifest, do func(m manifest) error) error {
	var all fileErrors
	for _, m := range manifests {
		if err := do(m); err != nil {
			errs, refused := m.errorsOf(err)
			if !refused {
				return err
			}
			all = append(all, errs...)
		}
	}
	return all.orNil()
}

func (c *cli) printCreated(job belfry.Job) {
	c.result("created", jobTitle(job), c.nextRunText(job))
}
