package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/belfry-sh/belfry/internal/command"
	"github.com/belfry-sh/belfry/internal/node"
	"github.com/belfry-sh/belfry/internal/oidc"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/secret"
)

func serveCommand() *cobra.Command {
	c := node.Defaults()
	format := "text"
	level := "info"
	commands := ""
	cmd := &cobra.Command{
		Use: "serve", Short: "Run a node: API, scheduler and workers in one process",
		Long: `Run a node. Without flags it is a complete Belfry for this machine: API, scheduler
and workers with an embedded SQLite database, reachable from this machine only.

With --database-url it is a member of a cluster: start any number of nodes with the
same PostgreSQL database (15 or newer).

Every flag can also be set by the environment variable in brackets. A variable that
begins with BELFRY_ and is unknown is ignored with a warning.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := openLog(cmd, &format, &level)
			if err != nil {
				return err
			}
			slog.SetDefault(log) // Libraries that log to the standard logger do so in the same format.
			if commands != "" {
				if c.Commands, err = command.Load(commands); err != nil {
					return err
				}
			}
			c.Version, c.Settings = version(), settingsOf(cmd.Flags())
			n, err := node.New(cmd.Context(), c, log)
			if cmd.Context().Err() != nil && errors.Is(err, context.Canceled) {
				return nil // stopped while it waited for the database, like a node that runs
			}
			if err != nil {
				return err
			}
			printBootstrapKey(cmd.ErrOrStderr(), n.BootstrapKey(), format == logJSON)
			if fingerprint, _ := n.Certificate(); format == logJSON {
				log.Info("belfry is running", "version", version(), "process", os.Getpid(), "address", baseAddress(c, n), "fingerprint", fingerprint, "data", databaseText(c), "shards", n.Shards(), "roles", c.Roles, "concurrency", c.Concurrency)
			} else {
				printGreeting(cmd.OutOrStdout(), c, n)
			}
			return n.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	addNodeFlags(f, &c)
	f.StringVar(&commands, "commands", "", "file of commands that jobs of type command may run on this machine; without it there are none")
	f.BoolVar(&c.AllowShell, "allow-shell", false, "let jobs of type command run any text in the shell of this machine; only with the embedded database and on loopback: whoever reaches the API then runs programs as this user")
	f.StringVar(&format, "log-format", format, "text, or json for everything that the process prints")
	f.StringVar(&level, "log-level", level, "debug, info, warn or error")
	f.VisitAll(func(f *pflag.Flag) { f.Usage += " [" + environmentName(f.Name) + "]" })
	return cmd
}

// addNodeFlags adds the flags that are fields of the configuration as they are.
func addNodeFlags(f *pflag.FlagSet, c *node.Config) {
	f.StringVar(&c.Listen, "listen", c.Listen, "address to listen on; any other than loopback needs API keys, of which the first start makes one, and TLS or a proxy that has it")
	f.StringVar(&c.MetricsListen, "metrics-listen", "", "address of another listener, such as :9464, with /metrics and /debug/pprof, which need no key there: whoever reaches it sees names of queues and what the program is doing. It is 127.0.0.1 unless the address has a host")
	f.StringVar(&c.Data, "data", c.Data, "directory of the embedded database")
	f.StringVar(&c.DatabaseURL, "database-url", "", "PostgreSQL database instead of the embedded one, as postgres://user:password@host/database")
	f.DurationVar(&c.DatabaseWait, "database-wait", c.DatabaseWait, "how long the start waits for PostgreSQL while it cannot be used; 0 does not wait")
	f.IntVar(&c.Connections, "database-connections", 0, "connections to PostgreSQL that this process may open, at least 8 (default pool_max_conns of the URL, or 20)")
	f.StringVar(&c.Dispatch, "dispatch", c.Dispatch, "how nodes with the role worker alone learn of ready runs: database, or the address of a broker (nats://, kafka://, amqp:// or sqs://), the same for all nodes")
	f.StringSliceVar(&c.Roles, "roles", c.Roles, "roles of this process")
	f.IntVar(&c.Shards, "shards", 0, "number of shards of a new database; cannot be changed later (default 60)")
	f.StringVar((*string)(&c.Election), "election", string(c.Election), "what decides which node owns which shard: database, etcd or zookeeper, the same for all nodes of a cluster")
	f.StringSliceVar(&c.Etcd.Endpoints, "etcd-endpoints", nil, "addresses of etcd, as host:port or with https://")
	f.StringVar(&c.Etcd.CAFile, "etcd-ca-file", "", "file with the certificates that sign those of etcd; turns on TLS")
	f.StringVar(&c.Etcd.CertFile, "etcd-cert-file", "", "file with the certificate that this node shows to etcd; turns on TLS")
	f.StringVar(&c.Etcd.KeyFile, "etcd-key-file", "", "file with the key of that certificate")
	f.StringVar(&c.Etcd.Username, "etcd-username", "", "user of etcd")
	f.StringVar(&c.Etcd.PasswordFile, "etcd-password-file", "", "file with the password of the user")
	f.StringSliceVar(&c.ZooKeeper.Servers, "zookeeper-servers", nil, "addresses of ZooKeeper, as host:port")
	f.StringVar(&c.ZooKeeper.Root, "zookeeper-root", c.ZooKeeper.Root, "path in ZooKeeper under which everything is")
	f.StringVar(&c.ZooKeeper.AuthFile, "zookeeper-auth-file", "", "file with user:password, for digest authentication by ZooKeeper")
	f.IntVar(&c.Concurrency, "concurrency", c.Concurrency, "how many runs this process executes at a time")
	f.DurationVar(&c.DrainTimeout, "drain-timeout", c.DrainTimeout, "how long running attempts may continue after SIGTERM before they are returned")
	f.DurationVar(&c.Retention, "retention", c.Retention, "how long the history of runs is kept")
	f.DurationVar(&c.AuditRetention, "audit-retention", c.AuditRetention, "how long entries of the audit are kept, see: belfry audit; 0 is for ever")
	f.DurationVar(&c.CatchUpWindow, "catch-up-window", c.CatchUpWindow, "how old a missed occurrence may be to still run, unless the job says it; 0 is 30m for run_all and no limit for run_once")
	f.DurationVar(&c.PriorityAgeing, "priority-ageing", c.PriorityAgeing, "how much longer a run of the lowest priority may wait than one of the highest, from 1s to 168h; 0 is 10m")
	f.IntVar(&c.LargeCatchUp, "large-catch-up", c.LargeCatchUp, "catch-up runs of one job at once above which there is an event, see: belfry event list; 0 is 10")
	f.StringVar(&c.EncryptionKeyFile, "encryption-key-file", "", "file with the keys that encrypt secrets in the database, one in each line, as base64 or hexadecimal digits of 32 bytes: the first encrypts, all decrypt (default a file that is made in --data; none with PostgreSQL)")
	f.StringVar(&c.APIKeyFile, "api-key-file", "", "file of API keys, one per line, beside those of the database; it is read again every second")
	f.StringVar(&c.BootstrapKeyFile, "bootstrap-key-file", "", "file of the first API key, an admin of everything, for a database that has none: it is read from the file, or made and written to it")
	f.StringVar(&c.OIDC.Issuer, "oidc-issuer", "", "address of an OpenID Connect issuer whose people may log in, beside API keys; needs --public-url")
	f.StringVar(&c.OIDC.ClientID, "oidc-client-id", "", "id of the client that is registered at the issuer")
	f.StringVar(&c.OIDC.ClientSecretFile, "oidc-client-secret-file", "", "file with the secret of the client, if it has one")
	f.StringVar(&c.OIDC.CLIClientID, "oidc-cli-client-id", "", "id of the client for belfry login, which has no secret (default that of --oidc-client-id)")
	f.StringArrayVar(&c.OIDC.Roles, "oidc-role", nil, "who gets which role, as "+oidc.RuleForm+"; once for each, or several lines")
	f.Float64Var(&c.RateLimit, "rate-limit", c.RateLimit, "requests per second that each API key may make; 0 is no limit")
	f.StringVar(&c.TLS.CertFile, "tls-cert", "", "file with the certificate of this server, and those between it and its authority; read again when it changes")
	f.StringVar(&c.TLS.KeyFile, "tls-key", "", "file with the key of that certificate, which not everybody may read")
	f.BoolVar(&c.TLS.Auto, "tls-auto", false, "serve TLS with a certificate that is made in --data at the first start, and print its fingerprint for clients")
	f.StringVar(&c.TLS.ClientCA, "tls-client-ca", "", "file with the certificates that sign those of workers: without one a worker may claim nothing")
	f.BoolVar(&c.InsecurePlainHTTP, "insecure-plain-http", false, "listen on an address that other machines can reach although there is no TLS: whoever is between reads the API keys")
	f.StringSliceVar(&c.TrustedProxies, "trusted-proxy", nil, "addresses or CIDRs of proxies in front of this server: what they say of their clients counts (X-Forwarded-For, -Proto and -Host, or Forwarded), and from nobody else")
	f.StringSliceVar(&c.AllowTargets, "allow-target", nil, "private addresses or CIDRs that HTTP jobs may call")
	f.StringVar(&c.ConnectionsFile, "connections", "", "YAML file with connections to brokers, for jobs of type message: Kafka, NATS JetStream, RabbitMQ, Amazon SQS and Redis")
	f.StringSliceVar(&c.Hosts, "host", nil, "host names of this server that requests may use, besides its addresses")
	f.StringVar(&c.PublicURL, "public-url", "", "address of the cluster, such as https://belfry.example.com, for links to the API in alerts; requests may use its host name")
}

// addressPassword is the password in an address that may name several hosts.
var addressPassword = regexp.MustCompile(`(://[^:@/?]*):.*@`)

// settingsOf lists the flags of a node with their values, for the page. An address of a
// database or a broker is shown without its password.
func settingsOf(flags *pflag.FlagSet) (list []node.Setting) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		value := strings.Trim(f.Value.String(), "[]")
		if f.Name == "database-url" || f.Name == "dispatch" {
			value = addressPassword.ReplaceAllString(secret.Redact(value, nil), "$1@")
		}
		doc, _, _ := strings.Cut(f.Usage, " ["+environmentPrefix)
		list = append(list, node.Setting{Name: f.Name, Value: value, Doc: doc})
	})
	return list
}

