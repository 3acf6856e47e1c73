package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// metric is the declaration of a metric. The collectors, their help and docs/metrics.md
// come from it.
type metric struct {
	name, kind, help string
	labels           []string
	buckets          []float64
	cluster          bool // about the whole cluster: exported by the node that owns shard 0 alone
}

// The kinds.
const (
	kindCounter   = "counter"
	kindGauge     = "gauge"
	kindHistogram = "histogram"
)

// declared lists all metrics in the order of the documentation.
var declared []*metric

func declare(m metric) *metric {
	declared = append(declared, &m)
	return &m
}

func counter(name, help string, labels ...string) *metric {
	return declare(metric{name: name, kind: kindCounter, help: help, labels: labels})
}

func gauge(name, help string, labels ...string) *metric {
	return declare(metric{name: name, kind: kindGauge, help: help, labels: labels})
}

func clusterGauge(name, help string, labels ...string) *metric {
	return declare(metric{name: name, kind: kindGauge, help: help, labels: labels, cluster: true})
}

func histogram(name string, buckets []float64, help string, labels ...string) *metric {
	return declare(metric{name: name, kind: kindHistogram, help: help, labels: labels, buckets: buckets})
}

// Upper bounds of buckets, in seconds.
var (
	lagBuckets       = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}
	durationBuckets  = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}
	statementBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	requestBuckets   = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
)

// Runs. A node counts the attempts that it started and settled itself, for its own worker and for those that call it.
var (
	scheduleLag = histogram("belfry_job_schedule_lag_seconds", lagBuckets,
		"From the instant at which a run could start, jitter and the delay of a retry included, to the start of its attempt.", "queue", "type")
	executionDuration = histogram("belfry_job_execution_duration_seconds", durationBuckets,
		"From the start of an attempt to its result, whatever the outcome.", "queue", "type")
	attempts = counter("belfry_job_attempts_total",
		"Attempts that ended, by outcome. The failure rate of jobs comes from it, see the recording rule belfry:job_failure_rate.", "queue", "type", "outcome")
	runsDead = counter("belfry_runs_dead_total",
		"Runs that became dead letters.", "queue", "type", "reason")
	catchUpRuns = counter("belfry_catch_up_runs_total",
		"Runs of occurrences that were missed because no scheduler was running.", "queue", "type")
	missedOccurrences = counter("belfry_missed_occurrences_total",
		"Occurrences that were missed because no scheduler was running and do not run, by the policy of their job.", "queue", "type")
)

// The cluster.
var (
	pendingQueueDepth = clusterGauge("belfry_pending_queue_depth",
		"Runs that could start and wait for a worker: ready runs, counted up to 10,000 per handler, and due jobs that are not fired yet, counted up to 100,000. Above 5,000 due jobs their queues are estimated from a sample.", "queue", "type")
	dlqDepth = clusterGauge("belfry_dlq_depth",
		"Dead letters. Above 10,000 the number is an estimate of the database, divided as in a sample.", "queue", "type")
	workerUtilization = clusterGauge("belfry_worker_utilization",
		"Busy slots as a fraction, from 0 to 1, of all slots of the workers that serve the queue. Missing if no worker serves it. Above 100,000 running attempts only so many are counted.", "queue", "type")
	oldestDuePlan = clusterGauge("belfry_oldest_due_plan_age_seconds",
		"How long the job that has waited longest has been due without being fired; 0 if none is due.")
	historyRows = clusterGauge("belfry_history_rows",
		"Settled runs and skips in the history, estimated by the database.")
	historyBytes = clusterGauge("belfry_history_bytes",
		"Size of the history with its indexes; on SQLite the size of the whole database.")
	historyAge = clusterGauge("belfry_history_oldest_partition_age_seconds",
		"Age of the oldest daily partition of the history; on SQLite of the oldest row. It exceeds the retention by a day at most, or by the longest retention of a job.")
	leases = clusterGauge("belfry_leases",
		"Leases that are held: of shards, and of nodes with the role scheduler. On SQLite the one node has all shards.", "kind")
)

