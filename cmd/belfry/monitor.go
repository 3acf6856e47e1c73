package main

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

func monitorCommand(f *connectionFlags) *cobra.Command {
	return f.add(group(&cobra.Command{
		Use:     "monitor",
		Aliases: []string{"monitors"},
		Short:   "Watch work that is done elsewhere",
		Long: `Watch work that Belfry does not run, such as a cron job on another machine: it pings
an address each time, and channels that subscribe to it are alerted when a ping is
missing. See docs/monitors.md. REF is the name or the id of a monitor.`,
	},
		monitorCreateCommand(f), monitorListCommand(f), monitorShowCommand(f), monitorEditCommand(f),
		monitorPauseCommand(f, "pause", "paused", "Pause monitors: no pings are expected", true),
		monitorPauseCommand(f, "resume", "resumed", "Resume paused monitors: the next ping is expected from now on", false),
		monitorDeleteCommand(f),
	))
}

// monitors is command for a command whose arguments are monitors, at most so many; 0 is any
// number.
func (f *connectionFlags) monitors(cmd *cobra.Command, most int, run func(c *cli, ref string) error) *cobra.Command {
	cmd.Args = cobra.MinimumNArgs(1)
	if most > 0 {
		cmd.Args = cobra.ExactArgs(most)
	}
	cmd.ValidArgsFunction = f.complete(most, func(ctx context.Context, c *cli, _ string) []cobra.Completion {
		found, _, _ := collect(c.Monitors(ctx), maxPageSize) // An error completes nothing.
		return mapSlice(found, func(m belfry.Monitor) cobra.Completion {
			return cobra.CompletionWithDesc(escape(m.Name), expectedText(m))
		})
	})
	cmd.RunE = func(cmd *cobra.Command, refs []string) error {
		c, err := f.open(cmd)
		for _, ref := range refs {
			if err == nil {
				err = run(c, ref)
			}
		}
		if err != nil {
			return err
		}
		return c.out.err
	}
	return cmd
}

func monitorCreateCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a monitor, and print the address to ping",
		Long: `Create a monitor, and print the address to ping. Nothing is expected before the first
ping. Whoever knows the address can ping: treat it like a password.`,
		Example: `  belfry monitor create backup --every 1d --grace 2h
  belfry monitor create report --cron '0 3 * * MON-FRI' --timezone Europe/Berlin --grace 15m`,
		Args: cobra.ExactArgs(1),
	}
	flags := addFieldFlags[belfry.Monitor](cmd, "name", "paused")
	return f.command(cmd, func(c *cli, args []string) error {
		m := belfry.Monitor{Name: args[0]}
		if err := flags.decode(&m); err != nil {
			return err
		}
		m, err := c.CreateMonitor(c.ctx, m)
		return c.printAnswer(m, err, func() {
			c.result("created", m.Name, expectedText(m))
			c.line("\nPing it at the end of the work; add /start at its beginning, or /fail if it failed:\n\n  curl -fsS -m 10 --retry 3 %s", escape(m.PingURL))
		})
	})
}

// expectedText is when pings are expected.
func expectedText(m belfry.Monitor) string {
	text := "every " + durationText(time.Duration(m.EverySeconds)*time.Second)
	if m.Cron != "" {
		text = strings.TrimSpace(m.Cron + " " + m.Timezone)
	}
	return escape(text + ", grace " + durationText(m.Grace()))
}