const logJSON = "json"

// logsJSON reports whether the arguments or the environment of a node ask for a log in
// JSON, even if other arguments are wrong.
func logsJSON(args []string) bool {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.ParseErrorsAllowlist.UnknownFlags = true
	f.Usage = func() {}
	format := f.String("log-format", os.Getenv(environmentName("log-format")), "")
	_ = f.Parse(args) // It is reported already.
	return *format == logJSON
}

// openLog sets the flags of a command that are in the environment, and opens its log.
func openLog(cmd *cobra.Command, format, level *string) (*slog.Logger, error) {
	warnings, err := setFromEnvironment(cmd, os.Environ())
	if err != nil {
		return nil, err
	}
	o := &slog.HandlerOptions{Level: new(slog.Level)}
	if err := o.Level.(*slog.Level).UnmarshalText([]byte(*level)); err != nil {
		return nil, fmt.Errorf("--log-level: %q is not one of debug, info, warn, error", *level)
	}
	var handler slog.Handler = slog.NewTextHandler(cmd.ErrOrStderr(), o)
	switch *format {
	case "text":
	case logJSON:
		handler = slog.NewJSONHandler(cmd.ErrOrStderr(), o)
	default:
		return nil, fmt.Errorf("--log-format: %q is not one of text, json", *format)
	}
	log := slog.New(handler)
	for _, warning := range warnings {
		log.Warn(warning)
	}
	return log, nil
}

