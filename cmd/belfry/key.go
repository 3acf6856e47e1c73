package main

import (
	"cmp"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
)

func keyCommand(f *connectionFlags) *cobra.Command {
	return f.add(group(&cobra.Command{
		Use:     "key",
		Aliases: []string{"keys"},
		Short:   "Say who may do what: API keys",
		Long: `API keys say who may do what, in which namespaces and for how long. They need a key
with the role admin. A server that only this machine reaches needs no keys until the
first is created. See docs/keys.md.`,
	}, keyCreateCommand(f), keyListCommand(f), keyRevokeCommand(f), keyRotateCommand(f)))
}

func keyCreateCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create an API key, and print it once",
		Long: `Create an API key, and print it once. The first key of a server must be an admin of
all namespaces; from then on every command and every request needs a key.`,
		Example: `  belfry key create --role admin --name ops --expires never
  belfry key create --role author --namespace billing --name deploy --expires 30d
  belfry key create --role worker --namespace billing --queue invoices`,
		Args: cobra.NoArgs,
	}
	flags := addFieldFlags[belfry.APIKey](cmd)
	return f.command(cmd, func(c *cli, _ []string) error {
		var k belfry.APIKey
		if err := flags.decode(&k); err != nil {
			return err
		}
		k, err := c.CreateKey(c.ctx, k)
		return c.printKey(k, err, "created")
	})
}

// printKey prints a key that was created: what it is for people, and the key alone in a line.
func (c *cli) printKey(k belfry.APIKey, err error, verb string) error {
	return c.printAnswer(k, err, func() {
		c.result(verb, cmp.Or(k.Name, k.ID), string(k.Role)+", "+namespacesText(k))
		c.line("\nThis is the key. It is not shown again:\n\n  %s\n", escape(k.Key))
		if k.CreatedBy != nil && k.CreatedBy.Kind == belfry.ActorLocal {
			c.line("It is the first one: from now on this server requires a key for everything. Pass it with\n\n  export BELFRY_KEY=%s", escape(k.Key))
		}
	})
}

func namespacesText(k belfry.APIKey) string {
	if k.Namespaces == nil {
		return "all namespaces"
	}
	return escape(strings.Join(k.Namespaces, ","))
}

func keyListCommand(f *connectionFlags) *cobra.Command {
	return listing[belfry.APIKey]{
		noun: "keys", none: "No keys. Create one with: belfry key create --role admin",
		list: func(c *cli, _ []string, _ int) (iter.Seq2[belfry.APIKey, error], error) { return c.Keys(c.ctx), nil },
		show: func(c *cli, keys []belfry.APIKey) {
			header, wide := []string{"ID", "NAME", "STATUS", "ROLE", "NAMESPACES", "CREATED", "EXPIRES", "LAST USED"}, []string{"QUEUES", "COMMANDS", "CREATED BY", "REPLACED BY"}
			writeTable(&c.output, keys, header, wide, func(k belfry.APIKey) []any {
				expires, by, commands := any("never"), "", "no"
				if k.ExpiresAt != nil {
					expires = c.tableTime(*k.ExpiresAt)
				}
				if k.CreatedBy != nil {
					by = cmp.Or(k.CreatedBy.Name, k.CreatedBy.ID, string(k.CreatedBy.Kind))
				}
				if k.Commands {
					commands = "yes"
				}
				colours := map[belfry.APIKeyStatus]string{belfry.APIKeyActive: green, belfry.APIKeyExpired: grey, belfry.APIKeyRevoked: grey}
				return []any{k.ID, k.Name, cell{string(k.Status), colours[k.Status]}, k.Role, namespacesText(k), c.tableTime(k.CreatedAt), expires, c.tableTimeOrNone(k.LastUsedAt),
					strings.Join(k.Queues, ","), commands, by, k.ReplacedBy}
			})
		},
	}.command(f, &cobra.Command{Short: "List API keys, newest first"})
}

func keyRevokeCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "revoke ID...", Short: "Revoke API keys: no server accepts them after 10 seconds", Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	return f.command(cmd, func(c *cli, ids []string) error {
		for _, id := range ids {
			if err := c.RevokeKey(c.ctx, id); err != nil {
				return err
			}
			if c.humanReadable() {
				c.result("revoked", id, "")
			}
		}
		return nil
	})
}

func keyRotateCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "rotate ID", Short: "Create an API key with the same rights; the old one ends after --overlap", Args: cobra.ExactArgs(1),
		Example: `  belfry key rotate k7m2q9d4 --overlap 1h`, ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := addFieldFlags[belfry.APIKeyRotation](cmd)
	return f.command(cmd, func(c *cli, args []string) error {
		rotation := belfry.APIKeyRotation{OverlapSeconds: belfry.Some(24 * 60 * 60)}
		if err := flags.decode(&rotation); err != nil {
			return err
		}
		k, err := c.RotateKey(c.ctx, args[0], time.Duration(rotation.OverlapSeconds.Value())*time.Second)
		return c.printKey(k, err, "rotated")
	})
}
