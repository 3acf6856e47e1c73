package main

import (
	"net/url"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

func jobTriggerCommand(s *session) *cobra.Command {
	var payload, key string
	wait := false
	b := &selection{}
	cmd := &cobra.Command{
		Use:   "trigger REF... | --FILTER",
		Short: "Run jobs now",
		Long: `Run jobs now, beside their schedule. With --wait the command ends when the runs
do, and its exit code is 5 unless all of them succeeded.`,
		Example: `  belfry job trigger report --wait
  belfry job trigger invoices --payload '{"customer": 17}'
  belfry job trigger --tag nightly --dry-run`,
		ValidArgsFunction: refs(s, 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := b.check(cmd, args)
			if err != nil {
				return err
			}
			for _, name := range []string{"payload", "idempotency-key", "wait"} {
				if found && cmd.Flags().Changed(name) {
					return usagef("--%s is for jobs that are named, not for those that a filter finds", name)
				}
			}
			d, err := s.open(cmd)
			if err != nil {
				return err
			}
			if found {
				return b.bulk(cmd, d, triggerAction)
			}
			t := trigger{door: d, cmd: cmd, key: key, refs: args}
			if cmd.Flags().Changed("payload") {
				raw, err := flagJSON(cmd, "payload", payload)
				if err != nil {
					return err
				}
				t.payload = raw
			}
			if wait {
				return t.wait()
			}
			return t.ask()
		},
	}
	f := cmd.Flags()
	f.StringVar(&payload, "payload", "", "what replaces the body of the call, or the payload of the handler, as JSON or @FILE")
	f.StringVar(&key, "idempotency-key", "", "the same key makes one run, however often this is called in seven days")
	f.BoolVarP(&wait, "wait", "w", false, "wait until the runs are over")
	b.flags(cmd)
	return cmd
}

// trigger is one call of the command.
type trigger struct {
	*door
	cmd     *cobra.Command
	refs    []string
	payload any // nil: the job's own
	key     string
}

// triggered is the server's answer to a trigger.
type triggered struct {
	RunID belfry.ID `json:"run_id"`
}

func (t *trigger) one(ref string) (triggered, error) {
	var options []client.CallOption
	if t.key != "" {
		key := t.key
		if len(t.refs) > 1 {
			key += ":" + url.PathEscape(ref) // A key stands for one answer.
		}
		options = append(options, client.IdempotencyKey(key))
	}
	id, err := t.TriggerJob(t.cmd.Context(), ref, t.payload, options...)
	return triggered{id}, err
}

// ask triggers all jobs.
func (t *trigger) ask() error {
	runs, failed := each(t.door, t.cmd, t.refs, func(ref string) (triggered, error) {
		run, err := t.one(ref)
		if err == nil && t.format == "table" {
			err = t.done("triggered", ref, "run "+run.RunID.String())
		}
		return run, err
	})
	return printAll(t.door, len(t.refs), runs, failed)
}

// wait triggers all jobs and follows their runs to the end.
func (t *trigger) wait() error {
	asked, failed := each(t.door, t.cmd, t.refs, t.one)
	var runs []client.Run
	for _, one := range asked {
		run, err := t.follow(t.cmd.Context(), one.RunID)
		if err != nil {
			return err
		}
		runs = append(runs, run)
		if err := verdict(run); err != nil && failed == nil {
			failed = err
		}
	}
	return printAll(t.door, len(t.refs), runs, failed)
}
