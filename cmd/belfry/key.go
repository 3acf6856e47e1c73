package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

func keyCommand(f *connectionFlags) *cobra.Command {
	rotate := &cobra.Command{
		Use: "rotate ID", Short: "Create an API key with the same rights; the old one ends after --overlap",
		Example: `  belfry key rotate k7m2q9d4 --overlap 1h`,
	}
	flags := addFieldFlags[belfry.APIKeyRotation](rotate)
	return f.group("key", "keys", "Say who may do what: API keys",
		`API keys say who may do what, in which namespaces and for how long. They need a key
with the role admin. A server that only this machine reaches needs no keys until the
first is created. See docs/keys.md.`,
		createCommand(f, &cobra.Command{
			Use: "create", Short: "Create an API key, and print it once",
			Long: `Create an API key, and print it once. The first key of a server must be an admin of
all namespaces; from then on every command and every request needs a key.`,
			Example: `  belfry key create --role admin --name ops --expires never
  belfry key create --role author --namespace billing --name deploy --expires 30d
  belfry key create --role worker --namespace billing --queue invoices`,
		}, (*cli).CreateKey, func(c *cli, k belfry.APIKey) { c.showKey(k, "created") }),
		listing[belfry.APIKey, struct{}]{
			noun: "keys", none: "No keys. Create one with: belfry key create --role admin", find: unfiltered((*cli).Keys),
			show: table([]string{"ID", "NAME", "STATUS", "ROLE", "NAMESPACES", "CREATED", "EXPIRES", "LAST USED"},
				[]string{"QUEUES", "COMMANDS", "CREATED BY", "REPLACED BY"}, keyRow),
		}.command(f, &cobra.Command{Short: "List API keys, newest first"}),
		f.actCommand(&cobra.Command{Use: "revoke ID...", Short: "Revoke API keys: no server accepts them after 10 seconds"}, (*cli).RevokeKey, did("revoked")),
		request[belfry.APIKey](func(c *cli, ctx context.Context, id string) (k belfry.APIKey, err error) {
			rotation := belfry.APIKeyRotation{OverlapSeconds: belfry.Some(24 * 60 * 60)}
			if err := flags.decode(&rotation); err != nil {
				return k, err
			}
			return c.RotateKey(ctx, id, time.Duration(rotation.OverlapSeconds.Value())*time.Second)
		}).command(f, rotate, func(c *cli, k belfry.APIKey) { c.showKey(k, "rotated") }))
}

// showKey prints a key that was created: what it is for people, and the key alone in a line.
func (c *cli) showKey(k belfry.APIKey, verb string) {
	c.result(verb, cmp.Or(k.Name, k.ID), string(k.Role)+", "+namespacesText(k))
	c.line("\nThis is the key. It is not shown again:\n\n  %s\n", escape(k.Key))
	if k.CreatedBy != nil && k.CreatedBy.Kind == belfry.ActorLocal {
		c.line("It is the first one: from now on this server requires a key for everything. Pass it with\n\n  export BELFRY_KEY=%s", escape(k.Key))
	}
}

func namespacesText(k belfry.APIKey) string {
	if k.Namespaces == nil {
		return "all namespaces"
	}
	return escape(strings.Join(k.Namespaces, ","))
}

func keyRow(_ *cli, k belfry.APIKey) []any {
	expires, by, commands := any("never"), "", "no"
	if k.ExpiresAt != nil {
		expires = k.ExpiresAt
	}
	if k.CreatedBy != nil {
		by = actorText(*k.CreatedBy)
	}
	if k.Commands {
		commands = "yes"
	}
	return []any{k.ID, k.Name, statusCell(k.Status), k.Role, namespacesText(k), k.CreatedAt, expires, k.LastUsedAt,
		strings.Join(k.Queues, ","), commands, by, k.ReplacedBy}
}

func namespaceCommand(f *connectionFlags) *cobra.Command {
	cmd := f.group("namespace", "namespaces", "Manage namespaces and what they may use",
		`Manage namespaces and what they may use. A namespace needs no creation: it exists as soon
as it has jobs, and without a quota it has no limits. See docs/namespaces.md. Changes need
an admin key for all namespaces.`,
		listing[belfry.Namespace, struct{}]{
			noun: "namespaces", none: "No namespaces.", find: onePage((*cli).Namespaces),
			show: table([]string{"NAME", "JOBS", "BYTES", "RUNNING", "WEIGHT", "MIN INTERVAL", "RATE LIMIT"}, []string{"CREATED", "UPDATED"}, namespaceRow),
		}.command(f, &cobra.Command{Short: "List namespaces with their limits and what they use"}),
		request[belfry.Namespace]((*cli).Namespace).command(f, &cobra.Command{
			Use: "get NAME", Aliases: []string{"show"}, Short: "Show a namespace, its limits and what it uses",
		}, (*cli).showNamespace),
		createCommand(f, &cobra.Command{
			Use: "create NAME", Short: "Create a namespace with limits",
			Example: `  belfry namespace create billing --max-jobs 10000 --min-interval 1m --weight 2`,
		}, (*cli).CreateNamespace, func(c *cli, n belfry.Namespace) { c.result("created", n.Name, "") }),
		editCommand(f, &cobra.Command{
			Use: "set NAME", Short: "Change the limits of a namespace",
			Long: `Change the limits of a namespace; 0 removes one. They count at every node after 2 seconds.
What exceeds a lower limit stays.`,
			Example: `  belfry namespace set billing --max-jobs 20000
  belfry namespace set default --min-interval 10s --rate-limit 50`,
		}, "--max-jobs 20000", (*cli).EditNamespace, func(c *cli, n belfry.Namespace) { c.result("updated", n.Name, "") }, "name"),
		f.actCommand(&cobra.Command{Use: "delete NAME", Short: "Delete a namespace that has no jobs"}, (*cli).DeleteNamespace, did("deleted")))
	return f.completeArguments(cmd, "NAME", func(ctx context.Context, c *cli, _ string) []cobra.Completion {
		found, _ := c.Namespaces(ctx) // An error completes nothing.
		return mapSlice(found, func(n belfry.Namespace) cobra.Completion { return n.Name })
	})
}

// namespaceRow is the values of the columns of a namespace. Usage and limits go together.
func namespaceRow(_ *cli, n belfry.Namespace) []any {
	var used belfry.Usage
	if n.Usage != nil {
		used = *n.Usage
	}
	return []any{n.Name, ofLimit(used.Jobs, int64(n.MaxJobs)), ofLimit(used.StoredBytes, n.MaxStoredBytes), ofLimit(used.Running, int64(n.MaxRunning)),
		cmp.Or(n.Weight, 1), numberText(n.MinIntervalSeconds, "s"), numberText(n.RateLimit, "/s"), n.CreatedAt, n.UpdatedAt}
}

func (c *cli) showNamespace(n belfry.Namespace) {
	var d details
	values := namespaceRow(c, n)
	for i, name := range []string{"Name", "Jobs", "Stored bytes", "Running", "Weight", "Min interval", "Rate limit"} {
		d.add(name, values[i])
	}
	d.add("Sign with", n.SignWith, "Created", n.CreatedAt, "Updated", n.UpdatedAt)
	c.writeDetails(d)
}

// ofLimit is how much of a limit is used.
func ofLimit(used, limit int64) string {
	if limit == 0 {
		return grouped(float64(used))
	}
	return fmt.Sprintf("%s of %s", grouped(float64(used)), grouped(float64(limit)))
}

// numberText is a number with its unit, or a dash for none.
func numberText(n float64, unit string) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatFloat(n, 'g', -1, 64) + unit
}
