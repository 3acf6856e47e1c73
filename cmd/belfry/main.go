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
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/command"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// gcPercent makes the garbage collector run less often than by default. A node has little
// in memory and allocates much: with 100 a callback takes a quarter more processor time.
const gcPercent = 300

func main() {
	if len(os.Args) > 1 && os.Args[1] == command.Subcommand {
		os.Exit(command.Main(os.Args[2:]))
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the second one ends the process at once.
	context.AfterFunc(ctx, stop)
	code := execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// execute runs a command, reports its failure and returns the exit code.
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
	if cmd.Name() == "serve" && logsJSON(args) {
		logError(errOut, cmd, err)
	} else {
		reportError(errOut, cmd, err)
	}
	if cmd.Name() == "serve" && belfry.CodeOf(err) == belfry.Invalid {
		return exitUsage // The invalid input is its flags.
	}
	return exitCode(err)
}

func rootCommand() *cobra.Command {
	cmd := group(&cobra.Command{
		Use: "belfry", Short: "Belfry is a job scheduler for one machine or a cluster",
		Long: `Belfry is a job scheduler for one machine or a cluster.

  belfry serve                                      start a server
  belfry job create hello --schedule '* * * * *' --url https://example.com/hook
  belfry job list                                   list the jobs
  belfry job trigger hello --wait                   run a job now
  belfry job why hello                              explain why it ran, or did not
  belfry dead list                                  list the runs that failed for good
  belfry job apply -f jobs.yaml                     create and update jobs from files
  belfry import crontab /etc/crontab                convert a crontab to a file of jobs
  belfry schedule next '0 9 * * MON-FRI'            list the next times of a schedule

The commands on jobs, runs and nodes use the server that --server, BELFRY_SERVER or the
key server in ~/.config/belfry/config.yaml names.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	})
	f := &connectionFlags{}
	cmd.AddCommand(
		serveCommand(), migrateCommand(), runWorkerCommand(f), versionCommand(), scheduleCommand(), importCommand(), verifyWebhookCommand(), benchCommand(),
		completionCommand(), exitCodesTopic(), loginCommand(f), logoutCommand(f),
		jobCommand(f), runCommand(f), deadCommand(f), eventCommand(f), auditCommand(f), forecastCommand(f), fleetCommand(f), channelCommand(f), alertCommand(f),
		monitorCommand(f), keyCommand(f), secretCommand(f), namespaceCommand(f),
	)
	cmd.Version = versionText()
	cmd.SetVersionTemplate("{{.Version}}\n")
	cmd.SetFlagErrorFunc(flagError)
	cmd.SetHelpCommand(helpCommand())
	prepare(cmd)
	return cmd
}

func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [command]", Short: "Help about any command", ValidArgsFunction: completeCommands,
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
		Use: "version", Short: "Print the version of belfry and of its time-zone data",
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintln(cmd.OutOrStdout(), versionText())
		},
	}
}

func versionText() string {
	return fmt.Sprintf("belfry %s (%s, zones %s)", version(), runtime.Version(), schedule.ZoneVersion())
}

// version is the version of the module, as the linker recorded it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

func completeCommands(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	parent, _, err := cmd.Root().Find(args)
	if err != nil {
		return nil, noFiles
	}
	var names []cobra.Completion
	for _, c := range parent.Commands() {
		if !c.Hidden && strings.HasPrefix(c.Name(), prefix) {
			names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
		}
	}
	return names, noFiles
}

var shells = []string{"bash", "zsh", "fish", "powershell"}

func completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion " + strings.Join(shells, "|"),
		Short: "Print the shell script that completes commands, flags and names of jobs",
		Long: `Print the shell script that completes commands, flags and names of jobs when you
press the tab key. To install it:

  bash        belfry completion bash > ~/.local/share/bash-completion/completions/belfry
  zsh         belfry completion zsh > "${fpath[1]}/_belfry"
  fish        belfry completion fish > ~/.config/fish/completions/belfry.fish
  powershell  belfry completion powershell >> $PROFILE`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(shells, args[0]) {
				return usagef("name one shell: %s", strings.Join(shells, ", "))
			}
			return nil
		},
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(out, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(out)
			case "fish":
				return cmd.Root().GenFishCompletion(out, true)
			default:
				return cmd.Root().GenPowerShellCompletionWithDesc(out)
			}
		},
	}
}
