// Package store is the storage contract, in roles named after what they hold. A
// backend implements all of them; a caller takes the roles it needs.
//
// Three rules hold for every method. Time is the store's: whatever expires is
// given as a duration and judged by the store's clock, whatever is planned is an
// instant with microseconds. A write is all or nothing and does not stop half
// way when the caller's context ends. An error that is not a *belfry.Error
// leaves the outcome unknown, and repeating the same call is always safe: ids,
// versions and tokens chosen beforehand make the second one do nothing.
package store

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
)

// Store is everything that a node keeps.
type Store interface {
	Jobs
	Plans
	PlanSamples
	Runs
	SharedRuns
	History
	DeadLetters
	Alerts
	Failures
	Events
	Nodes
	Leases
	Outages
	Monitors
	Secrets
	Namespaces
	Maintenance
	Statistics
	TraceLinks
	Activities
	Sessions
	APIKeys
	Audits
	Sharding
	Clock
	Notifier
	Pinger
	Close() error
}

// Sharding says how jobs are divided among owners.
type Sharding interface {
	// Shards is the number of shards, fixed when the database was created.
	Shards() int
}

// Clock is the store's clock.
type Clock interface {
	// Now is the store's time as far as this process knows it. It does not ask the
	// database.
	Now() time.Time
}

// Pinger checks that the database answers.
type Pinger interface {
	Ping(ctx context.Context) error
}

// Notifier wakes those who wait for a write.
type Notifier interface {
	// Wakeups signals on the channel after something that concerns the topic was
	// written, by this process or another, until ctx ends. Signals are merged and may
	// be lost, so a caller polls as well.
	Wakeups(ctx context.Context, topic Topic) <-chan struct{}

	// PollInterval is how often to poll without a wake-up. It is long for a store of
	// one process, where wake-ups are not lost.
	PollInterval() time.Duration
}

// Topic is what a wake-up is about.
type Topic string

// The topics.
const (
	TopicPlans Topic = "plans" // a plan or a trigger was written by somebody other than the shard's owner
	TopicReady Topic = "ready" // runs became ready

	TopicLeases Topic = "leases" // another node released leases
)

// Page asks for at most Limit items after a position in the order of the list; the
// zero position asks for the first page. Lists that are ordered by id use only the id.
type Page struct {
	After Position
	Limit int
}

// MergePage makes a page of the items of several scans, in descending order of their
// ids, down to next, where the first of the scans stopped. An id that several items
// have is listed once.
func MergePage[T any](items []T, id func(T) belfry.ID, next belfry.ID, limit int) ([]T, belfry.ID) {
	items = slices.DeleteFunc(items, func(item T) bool { return id(item).Compare(next) < 0 })
	slices.SortStableFunc(items, func(a, b T) int { return id(b).Compare(id(a)) })
	items = slices.CompactFunc(items, func(a, b T) bool { return id(a) == id(b) })
	if len(items) > limit {
		items = items[:limit]
		next = id(items[limit-1])
	}
	return items, next
}

// Position is an item of a list that is ordered by an instant and an id.
type Position struct {
	At time.Time
	ID belfry.ID
}

// Leases says which owner holds which name, and for how long.
type Leases interface {
	// Hold acquires or renews each name for ttl unless somebody else holds it, and
	// returns the leases that the owner now has among them.
	Hold(ctx context.Context, owner belfry.ID, names []string, ttl time.Duration) ([]Lease, error)

	// Release ends the owner's leases of the names.
	Release(ctx context.Context, owner belfry.ID, names []string) error

	// Held lists the leases whose name starts with prefix and that have not expired.
	Held(ctx context.Context, prefix string) ([]Lease, error)
}

// Outages remembers the times in which no scheduler was in charge of a shard: what was
// due then was missed. They are kept for OutageRetention.
type Outages interface {
	// RecordOutages adds outages, unless they are known.
	RecordOutages(ctx context.Context, outages []Outage) error

	// Outages lists the outages of shards, oldest first.
	Outages(ctx context.Context, shards []int) ([]Outage, error)
}

// MaxOutages is how many outages are listed, the latest ones.
const MaxOutages = 10_000

// Outage is a time in which no scheduler was in charge of a shard.
type Outage struct {
	Shard    int
	From, To time.Time // From is zero if nobody was before
}

// Term is the time during which an owner may assume that it owns a shard.
type Term struct {
	Shard     int
	Epoch     int64
	Since     time.Time // by the store's clock
	DownSince time.Time // when the term before it ended; zero: unknown
}

// The names of leases.
const (
	ShardLease  = "shard/" // with the number of the shard
	NodeLease   = "node/"  // with the id of a node that elects by the database, see NodeLeaseName
	NodeLeases  = "node"   // begins the names of all nodes
	AlertsLease = "alerts"
)

