package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
	"github.com/belfry-sh/belfry/internal/jsontext"
	"github.com/belfry-sh/belfry/internal/schema"
)

func jobEditCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "edit REF",
		Short: "Edit a job in an editor, or with --set",
		Long: `Edit a job as YAML in $VISUAL or $EDITOR. If the server refuses the edit, the
editor opens again with the errors. A change that somebody else made at the same
time is not overwritten.

With --set no editor is opened. A value is JSON, or text where the field is text.
A path with dots is a member of the payload. null removes a member, or gives a
field its default.`,
		Example: `  belfry job edit report
  belfry job edit report --set 'schedule=0 10 * * *' --set max_retries=5
  belfry job edit report --set payload.headers.Accept=text/csv --set 'tags=["billing"]'`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: f.completeJobs(1),
	}
	assignments := cmd.Flags().StringArray("set", nil, "set a field without an editor, as `FIELD=VALUE`; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("set", func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) { // The flag exists.
		var names []cobra.Completion
		for _, name := range schema.For[belfry.Manifest]().Names() {
			names = append(names, name+"=")
		}
		return names, cobra.ShellCompDirectiveNoSpace | noFiles
	})
	return f.command(cmd, func(c *cli, args []string) error {
		if len(*assignments) == 0 && editorCommand() == "" && !isTerminal(c.in) {
			return usagef("there is no terminal for an editor: use --set FIELD=VALUE, or name an editor in EDITOR")
		}
		e := &edit{cli: c}
		var err error
		if e.job, e.version, err = c.JobWithVersion(c.ctx, args[0]); err != nil {
			return err
		}
		if len(*assignments) == 0 {
			return e.interactive()
		}
		changes, err := e.assign(*assignments)
		if err != nil {
			return err
		}
		return e.send(http.MethodPatch, changes)
	})
}

// edit is one execution of job edit.
type edit struct {
	*cli
	job     belfry.Job
	version string
}

// send edits the job, or replaces it, if it still has its version. A dry run says what
// changes.
func (e *edit) send(method string, fields members) error {
	path, match := client.JobPath(e.job.ID.String()), client.IfMatch(e.version)
	var diff belfry.JobDiff
	if err := e.Do(e.ctx, method, path+"?dry_run=true", fields, &diff, match); err != nil {
		return err
	}
	var job belfry.Job
	if err := e.Do(e.ctx, method, path, fields, &job, match); err != nil {
		return err
	}
	return e.print(job, func() error {
		if diff.Result == belfry.DiffUnchanged {
			return e.result(resultUnchanged, jobTitle(job), "")
		}
		return e.result(resultUpdated, jobTitle(job), strings.Join(changedFields(diff.Changes), ", ")+"   "+e.nextRunText(job))
	})
}

// assign returns the fields that assignments such as payload.body.n=5 set.
func (e *edit) assign(assignments []string) (members, error) {
	fields := members{}
	for _, a := range assignments {
		path, value, ok := strings.Cut(a, "=")
		if !ok {
			return nil, usagef("--set: %q is not FIELD=VALUE", a)
		}
		name, inner, nested := strings.Cut(path, ".")
		field := schema.For[belfry.Manifest]().Field(name)
		switch {
		case field == nil:
			return nil, usagef("--set: %s", unknownField(name))
		case nested && field.Kind != schema.Raw:
			return nil, usagef("--set: %s has no members; only payload has", name)
		case !nested:
			fields[name] = assignedValue(value, field.Kind == schema.Text || field.Kind == schema.Time)
			continue
		}
		payload := fields[name]
		if payload == nil {
			payload = e.job.Payload
		}
		changed, err := setMember(payload, strings.Split(inner, "."), assignedValue(value, false))
		if err != nil {
			return nil, usagef("--set %s: %s", path, err)
		}
		fields[name] = changed
	}
	return fields, nil
}

// unknownField says which field may be meant.
func unknownField(name string) string {
	if schema.For[belfry.HTTPPayload]().Field(name) != nil {
		return name + " is a member of the payload: write payload." + name
	}
	names := schema.For[belfry.Manifest]().Names()
	if near := schema.Nearest(name, names); near != "" {
		return name + " is unknown; did you mean " + near + "?"
	}
	return name + " is unknown; known are " + strings.Join(names, ", ")
}

// assignedValue is the JSON of a value: the value itself if it is JSON, unless a text is
// expected, otherwise a string.
func assignedValue(value string, isText bool) json.RawMessage {
	if value == "null" || json.Valid([]byte(value)) && (!isText || strings.HasPrefix(value, `"`)) {
		return json.RawMessage(value)
	}
	return json.RawMessage(jsontext.Quote(value))
}

// setMember sets a member of an object at a path and keeps the order of the others.
// Null removes it. Missing objects on the path are created.
func setMember(object json.RawMessage, path []string, value json.RawMessage) (json.RawMessage, error) {
	if len(path) == 0 {
		return value, nil
	}
	if path[0] == "" {
		return nil, errors.New("the path has an empty name")
	}
	if object = bytes.TrimSpace(object); len(object) == 0 || string(object) == "null" {
		object = json.RawMessage("{}")
	}
	if object[0] != '{' {
		return nil, fmt.Errorf("%s cannot be set in %s", path[0], jsontext.Kind(object))
	}
	var parts []string
	var failed error
	found := false
	set := func(old json.RawMessage) {
		found = true
		if len(path) == 1 && string(value) == "null" {
			return
		}
		changed, err := setMember(old, path[1:], value)
		parts, failed = append(parts, jsontext.Quote(path[0])+":"+string(changed)), err
	}
	jsontext.Members(object, func(quoted, old []byte) bool {
		if jsontext.Unquote(quoted) == path[0] {
			set(old)
		} else {
			parts = append(parts, string(quoted)+":"+string(old))
		}
		return failed == nil
	})
	if !found {
		set(nil)
	}
	return json.RawMessage("{" + strings.Join(parts, ",") + "}"), failed
}
