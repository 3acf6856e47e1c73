package control

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	maxFleetNodes   = 500
	maxFleetWorkers = 500
	fleetLifetime   = 2 * time.Second // in which the answer is used again
)

// RunsIn says which node this is, whether it owns all shards without leases, and otherwise
// what it elects by, if it does. It is called before anything else.
func (c *Control) RunsIn(node belfry.ID, ownsAll bool, by belfry.Election) {
	c.node, c.ownsAll, c.election = node, ownsAll, by
}

// Fleet says which nodes and workers there are, and how the database does. The answer may be
// some seconds old.
func (c *Control) Fleet(ctx context.Context) (belfry.Fleet, error) {
	return c.fleets.Get(ctx, struct{}{}, fleetLifetime, func(ctx context.Context) (f belfry.Fleet, err error) {
		f = belfry.Fleet{At: c.now(), NodeID: c.node, Shards: c.store.Shards()}
		for _, read := range []func(context.Context, *belfry.Fleet) error{c.readDatabase, c.readNodes, c.readWorkers} {
			if err := retryUnknown(ctx, "read the fleet", func() error { return read(ctx, &f) }); err != nil {
				return f, err
			}
		}
		return f, nil
	})
}

func (c *Control) readDatabase(ctx context.Context, f *belfry.Fleet) error {
	start := time.Now()
	if err := c.store.Ping(ctx); err != nil {
		return err
	}
	latency := time.Since(start)
	d, err := c.store.Database(ctx)
	f.Database = belfry.FleetDatabase{Kind: d.Kind, Version: d.Version, Bytes: d.Bytes, LatencySeconds: latency.Seconds(), Pools: []belfry.FleetPool{}}
	for _, p := range c.store.Pools() {
		f.Database.Pools = append(f.Database.Pools, belfry.FleetPool{Name: p.Name, Max: p.Max, InUse: p.InUse, Idle: p.Idle})
	}
	return err
}

func (c *Control) readNodes(ctx context.Context, f *belfry.Fleet) error {
	nodes, err := c.store.Nodes(ctx)
	if err != nil {
		return err
	}
	leases, err := c.store.Held(ctx, "")
	if err != nil {
		return err
	}
	owners := make([]belfry.ID, f.Shards)
	alerts := belfry.ID{}
	elections, first := map[belfry.ID]belfry.Election{}, belfry.ID{}
	f.Election = c.election
	for _, lease := range leases {
		number, _ := strings.CutPrefix(lease.Name, store.ShardLease)
		if shard, err := strconv.Atoi(number); err == nil && shard >= 0 && shard < len(owners) {
			owners[shard] = lease.Owner
		}
		if lease.Name == store.AlertsLease {
			alerts = lease.Owner
		}
		if by := store.LeaseElection(lease.Name); by != "" {
			if elections[lease.Owner] = by; first.IsZero() || lease.Owner.Compare(first) < 0 {
				first, f.Election = lease.Owner, by
			}
		}
	}
	if c.ownsAll {
		for shard := range owners {
			owners[shard] = c.node
		}
	}
	names := map[belfry.ID]string{}
	f.Nodes, f.NodesAll, f.NodesUp, f.Unowned = make([]belfry.FleetNode, 0, len(nodes)), len(nodes), 0, []int{}
	for _, n := range nodes {
		node := belfry.FleetNode{
			ID: n.ID, Name: n.Name, Address: n.Address, Version: n.Version, Roles: n.Roles, State: nodeState(n, f.At), Election: elections[n.ID], Shards: []int{},
			ClockOffsetSeconds: n.Offset.Seconds(), StartedAt: n.StartedAt, SeenAt: n.SeenAt, LeftAt: n.LeftAt,
		}
		for shard, owner := range owners {
			if owner == n.ID {
				node.Shards = append(node.Shards, shard)
			}
		}
		if names[n.ID] = n.Name; node.State == belfry.NodeUp {
			f.NodesUp++
		}
		f.Nodes = append(f.Nodes, node)
	}
	for shard, owner := range owners {
		if owner.IsZero() {
			f.Unowned = append(f.Unowned, shard)
		}
	}
	f.Duties = []belfry.FleetDuty{{Name: "alerts", NodeID: alerts, Node: names[alerts]}, {Name: "maintenance", NodeID: owners[0], Node: names[owners[0]]}}
	slices.SortFunc(f.Nodes, func(a, b belfry.FleetNode) int {
		switch aUp, bUp := a.State == belfry.NodeUp, b.State == belfry.NodeUp; {
		case aUp && bUp:
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Address, b.Address), a.ID.Compare(b.ID))
		case aUp:
			return -1
		case bUp:
			return 1
		}
		return b.SeenAt.Compare(a.SeenAt)
	})
	f.Nodes = f.Nodes[:min(len(f.Nodes), maxFleetNodes)]
	return nil
}

