package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

func eventCommand(f *connectionFlags) *cobra.Command {
	list := listing[belfry.Event, belfry.EventFilter]{noun: "events", none: "No events.", find: (*cli).Events, show: (*cli).eventTable}
	return f.group("event", "events", "List and watch events for operators", "", list.command(f, &cobra.Command{
		Short: "List events, latest first",
		Long: `List events that operators should know, latest first, such as runs that died, jobs
that began to fail, and nodes that were lost.`,
		Example: `  belfry event list --limit 10
  belfry event list --kind run_dead --job report`,
	}), eventWatchCommand(f))
}

func eventWatchCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "watch", Short: "Print events as they happen",
		Long: `Print events as they happen, until you interrupt the command, which ends it with exit
code 130. With -o json there is one object per line.`,
		Example: `  belfry event watch --kind run_dead`,
	}
	flags := addFilterFlags[belfry.EventFilter](f, cmd)
	return f.command(cmd, func(c *cli, _ []string) error {
		var filter belfry.EventFilter
		if err := flags.decode(&filter); err != nil {
			return err
		}
		c.message("Watching events. Interrupt to stop.")
		failing := false
		for e, err := range c.WatchEvents(c.ctx, filter, belfry.ID{}) {
			switch {
			case err != nil && (exitCode(err) != exitUnreachable || errors.Is(err, context.Canceled)):
				return err
			case err != nil && !failing:
				c.message("The server does not answer. Trying again.")
			case err != nil:
			case c.humanReadable():
				at := e.At.In(cmp.Or(c.zone, time.Local)).Format(time.DateTime)
				c.line("%s  %s  %s", at, c.palette.paint(yellow, fmt.Sprintf("%-14s", e.Kind)), escape(e.Message))
			case c.format == "json":
				c.jsonLine(e)
			default:
				_ = c.print([]belfry.Event{e}, nil) // The output keeps the error.
			}
			failing = err != nil
			if c.out.err != nil {
				return c.out.err
			}
		}
		return c.ctx.Err()
	})
}

func (c *cli) eventTable(events []belfry.Event) {
	names := c.jobNames(mapSlice(events, func(e belfry.Event) belfry.ID { return e.JobID }))
	writeTable(&c.output, events, []string{"WHEN", "EVENT", "JOB", "MESSAGE"}, []string{"COUNT", "ID"}, func(e belfry.Event) []any {
		return []any{e.At, cell{string(e.Kind), yellow}, names[e.JobID], e.Message, e.Count, e.ID}
	})
}

func auditCommand(f *connectionFlags) *cobra.Command {
	cmd := listing[belfry.AuditEntry, belfry.AuditFilter]{
		noun: "entries", none: "Nothing was changed yet.", find: (*cli).Audit,
		show: table([]string{"WHEN", "WHO", "ACTION", "WHAT", "AFTER"}, []string{"BEFORE", "COUNT", "ADDRESS", "REQUEST", "ID"}, auditRow),
	}.command(f, &cobra.Command{
		Use: "audit", Short: "List who changed what, latest first",
		Long: `List who changed what, latest first: an entry for every request that changed something,
from the API, this command or the page.`,
		Example: `  belfry audit --job report
  belfry audit --actor deploy --action edit --since 24h -o json
  belfry audit --scope global --action login_failed`,
	})
	cmd.AddCommand(auditExportCommand(f))
	return f.add(cmd)
}

func auditExportCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "export", Short: "Print all entries as JSON, one per line",
		Long: `Print all entries that match as JSON, one per line, latest first. However many there are,
the command holds only a page of them.`,
		Example: `  belfry audit export --scope all --since 720h > audit.ndjson`,
	}
	flags := addFilterFlags[belfry.AuditFilter](f, cmd)
	return f.command(cmd, func(c *cli, _ []string) error {
		var filter belfry.AuditFilter
		if err := flags.decode(&filter); err != nil {
			return err
		}
		for e, err := range c.Audit(c.ctx, filter) {
			if err != nil {
				return err
			}
			if c.jsonLine(e); c.out.err != nil {
				return c.out.err
			}
		}
		return nil
	})
}

func auditRow(_ *cli, e belfry.AuditEntry) []any {
	what := string(e.Object.Kind) + " " + cmp.Or(e.Object.Name, e.Object.ID)
	if e.Count > 1 {
		what = fmt.Sprintf("%s (%d)", what, e.Count)
	}
	return []any{e.At, actorText(e.Actor), cell{string(e.Action), yellow}, what, string(e.After), string(e.Before), e.Count, e.Address, e.RequestID, e.ID}
}

func actorText(a belfry.Actor) string { return cmp.Or(a.Name, a.ID, string(a.Kind)) }
