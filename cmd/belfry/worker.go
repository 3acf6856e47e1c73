package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/command"
	"github.com/belfry-sh/belfry/internal/validate"
	"github.com/belfry-sh/belfry/worker"
)

func runWorkerCommand(f *connectionFlags) *cobra.Command {
	format, level := "text", "info"
	var path string
	var queues []string
	concurrency, drain := 10, 30*time.Second
	cmd := &cobra.Command{
		Use: "worker", Short: "Run commands of jobs on this machine, for a server elsewhere",
		Long: `Run a worker for jobs of type command. It claims runs from a server over HTTP, and
executes only the commands that the file names, within the bounds that the file sets;
the server cannot change them. See docs/commands.md for the file.

The file is read when the worker starts.`,
		Example: "  belfry worker --commands commands.yaml --server https://belfry.example.com --key-file worker.key",
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := openLog(cmd, &format, &level)
			if err != nil {
				return err
			}
			switch {
			case path == "":
				return usagef("--commands is required: the file of commands that this worker may run")
			case concurrency < 1 || concurrency > 10_000:
				return usagef("--concurrency: must be from 1 to 10000, not %d", concurrency)
			}
			for _, queue := range queues {
				if problem := validate.Queue(queue); problem != "" {
					return usagef("--queue: %s", problem)
				}
			}
			file, err := command.Load(path)
			if err != nil {
				return err
			}
			s, err := f.settings()
			if err != nil {
				return err
			}
			s.Namespace = cmp.Or(s.Namespace, belfry.DefaultNamespace)
			if namespace := s.Namespace; !slices.Contains(file.Namespaces, namespace) {
				return usagef("%s: the namespaces of the file (%s) do not have %q, for which this worker would run them; add it there or choose another with --namespace", path, strings.Join(file.Namespaces, ", "), namespace)
			}
			c, err := s.client()
			if err != nil {
				return err
			}
			defer c.Close()
			command.HideEnvironment()
			mux := worker.NewMux()
			file.Register(mux)
			if format == logJSON {
				log.Info("the worker is running", "version", version(), "process", os.Getpid(), "server", s.Server, "queues", queues, "handlers", mux.Handlers())
			} else {
				fmt.Fprintf(cmd.OutOrStdout(), "belfry %s worker is running, process %d\n  Server   %s\n  Serves   %s in queue %s, %d at once\n",
					version(), os.Getpid(), escape(s.Server), strings.Join(mux.Handlers(), ", "), strings.Join(queues, ", "), concurrency)
			}
			return worker.New(c, mux, worker.Queues(queues...), worker.Concurrency(concurrency), worker.DrainTimeout(drain), worker.Log(log)).Run(cmd.Context())
		},
	}
	p := cmd.Flags()
	p.StringVar(&path, "commands", "", "`FILE` of commands that the worker may run")
	p.StringSliceVar(&queues, "queue", []string{belfry.DefaultQueue}, "queues that the worker serves")
	p.IntVar(&concurrency, "concurrency", concurrency, "how many commands run at a time")
	p.DurationVar(&drain, "drain-timeout", drain, "how long running commands may continue after SIGTERM before they are ended and their runs returned")
	p.StringVar(&format, "log-format", format, "text or json")
	p.StringVar(&level, "log-level", level, "debug, info, warn or error")
	return f.add(cmd)
}
