package main

import (
	"cmp"
	"errors"
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

// formats are the ways to print what a server answers.
var formats = []string{"table", "json", "yaml"}

// session is what the commands that speak to a server have in common.
type session struct {
	server, key, keyFile, namespace, output string // as given by flags

	timeout time.Duration
	noColor bool
}

// flags adds the flags of a session to a group of commands.
func (s *session) flags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVar(&s.server, "server", "", "`ADDRESS` of the server (default "+defaultServer+") [BELFRY_SERVER]")
	f.StringVar(&s.key, "key", "", "API `KEY`; others on this machine can see it in the list of processes, so prefer BELFRY_KEY, --key-file or the configuration [BELFRY_KEY]")
	f.StringVar(&s.keyFile, "key-file", "", "`FILE` with the API key")
	f.StringVarP(&s.namespace, "namespace", "n", "", "`NAME` of the namespace to work in (default \"default\") [BELFRY_NAMESPACE]")
	f.StringVarP(&s.output, "output", "o", "", "`FORMAT`: table, json or yaml (default table)")
	f.DurationVar(&s.timeout, "request-timeout", 30*time.Second, "how long one request may take")
	f.BoolVar(&s.noColor, "no-color", false, "do not colour anything [NO_COLOR]")
	for flag, words := range map[string][]string{"output": formats, "namespace": nil, "server": nil, "key": nil} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // The flags are there.
	}
}

// settled is a session with everything decided: flags before the environment,
// that before the configuration file, and that before the defaults.
type settled struct {
	server, key, namespace, output string
}

func (s *session) settle() (settled, error) {
	c, err := readConfig(configFile())
	if err != nil {
		return settled{}, err
	}
	out := settled{
		server:    cmp.Or(s.server, os.Getenv("BELFRY_SERVER"), c.server, defaultServer),
		key:       cmp.Or(s.key, os.Getenv("BELFRY_KEY"), c.key),
		namespace: cmp.Or(s.namespace, os.Getenv("BELFRY_NAMESPACE"), c.namespace),
		output:    cmp.Or(s.output, c.output, "table"),
	}
	if s.keyFile != "" {
		if s.key != "" {
			return out, usagef("give --key or --key-file, not both")
		}
		if out.key, err = readKey(s.keyFile); err != nil {
			return out, err
		}
	}
	if !slices.Contains(formats, out.output) {
		return out, usagef("--output: %q is not one of %s", out.output, strings.Join(formats, ", "))
	}
	return out, nil
}

// readKey takes the key out of a file that has nothing else.
func readKey(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("--key-file: %w", plain(err))
	}
	key := strings.TrimSpace(string(content))
	if key == "" || strings.ContainsAny(key, "\r\n") {
		return "", fmt.Errorf("--key-file: %s must have one line, the key", safe(path))
	}
	return key, nil
}

// door is an open session: a client, and where to print what it says.
type door struct {
	*client.Client
	out, err io.Writer
	in       io.Reader
	format   string
	palette  palette
	now      func() time.Time
}

// open prepares to speak to the server; it does not speak yet.
func (s *session) open(cmd *cobra.Command) (*door, error) {
	set, err := s.settle()
	if err != nil {
		return nil, err
	}
	if s.timeout <= 0 {
		return nil, usagef("--request-timeout: %s is not more than nothing", s.timeout)
	}
	c, err := s.connect(set)
	if err != nil {
		return nil, err
	}
	return &door{
		Client:  c,
		out:     cmd.OutOrStdout(),
		err:     cmd.ErrOrStderr(),
		in:      cmd.InOrStdin(),
		format:  set.output,
		palette: palette{on: set.output == "table" && !s.noColor && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && terminal(cmd.OutOrStdout())},
		now:     time.Now,
	}, nil
}

// connect makes the client of a settled session.
func (s *session) connect(set settled) (*client.Client, error) {
	c, err := client.New(set.server,
		client.WithKey(set.key),
		client.WithNamespace(set.namespace),
		client.WithUserAgent("belfry/"+version()),
		client.WithRetries(2), // a person waits
		client.WithHTTPClient(&http.Client{Timeout: s.timeout}),
	)
	if err != nil {
		return nil, usagef("%s", strings.TrimPrefix(err.Error(), "make a client: "))
	}
	return c, nil
}

// say tells a person something that is not data.
func (d *door) say(format string, args ...any) { fmt.Fprintf(d.err, format+"\n", args...) }

// terminal tells whether a stream is one that a person sits at.
func terminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// plain is the bare reason of an error about a file, which its words name.
func plain(err error) error {
	if e := (*os.PathError)(nil); errors.As(err, &e) {
		return fmt.Errorf("%s: %w", safe(e.Path), e.Err)
	}
	return err
}
