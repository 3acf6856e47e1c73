package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry/client"
)

// refs completes the names of jobs, as many as a command takes; 0: any number.
func refs(s *session, most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return s.names(cmd, args, begun), cobra.ShellCompDirectiveNoFileComp
	}
}

// names asks the server for names that begin as given. It gives up soon: somebody
// waits at a prompt.
func (s *session) names(cmd *cobra.Command, had []string, begun string) []cobra.Completion {
	const most = 100
	d, err := s.open(cmd)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
	defer cancel()
	given := make(map[string]bool)
	for _, name := range had {
		given[name] = true
	}
	var names []cobra.Completion
	for job, err := range d.Jobs(ctx, client.JobFilter{Search: begun, PageSize: pageSize}) {
		if err != nil || len(names) == most {
			break
		}
		if strings.HasPrefix(job.Name, begun) && job.Name != "" && !given[job.Name] && job.Name == safe(job.Name) {
			names = append(names, cobra.CompletionWithDesc(job.Name, safe(rule(job.Spec))))
		}
	}
	return names
}

// completeNoFiles keeps shells from offering the names of files as arguments: no
// command takes any.
func completeNoFiles(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil && cmd.ValidArgs == nil && !cmd.HasSubCommands() {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, c := range cmd.Commands() {
		completeNoFiles(c)
	}
}

var shells = []string{"bash", "zsh", "fish", "powershell"}

func completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion " + strings.Join(shells, "|"),
		Short: "Print the script that completes commands, flags and names of jobs in a shell",
		Long: `Print the script that completes commands, flags and the names of jobs when you
press the tab key. To use it from the next shell on:

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
