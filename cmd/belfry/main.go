// Command belfry runs a Belfry node and is the command line of a running one.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the second one ends the process at once.
	context.AfterFunc(ctx, stop)
	code := execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// execute runs the command that the arguments name, reports a failure and returns the
// exit code.
func execute(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	root := rootCommand()
	root.SetArgs(append([]string{}, args...)) // With nil, cobra uses the arguments of the process.
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if ctx.Err() != nil {
		err = context.Canceled
	}
	reportError(errOut, cmd, err)
	if cmd.Name() == "serve" && belfry.CodeOf(err) == belfry.Invalid {
		return exitUsage // The invalid input is its flags.
	}
	return exitCode(err)
}

func rootCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use:   "belfry",
		Short: "Belfry is a job scheduler for one machine or a cluster",
		Long: `Belfry is a job scheduler for one machine or a cluster.

  belfry serve                                      start a server
  belfry job create --name hello --schedule '* * * * *' --url https://example.com/hook
  belfry job list                                   list the jobs
  belfry job trigger hello --wait                   run a job now
  belfry job why hello                              explain why it ran, or did not
  belfry dead list                                  list the runs that failed for good
  belfry job apply -f jobs.yaml                     create and update jobs from files
  belfry schedule next '0 9 * * MON-FRI'            list the next times of a schedule

The commands job, run, dead and event use the server that --server, BELFRY_SERVER
or the key server in ~/.config/belfry/config.yaml names.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	})
	f := &connectionFlags{}
	cmd.AddCommand(serveCommand(), versionCommand(), jobCommand(f), runCommand(f), deadCommand(f), eventCommand(f), scheduleCommand(), completionCommand(), exitCodesTopic())
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	cmd.SetHelpCommand(helpCommand())
	wrapArgErrors(cmd)
	disableFileCompletion(cmd)
	return cmd
}

// group makes a command that only has subcommands: without one it prints its help.
func group(cmd *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	cmd.Args = unknownCommand
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(subcommands...)
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

// wrapArgErrors makes a wrong number of arguments a usage error, in all commands.
func wrapArgErrors(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error { return asUsage(check(cmd, args)) }
	}
	for _, c := range cmd.Commands() {
		wrapArgErrors(c)
	}
}

func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "help [command]",
		Short:             "Help about any command",
		ValidArgsFunction: completeCommands,
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, rest, err := cmd.Root().Find(args)
			if err != nil {
				return asUsage(err)
			}
			if len(rest) > 0 {
				return unknownCommand(topic, rest)
			}
			topic.InitDefaultHelpFlag()
			return topic.Help()
		},
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of belfry and of its time-zone data",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintf(cmd.OutOrStdout(), "belfry %s (%s, zones %s)\n", version(), runtime.Version(), schedule.ZoneVersion())
		},
	}
}

// version is the version of the module, as the linker recorded it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
