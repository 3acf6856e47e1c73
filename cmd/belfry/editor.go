package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/belfry-sh/belfry"
)

// interactive lets a person change the job in an editor, as often as it takes.
func (e *edit) interactive() error {
	shown, err := e.yaml()
	if err != nil {
		return err
	}
	content := append([]byte(e.preface(nil)), shown...)
	path, err := keep(content)
	if err != nil {
		return err
	}
	sent := shown // what the last try had
	for {
		if err := e.openEditor(path); err != nil {
			return fmt.Errorf("%w; your text is kept in %s", err, path)
		}
		edited, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read what was edited: %w", plain(err))
		}
		text := withoutPreface(edited)
		if bytes.Equal(text, sent) {
			return e.giveUp(path, bytes.Equal(text, shown))
		}
		sent = text
		faults, err := e.trySend(text)
		if err == nil && len(faults) == 0 {
			return os.Remove(path)
		}
		if err != nil {
			e.say("Your text is kept in %s", path)
			return err
		}
		if err := os.WriteFile(path, append([]byte(e.preface(faults)), text...), 0o600); err != nil {
			return fmt.Errorf("show what is wrong: %w", plain(err))
		}
	}
}

// giveUp ends an edit in which nothing changed: since it was begun, or since the
// server refused it.
func (e *edit) giveUp(path string, untouched bool) error {
	if untouched {
		e.say("Nothing was changed.")
		return os.Remove(path)
	}
	e.say("Your text is kept in %s", path)
	return belfry.Errorf(belfry.Invalid, "the edit was refused, and not changed since")
}

// trySend sends a text. Faults of the text are to be corrected; other failures end
// the edit.
func (e *edit) trySend(text []byte) ([]string, error) {
	jobs, wrong := declarations("job", text)
	if len(wrong) == 0 && len(jobs) != 1 {
		return []string{fmt.Sprintf("there must be one job, not %d", len(jobs))}, nil
	}
	var faults []string
	for _, m := range wrong {
		faults = append(faults, fmt.Sprintf("line %d: %s", m.line, m.what))
	}
	if len(faults) > 0 {
		return faults, nil
	}
	err := e.send(jobs[0].members)
	if err == nil || codeOf(err) == belfry.Changed || exitCode(err) != exitRefused {
		return nil, err
	}
	refused, ok := jobs[0].refused(err)
	if !ok {
		return nil, err
	}
	for _, m := range refused {
		faults = append(faults, fmt.Sprintf("line %d: %s", m.line, m.what))
	}
	return faults, nil
}

// yaml gives the fields of the job to be edited, in their order.
func (e *edit) yaml() ([]byte, error) {
	root := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, f := range fields {
		raw := e.before[f.name]
		if raw == nil {
			continue
		}
		value, err := nodeOfJSON(raw)
		if err != nil {
			return nil, err
		}
		root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: f.name}, value)
	}
	return encodeYAML(root)
}

// Lines that begin with this are said by the command, and not read back.
const prefaceMark = "#| "

// preface is what stands above the text in the editor. Lines are counted from
// below it.
func (e *edit) preface(faults []string) string {
	var b strings.Builder
	note := func(text string) { b.WriteString(prefaceMark + text + "\n") }
	for _, f := range faults {
		note("WRONG: " + safe(f))
	}
	if len(faults) > 0 {
		note("Correct it, or leave it as it is to give up. Lines are counted from below these.")
	}
	note("Job " + safe(title(e.job)) + ", revision " + fmt.Sprint(e.job.Revision) + ". A field that is removed gets its default.")
	if bytes.Contains(e.before["payload"], []byte(secret.Masked)) {
		note("Where it says " + secret.Masked + " is a secret; it stays as it is unless you replace it.")
	}
	return b.String()
}

func withoutPreface(content []byte) []byte {
	var out []byte
	for l := range bytes.Lines(content) {
		if !bytes.HasPrefix(l, []byte(strings.TrimSpace(prefaceMark))) {
			out = append(out, l...)
		}
	}
	return out
}

// keep writes a text to a new file that only its owner may read.
func keep(content []byte) (string, error) {
	f, err := os.CreateTemp("", "belfry-edit-*.yaml")
	if err != nil {
		return "", fmt.Errorf("make a file to edit: %w", err)
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("make a file to edit: %w", err)
	}
	return f.Name(), nil
}

// openEditor runs the editor, which may be a command with arguments, on a file.
func (e *edit) openEditor(path string) error {
	editor := editorOf()
	var cmd *exec.Cmd
	switch {
	case runtime.GOOS == "windows":
		if editor == "" {
			editor = "notepad"
		}
		parts := append(strings.Fields(editor), path)
		cmd = exec.CommandContext(e.ctx, parts[0], parts[1:]...)
	default:
		if editor == "" {
			editor = "vi"
		}
		cmd = exec.CommandContext(e.ctx, "sh", "-c", editor+` "$1"`, editor, path)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = e.in, e.out, e.err
	if err := cmd.Run(); err != nil {
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			return fmt.Errorf("the editor %q ended with code %d", editor, exit.ExitCode())
		}
		if e.ctx.Err() != nil {
			return context.Canceled
		}
		return fmt.Errorf("the editor %q could not be started", editor)
	}
	return nil
}
