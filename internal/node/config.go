package node

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
)

// The roles a process may have.
const (
	RoleAPI       = "api"
	RoleScheduler = "scheduler"
	RoleWorker    = "worker"
)

// Config says what one process is. Defaults gives the values of an empty one.
type Config struct {
	Listen       string
	Data         string // directory of the embedded database
	DatabaseURL  string // PostgreSQL instead of the embedded database
	Roles        []string
	Shards       int // of a new database; 0: the default
	Concurrency  int
	DrainTimeout time.Duration
	Retention    time.Duration

	CatchUpWindow  time.Duration // for jobs that do not say it; 0: 30 minutes for run_all, none for run_once
	PriorityAgeing time.Duration // how much longer a run of the lowest priority may wait than one of the highest
	LargeCatchUp   int           // a catch-up of more runs of one job is an event

	APIKeyFile   string
	RateLimit    float64  // requests a second that each API key may make; 0: no limit
	AllowTargets []string // CIDRs that HTTP targets may reach although they are private
	Hosts        []string // names by which clients call this server
	Version      string   // of the program, for whoever reads the reference

	// OwnAll makes the node believe that it owns every shard, whatever the others
	// believe. It proves that safety does not depend on election.
	OwnAll bool
}

// Defaults is what `belfry serve` does without arguments.
func Defaults() Config {
	return Config{
		Listen:       "127.0.0.1:7070",
		Data:         "belfry-data",
		Roles:        []string{RoleAPI, RoleScheduler, RoleWorker},
		Concurrency:  100,
		DrainTimeout: 30 * time.Second,
		Retention:    90 * 24 * time.Hour,
		RateLimit:    1000,

		PriorityAgeing: 10 * time.Minute,
		LargeCatchUp:   10,
	}
}

// Validate names everything that is wrong, and what to do about it.
func (c Config) Validate() error {
	var faults []belfry.FieldError
	fault := func(field, format string, args ...any) {
		faults = append(faults, belfry.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		fault("--listen", "%q is not host:port, such as 127.0.0.1:7070", c.Listen)
	} else if !isLoopback(host) && c.APIKeyFile == "" {
		fault("--listen", "%s can be reached from other machines, which needs keys: give --api-key-file, or listen on 127.0.0.1", c.Listen)
	}
	if len(c.Roles) == 0 {
		fault("--roles", "give at least one of api, scheduler, worker")
	}
	for _, role := range c.Roles {
		if role != RoleAPI && role != RoleScheduler && role != RoleWorker {
			fault("--roles", "%q is not a role; there are api, scheduler and worker", role)
		}
	}
	if c.DatabaseURL == "" && !c.hasAllRoles() {
		fault("--roles", "the embedded database serves one process, which needs all roles; give --database-url to split them")
	}
	if c.Shards < 0 || c.Shards > 4096 {
		fault("--shards", "%d is not between 1 and 4096", c.Shards)
	}
	if c.Concurrency < 1 || c.Concurrency > 100_000 {
		fault("--concurrency", "%d is not between 1 and 100000", c.Concurrency)
	}
	if c.DrainTimeout < 0 {
		fault("--drain-timeout", "%s is negative", c.DrainTimeout)
	}
	if c.Retention < time.Second {
		fault("--retention", "%s is less than a second", c.Retention)
	}
	if c.CatchUpWindow < 0 {
		fault("--catch-up-window", "%s is negative", c.CatchUpWindow)
	}
	if a := c.PriorityAgeing; a != 0 && (a < time.Second || a > 7*24*time.Hour) {
		fault("--priority-ageing", "%s is not between 1s and 168h", c.PriorityAgeing)
	}
	if c.LargeCatchUp < 0 {
		fault("--large-catch-up", "%d is negative", c.LargeCatchUp)
	}
	if !(c.RateLimit >= 0 && c.RateLimit <= 1e6) {
		fault("--rate-limit", "%v is not between 0 and 1000000", c.RateLimit)
	}
	if _, err := parsePrefixes(c.AllowTargets); err != nil {
		fault("--allow-target", "%s", err)
	}
	if faults != nil {
		return &belfry.Error{Code: belfry.Invalid, Message: "the configuration is not valid", Fields: faults}
	}
	return nil
}

// defaults are what the server says for jobs that do not say it themselves.
func (c Config) planDefaults() plan.Defaults {
	return plan.Defaults{CatchUpWindow: c.CatchUpWindow, Ageing: c.PriorityAgeing, LargeCatchUp: c.LargeCatchUp}
}

func (c Config) has(role string) bool { return slices.Contains(c.Roles, role) }

func (c Config) hasAllRoles() bool {
	return c.has(RoleAPI) && c.has(RoleScheduler) && c.has(RoleWorker)
}

// privateTargets reports whether HTTP targets may reach this machine and its
// network: only where nobody but this machine can ask for it.
func (c Config) privateTargets() bool { return c.DatabaseURL == "" && c.APIKeyFile == "" }

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// prefixes reads CIDRs; a bare address stands for itself alone.
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
