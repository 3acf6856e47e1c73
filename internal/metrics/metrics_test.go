package metrics

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/store"
)

// fleet is the runs of many jobs, in as many queues and with as many handlers as given.
func fleet(jobs, queues, handlers int) []*belfry.Run {
	now := time.Now()
	runs := make([]*belfry.Run, jobs)
	for i := range runs {
		spec := belfry.Spec{Type: belfry.TypeHTTP, Queue: fmt.Sprint("queue-", i%queues)}
		if i%2 == 1 {
			spec.Type, spec.Handler = belfry.TypeWorker, fmt.Sprint("handler-", i/2%handlers)
		}
		runs[i] = &belfry.Run{ID: belfry.NewID(now), JobID: belfry.NewID(now), JobName: fmt.Sprint("job-", i), Namespace: fmt.Sprint("namespace-", i%7), Spec: spec, ReadyAt: now, StartedAt: &now}
	}
	return runs
}

func ended(runs []*belfry.Run) []Attempt {
	list := make([]Attempt, len(runs))
	for i, run := range runs {
		list[i] = Attempt{Lane: run.Spec.Lane(run.Namespace), Outcome: belfry.OutcomeSucceeded, Duration: time.Second}
		if i%3 == 0 {
			list[i].Outcome, list[i].Dead = belfry.OutcomeFailed, belfry.ReasonOutOfRetries
		}
	}
	return list
}

// observe calls every hook that has labels from outside for all runs.
func observe(m *Metrics, runs []*belfry.Run) {
	m.Started(runs)
	m.Settled(ended(runs))
	c := &Cluster{Ready: map[string]int{}, Stats: store.Stats{Due: map[string]int{}, Dead: map[string]int{}, Running: map[belfry.ID]int{}}}
	for i, run := range runs {
		lane := run.Spec.Lane(run.Namespace)
		m.Missed(lane, 1, 1)
		c.Ready[lane]++
		c.Due[belfry.Lane(run.Spec.Queue, run.Spec.Type)]++
		c.Dead[lane]++
		c.Workers = append(c.Workers, store.Worker{ID: run.ID, Slots: 2, Lanes: []string{lane}})
		c.Running[run.ID] = i % 3
	}
	m.SetCluster(c)
}

// scrape returns the lines of the metrics of Belfry, and their media type.
func scrape(t testing.TB, m *Metrics, accept string) (lines []string, media string) {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.Header.Set("Accept", accept)
	m.Handler().ServeHTTP(w, r)
	text, err := io.ReadAll(w.Result().Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d, %v: %s", w.Code, err, text)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "belfry_") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines, w.Header().Get("Content-Type")
}

// value returns the value of a series.
func value(t testing.TB, m *Metrics, series string) string {
	t.Helper()
	lines, _ := scrape(t, m, "")
	for _, line := range lines {
		if v, ok := strings.CutPrefix(line, series+" "); ok {
			return v
		}
	}
	return ""
}

// The number of series depends on queues and types alone, and is bounded.
func TestCardinalityIsBounded(t *testing.T) {
	series := func(jobs, queues, handlers int) int {
		m := New()
		observe(m, fleet(jobs, queues, handlers))
		lines, _ := scrape(t, m, "")
		for _, line := range lines {
			if strings.Contains(line, "handler-") || strings.Contains(line, "job-") || strings.Contains(line, "namespace-") {
				t.Fatalf("a label depends on a job: %s", line)
			}
		}
		return len(lines)
	}
	few, many := series(200, 50, 1), series(100_000, 50, 1000)
	t.Logf("%d series with 50 queues", many)
	if few != many {
		t.Errorf("%d series with 200 jobs and one handler, %d with 100,000 jobs and 1,000 handlers", few, many)
	}
	if perWork := many / 100; perWork > 60 {
		t.Errorf("%d series for each queue and type", perWork)
	}
	full, overflow := series(1000, maxQueues, 1), series(10_000, 5000, 1000)
	if limit := full + 2*(full/maxQueues) + 2; overflow > limit { // one label more, of two types
		t.Errorf("%d series with 100 queues and %d with 5,000, at most %d are expected", full, overflow, limit)
	}
}

func TestQueuesBeyondTheLimitShareOneLabel(t *testing.T) {
	m := New()
	runs := fleet(4*maxQueues, 2*maxQueues, 1)
	m.Started(runs[:1])
	m.Settled(ended(runs))
	lines, _ := scrape(t, m, "")
	total, shared := 0, 0
	for _, line := range lines {
		if strings.HasPrefix(line, "belfry_job_execution_duration_seconds_count{") {
			var n int
			fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &n)
			if total += n; strings.Contains(line, `queue="other"`) {
				shared += n
			}
		}
	}
	if total != len(runs) || shared != len(runs)/2 {
		t.Errorf("%d attempts of %d were counted, %d of them as those of other queues", total, len(runs), shared)
	}
}

