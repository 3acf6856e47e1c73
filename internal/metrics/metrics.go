// Package metrics counts and measures what a node does, for Prometheus. Every metric is
// declared once, in declarations.go.
//
// Labels are bounded whatever users do: no metric is by job or by handler, and the first
// queues of a process have values of their own, the others share one. All methods may be
// called on a nil *Metrics, and concurrently.
package metrics

import (
	"cmp"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// Values of labels that users choose.
const (
	maxQueues = 100
	maxTypes  = 10
	other     = "other" // stands for the queues and types beyond
)

// Metrics is the metrics of one process.
type Metrics struct {
	registry *prometheus.Registry

	histograms map[*metric]*prometheus.HistogramVec
	counters   map[*metric]*prometheus.CounterVec

	mu     sync.RWMutex
	queues map[string]bool
	types  map[string]bool
	work   map[workKey]*workSeries

	activity activity

	node    atomic.Pointer[func() Node]
	cluster atomic.Pointer[Cluster]
}

// workKey is the labels of what is measured about runs.
type workKey struct{ queue, kind string }

// workSeries is what is measured about the runs of one queue and type. It exists as a
// whole from the first run on: a rate over a counter misses the value that it begins with.
type workSeries struct {
	lag, duration    prometheus.Observer
	outcomes         map[belfry.Outcome]prometheus.Counter
	dead             map[belfry.Reason]prometheus.Counter
	catchUps, missed prometheus.Counter
}

// New makes the metrics of a process, with those of the Go runtime and of the process.
func New() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(), histograms: map[*metric]*prometheus.HistogramVec{}, counters: map[*metric]*prometheus.CounterVec{},
		queues: map[string]bool{}, types: map[string]bool{}, work: map[workKey]*workSeries{},
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), gauges{m})
	for _, d := range declared {
		switch {
		case d.kind == kindHistogram:
			m.histograms[d] = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: d.name, Help: d.help, Buckets: d.buckets}, d.labels)
			m.registry.MustRegister(m.histograms[d])
		case d.kind == kindCounter && d != connectionWaits: // which is read
			m.counters[d] = prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.name, Help: d.help}, d.labels)
			m.registry.MustRegister(m.counters[d])
		}
	}
	m.counters[sharesHeld].WithLabelValues()
	for _, event := range []string{DispatchAnnounced, DispatchReceived, DispatchClaimed, DispatchStale} {
		m.counters[dispatched].WithLabelValues(event)
	}
	for _, reason := range []string{KeyWrong, KeyLimited} {
		m.counters[keysRefused].WithLabelValues(reason)
	}
	return m
}

// Handler serves the metrics, as Prometheus text or OpenMetrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: 4})
}

// Started measures attempts that were claimed.
func (m *Metrics) Started(runs []*belfry.Run) {
	if m == nil {
		return
	}
	var last workKey
	var series *workSeries
	for _, run := range runs {
		if key := (workKey{run.Spec.Queue, run.Spec.Type}); series == nil || key != last {
			last, series = key, m.seriesOf(key)
		}
		series.lag.Observe(max(run.StartedAt.Sub(run.ReadyAt), 0).Seconds())
	}
	m.activity.started(runs)
}

// Attempt is an attempt that ended.
type Attempt struct {
	Namespace string
	Lane      string
	Outcome   belfry.Outcome
	Duration  time.Duration
	Dead      belfry.Reason // why its run is dead; empty: it is not
}

// Settled measures attempts that ended.
func (m *Metrics) Settled(ended []Attempt) {
	if m == nil {
		return
	}
	var lane string
	var series *workSeries
	for i := range ended {
		a := &ended[i]
		if series == nil || a.Lane != lane {
			lane, series = a.Lane, m.seriesOf(keyOf(a.Lane))
		}
		series.duration.Observe(max(a.Duration, 0).Seconds())
		if c := series.outcomes[a.Outcome]; c != nil {
			c.Inc()
		}
		if a.Dead != "" {
			series.dead[a.Dead].Inc()
		}
	}
	m.activity.settled(ended)
}

// Missed counts what a scheduler decided about missed occurrences of a job.
func (m *Metrics) Missed(lane string, run int, notRun int64) {
	if m == nil || run == 0 && notRun == 0 {
		return
	}
	series := m.seriesOf(keyOf(lane))
	series.catchUps.Add(float64(run))
	series.missed.Add(float64(notRun))
}

// Dispatched counts runs in announcements over a broker, by what became of them.
func (m *Metrics) Dispatched(event string, runs int) {
	if m != nil {
		m.counters[dispatched].WithLabelValues(event).Add(float64(runs))
	}
}

// KeyRefused counts a key that was refused.
func (m *Metrics) KeyRefused(reason string) {
	if m != nil {
		m.counters[keysRefused].WithLabelValues(reason).Inc()
	}
}

// HeldBack counts that runs did not get a free slot, which was kept for other namespaces.
func (m *Metrics) HeldBack() {
	if m != nil {
		m.counters[sharesHeld].WithLabelValues().Inc()
	}
}

