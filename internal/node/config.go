package node

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/command"
	"github.com/belfry-sh/belfry/internal/election"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store/postgres"
	"github.com/belfry-sh/belfry/internal/target"
	"github.com/belfry-sh/belfry/internal/web"
	"github.com/belfry-sh/belfry/worker"
)

// The roles a process may have.
const (
	RoleAPI       = "api"
	RoleScheduler = "scheduler"
	RoleWorker    = "worker"
)

// Config is the configuration of one process. Defaults returns that of `belfry serve`
// without flags.
type Config struct {
	Listen       string
	Data         string        // directory of the embedded database
	DatabaseURL  string        // PostgreSQL instead of the embedded database
	DatabaseWait time.Duration // how long the start waits for PostgreSQL; 0: not at all
	Connections  int           // to PostgreSQL that the process may open; 0: pool_max_conns of the URL, or the default of the store
	Dispatch     string        // how workers learn of ready runs: DispatchDatabase, or the address of a broker
	Roles        []string
	Shards       int // of a new database; 0: the default of the store
	Concurrency  int
	DrainTimeout time.Duration
	Retention    time.Duration

	AuditRetention time.Duration

	Election  belfry.Election // what decides which node owns which shard; empty: the database
	Etcd      election.EtcdOptions
	ZooKeeper election.ZooKeeperOptions

	CatchUpWindow  time.Duration // for jobs that do not set it; 0: 30 minutes for run_all, no limit for run_once
	PriorityAgeing time.Duration // how much longer a run of the lowest priority may wait than one of the highest
	LargeCatchUp   int           // more catch-up runs of one job at once cause an event

	MetricsListen string // address for metrics and profiles without a key; empty: none

	EncryptionKeyFile string // with the keys that encrypt secrets; empty: one beside the embedded database, none with PostgreSQL

	APIKeyFile        string
	OIDC              OIDC    // logins of people
	BootstrapKeyFile  string  // of the first key: it is read from it, or written to it
	RateLimit         float64 // requests per second and API key; 0: no limit
	TLS               TLS
	InsecurePlainHTTP bool     // other machines may use the API without TLS
	TrustedProxies    []string // as CIDRs, whose headers about their clients count

	AllowTargets []string // private networks, as CIDRs, that HTTP targets may be in
	Hosts        []string // host names of this server, for the Host header
	PublicURL    string   // of the cluster, for links in alerts; empty: there are none
	Version      string   // of the program, for the API reference

	Commands        *command.File // that jobs of type command may use; nil: none
	AllowShell      bool          // jobs may give text for the shell
	ConnectionsFile string        // of brokers, for jobs of type message; empty: there are none

	Settings []Setting // what the page shows of this configuration

	// Handlers are executed beside the built-in ones, by the type of their jobs. The API
	// creates no such jobs: they are for a program that contains a node, like belfry bench.
	Handlers map[string]worker.Handler

	// OwnAll makes the node own every shard, also those of other nodes. Tests use it to
	// prove that safety does not depend on election.
	OwnAll bool
}

// Setting is a setting as the page shows it.
type Setting = web.Setting

// Defaults is the configuration of `belfry serve` without flags.
func Defaults() Config {
	return Config{
		Listen:       "127.0.0.1:7070",
		Data:         "belfry-data",
		DatabaseWait: 30 * time.Second,
		Dispatch:     DispatchDatabase,
		Roles:        []string{RoleAPI, RoleScheduler, RoleWorker},
		Concurrency:  100,
		DrainTimeout: 30 * time.Second,
		Retention:    90 * 24 * time.Hour,

		AuditRetention: 365 * 24 * time.Hour,
		RateLimit:      1000,

		Election:  belfry.ElectionDatabase,
		ZooKeeper: election.ZooKeeperOptions{Root: "/belfry"},

		PriorityAgeing: 10 * time.Minute,
		LargeCatchUp:   10,
	}
}