func nodeState(n store.Node, now time.Time) belfry.NodeState {
	switch {
	case n.LeftAt != nil:
		return belfry.NodeLeft
	case now.Sub(n.SeenAt) > store.NodeTimeout:
		return belfry.NodeLost
	}
	return belfry.NodeUp
}

func (c *Control) readWorkers(ctx context.Context, f *belfry.Fleet) error {
	workers, err := c.store.Workers(ctx)
	if err != nil {
		return err
	}
	running, err := c.store.Running(ctx)
	f.Workers, f.Total = []belfry.FleetWorker{}, belfry.FleetTotal{Workers: len(workers)}
	for _, w := range workers {
		f.Total.Slots += w.Slots
		f.Total.Busy += running[w.ID]
		if len(f.Workers) == maxFleetWorkers {
			continue
		}
		worker := belfry.FleetWorker{ID: w.ID, Node: w.Node, Queues: []string{}, Handlers: []string{}, Slots: w.Slots, Busy: running[w.ID], StartedAt: w.StartedAt, SeenAt: w.LastSeen}
		for _, lane := range w.Lanes {
			if namespace, _, ok := strings.Cut(lane, ":"); ok {
				worker.Namespace = namespace
			}
			queue, handler := belfry.SplitLane(lane)
			worker.Queues, worker.Handlers = append(worker.Queues, queue), append(worker.Handlers, handler)
		}
		slices.Sort(worker.Queues)
		slices.Sort(worker.Handlers)
		worker.Queues, worker.Handlers = slices.Compact(worker.Queues), slices.Compact(worker.Handlers)
		f.Workers = append(f.Workers, worker)
	}
	return err
}

const (
	maxForecastExact = 20_000 // jobs that are all looked at; of more a sample is
	forecastSoon     = 10_000 // plans of a sample that are due first
	forecastSample   = 10_000 // plans that are drawn at a time
	forecastDraws    = 4      // how often, while few of them match
	forecastEnough   = 5000   // plans that match

	forecastTime     = time.Second             // to count the runs; then it is an estimate
	forecastMaxTime  = 1500 * time.Millisecond // with what makes the spikes
	forecastLifetime = 5 * time.Second         // in which the answer is used again
)

// Forecast says how many runs are planned. It computes the runs of all jobs, or of a sample
// if there are many. The answer may be some seconds old.
func (c *Control) Forecast(ctx context.Context, namespace string, q belfry.ForecastQuery) (belfry.Forecast, error) {
	return c.forecasts.Get(ctx, forecastKey{namespace, q}, forecastLifetime, func(ctx context.Context) (belfry.Forecast, error) {
		f := &forecast{store: c.store, defaults: c.defaults, namespace: namespace, queue: q.Queue, now: c.now(), known: map[store.Digest]*belfry.Spec{}}
		f.runs = plan.NewForecaster(f.now, time.Duration(q.JitterSeconds)*time.Second)
		sampled, err := f.read(ctx)
		if err != nil {
			return belfry.Forecast{}, err
		}
		var out belfry.Forecast
		err = c.forecasting.do(ctx, func() error {
			start := time.Now()
			after := func(limit time.Duration) func() bool { return func() bool { return time.Since(start) > limit } }
			f.add()
			out = f.runs.Forecast(after(forecastTime), after(forecastMaxTime))
			return nil
		})
		out.Sampled = out.Sampled || sampled
		if err == nil {
			err = c.nameSpikes(ctx, namespace, out.Spikes)
		}
		return out, err
	})
}

type forecastKey struct {
	namespace string
	belfry.ForecastQuery
}

// forecast is one that is being computed.
type forecast struct {
	store            retryingStore
	defaults         plan.Defaults
	namespace, queue string
	now              time.Time
	runs             *plan.Forecaster
	plans            []weightedPlan
	known            map[store.Digest]*belfry.Spec // nil: of another namespace or queue
}

type weightedPlan struct {
	store.Planned
	weight float64
}

