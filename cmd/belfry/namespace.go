package main

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

func namespaceCommand(f *connectionFlags) *cobra.Command {
	return f.add(group(&cobra.Command{
		Use:     "namespace",
		Aliases: []string{"namespaces"},
		Short:   "Manage namespaces and what they may use",
		Long: `Manage namespaces and what they may use. A namespace needs no creation: it exists as soon
as it has jobs, and without a quota it has no limits. See docs/namespaces.md. Changes need
an admin key for all namespaces.`,
	}, namespaceListCommand(f), namespaceGetCommand(f), namespaceCreateCommand(f), namespaceSetCommand(f), namespaceDeleteCommand(f)))
}

// namespaces is command for a command about one namespace.
func (f *connectionFlags) namespaces(cmd *cobra.Command, run func(c *cli, name string) error) *cobra.Command {
	cmd.Args = cobra.ExactArgs(1)
	cmd.ValidArgsFunction = f.complete(1, func(ctx context.Context, c *cli, _ string) []cobra.Completion {
		found, _ := c.Namespaces(ctx) // An error completes nothing.
		return mapSlice(found, func(n belfry.Namespace) cobra.Completion { return n.Name })
	})
	return f.command(cmd, func(c *cli, args []string) error { return run(c, args[0]) })
}

// ofLimit is how much of a limit is used.
func ofLimit(used, limit int64) string {
	if limit == 0 {
		return grouped(float64(used))
	}
	return fmt.Sprintf("%s of %s", grouped(float64(used)), grouped(float64(limit)))
}

func namespaceListCommand(f *connectionFlags) *cobra.Command {
	return listing[belfry.Namespace]{
		noun: "namespaces", none: "No namespaces.",
		list: func(c *cli, _ []string, _ int) (iter.Seq2[belfry.Namespace, error], error) {
			found, err := c.Namespaces(c.ctx)
			return func(yield func(belfry.Namespace, error) bool) {
				for _, n := range found {
					if !yield(n, nil) {
						return
					}
				}
			}, err
		},
		show: func(c *cli, namespaces []belfry.Namespace) {
			header, wide := []string{"NAME", "JOBS", "BYTES", "RUNNING", "WEIGHT", "MIN INTERVAL", "RATE LIMIT"}, []string{"CREATED", "UPDATED"}
			writeTable(&c.output, namespaces, header, wide, func(n belfry.Namespace) []any {
				u := usageOf(n)
				return []any{n.Name, ofLimit(u.Jobs, int64(n.MaxJobs)), ofLimit(u.StoredBytes, n.MaxStoredBytes), ofLimit(u.Running, int64(n.MaxRunning)), cmp.Or(n.Weight, 1),
					intervalText(n), rateText(n), c.tableTime(n.CreatedAt), c.tableTime(n.UpdatedAt)}
			})
		},
	}.command(f, &cobra.Command{Short: "List namespaces with their limits and what they use"})
}

func usageOf(n belfry.Namespace) belfry.Usage {
	if n.Usage == nil {
		return belfry.Usage{}
	}
	return *n.Usage
}

func intervalText(n belfry.Namespace) string {
	if n.MinIntervalSeconds == 0 {
		return "-"
	}
	return strconv.FormatFloat(n.MinIntervalSeconds, 'g', -1, 64) + "s"
}

func rateText(n belfry.Namespace) string {
	if n.RateLimit == 0 {
		return "-"
	}
	return strconv.FormatFloat(n.RateLimit, 'g', -1, 64) + "/s"
}

func namespaceGetCommand(f *connectionFlags) *cobra.Command {
	return f.namespaces(&cobra.Command{Use: "get NAME", Aliases: []string{"show"}, Short: "Show a namespace, its limits and what it uses"}, func(c *cli, name string) error {
		n, err := c.Namespace(c.ctx, name)
		return c.printAnswer(n, err, func() {
			var d details
			u := usageOf(n)
			d.add("Name", n.Name)
			d.add("Jobs", ofLimit(u.Jobs, int64(n.MaxJobs)))
			d.add("Stored bytes", ofLimit(u.StoredBytes, n.MaxStoredBytes))
			d.add("Running", ofLimit(u.Running, int64(n.MaxRunning)))
			d.add("Weight", cmp.Or(n.Weight, 1))
			d.add("Min interval", intervalText(n))
			d.add("Rate limit", rateText(n))
			d.addIf(n.SignWith != "", "Sign with", n.SignWith)
			d.addIf(!n.CreatedAt.IsZero(), "Created", c.absoluteTime(n.CreatedAt))
			d.addIf(!n.UpdatedAt.IsZero(), "Updated", c.absoluteTime(n.UpdatedAt))
			c.writeRows(d)
		})
	})
}

func namespaceCreateCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a namespace with limits",
		Example: `  belfry namespace create billing --max-jobs 10000 --min-interval 1m --weight 2`,
	}
	flags := addFieldFlags[belfry.Namespace](cmd, "name")
	return f.namespaces(cmd, func(c *cli, name string) error {
		n := belfry.Namespace{Name: name}
		if err := flags.decode(&n); err != nil {
			return err
		}
		n, err := c.CreateNamespace(c.ctx, n)
		return c.printAnswer(n, err, func() { c.result("created", n.Name, "") })
	})
}

func namespaceSetCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "set NAME", Short: "Change the limits of a namespace",
		Long: `Change the limits of a namespace; 0 removes one. They count at every node after 2 seconds.
What exceeds a lower limit stays.`,
		Example: `  belfry namespace set billing --max-jobs 20000
  belfry namespace set default --min-interval 10s --rate-limit 50`,
	}
	flags := addFieldFlags[belfry.Namespace](cmd, "name")
	return f.namespaces(cmd, func(c *cli, name string) error {
		changes := flags.object()
		if len(changes) == 0 {
			return usagef("say what to change, for example --max-jobs 20000")
		}
		n, err := c.EditNamespace(c.ctx, name, changes)
		return c.printAnswer(n, err, func() { c.result("updated", n.Name, "") })
	})
}

func namespaceDeleteCommand(f *connectionFlags) *cobra.Command {
	return f.namespaces(&cobra.Command{Use: "delete NAME", Aliases: []string{"rm"}, Short: "Delete a namespace that has no jobs"}, func(c *cli, name string) error {
		if err := c.DeleteNamespace(c.ctx, name); err != nil {
			return err
		}
		if c.humanReadable() {
			c.result("deleted", name, "")
		}
		return nil
	})
}
