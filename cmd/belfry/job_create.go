package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

func jobCreateCommand(s *session) *cobra.Command {
	g := &given{}
	var file, key string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a job from flags or a file",
		Long: `Create a job from flags, or the jobs of a file (YAML or JSON; - is standard
input). To keep jobs in files and change them there, see: belfry job apply --help`,
		Example: `  belfry job create --name hello --schedule '*/5 * * * *' --url https://example.com/hook
  belfry job create --name report --schedule '0 9 * * MON-FRI' --timezone Europe/Paris \
      --url https://example.com/report --header Accept=application/json --body '{"kind": "daily"}'
  belfry job create --name invoices --schedule @daily --handler send-invoices --payload @invoices.json
  belfry job create -f job.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := s.open(cmd)
			if err != nil {
				return err
			}
			if file != "" {
				if name := g.any(cmd); name != "" {
					return usagef("give --file or --%s, not both: what is in the file is what is created", name)
				}
				return createFrom(cmd, d, file, key)
			}
			fields, err := g.members(cmd)
			if err != nil {
				return err
			}
			job, err := d.post(cmd.Context(), fields, key)
			if err != nil {
				return err
			}
			return d.print(job, func() error { return d.created(job) })
		},
	}
	f := cmd.Flags()
	f.StringVarP(&file, "file", "f", "", "file of the job, YAML or JSON; - is standard input")
	f.StringVar(&key, "idempotency-key", "", "the same key and job make one job, however often this is called in seven days")
	g.flags(cmd)
	return cmd
}

// createFrom creates the jobs of a file. What the server refuses is told by file
// and line, for every job.
func createFrom(cmd *cobra.Command, d *door, path, key string) error {
	read, err := readFiles([]string{path}, d.in)
	if err != nil {
		return err
	}
	switch {
	case len(read.jobs) == 0:
		return usagef("there is no job in %s", path)
	case key != "" && len(read.jobs) > 1:
		return usagef("--idempotency-key is of one job, and %s has %d", path, len(read.jobs))
	}
	var jobs []belfry.Job
	var faults misplacedAll
	for _, declared := range read.jobs {
		job, err := d.post(cmd.Context(), declared.members, key)
		if err != nil {
			refused, ok := declared.refused(err)
			if !ok {
				return err
			}
			faults = append(faults, refused...)
			continue
		}
		if jobs = append(jobs, job); d.format == "table" {
			if err := d.created(job); err != nil {
				return err
			}
		}
	}
	var failed error
	if len(faults) > 0 {
		failed = faults
	}
	return printAll(d, len(read.jobs), jobs, failed)
}

func (d *door) created(job belfry.Job) error { return d.done("created", title(job), d.next(job)) }

// next says when a job runs next.
func (d *door) next(job belfry.Job) string {
	switch {
	case job.Status == belfry.StatusPaused:
		return "paused"
	case job.NextRunAt == nil:
		return ""
	}
	return "next " + exactIn(job.Timezone, d.now(), job.NextRunAt)
}

// done tells in a line what was done to a job.
func (d *door) done(verb, name, more string) error {
	colours := map[string]string{
		"created": green, "create": green, "updated": yellow, "update": yellow, "deleted": red, "delete": red, "unchanged": grey,
	}
	text := d.palette.paint(colours[verb], fmt.Sprintf("%-9s", verb)) + "  " + safe(name)
	if more != "" {
		text += "   " + safe(more)
	}
	return line(d.out, "%s", text)
}