func TestAttemptsAreCounted(t *testing.T) {
	m := New()
	now := time.Now()
	early := now.Add(-2 * time.Second)
	spec := belfry.Spec{Type: belfry.TypeHTTP, Queue: "mail"}
	m.Started([]*belfry.Run{{Spec: spec, ReadyAt: early, StartedAt: &now}, {Spec: spec, ReadyAt: now.Add(time.Millisecond), StartedAt: &now}}) // the clocks of two machines
	m.Settled([]Attempt{
		{Lane: "mail/http", Outcome: belfry.OutcomeSucceeded, Duration: time.Second},
		{Lane: "mail/http", Outcome: belfry.OutcomeTimedOut, Duration: time.Minute, Dead: belfry.ReasonOutOfRetries},
		{Lane: "acme:mail/send", Outcome: belfry.OutcomeLost, Duration: time.Minute},
	})
	m.Missed("mail/http", 3, 4)
	m.Statement("claim", time.Millisecond, true)
	m.Request("GET /api/v1/jobs", 503, time.Second)
	m.Request("", 404, time.Second)
	for series, want := range map[string]string{
		`belfry_job_schedule_lag_seconds_sum{queue="mail",type="http"}`:                      "2",
		`belfry_job_schedule_lag_seconds_count{queue="mail",type="http"}`:                    "2",
		`belfry_job_execution_duration_seconds_sum{queue="mail",type="http"}`:                "61",
		`belfry_job_attempts_total{outcome="succeeded",queue="mail",type="http"}`:            "1",
		`belfry_job_attempts_total{outcome="timed_out",queue="mail",type="http"}`:            "1",
		`belfry_job_attempts_total{outcome="failed",queue="mail",type="http"}`:               "0",
		`belfry_job_attempts_total{outcome="lost",queue="mail",type="worker"}`:               "1",
		`belfry_runs_dead_total{queue="mail",reason="out_of_retries",type="http"}`:           "1",
		`belfry_runs_dead_total{queue="mail",reason="poison",type="worker"}`:                 "0",
		`belfry_catch_up_runs_total{queue="mail",type="http"}`:                               "3",
		`belfry_missed_occurrences_total{queue="mail",type="http"}`:                          "4",
		`belfry_database_errors_total{statement="claim"}`:                                    "1",
		`belfry_api_request_duration_seconds_count{route="GET /api/v1/jobs",status="5xx"}`:   "1",
		`belfry_api_request_duration_seconds_count{route="other",status="4xx"}`:              "1",
		`belfry_database_statement_duration_seconds_bucket{statement="claim",le="0.0005"}`:   "0",
		`belfry_database_statement_duration_seconds_bucket{statement="claim",le="0.001"}`:    "1",
		`belfry_job_attempts_total{outcome="lost",queue="mail",type="http"}`:                 "0",
		`belfry_job_execution_duration_seconds_bucket{queue="mail",type="http",le="1"}`:      "1",
		`belfry_job_execution_duration_seconds_bucket{queue="mail",type="worker",le="+Inf"}`: "1",
	} {
		if got := value(t, m, series); got != want {
			t.Errorf("%s is %q, want %q", series, got, want)
		}
	}
}

