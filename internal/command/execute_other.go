//go:build !linux

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/belfry-sh/belfry"
)

// Subcommand is the hidden command of the program that calls Main.
const Subcommand = "sandbox-exec"

// Main is only used on Linux.
func Main([]string) int { return 125 }

// HideEnvironment does nothing: other systems keep environments private.
func HideEnvironment() {}

// execute runs a command without a sandbox: what it starts in the background may outlive
// it.
func (c *Command) execute(ctx context.Context, l *launch, environment func(private string) []string, out io.Writer) (*belfry.CommandReport, error) {
	private, err := os.MkdirTemp("", "belfry-command-")
	if err != nil {
		return nil, fmt.Errorf("prepare the command: %w", err)
	}
	defer os.RemoveAll(private)
	cmd := exec.CommandContext(ctx, l.Argv[0], l.Argv[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = environment(private), l.Dir, out, out, grace
	if cmd.Dir == "" {
		cmd.Dir = private
	}
	if l.Stdin != "" {
		cmd.Stdin = strings.NewReader(l.Stdin)
	}
	err = cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		return nil, fmt.Errorf("run the command: %w", err)
	}
	report := &belfry.CommandReport{ExitStatus: cmd.ProcessState.ExitCode(), Sandbox: c.Sandbox, Layers: []string{"environment", "directory"}}
	if report.ExitStatus < 0 {
		report.Signal = cmd.ProcessState.String()
	}
	return report, nil
}