// printBootstrapKey shows the key that the first start has made, once and not in the log.
func printBootstrapKey(w io.Writer, key string, asJSON bool) {
	switch {
	case key == "":
	case asJSON:
		fmt.Fprintf(w, "{\"bootstrap_key\":%q}\n", key)
	default:
		fmt.Fprintf(w, "This is the first API key, an admin of everything. It is not shown again:\n\n  export BELFRY_KEY=%s\n\nCreate keys for people and programs with: belfry key create\n\n", key)
	}
}

// printGreeting says where the node is and what to try first: a command that works here as
// it is printed.
func printGreeting(w io.Writer, c node.Config, n *node.Node) {
	base := baseAddress(c, n)
	host, _, _ := net.SplitHostPort(callableAddress(n.Addr()))
	curl := "curl "
	fingerprint, file := n.Certificate()
	if file != "" {
		curl += "--cacert " + shellQuote(file) + " "
	}
	line := func(label, text string) { fmt.Fprintf(w, "  %-7s %s\n", label, text) }
	fmt.Fprintf(w, "belfry %s is running, process %d\n", version(), os.Getpid())
	serves := slices.Contains(c.Roles, node.RoleAPI)
	if serves {
		line("Page", base+"/")
		line("API", base+"/api/v1")
	}
	if a := n.MetricsAddr(); a != nil {
		line("Metrics", "http://"+callableAddress(a)+"/metrics")
	}
	if fingerprint != "" {
		line("TLS", fingerprint)
	}
	line("Data", fmt.Sprintf("%s, %d shards", databaseText(c), n.Shards()))
	line("Roles", fmt.Sprintf("%s, %d runs at once", strings.Join(c.Roles, ", "), c.Concurrency))
	key := ""
	if n.RequiresKeys() && serves {
		key = ` -H "Authorization: Bearer $BELFRY_KEY"`
	}
	if c.APIKeyFile != "" && serves {
		line("Key", "export BELFRY_KEY=$(sed -nE '/^ *(#|$)/!{s/^ *([^: ]*: *)?([^ ]+).*/\\2/p;q}' "+shellQuote(c.APIKeyFile)+")")
	}
	switch {
	case !serves:
		line("Try", curl+base+"/readyz")
	case !n.AllowsTarget(host):
		line("Target", strings.Join(append([]string{"public addresses"}, c.AllowTargets...), ", ")+"; --allow-target "+host+" would allow jobs to call this server")
		line("Try", curl+base+jobsPath+key)
	case fingerprint != "": // which jobs do not trust, perhaps
		line("Try", curl+base+jobsPath+key)
	default:
		line("Try", fmt.Sprintf(`curl -X PUT %s%s/hello%s -H 'Content-Type: application/json' -d '{"schedule":"* * * * *","payload":{"url":"%[1]s/livez","method":"GET"}}'`, base, jobsPath, key))
	}
}

