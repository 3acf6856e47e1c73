package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

const noFiles = cobra.ShellCompDirectiveNoFileComp

// completeFlag completes the values of a flag with words; without any, with nothing.
func completeFlag(cmd *cobra.Command, flag string, words ...cobra.Completion) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, noFiles)) // The flag exists.
}

// disableFileCompletion stops shells from completing arguments with the names of
// files: no command has such arguments.
func disableFileCompletion(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil && cmd.ValidArgs == nil && !cmd.HasSubCommands() {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, c := range cmd.Commands() {
		disableFileCompletion(c)
	}
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

// completeJobs completes up to maxArgs names of jobs; 0 is any number.
func (f *connectionFlags) completeJobs(maxArgs int) cobra.CompletionFunc {
	return f.complete(maxArgs, func(ctx context.Context, c *cli, prefix string) (names []cobra.Completion) {
		jobs, _, _ := collect(c.Jobs(ctx, belfry.JobFilter{Search: prefix, PageSize: maxPageSize}), maxPageSize) // An error completes nothing.
		for _, job := range jobs {
			if job.Name == escape(job.Name) {
				names = append(names, cobra.CompletionWithDesc(job.Name, escape(scheduleText(job.Spec))))
			}
		}
		return names
	})
}

// completeDeadLetters completes up to maxArgs ids of dead letters; 0 is any number.
func (f *connectionFlags) completeDeadLetters(maxArgs int) cobra.CompletionFunc {
	return f.complete(maxArgs, func(ctx context.Context, c *cli, _ string) (ids []cobra.Completion) {
		letters, _, _ := collect(c.DeadLetters(ctx, belfry.DeadFilter{PageSize: maxCompletions}), maxCompletions)
		for _, d := range letters {
			ids = append(ids, cobra.CompletionWithDesc(d.ID.String(), shorten(escape(deadJobName(d)+": "+runDetail(d.Run)), columnWidth)))
		}
		return ids
	})
}

const maxCompletions = 100

// complete completes arguments with what the server lists, except those that are there
// already. It has little time: somebody waits at a prompt.
func (f *connectionFlags) complete(maxArgs int, list func(ctx context.Context, c *cli, prefix string) []cobra.Completion) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) (found []cobra.Completion, _ cobra.ShellCompDirective) {
		c, err := f.open(cmd)
		if err != nil || maxArgs > 0 && len(args) >= maxArgs {
			return nil, noFiles
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
		defer cancel()
		for _, completion := range list(ctx, c, prefix) {
			word, _, _ := strings.Cut(completion, "\t")
			if word != "" && strings.HasPrefix(word, prefix) && !slices.Contains(args, word) && len(found) < maxCompletions {
				found = append(found, completion)
			}
		}
		return found, noFiles
	}
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
