package main

import (
	"cmp"
	"fmt"
	"iter"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

func auditCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "audit", Args: cobra.NoArgs,
		Short: "List who changed what, latest first",
		Long: `List who changed what, latest first: an entry for every request that changed something,
from the API, this command or the page.`,
		Example: `  belfry audit --job report
  belfry audit --actor deploy --action edit --since 24h -o json
  belfry audit --scope global --action login_failed`,
	}
	flags := addFilterFlags[belfry.AuditFilter](f, cmd)
	limit := addLimitFlag(cmd)
	f.command(cmd, func(c *cli, args []string) error {
		var filter belfry.AuditFilter
		if err := flags.decode(&filter); err != nil {
			return err
		}
		return listing[belfry.AuditEntry]{
			noun: "entries", none: "Nothing was changed yet.", filter: flags,
			list: func(c *cli, _ []string, _ int) (iter.Seq2[belfry.AuditEntry, error], error) {
				return c.Audit(c.ctx, filter), nil
			},
			show: (*cli).auditTable,
		}.run(c, args, *limit)
	})
	cmd.AddCommand(auditExportCommand(f))
	return f.add(cmd)
}

func auditExportCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "export", Args: cobra.NoArgs,
		Short: "Print all entries as JSON, one per line",
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
			if c.line("%s", escapeJSON(belfry.MustJSON(e))); c.out.err != nil {
				return c.out.err
			}
		}
		return nil
	})
}

func (c *cli) auditTable(entries []belfry.AuditEntry) {
	writeTable(&c.output, entries, []string{"WHEN", "WHO", "ACTION", "WHAT", "AFTER"}, []string{"BEFORE", "COUNT", "ADDRESS", "REQUEST", "ID"}, func(e belfry.AuditEntry) []any {
		what := string(e.Object.Kind) + " " + cmp.Or(e.Object.Name, e.Object.ID)
		if e.Count > 1 {
			what = fmt.Sprintf("%s (%d)", what, e.Count)
		}
		return []any{c.tableTime(e.At), cmp.Or(e.Actor.Name, e.Actor.ID, string(e.Actor.Kind)), cell{string(e.Action), yellow}, what, string(e.After), string(e.Before), e.Count, e.Address, e.RequestID, e.ID}
	})
}
