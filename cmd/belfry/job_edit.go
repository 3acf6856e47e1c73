package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
	"github.com/belfry-sh/belfry/internal/jsontext"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/secret"
)

func jobEditCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "edit REF", Short: "Edit a job in an editor, or with --set",
		Long: `Edit a job as YAML in $VISUAL or $EDITOR. If the server refuses the edit, the
editor opens again with the errors. A change that somebody else made at the same
time is not overwritten.

With --set no editor is opened. A value is JSON, or text where the field is text.
A path with dots is a member of the payload. null removes a member, or gives a
field its default.`,
		Example: `  belfry job edit report
  belfry job edit report --set 'schedule=0 10 * * *' --set max_retries=5
  belfry job edit report --set payload.headers.Accept=text/csv --set 'tags=["billing"]'`,
	}
	assignments := cmd.Flags().StringArray("set", nil, "set a field without an editor, as `FIELD=VALUE`; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("set", func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) { // The flag exists.
		names := mapSlice(schema.For[belfry.Manifest]().Names(), func(name string) cobra.Completion { return name + "=" })
		return names, cobra.ShellCompDirectiveNoSpace | noFiles
	})
	return f.command(cmd, func(c *cli, args []string) (err error) {
		if len(*assignments) == 0 && editorCommand() == "" && !isTerminal(c.in) {
			return usagef("there is no terminal for an editor: use --set FIELD=VALUE, or name an editor in EDITOR")
		}
		e := &edit{cli: c}
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

type edit struct {
	*cli
	job     belfry.Job
	version string
}

// send edits or replaces the job if it still has its version. A dry run says what changes.
func (e *edit) send(method string, fields members) error {
	path, match := client.JobPath(e.job.ID.String()), client.IfMatch(e.version)
	var diff belfry.JobDiff
	if err := e.Do(e.ctx, method, path+"?dry_run=true", fields, &diff, match); err != nil {
		return err
	}
	var job belfry.Job
	err := e.Do(e.ctx, method, path, fields, &job, match)
	return e.printAnswer(job, err, func() {
		detail := ""
		if diff.Result != belfry.DiffUnchanged {
			detail = strings.Join(changedFields(diff.Changes), ", ") + "   " + e.nextRunText(job)
		}
		e.result(string(diff.Result), jobTitle(job), detail)
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

// assignedValue is the value itself if it is JSON, unless a text is expected, or a string.
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
	old, exists := jsontext.Object(object)[path[0]]
	changed, err := setMember(old, path[1:], value)
	if err != nil {
		return nil, err
	}
	member := jsontext.Quote(path[0]) + ":" + string(changed)
	removed := len(path) == 1 && string(value) == "null"
	var parts []string
	jsontext.Members(object, func(quoted, other []byte) bool {
		switch {
		case jsontext.Unquote(quoted) != path[0]:
			parts = append(parts, string(quoted)+":"+string(other))
		case !removed:
			parts = append(parts, member)
		}
		return true
	})
	if !exists && !removed {
		parts = append(parts, member)
	}
	return json.RawMessage("{" + strings.Join(parts, ",") + "}"), nil
}

// interactive opens the job in an editor until the server accepts it.
func (e *edit) interactive() error {
	original, err := e.manifestYAML()
	if err != nil {
		return err
	}
	path, err := writeTempFile(append([]byte(e.header(nil)), original...))
	if err != nil {
		return err
	}
	sent := original
	for {
		if err := e.runEditor(path); err != nil {
			return fmt.Errorf("%w; your text is in %s", err, path)
		}
		edited, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read the edited text: %w", pathError(err))
		}
		lines := slices.DeleteFunc(slices.Collect(bytes.Lines(edited)), func(line []byte) bool {
			return bytes.HasPrefix(line, []byte(strings.TrimSpace(headerPrefix)))
		})
		text := bytes.Join(lines, nil)
		switch {
		case bytes.Equal(text, original):
			e.message("Nothing was changed.")
			return os.Remove(path)
		case bytes.Equal(text, sent):
			e.message("Your text is in %s", path)
			return belfry.Errorf(belfry.Invalid, "the server refused the edit, and it was not corrected")
		}
		sent = text
		errs, err := e.sendText(text)
		if err != nil {
			e.message("Your text is in %s", path)
			return err
		}
		if len(errs) == 0 {
			return os.Remove(path)
		}
		if err := os.WriteFile(path, append([]byte(e.header(errs)), text...), 0o600); err != nil {
			return fmt.Errorf("show the errors: %w", pathError(err))
		}
	}
}

// sendText replaces the job. Errors in the text can be corrected; any other ends the edit.
func (e *edit) sendText(text []byte) (fileErrors, error) {
	jobs, errs := parseManifests(jobManifests, "job", text, nil)
	if len(errs) > 0 {
		return errs, nil
	}
	if len(jobs) != 1 {
		return fileErrors{{"job", 1, fmt.Sprintf("must be one job, not %d", len(jobs))}}, nil
	}
	err := e.send(http.MethodPut, jobs[0].fields)
	if err == nil || codeOf(err) == belfry.Changed {
		return nil, err
	}
	errs, refused := jobs[0].errorsOf(err)
	if !refused {
		return nil, err
	}
	return errs, nil
}

func (e *edit) manifestYAML() ([]byte, error) {
	manifest := e.job.Manifest
	if manifest.Status != belfry.StatusPaused {
		manifest.Status = belfry.StatusActive
	}
	all := jsonToNode(belfry.MustJSON(manifest))
	root := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for i := 0; i+1 < len(all.Content); i += 2 {
		if f := schema.For[belfry.Manifest]().Field(all.Content[i].Value); f != nil && !f.ReadOnly {
			root.Content = append(root.Content, all.Content[i], all.Content[i+1])
		}
	}
	return encodeYAML(root)
}

// headerPrefix marks the lines of the header, which is not part of the job.
const headerPrefix = "#| "

// header is what the editor shows above the job. Lines are counted below it.
func (e *edit) header(errs fileErrors) string {
	lines := mapSlice(errs, func(e fileError) string { return fmt.Sprintf("ERROR: line %d: %s", e.line, escape(e.message)) })
	if len(errs) > 0 {
		lines = append(lines, "Correct it, or close the editor without a change to give up. Lines are counted below this header.")
	}
	lines = append(lines, fmt.Sprintf("Job %s, revision %d. A field that you remove gets its default.", escape(jobTitle(e.job)), e.job.Revision))
	if bytes.Contains(e.job.Payload, []byte(secret.Masked)) {
		lines = append(lines, secret.Masked+" stands for a secret, which is kept unless you replace it.")
	}
	return headerPrefix + strings.Join(lines, "\n"+headerPrefix) + "\n"
}

// writeTempFile writes a new file that only its owner may read.
func writeTempFile(content []byte) (string, error) {
	f, err := os.CreateTemp("", "belfry-edit-*.yaml")
	if err != nil {
		return "", fmt.Errorf("create a temporary file: %w", err)
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("write a temporary file: %w", err)
	}
	return f.Name(), nil
}

// editorCommand is the editor of the user; empty if the environment names none.
func editorCommand() string { return cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR")) }

// runEditor runs the editor, which may be a command with arguments, on a file.
func (e *edit) runEditor(path string) error {
	var cmd *exec.Cmd
	editor := editorCommand()
	if runtime.GOOS == "windows" {
		editor = cmp.Or(editor, "notepad")
		parts := append(strings.Fields(editor), path)
		cmd = exec.CommandContext(e.ctx, parts[0], parts[1:]...)
	} else {
		editor = cmp.Or(editor, "vi")
		cmd = exec.CommandContext(e.ctx, "sh", "-c", editor+` "$1"`, editor, path)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = e.in, e.cmd.OutOrStdout(), e.err // the terminal itself
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit):
		return fmt.Errorf("the editor %q ended with code %d", editor, exit.ExitCode())
	case e.ctx.Err() != nil:
		return context.Canceled
	}
	return fmt.Errorf("the editor %q could not be started", editor)
}