func monitorListCommand(f *connectionFlags) *cobra.Command {
	return listing[belfry.Monitor]{
		noun: "monitors", none: "No monitors. Create one with: belfry monitor create backup --every 1d --grace 2h",
		list: func(c *cli, _ []string, _ int) (iter.Seq2[belfry.Monitor, error], error) {
			return c.Monitors(c.ctx), nil
		},
		show: func(c *cli, monitors []belfry.Monitor) {
			header, wide := []string{"NAME", "STATUS", "EXPECTED", "LAST PING", "DUE"}, []string{"ID", "CREATED", "TAGS", "PING URL", "DESCRIPTION"}
			writeTable(&c.output, monitors, header, wide, func(m belfry.Monitor) []any {
				return []any{m.Name, monitorStatusCell(m.Status), expectedText(m), c.tableTimeOrNone(m.LastPingAt), c.tableTimeOrNone(m.DueAt),
					m.ID, c.tableTime(m.CreatedAt), strings.Join(m.Tags, ","), m.PingURL, c.clip(m.Description)}
			})
		},
	}.command(f, &cobra.Command{Short: "List monitors, newest first"})
}

func monitorStatusCell(status belfry.MonitorStatus) cell {
	colours := map[belfry.MonitorStatus]string{belfry.MonitorUp: green, belfry.MonitorLate: red, belfry.MonitorFailed: red, belfry.MonitorPaused: grey}
	return cell{string(status), colours[status]}
}

func monitorShowCommand(f *connectionFlags) *cobra.Command {
	return f.monitors(&cobra.Command{Use: "show REF", Aliases: []string{"get"}, Short: "Show a monitor"}, 1, func(c *cli, ref string) error {
		m, err := c.Monitor(c.ctx, ref)
		return c.printAnswer(m, err, func() {
			var d details
			d.add("Name", m.Name)
			d.add("Id", m.ID)
			d.add("Status", monitorStatusCell(m.Status))
			d.add("Expected", expectedText(m))
			d.addIf(m.DueAt != nil, "Due", c.absoluteTimeIn("UTC", m.DueAt))
			d.addIf(m.LastPingAt != nil, "Last ping", c.absoluteTimeIn("UTC", m.LastPingAt))
			d.addIf(m.StartedAt != nil, "Started", c.absoluteTimeIn("UTC", m.StartedAt))
			d.addIf(m.FailedAt != nil, "Failed", c.absoluteTimeIn("UTC", m.FailedAt))
			d.add("Tags", strings.Join(m.Tags, ", "))
			d.add("Description", m.Description)
			d.add("Created", c.absoluteTime(m.CreatedAt))
			d.add("Ping URL", m.PingURL)
			c.writeRows(d)
		})
	})
}

func monitorEditCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "edit REF",
		Short: "Change the settings of a monitor",
		Long: `Change the settings of a monitor. --every replaces --cron, and the other way round. If the
schedule changes, the next ping is expected from now on.`,
		Example: `  belfry monitor edit backup --every 12h
  belfry monitor edit backup --name nightly-backup --tag storage`,
	}
	flags := addFieldFlags[belfry.Monitor](cmd, "paused")
	return f.monitors(cmd, 1, func(c *cli, ref string) error {
		changes := flags.object()
		if len(changes) == 0 {
			return usagef("say what to change, for example --every 12h")
		}
		m, err := c.EditMonitor(c.ctx, ref, changes)
		return c.printAnswer(m, err, func() { c.result("updated", m.Name, expectedText(m)) })
	})
}

func monitorPauseCommand(f *connectionFlags, use, verb, short string, paused bool) *cobra.Command {
	return f.monitors(&cobra.Command{Use: use + " REF...", Short: short}, 0, func(c *cli, ref string) error {
		m, err := c.EditMonitor(c.ctx, ref, map[string]bool{"paused": paused})
		return c.printAnswer(m, err, func() { c.result(verb, m.Name, "") })
	})
}

func monitorDeleteCommand(f *connectionFlags) *cobra.Command {
	return f.monitors(&cobra.Command{Use: "delete REF...", Aliases: []string{"rm"}, Short: "Delete monitors: their addresses no longer accept pings"}, 0, func(c *cli, ref string) error {
		if err := c.DeleteMonitor(c.ctx, ref); err != nil {
			return err
		}
		if c.humanReadable() {
			c.result("deleted", ref, "")
		}
		return nil
	})
}
