package node

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/election"
)

// ownsAll reports whether the node owns all shards without leases.
func (n *Node) ownsAll() bool { return n.config.DatabaseURL == "" || n.config.OwnAll }

// election is what this node takes part in the election by; empty: it takes part in none.
func (n *Node) election() belfry.Election {
	if n.ownsAll() || !n.config.has(RoleScheduler) {
		return ""
	}
	return cmp.Or(n.config.Election, belfry.ElectionDatabase)
}

// openElection prepares the service that elects, if it is not the database. It does not
// connect: the service may start later.
func (n *Node) openElection(ctx context.Context, clusterID func(context.Context) (string, error)) error {
	by := n.election()
	if by == "" || by == belfry.ElectionDatabase {
		return nil
	}
	cluster, err := clusterID(ctx)
	if err != nil {
		return err
	}
	if by == belfry.ElectionEtcd {
		n.service, err = election.NewEtcd(n.config.Etcd, cluster)
	} else {
		n.service, err = election.NewZooKeeper(n.config.ZooKeeper, cluster)
	}
	return err
}

func (n *Node) elect(ctx context.Context, lead election.Lead) error {
	if n.ownsAll() {
		return election.AllShards{Store: n.store, DownSince: n.downSince}.Run(ctx, lead)
	}
	taken := func(shards []int) {
		select {
		case n.taken <- shards:
		default: // the election does not wait for an event
		}
	}
	e := election.Leases{Store: n.store, Service: n.service, Node: n.id, Log: n.log, Stalled: n.stalled, TakenOver: taken, Renewed: n.elections.note}
	if n.service != nil {
		defer n.service.Close()
	}
	return e.Run(ctx, lead)
}

// electionTimeout is how long leases may fail to be renewed until the node says that it is
// not ready: by then its terms have ended.
const electionTimeout = 5 * time.Second

// elections is whether the node can take part in the election.
type elections struct {
	mu    sync.Mutex
	since time.Time // of the failure
	last  error
}

func (e *elections) note(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last = err; err == nil {
		e.since = time.Time{}
	} else if e.since.IsZero() {
		e.since = time.Now()
	}
}

// err is why the node owns no shards. A cluster that elects otherwise is no reason to get no
// requests: its other nodes own them.
func (e *elections) err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last == nil || time.Since(e.since) < electionTimeout || belfry.CodeOf(e.last) == belfry.Conflict {
		return nil
	}
	return belfry.Errorf(belfry.Unavailable, "this node owns no shards: the leases could not be renewed for %s, see --election: %w", time.Since(e.since).Round(time.Second), e.last)
}

// checkElection reports what is wrong with the flags of the election.
func (c Config) checkElection(invalid func(field, format string, args ...any)) {
	kind := cmp.Or(c.Election, belfry.ElectionDatabase)
	if !slices.ContainsFunc(kind.EnumValues(), func(v belfry.EnumValue) bool { return v.Value == string(kind) }) {
		invalid("--election", "%q is not one of database, etcd, zookeeper", kind)
	}
	if kind != belfry.ElectionDatabase && c.DatabaseURL == "" {
		invalid("--election", "the embedded database is for one process, which needs no election; set --database-url for a cluster")
	}
	for _, service := range []struct {
		kind      belfry.Election
		flag      string
		addresses []string
	}{{belfry.ElectionEtcd, "--etcd-endpoints", c.Etcd.Endpoints}, {belfry.ElectionZooKeeper, "--zookeeper-servers", c.ZooKeeper.Servers}} {
		switch {
		case kind == service.kind && len(service.addresses) == 0:
			invalid(service.flag, "is needed with --election %s", kind)
		case kind != service.kind && len(service.addresses) > 0:
			invalid(service.flag, "is for --election %s", service.kind)
		case len(service.addresses) > maxAddresses:
			invalid(service.flag, "has %d addresses; at most %d are allowed", len(service.addresses), maxAddresses)
		}
		for _, address := range service.addresses {
			if problem := checkAddress(address, service.kind == belfry.ElectionEtcd); problem != "" {
				invalid(service.flag, "%s", problem)
			}
		}
	}
	if e := c.Etcd; (e.CertFile == "") != (e.KeyFile == "") {
		invalid("--etcd-cert-file", "and --etcd-key-file need each other")
	} else if (e.Username == "") != (e.PasswordFile == "") {
		invalid("--etcd-username", "and --etcd-password-file need each other")
	}
	if root := c.ZooKeeper.Root; kind == belfry.ElectionZooKeeper && (!strings.HasPrefix(root, "/") || strings.Contains(root, "//") || strings.Contains(root, "/.") || len(root) > 200) {
		invalid("--zookeeper-root", "must be a path such as /belfry of at most 200 characters, not %q", root)
	}
}

const maxAddresses = 50

// checkAddress says what is wrong with an address of a server.
func checkAddress(address string, schemes bool) string {
	host := address
	if u, err := url.Parse(address); schemes && err == nil && (u.Scheme == "http" || u.Scheme == "https") {
		host = strings.TrimPrefix(address, u.Scheme+"://")
	}
	if name, _, err := net.SplitHostPort(host); err != nil || name == "" || strings.ContainsAny(name, "/@") {
		return fmt.Sprintf("%q is not host:port", address)
	}
	return ""
}
