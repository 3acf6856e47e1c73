package control

import (
	"context"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
)

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
	shards := make([]int, f.store.Shards())
	for i := range shards {
		shards[i] = i
	}
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
	ids := make([]belfry.ID, 0, len(unknown))
	for id := range unknown {
		ids = append(ids, id)
	}
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

// nameSpikes sets the names of the jobs that make spikes.
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
