package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/webhook"
)

func secretCommand(f *connectionFlags) *cobra.Command {
	remove := &cobra.Command{Use: "delete NAME", Short: "Delete a secret that no job uses"}
	force := remove.Flags().Bool("force", false, "delete it although jobs use it: their attempts fail until they are edited")
	return f.group("secret", "secrets", "Keep values that jobs use without containing them",
		`A secret is a value with a name, which is encrypted in the database and never shown.
Jobs of type http use it as {{secret "name"}} in their URL, headers and body.`,
		listing[belfry.Secret, struct{}]{
			noun: "secrets", none: "No secrets. Create one with: belfry secret set NAME", find: onePage((*cli).Secrets),
			show: table([]string{"NAME", "UPDATED", "PREVIOUS UNTIL", "ALLOWED HOSTS"}, nil, func(_ *cli, s belfry.Secret) []any {
				return []any{s.Name, s.UpdatedAt, s.PreviousUntil, s.AllowedHosts}
			}),
		}.command(f, &cobra.Command{Short: "List secrets, without their values"}),
		secretSetCommand(f),
		f.actCommand(remove, func(c *cli, ctx context.Context, name string) error { return c.DeleteSecret(ctx, name, *force) },
			func(c *cli, name string) { c.message("Deleted %s.", name) }),
		request[belfry.Reencryption](reencrypt).command(f, &cobra.Command{
			Use: "reencrypt", Short: "Encrypt everything anew, after the key file has a new first line",
			Long: `Encrypt all stored secrets with the first key of --encryption-key-file: those of payloads
and channels, and named ones. What was stored without a key is encrypted too. When it
is done, the other lines of the file can go. It may be stopped and started again.`,
		}, func(c *cli, total belfry.Reencryption) {
			c.message("Read %d rows, encrypted %d.", total.Read, total.Changed)
			if total.Failed > 0 {
				c.message("%d cannot be decrypted and stay as they are: do not remove keys.", total.Failed)
			}
		}))
}

// reencrypt repeats the request until it has covered everything.
func reencrypt(c *cli, ctx context.Context, _ string) (total belfry.Reencryption, err error) {
	for more := true; more; more = total.After != "" {
		step, err := c.Reencrypt(ctx, total.After)
		if err != nil {
			return total, err
		}
		total.After, total.Read, total.Changed, total.Failed = step.After, total.Read+step.Read, total.Changed+step.Changed, total.Failed+step.Failed
	}
	return total, nil
}

func secretSetCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "set NAME [-]", Aliases: []string{"rotate"}, Short: "Create a secret, or replace its value",
		Long: `Create a secret, or replace its value. The value is typed at the terminal, which does not
show it, or read from a file or standard input (-), without a line break at its end.
It is never an argument, which other users of the machine and the shell's history see.
With --keep-previous the value before it stays valid for signatures, while receivers
change to the new one.`,
		Example: `  belfry secret set stripe-key --allowed-host api.stripe.com
  belfry secret set stripe-key --from-file key.txt
  pass show stripe | belfry secret set stripe-key -
  belfry secret set billing-callbacks --generate whsec > billing.key
  belfry secret rotate billing-callbacks --generate whsec --keep-previous 24h`,
		Args: cobra.RangeArgs(1, 2),
	}
	flags := addFieldFlags[belfry.Secret](cmd, "name", "value", "keep_previous_seconds")
	file := cmd.Flags().String("from-file", "", "`FILE` with the value")
	generate := cmd.Flags().String("generate", "", "make a value and print it, once: whsec is a key that signs callbacks")
	completeFlag(cmd, "generate", "whsec")
	keep := cmd.Flags().String("keep-previous", "", "how long the value before it stays valid, such as 24h, at most 30d")
	return f.command(cmd, func(c *cli, args []string) error {
		s := belfry.Secret{Name: args[0]}
		if err := flags.decode(&s); err != nil {
			return err
		}
		if *keep != "" {
			d, ok := parseAge(*keep)
			if s.KeepPreviousSeconds = int(d / time.Second); !ok || d < time.Second || d%time.Second != 0 {
				return usagef("--keep-previous: %q is not a duration of whole seconds, such as 24h or 7d", *keep)
			}
		}
		var err error
		switch {
		case len(args) == 2 && (args[1] != "-" || *file != ""):
			return usagef("the value of a secret is not an argument; type it, or use --from-file FILE, or - for standard input")
		case *generate != "" && (*generate != "whsec" || len(args) == 2 || *file != ""):
			return usagef("--generate: whsec is what can be made, and a value is then neither read nor typed")
		case *generate != "":
			s.Value = webhook.NewKey()
		case *file != "":
			s.Value, err = readSecretFile(*file)
		case len(args) == 2:
			s.Value, err = readSecret(c.in)
		default:
			s.Value, err = c.typeSecret(s.Name)
		}
		if err != nil {
			return err
		}
		saved, err := c.PutSecret(c.ctx, s)
		if *generate != "" {
			saved.Value = s.Value
		}
		return c.printAnswer(saved, err, func() {
			c.message("Saved %s.", saved.Name)
			if *generate != "" {
				fmt.Fprintln(cmd.OutOrStdout(), saved.Value)
			}
		})
	})
}

func readSecretFile(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", usagef("--from-file: %v", err)
	}
	defer file.Close()
	return readSecret(file)
}

// readSecret reads a value without the line break at its end.
func readSecret(in io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(in, belfry.MaxSecret+3))
	value := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	switch {
	case err != nil:
		return "", fmt.Errorf("read the value: %w", err)
	case len(value) > belfry.MaxSecret:
		return "", usagef("the value has more than %d bytes", belfry.MaxSecret)
	case !utf8.ValidString(value):
		return "", usagef("the value is not UTF-8 text; encode it, for example with base64")
	case value == "":
		return "", usagef("the value is empty")
	}
	return value, nil
}

// typeSecret reads a value from the terminal, which does not show it.
func (c *cli) typeSecret(name string) (string, error) {
	terminal, ok := c.in.(*os.File)
	if !ok || !isTerminal(c.in) {
		return "", usagef("there is no terminal to type the value at; use --from-file FILE, or - for standard input")
	}
	echo := func(mode string) error {
		cmd := exec.Command("stty", mode)
		cmd.Stdin = terminal
		return cmd.Run()
	}
	if err := echo("-echo"); err != nil {
		return "", usagef("this terminal cannot hide what is typed; use --from-file FILE, or - for standard input")
	}
	defer func() {
		_ = echo("echo")
		fmt.Fprintln(c.err)
	}()
	fmt.Fprintf(c.err, "Value of %s: ", name)
	typed, failed := make(chan string, 1), make(chan error, 1)
	go func() {
		line, err := bufio.NewReader(terminal).ReadString('\n')
		if err != nil {
			failed <- err
			return
		}
		typed <- line
	}()
	select {
	case line := <-typed:
		return readSecret(strings.NewReader(line))
	case err := <-failed:
		return "", fmt.Errorf("read the value: %w", err)
	case <-c.ctx.Done():
		return "", c.ctx.Err()
	}
}