// NodeLeaseName is the name of the lease of a node, which says what it elects by.
func NodeLeaseName(by belfry.Election, node belfry.ID) string {
	if by == belfry.ElectionDatabase {
		return NodeLease + node.String()
	}
	return fmt.Sprintf("%s.%s/%s", NodeLeases, by, node)
}

// LeaseElection is what the node of a lease elects by; empty: the lease is not of a node.
func LeaseElection(name string) belfry.Election {
	kind, _, _ := strings.Cut(name, "/")
	if kind == NodeLeases {
		return belfry.ElectionDatabase
	}
	_, by, _ := strings.Cut(kind, NodeLeases+".")
	return belfry.Election(by)
}

// Lease is a name held by an owner. The epoch grows whenever the owner changes.
type Lease struct {
	Name    string
	Owner   belfry.ID
	Epoch   int64
	EndedAt time.Time // of a lease that was taken: when the one before it had ended; zero: there was none, or it was renewed
}

// Migrate brings a schema up to date. The files migrations/NNNN_name.sql are numbered
// from 1 without gaps; those above the current version are applied in order. It
// refuses a database whose version is newer than this program.
func Migrate(files fs.FS, current int, apply func(version int, script string) error) error {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return err
	}
	if current > len(names) {
		return belfry.Errorf(belfry.Invalid, "the database has schema version %d, this program knows %d: run a newer belfry", current, len(names))
	}
	for i, name := range names {
		number, _, _ := strings.Cut(path.Base(name), "_")
		if n, err := strconv.Atoi(number); err != nil || n != i+1 {
			return fmt.Errorf("migration %q is out of order, number %d was expected", path.Base(name), i+1)
		}
	}
	for i, name := range names[current:] {
		script, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		if err := apply(current+i+1, string(script)); err != nil {
			return fmt.Errorf("%s: %w", path.Base(name), err)
		}
	}
	return nil
}

// maxChanged is how many changed jobs a hub names before it reports "many".
const maxChanged = 1000

// Hub implements Notifier within a process. The zero value is ready for use.
type Hub struct {
	mu          sync.Mutex
	subscribers map[Topic]map[chan struct{}]bool
	changed     map[belfry.ID]bool
	many        bool
}

// Wakeups is Notifier.Wakeups.
func (h *Hub) Wakeups(ctx context.Context, topic Topic) <-chan struct{} {
	ch := make(chan struct{}, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subscribers == nil {
		h.subscribers = map[Topic]map[chan struct{}]bool{}
	}
	if h.subscribers[topic] == nil {
		h.subscribers[topic] = map[chan struct{}]bool{}
	}
	h.subscribers[topic][ch] = true
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.subscribers[topic], ch)
	})
	return ch
}

// ChangedJobs is Plans.ChangedJobs.
func (h *Hub) ChangedJobs() ([]belfry.ID, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids, many := slices.AppendSeq(make([]belfry.ID, 0, len(h.changed)), maps.Keys(h.changed)), h.many
	h.changed, h.many = nil, false
	return ids, many
}

// Notify wakes the subscribers of the topic.
func (h *Hub) Notify(topic Topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wake(topic)
}

// NotifyChanged records that the plans of the jobs were written and wakes the
// subscribers of TopicPlans.
func (h *Hub) NotifyChanged(jobs []belfry.ID, many bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changed == nil {
		h.changed = map[belfry.ID]bool{}
	}
	h.many = h.many || many || len(h.changed)+len(jobs) > maxChanged
	if h.many {
		clear(h.changed)
	} else {
		for _, id := range jobs {
			h.changed[id] = true
		}
	}
	h.wake(TopicPlans)
}

func (h *Hub) wake(topic Topic) {
	for ch := range h.subscribers[topic] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

const (
	// maxClockDrift is by how much a clock may differ from what the monotonic clock of
	// the process predicts. More is a step: the clock was set, or the machine slept.
	maxClockDrift = 2 * time.Second

	// ClockGrace is for how long after a step no worker counts as silent and no attempt as
	// overdue. By then every worker that is alive has sent a heartbeat.
	ClockGrace = 20 * time.Second
)

// ClockWatch notices steps of a clock. The zero value is ready for use.
type ClockWatch struct {
	mu        sync.Mutex
	clock     time.Time // as last observed
	local     time.Time // when that was
	steppedAt time.Time // by the local clock; zero: never
}

// Observe compares what the clock shows at a local time with what was expected, and
// returns the step, zero if there was none.
func (w *ClockWatch) Observe(clock, local time.Time) (step time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.local.IsZero() {
		step = clock.Round(0).Sub(w.clock.Round(0)) - local.Sub(w.local)
	}
	w.clock, w.local = clock, local
	if step.Abs() <= maxClockDrift {
		return 0
	}
	w.steppedAt = local
	return step
}

// Settled reports whether the last step was long enough ago.
func (w *ClockWatch) Settled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.steppedAt.IsZero() || time.Since(w.steppedAt) >= ClockGrace
}
