// Package metrics counts and measures what a node does, for Prometheus. Every metric is
// declared once, in declarations.go.
//
// Labels are bounded whatever users do: no metric is by job or by handler, and the first
// queues of a process have values of their own, the others share one. All methods may be
// called on a nil *Metrics, and concurrently.
package metrics

import (
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/belfry-sh/belfry"
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

	lag, duration, statements, requests        *prometheus.HistogramVec
	attempts, dead, catchUps, missed, failures *prometheus.CounterVec
	dispatched, keysRefused, heldBack          *prometheus.CounterVec

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
	m := &Metrics{registry: prometheus.NewRegistry(), queues: map[string]bool{}, types: map[string]bool{}, work: map[workKey]*workSeries{}}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), gauges{m})
	m.lag, m.duration = m.histogram(scheduleLag), m.histogram(executionDuration)
	m.statements, m.requests = m.histogram(statementDuration), m.histogram(requestDuration)
	m.attempts, m.dead, m.failures = m.counter(attempts), m.counter(runsDead), m.counter(databaseErrors)
	m.catchUps, m.missed = m.counter(catchUpRuns), m.counter(missedOccurrences)
	m.dispatched, m.heldBack = m.counter(dispatched), m.counter(sharesHeld)
	m.heldBack.WithLabelValues()
	for _, event := range []string{DispatchAnnounced, DispatchReceived, DispatchClaimed, DispatchStale} {
		m.dispatched.WithLabelValues(event)
	}
	m.keysRefused = m.counter(keysRefused)
	m.keysRefused.WithLabelValues(KeyWrong)
	m.keysRefused.WithLabelValues(KeyLimited)
	return m
}

func (m *Metrics) histogram(d *metric) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: d.name, Help: d.help, Buckets: d.buckets}, d.labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) counter(d *metric) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.name, Help: d.help}, d.labels)
	m.registry.MustRegister(v)
	return v
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
		m.dispatched.WithLabelValues(event).Add(float64(runs))
	}
}

// KeyRefused counts a key that was refused.
func (m *Metrics) KeyRefused(reason string) {
	if m != nil {
		m.keysRefused.WithLabelValues(reason).Inc()
	}
}

// HeldBack counts that runs did not get a free slot, which was kept for other namespaces.
func (m *Metrics) HeldBack() {
	if m != nil {
		m.heldBack.WithLabelValues().Inc()
	}
}

// Statement measures a statement of the database, or a transaction, by what it does:
// one of few words.
func (m *Metrics) Statement(what string, took time.Duration, failed bool) {
	if m == nil {
		return
	}
	m.statements.WithLabelValues(what).Observe(took.Seconds())
	failures := m.failures.WithLabelValues(what) // it exists from the first statement on
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
	if pattern == "" {
		pattern = other
	}
	m.requests.WithLabelValues(pattern, strconv.Itoa(status/100)+"xx").Observe(took.Seconds())
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
		lag: m.lag.WithLabelValues(key.queue, key.kind), duration: m.duration.WithLabelValues(key.queue, key.kind),
		catchUps: m.catchUps.WithLabelValues(key.queue, key.kind), missed: m.missed.WithLabelValues(key.queue, key.kind),
		outcomes: map[belfry.Outcome]prometheus.Counter{}, dead: map[belfry.Reason]prometheus.Counter{},
	}
	for _, outcome := range belfry.Outcome("").EnumValues() {
		s.outcomes[belfry.Outcome(outcome.Value)] = m.attempts.WithLabelValues(key.queue, key.kind, outcome.Value)
	}
	for _, reason := range []belfry.Reason{belfry.ReasonOutOfRetries, belfry.ReasonPermanent, belfry.ReasonPoison} {
		s.dead[reason] = m.dead.WithLabelValues(key.queue, key.kind, string(reason))
	}
	return s
}