// baseAddress is how to call the node: under the name in its certificate, if it has one.
func baseAddress(c node.Config, n *node.Node) string {
	switch fingerprint, _ := n.Certificate(); {
	case fingerprint == "":
		return "http://" + callableAddress(n.Addr())
	case c.PublicURL != "":
		return strings.TrimSuffix(c.PublicURL, "/")
	}
	return "https://" + callableAddress(n.Addr())
}

func databaseText(c node.Config) string {
	if c.DatabaseURL != "" {
		return "PostgreSQL"
	}
	return c.Data + " (SQLite)"
}

// shellQuote writes the absolute path of a file for a shell.
func shellQuote(path string) string {
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// callableAddress replaces an address that means all interfaces by one to call.
func callableAddress(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

const (
	environmentPrefix     = "BELFRY_"
	testEnvironmentPrefix = "BELFRY_TEST_" // is for the tests
)

// clientVariables may be set in the shell that starts a node.
var clientVariables = []string{"BELFRY_SERVER", "BELFRY_KEY", "BELFRY_NAMESPACE", "BELFRY_TLS_CA", "BELFRY_TLS_FINGERPRINT", "BELFRY_TLS_CLIENT_CERT", "BELFRY_TLS_CLIENT_KEY"}

// environmentName is BELFRY_LOG_FORMAT for the flag --log-format.
func environmentName(flag string) string {
	return environmentPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// serviceLink matches the variables that Kubernetes sets in every pod for a Service whose
// name is belfry or begins with it, with their values: a variable of another shape is a
// mistake of somebody.
var serviceLink = regexp.MustCompile(`^BELFRY(_[A-Z0-9_]+)?_(SERVICE_HOST=[0-9a-f.:]+|SERVICE_PORT(_[A-Z0-9_]+)?=[0-9]+|PORT=[a-z]+://.+|` +
	`PORT_[0-9]+_[A-Z]+(=[a-z]+://.+|_PROTO=[a-z]+|_PORT=[0-9]+|_ADDR=[0-9a-f.:]+))$`)

// setFromEnvironment sets the flags that were not given from their variables, and warns
// about variables without a flag, which are probably misspelled.
func setFromEnvironment(cmd *cobra.Command, environ []string) (warnings []string, err error) {
	flags := map[string]*pflag.Flag{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			flags[environmentName(f.Name)] = f
		}
	})
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, environmentPrefix) || strings.HasPrefix(name, testEnvironmentPrefix) || slices.Contains(clientVariables, name) {
			continue
		}
		switch flag := flags[name]; {
		case flag == nil && serviceLink.MatchString(pair):
		case flag == nil:
			warnings = append(warnings, unknownVariable(name, slices.Sorted(maps.Keys(flags))))
		case !flag.Changed:
			if err := flag.Value.Set(value); err != nil {
				if want := flagTypes[flag.Value.Type()]; want != "" {
					err = fmt.Errorf("%q is not %s", value, want)
				}
				return nil, fmt.Errorf("environment variable %s: %w", name, err)
			}
			flag.Changed = true
		}
	}
	return warnings, nil
}

func unknownVariable(name string, known []string) string {
	suffixes := mapSlice(known, func(name string) string { return strings.TrimPrefix(name, environmentPrefix) })
	if near := schema.Nearest(strings.TrimPrefix(name, environmentPrefix), suffixes); near != "" {
		return fmt.Sprintf("environment variable %s is unknown and ignored; did you mean %s?", name, environmentPrefix+near)
	}
	return fmt.Sprintf("environment variable %s is unknown and ignored; belfry serve --help lists those that are known", name)
}

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