// Statement measures a statement of the database, or a transaction, by what it does:
// one of few words.
func (m *Metrics) Statement(what string, took time.Duration, failed bool) {
	if m == nil {
		return
	}
	m.histograms[statementDuration].WithLabelValues(what).Observe(took.Seconds())
	failures := m.counters[databaseErrors].WithLabelValues(what) // it exists from the first statement on
	if failed {
		failures.Inc()
	}
}

// Request measures a request to the API. The pattern is that of its route; empty: it has
// none.
func (m *Metrics) Request(pattern string, status int, took time.Duration) {
	if m == nil {
		return
	}
	m.histograms[requestDuration].WithLabelValues(cmp.Or(pattern, other), strconv.Itoa(status/100)+"xx").Observe(took.Seconds())
}

func keyOf(lane string) workKey {
	queue, kind := belfry.LaneType(lane)
	return workKey{queue, kind}
}

// seriesOf finds or makes the series of a queue and type.
func (m *Metrics) seriesOf(key workKey) *workSeries {
	m.mu.RLock()
	series := m.work[key]
	m.mu.RUnlock()
	if series != nil {
		return series
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key = m.bounded(key)
	if m.work[key] == nil {
		m.work[key] = m.newSeries(key)
	}
	return m.work[key]
}

// bounded replaces names that are too many; mu is held.
func (m *Metrics) bounded(key workKey) workKey {
	return workKey{boundedName(m.queues, key.queue, maxQueues), boundedName(m.types, key.kind, maxTypes)}
}

func boundedName(known map[string]bool, name string, most int) string {
	if !known[name] && len(known) >= most {
		return other
	}
	known[name] = true
	return name
}

func (m *Metrics) newSeries(key workKey) *workSeries {
	s := &workSeries{
		lag: m.histograms[scheduleLag].WithLabelValues(key.queue, key.kind), duration: m.histograms[executionDuration].WithLabelValues(key.queue, key.kind),
		catchUps: m.counters[catchUpRuns].WithLabelValues(key.queue, key.kind), missed: m.counters[missedOccurrences].WithLabelValues(key.queue, key.kind),
		outcomes: map[belfry.Outcome]prometheus.Counter{}, dead: map[belfry.Reason]prometheus.Counter{},
	}
	for _, outcome := range belfry.Outcome("").EnumValues() {
		s.outcomes[belfry.Outcome(outcome.Value)] = m.counters[attempts].WithLabelValues(key.queue, key.kind, outcome.Value)
	}
	for _, reason := range []belfry.Reason{belfry.ReasonOutOfRetries, belfry.ReasonPermanent, belfry.ReasonPoison} {
		s.dead[reason] = m.counters[runsDead].WithLabelValues(key.queue, key.kind, string(reason))
	}
	return s
}

// maxActivity is how many namespaces are counted in a minute. What the others do is not
// counted.
const maxActivity = 1000

// activity counts by namespace and minute, for the page.
type activity struct {
	mu     sync.Mutex
	minute time.Time
	counts map[string]*activityCounts // of the minute
	ended  []store.Activity           // of minutes before it, to be recorded
}

type activityCounts struct {
	store.ActivityCounts
	changed bool // since it was last recorded
}

// of finds the counts of a namespace in this minute; nil: there are too many. mu is held.
func (a *activity) of(namespace string, now time.Time) *activityCounts {
	if minute := now.Truncate(time.Minute); minute.After(a.minute) || a.counts == nil {
		a.ended = a.take(a.ended)
		a.minute, a.counts = minute, map[string]*activityCounts{}
	}
	c := a.counts[namespace]
	if c == nil && len(a.counts) < maxActivity {
		c = new(activityCounts)
		a.counts[namespace] = c
	}
	return c
}

func (a *activity) take(list []store.Activity) []store.Activity {
	for namespace, c := range a.counts {
		if c.changed {
			c.changed = false
			list = append(list, store.Activity{Minute: a.minute.UTC(), Namespace: namespace, Counts: c.ActivityCounts})
		}
	}
	return list
}

func (a *activity) started(runs []*belfry.Run) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, run := range runs {
		if c := a.of(run.Namespace, now); c != nil {
			c.AddLag(run.StartedAt.Sub(run.ReadyAt))
			c.changed = true
		}
	}
}

func (a *activity) settled(ended []Attempt) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range ended {
		c := a.of(ended[i].Namespace, now)
		if c == nil {
			continue
		}
		c.changed = true
		switch {
		case ended[i].Outcome == belfry.OutcomeSucceeded:
			c.ActivityCounts[store.CountSucceeded]++
		case ended[i].Dead != "":
			c.ActivityCounts[store.CountDead]++
		case ended[i].Outcome == belfry.OutcomeFailed || ended[i].Outcome == belfry.OutcomeTimedOut || ended[i].Outcome == belfry.OutcomeLost:
			c.ActivityCounts[store.CountFailed]++
		}
	}
}

// TakeActivity returns what changed since the last call, with all that was counted in the
// same minute.
func (m *Metrics) TakeActivity() []store.Activity {
	m.activity.mu.Lock()
	defer m.activity.mu.Unlock()
	list := m.activity.take(m.activity.ended)
	m.activity.ended = nil
	return list
}