// The node.
var (
	shards = gauge("belfry_shards",
		"Shards of the database. The leases of shards should be as many.")
	shardsOwned = gauge("belfry_shards_owned",
		"Shards that this node schedules.")
	schedulerStalled = gauge("belfry_scheduler_stalled_seconds",
		"For how long the scheduler of this node has made no progress, if that is too long; otherwise 0.")
	poolSlots = gauge("belfry_worker_pool_slots",
		"Attempts that the worker of this node may run at once.")
	poolBusy = gauge("belfry_worker_pool_busy_slots",
		"Slots of the worker of this node that are taken.")
	poolStuck = gauge("belfry_worker_pool_stuck_slots",
		"Slots taken by handlers that did not return when their context ended.")
	poolUnsent = gauge("belfry_worker_pool_unsent_results",
		"Results that the worker of this node could not store yet.")
	clockOffset = gauge("belfry_clock_offset_seconds",
		"By how much the clock of the database is ahead of the clock of this machine; 0 on SQLite.")
)

// The database, as this node uses it.
var (
	statementDuration = histogram("belfry_database_statement_duration_seconds", statementBuckets,
		"Duration of statements, or of whole transactions on SQLite, by what they do.", "statement")
	databaseErrors = counter("belfry_database_errors_total",
		"Statements that failed. Conflicts that the store resolves by itself do not count.", "statement")
	connections = gauge("belfry_database_connections",
		"Connections of each pool, in use or idle.", "pool", "state")
	maxConnections = gauge("belfry_database_connections_max",
		"Connections that each pool may have.", "pool")
	connectionWaits = counter("belfry_database_connection_wait_seconds_total",
		"How long calls have waited for a connection of each pool in all.", "pool")
)

// Dispatch over a broker.
var dispatched = counter("belfry_dispatch_runs_total",
	"Ready runs in announcements over a broker, by what became of them: announced by this node, received by its worker, claimed for that, or stale because another worker had claimed the run or it was announced twice.", "event")

// Shares of namespaces.
var sharesHeld = counter("belfry_worker_pool_held_back_total",
	"How often runs that could start did not get a free slot of a worker at this node, because it was kept for other namespaces.")

// What becomes of an announced run.
const (
	DispatchAnnounced = "announced"
	DispatchReceived  = "received"
	DispatchClaimed   = "claimed"
	DispatchStale     = "stale"
)

// The API.
var requestDuration = histogram("belfry_api_request_duration_seconds", requestBuckets,
	"Duration of requests by route and class of the status. A claim waits for runs, so that it may take long.", "route", "status")

var keysRefused = counter("belfry_api_keys_refused_total",
	"API keys that were refused: wrong ones, and those that were limited because their address had sent many wrong ones, and not checked.", "reason")

// Why a key is refused.
const (
	KeyWrong   = "wrong"
	KeyLimited = "limited"
)

// Node is the state of a process. Parts that it does not have are zero.
type Node struct {
	Shards, ShardsOwned int
	Stalled             time.Duration
	Slots, Busy, Stuck  int // of the worker
	Unsent              int // results
	ClockOffset         time.Duration
	Pools               []store.PoolStats
}

// Cluster is what is known of the whole cluster at one moment.
type Cluster struct {
	store.Stats
	Ready   map[string]int // ready runs by lane
	Workers []store.Worker
	Leases  map[string]int // by kind
	At      time.Time
}

// ObserveNode has the state of the process read at every scrape.
func (m *Metrics) ObserveNode(read func() Node) { m.node.Store(&read) }

// SetCluster sets what is exported of the cluster. Nil exports nothing: another node
// does, or nothing is known.
func (m *Metrics) SetCluster(c *Cluster) { m.cluster.Store(c) }

// gauges collects what is not counted but read.
type gauges struct{ *Metrics }

var descriptions = func() map[*metric]*prometheus.Desc {
	made := map[*metric]*prometheus.Desc{}
	for _, d := range declared {
		made[d] = prometheus.NewDesc(d.name, d.help, d.labels, nil)
	}
	return made
}()