// read reads the plans of all jobs of the namespace, or a sample if there are too many.
//
// A sample has two parts: all plans until an instant, and some of the rest. Jobs that run
// often are due soon, and so in the first part: whether a few of them that make most runs
// are in the sample is not left to chance.
func (f *forecast) read(ctx context.Context) (sampled bool, err error) {
	var plans []store.Planned
	var complete bool
	err = retryUnknown(ctx, "read the plans of a namespace", func() (err error) {
		plans, complete, err = f.store.NamespacePlans(ctx, f.namespace, f.queue, maxForecastExact)
		return err
	})
	if err != nil || complete {
		return false, f.take(ctx, plans, 1, err)
	}
	shards := allShards(f.store)
	soon := store.AllUntil(f.now.Add(7*24*time.Hour), shards, store.PerShard(forecastSoon, len(shards)))
	plans, err = retryRead(ctx, "read plans", func() ([]store.Planned, error) { return f.store.Upcoming(ctx, soon) })
	if err != nil {
		return true, err
	}
	end := soon.Until
	for _, reached := range soon.Reached(plans) {
		if reached.At.Before(end) {
			end = reached.At
		}
	}
	if err := f.take(ctx, between(plans, time.Time{}, end), 1, nil); err != nil {
		return true, err
	}
	draws, first := 0, len(f.plans)
	for ; draws < forecastDraws && len(f.plans)-first < forecastEnough; draws++ {
		var weight float64
		err := retryUnknown(ctx, "sample plans", func() (err error) {
			plans, weight, err = f.store.SamplePlans(ctx, forecastSample)
			return err
		})
		if err := f.take(ctx, between(plans, end, time.Time{}), weight, err); err != nil {
			return true, err
		}
	}
	for i := range f.plans[first:] {
		f.plans[first+i].weight /= float64(max(draws, 1))
	}
	return true, nil
}

// between leaves out plans that are due before an instant, or not before another.
func between(plans []store.Planned, from, to time.Time) (list []store.Planned) {
	for _, p := range plans {
		if !p.Plan.NextAt.Before(from) && (to.IsZero() || p.Plan.NextAt.Before(to)) {
			list = append(list, p)
		}
	}
	return list
}

// take takes the plans of the namespace and the queue. What plans with the same digest have
// in common is read once.
func (f *forecast) take(ctx context.Context, plans []store.Planned, weight float64, err error) error {
	unknown := map[belfry.ID]store.Digest{}
	for i := range plans {
		p := &plans[i]
		if p.Digest == (store.Digest{}) {
			p.Digest = store.Digest(p.Plan.JobID) // It is like no other.
		}
		if _, ok := f.known[p.Digest]; !ok {
			f.known[p.Digest] = nil
			unknown[p.Plan.JobID] = p.Digest
		}
	}
	ids := slices.Collect(maps.Keys(unknown))
	if err == nil && len(ids) > 0 {
		var dues []store.Due
		dues, err = retryRead(ctx, "read plans", func() ([]store.Due, error) { return f.store.PlansByJob(ctx, ids) })
		for _, d := range dues {
			f.known[unknown[d.Plan.JobID]] = f.spec(d)
		}
	}
	for _, p := range plans {
		if f.known[p.Digest] != nil {
			f.plans = append(f.plans, weightedPlan{p, weight})
		}
	}
	return err
}

// spec is the spec of a job; nil: it is not asked for.
func (f *forecast) spec(d store.Due) *belfry.Spec {
	if d.Namespace != f.namespace {
		return nil
	}
	spec, err := store.DecodeSpec(d.Spec)
	if err != nil || f.queue != "" && spec.Queue != f.queue {
		return nil
	}
	return &spec
}

// add adds the plans. A job whose schedule cannot be parsed is quarantined, and does not run.
func (f *forecast) add() {
	policies := make(map[store.Digest]*plan.Policy, len(f.known))
	for _, p := range f.plans {
		policy, ok := policies[p.Digest]
		if !ok {
			policy, _ = f.defaults.Compile(*f.known[p.Digest])
			policies[p.Digest] = policy
		}
		if policy != nil {
			f.runs.Add(policy, p.Plan, p.weight)
		}
	}
}

func (c *Control) nameSpikes(ctx context.Context, namespace string, spikes []belfry.Spike) error {
	var jobs []*belfry.SpikeJob
	for _, spike := range spikes {
		for _, s := range spike.Schedules {
			for i := range s.Examples {
				jobs = append(jobs, &s.Examples[i])
			}
		}
	}
	ids := make([]belfry.ID, len(jobs))
	for i, job := range jobs {
		ids[i] = job.JobID
	}
	names, err := retryRead(ctx, "look up names of jobs", func() (map[belfry.ID]string, error) { return c.store.JobNames(ctx, namespace, ids) })
	for _, job := range jobs {
		job.Name = names[job.JobID]
	}
	return err
}