// Validate returns an error with everything that is wrong.
func (c Config) Validate() error {
	var errors []belfry.FieldError
	invalid := func(field, format string, args ...any) {
		errors = append(errors, belfry.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		invalid("--listen", "%q is not host:port, such as 127.0.0.1:7070", c.Listen)
	}
	if _, _, err := net.SplitHostPort(c.MetricsListen); c.MetricsListen != "" && err != nil {
		invalid("--metrics-listen", "%q is not host:port, such as 127.0.0.1:9464", c.MetricsListen)
	}
	if len(c.Roles) == 0 {
		invalid("--roles", "must be at least one of api, scheduler, worker")
	}
	for _, role := range c.Roles {
		if role != RoleAPI && role != RoleScheduler && role != RoleWorker {
			invalid("--roles", "%q is not a role; the roles are api, scheduler and worker", role)
		}
	}
	if c.DatabaseURL == "" && !(c.has(RoleAPI) && c.has(RoleScheduler) && c.has(RoleWorker)) {
		invalid("--roles", "the embedded database is for one process, which needs all roles; set --database-url to split them")
	}
	if c.DatabaseURL == "" && c.overBroker() {
		invalid("--dispatch", "the embedded database is for one process, which has nobody to announce runs to; set --database-url")
	}
	ageing, public := c.PriorityAgeing, c.PublicURL
	for _, flag := range []struct {
		valid       bool
		name, limit string
		value       any
	}{
		{c.Shards >= 0 && c.Shards <= 4096, "--shards", "from 1 to 4096", c.Shards},
		{c.Connections == 0 || c.Connections >= postgres.MinConnections && c.Connections <= 10_000, "--database-connections", fmt.Sprintf("from %d to 10000", postgres.MinConnections), c.Connections},
		{c.DatabaseWait >= 0, "--database-wait", "at least 0", c.DatabaseWait},
		{c.Concurrency >= 1 && c.Concurrency <= 100_000, "--concurrency", "from 1 to 100000", c.Concurrency},
		{c.DrainTimeout >= 0, "--drain-timeout", "at least 0", c.DrainTimeout},
		{c.Retention >= time.Second, "--retention", "at least 1s", c.Retention},
		{c.AuditRetention == 0 || c.AuditRetention >= time.Minute, "--audit-retention", "0, or at least 1m", c.AuditRetention},
		{c.CatchUpWindow >= 0, "--catch-up-window", "at least 0", c.CatchUpWindow},
		{ageing == 0 || ageing >= time.Second && ageing <= 7*24*time.Hour, "--priority-ageing", "from 1s to 168h", ageing},
		{c.LargeCatchUp >= 0, "--large-catch-up", "at least 0", c.LargeCatchUp},
		{c.RateLimit >= 0 && c.RateLimit <= 1e6, "--rate-limit", "from 0 to 1000000", c.RateLimit},
		{public == "" || target.CheckURL(public) == "" && !strings.ContainsAny(public, "?#") && len(public) <= 100, "--public-url", "an address such as https://belfry.example.com, without ? and #, of at most 100 characters", public},
	} {
		if !flag.valid {
			invalid(flag.name, "must be %s, not %v", flag.limit, flag.value)
		}
	}
	if _, err := parsePrefixes(c.AllowTargets); err != nil {
		invalid("--allow-target", "%s", err)
	}
	c.checkTLS(invalid)
	if _, err := parsePrefixes(c.TrustedProxies); err != nil {
		invalid("--trusted-proxy", "%s", err)
	}
	if text := c.checkShell(); text != "" {
		invalid("--allow-shell", "%s", text)
	}
	if c.Commands != nil && !c.has(RoleWorker) {
		invalid("--commands", "needs the role worker")
	}
	c.checkElection(invalid)
	c.checkOIDC(invalid)
	if errors != nil {
		return &belfry.Error{Code: belfry.Invalid, Message: "the configuration is not valid", Fields: errors}
	}
	return nil
}

func (c Config) planDefaults() plan.Defaults {
	return plan.Defaults{CatchUpWindow: c.CatchUpWindow, Ageing: c.PriorityAgeing, LargeCatchUp: c.LargeCatchUp}
}

func (c Config) has(role string) bool { return slices.Contains(c.Roles, role) }

// privateTargets reports whether HTTP targets may be on this machine and its network:
// only if no other machine can create jobs.
func (c Config) privateTargets() bool {
	return c.DatabaseURL == "" && c.APIKeyFile == "" && c.OIDC.Issuer == "" && c.loopback()
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// parsePrefixes reads CIDRs; an address alone is a network of one address.
func parsePrefixes(texts []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range texts {
		if addr, err := netip.ParseAddr(text); err == nil {
			out = append(out, netip.PrefixFrom(addr, addr.BitLen()))
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%q is neither an address nor a CIDR such as 10.1.0.0/16", text)
		}
		out = append(out, prefix)
	}
	return out, nil
}
