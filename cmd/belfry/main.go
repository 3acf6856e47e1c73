// Command belfry runs a Belfry node, and speaks to running ones.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the second one ends the process at once.
	context.AfterFunc(ctx, stop)
	code := execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// execute runs the command that the arguments name, tells what goes wrong, and
// gives the exit code.
func execute(ctx context.Context, args []string, in io.Reader, out, err io.Writer) int {
	cmd := root()
	cmd.SetArgs(append([]string{}, args...)) // Of nil it would take those of the process.
	cmd.SetIn(in)
	cmd.SetOut(out)
	cmd.SetErr(err)
	ran, failed := cmd.ExecuteContextC(ctx)
	if failed == nil {
		return exitOK
	}
	if ctx.Err() != nil {
		failed = context.Canceled
	}
	tell(err, ran, failed)
	if ran.Name() == "serve" && belfry.CodeOf(failed) == belfry.Invalid {
		return exitUsage // What is not valid are its flags.
	}
	return exitCode(failed)
}

func root() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "belfry",
		Short: "Belfry runs jobs at the right time, on one machine or a fleet",
		Long: `Belfry runs jobs at the right time, on one machine or a fleet.

  belfry serve                                      start a server
  belfry job create --name hello --schedule '* * * * *' --url https://example.com/hook
  belfry job list                                   see what is planned
  belfry job trigger hello --wait                   run one now
  belfry job why hello                              see why it ran, or did not
  belfry dead list                                  see what failed for good
  belfry job apply -f jobs.yaml                     keep jobs in files
  belfry schedule next '0 9 * * MON-FRI'            see when a schedule runs

The commands job, run, dead and event speak to the server that --server,
BELFRY_SERVER or the key server in ~/.config/belfry/config.yaml names.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	})
	s := &session{}
	cmd.AddCommand(serveCommand(), versionCommand(), jobCommand(s), runCommand(s), deadCommand(s), eventCommand(s), scheduleCommand(), completionCommand(), exitCodesTopic())
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	cmd.SetHelpCommand(helpCommand())
	refuseAsUsage(cmd)
	completeNoFiles(cmd)
	return cmd
}

// group makes a command that only has commands: without one it prints its help,
// and one that there is not is refused.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = unknownCommand
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.SuggestionsMinimumDistance = 2
	return cmd
}

func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef("unknown command %q for %s; did you mean %s?", args[0], cmd.CommandPath(), near[0])
	}
	return usagef("unknown command %q for %s", args[0], cmd.CommandPath())
}

// refuseAsUsage makes what is said about a wrong number of arguments a mistake in
// usage, for all commands.
func refuseAsUsage(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return asUsage(err)
			}
			return nil
		}
	}
	for _, c := range cmd.Commands() {
		refuseAsUsage(c)
	}
}
