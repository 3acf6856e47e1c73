package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

func jobEditCommand(s *session) *cobra.Command {
	var sets []string
	cmd := &cobra.Command{
		Use:   "edit REF",
		Short: "Change a job in your editor, or by --set",
		Long: `Change a job: its fields are opened as YAML in $VISUAL or $EDITOR and sent when
the editor ends. What the server refuses is shown in the editor, to be corrected.
A change that somebody else made meanwhile is not overwritten.

With --set no editor is opened. Values are JSON, or text where a field is text;
a path with dots reaches into the payload, and null removes a field or gives it
its default.`,
		Example: `  belfry job edit report
  belfry job edit report --set 'schedule=0 10 * * *' --set max_retries=5
  belfry job edit report --set payload.headers.Accept=text/csv --set 'tags=["billing"]'`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: refs(s, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := s.open(cmd)
			if err != nil {
				return err
			}
			if len(sets) == 0 && editorOf() == "" && !terminal(d.in) {
				return usagef("there is no terminal to edit at: give --set FIELD=VALUE, or name an editor in EDITOR")
			}
			e := &edit{door: d, ctx: cmd.Context(), cmd: cmd}
			if err := e.load(args[0]); err != nil {
				return err
			}
			if len(sets) > 0 {
				return e.set(sets)
			}
			return e.interactive()
		},
	}
	cmd.Flags().StringArrayVar(&sets, "set", nil, "change a field without an editor, as FIELD=VALUE; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("set", func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) { // The flag is there.
		var names []cobra.Completion
		for _, f := range fields {
			names = append(names, f.name+"=")
		}
		return names, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	})
	return cmd
}

// edit is one call of the command.
type edit struct {
	*door
	ctx     context.Context
	cmd     *cobra.Command
	job     belfry.Job
	version string
	before  members
}

func (e *edit) load(ref string) (err error) {
	if e.job, e.version, err = e.JobWithVersion(e.ctx, ref); err != nil {
		return err
	}
	e.before, err = settable(e.job)
	return err
}

// send makes the job what the fields say, if it still is what was loaded.
func (e *edit) send(fields members) error {
	job, err := e.put(e.ctx, e.job.ID.String(), fields, e.version)
	if err != nil {
		return err
	}
	return e.print(job, func() error {
		after, err := settable(job)
		if err != nil {
			return err
		}
		names := changed(changes(e.before, after))
		if len(names) == 0 && job.Revision != e.job.Revision {
			names = []string{"payload (a secret)"}
		}
		if len(names) == 0 {
			return e.done(unchangedResult, title(job), "")
		}
		return e.done(updatedResult, title(job), strings.Join(names, ", ")+"   "+e.next(job))
	})
}

// set changes single fields.
func (e *edit) set(sets []string) error {
	fields := make(members)
	for name, value := range e.before {
		fields[name] = value
	}
	set := make(map[string]bool)
	for _, s := range sets {
		path, value, ok := strings.Cut(s, "=")
		if !ok {
			return usagef("--set: %q is not FIELD=VALUE", s)
		}
		if err := fields.assign(path, value); err != nil {
			return err
		}
		set[path] = true
	}
	fields.follow(set)
	return e.send(fields)
}

// follow leaves to the server what a change of the pauses before retries decides
// too, as far as nobody set it: a list goes with a backoff of its own and says how
// many retries there are.
func (m members) follow(set map[string]bool) {
	switch {
	case set["retry_delays"]:
		if !set["retry_backoff"] {
			delete(m, "retry_backoff")
		}
		if !set["max_retries"] && m["retry_delays"] != nil {
			delete(m, "max_retries")
		}
	case set["retry_backoff"] && !strings.EqualFold(m.text("retry_backoff"), string(belfry.BackoffList)):
		delete(m, "retry_delays")
	}
}

// assign sets a field, or a member of the payload, to a value: JSON, or text where
// it is none.
func (m members) assign(path, value string) error {
	name, inner, nested := strings.Cut(path, ".")
	f, known := fieldNamed(name)
	if !known {
		return usagef("--set: %s", unknownField(name))
	}
	raw := json.RawMessage(value)
	switch isText := len(value) > 0 && value[0] == '"'; {
	case value == "null":
	case !json.Valid(raw), f.kind == text && !isText:
		raw = json.RawMessage(quote(value))
	}
	if !nested {
		if value == "null" {
			delete(m, name)
			return nil
		}
		m[name] = raw
		return nil
	}
	if name != "payload" {
		return usagef("--set: %s has no members; only payload has", name)
	}
	changed, err := assignInside(m[name], strings.Split(inner, "."), raw)
	if err != nil {
		return usagef("--set %s: %s", path, err)
	}
	m[name] = changed
	return nil
}

// editorOf is the editor that somebody chose; empty if they did not.
func editorOf() string {
	if editor := os.Getenv("VISUAL"); editor != "" {
		return editor
	}
	return os.Getenv("EDITOR")
}