// Describe describes nothing, since which gauges there are changes with time.
func (g gauges) Describe(chan<- *prometheus.Desc) {}

func (g gauges) Collect(out chan<- prometheus.Metric) {
	send := func(d *metric, value float64, labels ...string) {
		kind := prometheus.GaugeValue
		if d.kind == kindCounter {
			kind = prometheus.CounterValue
		}
		out <- prometheus.MustNewConstMetric(descriptions[d], kind, value, labels...)
	}
	if read := g.node.Load(); read != nil {
		(*read)().collect(send)
	}
	if c := g.cluster.Load(); c != nil {
		g.collectCluster(c, send)
	}
}

type sendFunc func(d *metric, value float64, labels ...string)

func (n Node) collect(send sendFunc) {
	send(shards, float64(n.Shards))
	send(shardsOwned, float64(n.ShardsOwned))
	send(schedulerStalled, n.Stalled.Seconds())
	send(poolSlots, float64(n.Slots))
	send(poolBusy, float64(n.Busy))
	send(poolStuck, float64(n.Stuck))
	send(poolUnsent, float64(n.Unsent))
	send(clockOffset, n.ClockOffset.Seconds())
	for _, p := range n.Pools {
		send(connections, float64(p.InUse), p.Name, "in_use")
		send(connections, float64(p.Idle), p.Name, "idle")
		send(maxConnections, float64(p.Max), p.Name)
		send(connectionWaits, p.Waited.Seconds(), p.Name)
	}
}

func (g gauges) collectCluster(c *Cluster, send sendFunc) {
	age := func(since time.Time) float64 {
		if since.IsZero() {
			return 0
		}
		return max(c.At.Sub(since), 0).Seconds()
	}
	busy, slots := g.utilization(c)
	g.sendSums(send, pendingQueueDepth, g.byKey(c.Ready, c.Due), slots)
	g.sendSums(send, dlqDepth, g.byKey(c.Dead), slots)
	for key, n := range slots {
		send(workerUtilization, min(float64(busy[key])/float64(max(n, 1)), 1), key.queue, key.kind)
	}
	send(oldestDuePlan, age(c.OldestDue))
	send(historyRows, float64(c.HistoryRows))
	send(historyBytes, float64(c.HistoryBytes))
	send(historyAge, age(c.OldestHistory))
	for kind, n := range c.Leases {
		send(leases, float64(n), kind)
	}
}

// sendSums sends a gauge for every queue and type that has a value, and zero for the
// others that have had runs or have workers: an autoscaler needs to see that too.
func (g gauges) sendSums(send sendFunc, d *metric, sums, served map[workKey]int) {
	g.mu.RLock()
	for key := range g.work {
		sums[key] += 0
	}
	g.mu.RUnlock()
	for key := range served {
		sums[key] += 0
	}
	for key, n := range sums {
		send(d, float64(n), key.queue, key.kind)
	}
}

// byKey adds up counts by lane.
func (g gauges) byKey(counts ...map[string]int) map[workKey]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	sums := map[workKey]int{}
	for _, byLane := range counts {
		for lane, n := range byLane {
			sums[g.bounded(keyOf(lane))] += n
		}
	}
	return sums
}

// utilization adds up the slots of the workers that serve each queue and type, and how
// many of them are busy. A worker that serves several counts for each.
func (g gauges) utilization(c *Cluster) (busy, slots map[workKey]int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	busy, slots = map[workKey]int{}, map[workKey]int{}
	type service struct {
		worker belfry.ID
		key    workKey
	}
	counted := map[service]bool{}
	for _, w := range c.Workers {
		for _, lane := range w.Lanes {
			s := service{w.ID, g.bounded(keyOf(lane))}
			if counted[s] {
				continue
			}
			counted[s] = true
			slots[s.key] += w.Slots
			busy[s.key] += min(c.Running[w.ID], w.Slots)
		}
	}
	return busy, slots
}
