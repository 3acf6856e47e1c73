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
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/secret"
)

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
		text := withoutHeader(edited)
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

// sendText replaces the job by a text. Errors in the text can be corrected; any other
// failure ends the edit.
func (e *edit) sendText(text []byte) (fileErrors, error) {
	jobs, errs := parseManifests("job", text)
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

// manifestYAML is the job as it can be edited.
func (e *edit) manifestYAML() ([]byte, error) {
	manifest := e.job.Manifest
	if manifest.Status != belfry.StatusPaused {
		manifest.Status = belfry.StatusActive
	}
	text, err := json.Marshal(manifest)
	if err != nil {
		return nil, fmt.Errorf("write the job: %w", err)
	}
	all, err := jsonToNode(text)
	if err != nil {
		return nil, err
	}
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
	var lines []string
	for _, err := range errs {
		lines = append(lines, fmt.Sprintf("ERROR: line %d: %s", err.line, escape(err.message)))
	}
	if len(errs) > 0 {
		lines = append(lines, "Correct it, or close the editor without a change to give up. Lines are counted below this header.")
	}
	lines = append(lines, fmt.Sprintf("Job %s, revision %d. A field that you remove gets its default.", escape(jobTitle(e.job)), e.job.Revision))
	if bytes.Contains(e.job.Payload, []byte(secret.Masked)) {
		lines = append(lines, secret.Masked+" stands for a secret, which is kept unless you replace it.")
	}
	return headerPrefix + strings.Join(lines, "\n"+headerPrefix) + "\n"
}

func withoutHeader(content []byte) []byte {
	var out []byte
	for line := range bytes.Lines(content) {
		if !bytes.HasPrefix(line, []byte(strings.TrimSpace(headerPrefix))) {
			out = append(out, line...)
		}
	}
	return out
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
	cmd.Stdin, cmd.Stdout, cmd.Stderr = e.in, e.out, e.err
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
