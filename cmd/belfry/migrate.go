package main

import (
	"fmt"
	"os"
	"path"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry/internal/node"
)

func migrateCommand() *cobra.Command {
	var address string
	var check bool
	cmd := &cobra.Command{
		Use: "migrate", Short: "Bring the schema of a PostgreSQL database up to date",
		Long: `Bring the schema of a PostgreSQL database up to date, and end. A node does the same when
it starts; use this to migrate as another role than the one that nodes have, which then
needs no rights to change the schema. See docs/database.md for the grants.`,
		Example: "  belfry migrate --database-url postgres://belfry_owner@db.example.com/belfry --check",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if address == "" {
				address = os.Getenv(environmentName("database-url"))
			}
			if address == "" {
				return usagef("--database-url is required: the embedded database is migrated when a node starts")
			}
			before, missing, err := node.Migrate(cmd.Context(), address, check)
			if err != nil {
				return fmt.Errorf("--database-url: %w", err)
			}
			verb := "applied"
			if check {
				verb = "would apply"
			}
			out := cmd.OutOrStdout()
			for _, file := range missing {
				fmt.Fprintln(out, verb, path.Base(file))
			}
			switch after := before + len(missing); {
			case len(missing) == 0:
				fmt.Fprintf(out, "The schema is up to date, at version %d.\n", before)
			case check:
				fmt.Fprintf(out, "The schema is at version %d and would be at %d.\n", before, after)
			default:
				fmt.Fprintf(out, "The schema was at version %d and is at %d.\n", before, after)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&address, "database-url", "", "`URL` of the database, as postgres://user:password@host/database [BELFRY_DATABASE_URL]")
	cmd.Flags().BoolVar(&check, "check", false, "say what would be done, and change nothing")
	return cmd
}
