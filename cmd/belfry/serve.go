package main

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry/internal/node"
)

func serveCommand() *cobra.Command {
	c := node.Defaults()
	format := "text"
	level := "info"
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a node: API, scheduler and workers in one process",
		Long: `Run a node. Without arguments it is a whole Belfry on this machine: API,
scheduler and workers on an embedded SQLite database, reachable from this
machine only.

With --database-url it is a member of a cluster: start as many as you like on
the same PostgreSQL database (15 or newer).

Every flag can be given as an environment variable, named beside it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnvironment(cmd, os.Environ()); err != nil {
				return err
			}
			log, err := newLog(cmd.ErrOrStderr(), format, level)
			if err != nil {
				return err
			}
			c.Version = version()
			n, err := node.New(cmd.Context(), c, log)
			if err != nil {
				return err
			}
			greet(cmd.OutOrStdout(), c, n)
			return n.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Listen, "listen", c.Listen, "address to serve on; beyond loopback it needs --api-key-file")
	f.StringVar(&c.Data, "data", c.Data, "directory of the embedded database")
	f.StringVar(&c.DatabaseURL, "database-url", "", "PostgreSQL to use instead, as postgres://user:password@host/database")
	f.StringSliceVar(&c.Roles, "roles", c.Roles, "what this process does")
	f.IntVar(&c.Shards, "shards", 0, "parts that the jobs are spread over; fixed at the first start (default 64)")
	f.IntVar(&c.Concurrency, "concurrency", c.Concurrency, "runs that this process executes at once")
	f.DurationVar(&c.DrainTimeout, "drain-timeout", c.DrainTimeout, "how long running work may go on after SIGTERM before it is handed back")
	f.DurationVar(&c.Retention, "retention", c.Retention, "how long history is kept")
	f.DurationVar(&c.CatchUpWindow, "catch-up-window", c.CatchUpWindow, "how old a missed occurrence may be to be made up for, unless the job says it; 0: 30m for run_all, no limit for run_once")
	f.DurationVar(&c.PriorityAgeing, "priority-ageing", c.PriorityAgeing, "how much longer a run of the lowest priority may wait than one of the highest, from 1s to 168h; 0: 10m")
	f.IntVar(&c.LargeCatchUp, "large-catch-up", c.LargeCatchUp, "runs that make up for missed occurrences of one job; more are an event, see: belfry event list; 0: 10")
	f.StringVar(&c.APIKeyFile, "api-key-file", "", "file of API keys, one a line; clients send one as a bearer token")
	f.Float64Var(&c.RateLimit, "rate-limit", c.RateLimit, "requests a second that each API key may make; 0: no limit")
	f.StringSliceVar(&c.AllowTargets, "allow-target", nil, "addresses or CIDRs that HTTP targets may reach although they are private")
	f.StringSliceVar(&c.Hosts, "host", nil, "names by which clients call this server, beside its addresses")
	f.StringVar(&format, "log-format", format, "text or json")
	f.StringVar(&level, "log-level", level, "debug, info, warn or error")
	describeEnvironment(cmd)
	return cmd
}

func newLog(w io.Writer, format, level string) (*slog.Logger, error) {
	o := &slog.HandlerOptions{}
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level: %q is not one of debug, info, warn, error", level)
	}
	o.Level = l
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, fmt.Errorf("--log-format: %q is not one of text, json", format)
}

// greet says in five lines where the node is and what to try next.
func greet(w io.Writer, c node.Config, n *node.Node) {
	base := "http://" + reachable(n.Addr())
	where := c.Data + " (SQLite)"
	if c.DatabaseURL != "" {
		where = "PostgreSQL"
	}
	key := ""
	if c.APIKeyFile != "" {
		key = ` -H "Authorization: Bearer $BELFRY_KEY"`
	}
	fmt.Fprintf(w, "belfry %s is running, process %d\n", version(), os.Getpid())
	fmt.Fprintf(w, "  API    %s/api/v1\n", base)
	fmt.Fprintf(w, "  Data   %s, %d shards\n", where, n.Shards())
	fmt.Fprintf(w, "  Roles  %s, %d runs at once\n", strings.Join(c.Roles, ", "), c.Concurrency)
	fmt.Fprintf(w, "  Try    curl %s/api/v1/jobs%s -H 'Content-Type: application/json' -d '{\"name\":\"hello\",\"schedule\":\"* * * * *\",\"payload\":{\"url\":\"%s/livez\",\"method\":\"GET\"}}'\n", base, key, base)
}

// reachable turns an address that means "all" into one that can be called.
func reachable(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}
