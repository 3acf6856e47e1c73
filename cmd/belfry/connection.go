package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry/client"
)

const defaultServer = "http://127.0.0.1:7070"

// connectionFlags are the flags of all commands that use a server.
type connectionFlags struct {
	server, key, keyFile, namespace, output string

	timeout time.Duration
	noColor bool
}

// add adds the flags to a group of commands.
func (f *connectionFlags) add(cmd *cobra.Command) *cobra.Command {
	p := cmd.PersistentFlags()
	p.StringVar(&f.server, "server", "", "`ADDRESS` of the server (default "+defaultServer+") [BELFRY_SERVER]")
	p.StringVar(&f.key, "key", "", "API `KEY`; other users of this machine can see it in the list of processes, so prefer BELFRY_KEY, --key-file or the configuration file [BELFRY_KEY]")
	p.StringVar(&f.keyFile, "key-file", "", "`FILE` with the API key")
	p.StringVarP(&f.namespace, "namespace", "n", "", "`NAME` of the namespace (default \"default\") [BELFRY_NAMESPACE]")
	p.StringVarP(&f.output, "output", "o", "", "output `FORMAT`: "+strings.Join(formats, ", ")+" (default table)")
	p.DurationVar(&f.timeout, "request-timeout", 30*time.Second, "timeout of one request")
	p.BoolVar(&f.noColor, "no-color", false, "print without colours [NO_COLOR]")
	completeFlag(cmd, "output", formats...)
	for _, flag := range []string{"namespace", "server", "key"} {
		completeFlag(cmd, flag)
	}
	return cmd
}

// command makes a command that uses a server.
func (f *connectionFlags) command(cmd *cobra.Command, run func(c *cli, args []string) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := f.open(cmd)
		if err != nil {
			return err
		}
		return run(c, args)
	}
	return cmd
}

// settings are where a command connects to, and how it prints.
type settings struct{ server, key, namespace, output string }

// settings resolves the flags, then the environment, then the configuration file, then
// the defaults.
func (f *connectionFlags) settings() (settings, error) {
	config, err := readConfig(configPath())
	if err != nil {
		return settings{}, err
	}
	s := settings{
		server:    cmp.Or(f.server, os.Getenv("BELFRY_SERVER"), config.server, defaultServer),
		key:       cmp.Or(f.key, os.Getenv("BELFRY_KEY"), config.key),
		namespace: cmp.Or(f.namespace, os.Getenv("BELFRY_NAMESPACE"), config.namespace),
		output:    cmp.Or(f.output, config.output, "table"),
	}
	if f.keyFile != "" {
		if f.key != "" {
			return s, usagef("use either --key or --key-file")
		}
		if s.key, err = readKey(f.keyFile); err != nil {
			return s, err
		}
	}
	return s, checkFormat(s.output)
}

func checkFormat(format string) error {
	if !slices.Contains(formats, format) {
		return usagef("--output: %q is not one of %s", format, strings.Join(formats, ", "))
	}
	return nil
}

// readKey reads a file that contains an API key and nothing else.
func readKey(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("--key-file: %w", pathError(err))
	}
	key := strings.TrimSpace(string(content))
	if key == "" || strings.ContainsAny(key, "\r\n") {
		return "", fmt.Errorf("--key-file: %s must have one line, the key", escape(path))
	}
	return key, nil
}

// cli is one execution of a command that uses a server.
type cli struct {
	*client.Client
	output
	cmd *cobra.Command
	ctx context.Context
	in  io.Reader
}

// open makes the client. It does not connect yet.
func (f *connectionFlags) open(cmd *cobra.Command) (*cli, error) {
	s, err := f.settings()
	if err != nil {
		return nil, err
	}
	if f.timeout <= 0 {
		return nil, usagef("--request-timeout: must be positive, not %s", f.timeout)
	}
	c, err := f.newClient(s)
	if err != nil {
		return nil, err
	}
	return &cli{Client: c, output: newOutput(cmd, s.output, f.noColor), cmd: cmd, ctx: cmd.Context(), in: cmd.InOrStdin()}, nil
}

func (f *connectionFlags) newClient(s settings) (*client.Client, error) {
	c, err := client.New(s.server,
		client.WithKey(s.key),
		client.WithNamespace(s.namespace),
		client.WithUserAgent("belfry/"+version()),
		client.WithRetries(2), // Somebody waits.
		client.WithHTTPClient(&http.Client{Timeout: f.timeout}),
	)
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

// confirm asks the user, unless --yes was given.
func (c *cli) confirm(yes bool, verb, question string) (bool, error) {
	if yes {
		return true, nil
	}
	if !isTerminal(c.in) {
		return false, usagef("%s needs --yes when there is no terminal to ask at", verb)
	}
	return c.ask(question)
}