func TestClusterIsExportedWhileItIsKnown(t *testing.T) {
	m := New()
	now := time.Now()
	a, b := belfry.NewID(now), belfry.NewID(now)
	m.SetCluster(&Cluster{
		At: now, Ready: map[string]int{"default/http": 2, "x:mail/send": 1}, Leases: map[string]int{"shard": 64, "node": 2},
		Workers: []store.Worker{
			{ID: a, Slots: 10, Lanes: []string{"default/http", "x:mail/send", "x:mail/archive"}},
			{ID: b, Slots: 30, Lanes: []string{"x:mail/send"}}, // idle
		},
		Stats: store.Stats{
			Due: map[string]int{"mail/worker": 40}, Dead: map[string]int{"y:mail/send": 3}, Running: map[belfry.ID]int{a: 8},
			OldestDue: now.Add(-time.Minute), HistoryRows: 1000, HistoryBytes: 5000, OldestHistory: now.Add(-time.Hour),
		},
	})
	for series, want := range map[string]string{
		`belfry_pending_queue_depth{queue="default",type="http"}`: "2",
		`belfry_pending_queue_depth{queue="mail",type="worker"}`:  "41",
		`belfry_dlq_depth{queue="default",type="http"}`:           "0",
		`belfry_dlq_depth{queue="mail",type="worker"}`:            "3",
		`belfry_worker_utilization{queue="default",type="http"}`:  "0.8",
		`belfry_worker_utilization{queue="mail",type="worker"}`:   "0.2",
		`belfry_oldest_due_plan_age_seconds`:                      "60",
		`belfry_history_rows`:                                     "1000",
		`belfry_history_bytes`:                                    "5000",
		`belfry_history_oldest_partition_age_seconds`:             "3600",
		`belfry_leases{kind="shard"}`:                             "64",
	} {
		if got := value(t, m, series); got != want {
			t.Errorf("%s is %q, want %q", series, got, want)
		}
	}
	m.SetCluster(nil)
	if got := value(t, m, `belfry_leases{kind="shard"}`); got != "" {
		t.Errorf("a node that does not know the cluster exports %s leases", got)
	}
}

func TestFormatIsNegotiated(t *testing.T) {
	m := New()
	for accept, want := range map[string]string{
		"":           "text/plain; version=0.0.4",
		"text/plain": "text/plain; version=0.0.4",
		"application/openmetrics-text;version=1.0.0": "application/openmetrics-text; version=1.0.0",
	} {
		if _, media := scrape(t, m, accept); !strings.HasPrefix(media, want) {
			t.Errorf("Accept: %s is answered with %s", accept, media)
		}
	}
}

func TestNilMetricsMeasureNothing(t *testing.T) {
	var m *Metrics
	m.Started(fleet(1, 1, 1))
	m.Settled([]Attempt{{}})
	m.Missed("", 1, 1)
	m.Statement("", 0, false)
	m.Request("", 200, 0)
}

// The hooks on the path of a run allocate nothing, however many runs there are.
func TestHooksDoNotAllocate(t *testing.T) {
	m := New()
	runs := fleet(1000, 50, 100)
	list := ended(runs)
	for name, hook := range map[string]func(){
		"Started":   func() { m.Started(runs) },
		"Settled":   func() { m.Settled(list) },
		"Statement": func() { m.Statement("claim", time.Millisecond, false) },
	} {
		hook()
		if n := testing.AllocsPerRun(10, hook); n > 0 {
			t.Errorf("%s allocates %g times", name, n)
		}
	}
}

// BenchmarkHooks measures what the hooks add to a run: its start and its result.
func BenchmarkHooks(b *testing.B) {
	for _, queues := range []int{1, 50} {
		b.Run(fmt.Sprintf("queues=%d", queues), func(b *testing.B) {
			m := New()
			runs := fleet(1000, queues, 100)
			list := ended(runs)
			b.ReportAllocs()
			for b.Loop() {
				m.Started(runs)
				m.Settled(list)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(runs)), "ns/run")
		})
	}
}
