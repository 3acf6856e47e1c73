package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

// jobFlags are the flags of a new job. The payload of an HTTP job is composed of the
// flags of its request.
type jobFlags struct {
	manifest *fieldFlags
	request  *fieldFlags
	paused   *bool
}

func addJobFlags(cmd *cobra.Command) *jobFlags {
	f := &jobFlags{manifest: addFieldFlags[belfry.Manifest](cmd, "status"), request: addFieldFlags[belfry.HTTPPayload](cmd)}
	f.paused = cmd.Flags().Bool("paused", false, "create the job paused")
	return f
}

// object is the JSON object of the job. Fields that were not given are left out.
func (f *jobFlags) object() (members, error) {
	fields, request := f.manifest.object(), f.request.object()
	switch {
	case len(request) == 0 && fields["payload"] == nil && fields["handler"] == nil:
		return nil, usagef("say what to run: --url for an HTTP request, or --handler for a handler of a worker")
	case len(request) > 0 && request["url"] == nil:
		return nil, usagef("--%s needs --url", f.request.changedFlag())
	case len(request) > 0 && fields["payload"] != nil:
		return nil, usagef("use either --url or --payload: a job makes a request or calls a handler")
	case len(request) > 0 && fields["handler"] != nil:
		return nil, usagef("use either --url or --handler: a job makes a request or calls a handler")
	case len(request) > 0:
		payload, err := json.Marshal(request)
		if err != nil {
			return nil, fmt.Errorf("write the payload: %w", err)
		}
		fields["payload"] = payload
	}
	if *f.paused {
		fields["status"] = json.RawMessage(`"paused"`)
	}
	return fields, nil
}

// changedFlag is the name of a flag of the job that was given; empty if none was.
func (f *jobFlags) changedFlag() string {
	for _, name := range []string{f.manifest.changedFlag(), f.request.changedFlag()} {
		if name != "" {
			return name
		}
	}
	if *f.paused {
		return "paused"
	}
	return ""
}

func jobCreateCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a job from flags, or jobs from a file",
		Long: `Create a job from flags, or the jobs of a YAML or JSON file (- is standard input).
If the server refuses one of several jobs, none is created. To keep jobs in files
and update them from there, see: belfry job apply --help`,
		Example: `  belfry job create --name hello --schedule '*/5 * * * *' --url https://example.com/hook
  belfry job create --name report --schedule '0 9 * * MON-FRI' --timezone Europe/Paris \
      --url https://example.com/report --header Accept=application/json --body '{"kind": "daily"}'
  belfry job create --name invoices --schedule @daily --handler send-invoices --payload @invoices.json
  belfry job create -f job.yaml`,
		Args: cobra.NoArgs,
	}
	file := cmd.Flags().StringP("file", "f", "", "YAML or JSON `FILE` with jobs; - is standard input")
	key := cmd.Flags().String("idempotency-key", "", "create one job, however often this is called with the same key and job within seven days")
	flags := addJobFlags(cmd)
	return f.command(cmd, func(c *cli, _ []string) error {
		if *file != "" {
			if name := flags.changedFlag(); name != "" {
				return usagef("use either --file or --%s: the file declares the whole job", name)
			}
			return c.createFromFile(*file, *key)
		}
		fields, err := flags.object()
		if err != nil {
			return err
		}
		job, err := c.createJob(fields, *key)
		if err != nil {
			return err
		}
		return c.print(job, func() { c.printCreated(job) })
	})
}

// createFromFile creates the jobs of a file. Several jobs are first validated by the
// server.
func (c *cli) createFromFile(path, key string) error {
	manifests, _, err := readManifests([]string{path}, c.in)
	switch {
	case err != nil:
		return err
	case len(manifests) == 0:
		return usagef("%s has no job", path)
	case key != "" && len(manifests) > 1:
		return usagef("--idempotency-key is for one job, but %s has %d", path, len(manifests))
	}
	if len(manifests) > 1 {
		if err := c.forManifests(manifests, func(m manifest) error { return c.checkJob(m.fields) }); err != nil {
			return err
		}
	}
	var jobs []belfry.Job
	err = c.forManifests(manifests, func(m manifest) error {
		job, err := c.createJob(m.fields, key)
		if err == nil {
			jobs = append(jobs, job)
		}
		if err == nil && c.humanReadable() {
			c.printCreated(job)
		}
		return err
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
