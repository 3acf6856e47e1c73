package main

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func runs(seconds ...float64) []measurement {
	var all []measurement
	for _, s := range seconds {
		all = append(all, measurement{result: result{Version: "v1", InsertSeconds: 1, Seconds: s}, clientCPU: time.Second, serverCPU: 2 * time.Second})
	}
	return all
}

func TestTable(t *testing.T) {
	belfry := series{system: system{name: "Belfry"}, runs: runs(1, 2, 4)}
	belfry.runs[0].ClientPerSecond, belfry.runs[1].ClientPerSecond, belfry.runs[2].ClientPerSecond = 2000, 2000, 500
	got := table([]series{
		{system: system{name: "River", baseline: true}, runs: runs(4, 2, 5)},
		{system: system{name: "graphile-worker", baseline: true}, runs: runs(3, 3, 3)},
		{system: system{name: "asynq"}, err: errors.New("Redis is not installed")},
		belfry,
	}, 1000, []string{"Go 1", "PostgreSQL 2"})
	for _, want := range []string{
		"1000 no-op jobs; Go 1, PostgreSQL 2.\n",
		"| River v1 | 1000 | 500 | 250 | 1.00 | 0.75 | 1000 µs | 2000 µs |\n",
		"| graphile-worker v1 | 1000 | 333 | 333 | 0.67 | 1.00 | 1000 µs | 2000 µs |\n",
		"| asynq | not measured | | | | | | |\n",
		"| Belfry v1 | 1000 | 1000 | 500 | 2.00 | 1.50 | 1000 µs | 2000 µs |\n", // the best of River, the median of graphile-worker
		"\nasynq: Redis is not installed\n",
		"\nBelfry: the same HTTP client and receiver alone reach 2000 requests/s (median); this is 0.50 of it (median of the runs).\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the table lacks %q:\n%s", want, got)
		}
	}
}

func TestTableWithoutBaseline(t *testing.T) {
	got := table([]series{{system: system{name: "Belfry"}, runs: runs(1)}}, 1000, nil)
	if want := "| Belfry v1 | 1000 | 1000 | 1000 | - | - |"; !strings.Contains(got, want) {
		t.Errorf("the table lacks %q:\n%s", want, got)
	}
}

func TestBelfryMustBeCorrect(t *testing.T) {
	r, err := decodeBelfry([]byte(`{"jobs":100,"version":"v1","created_per_second":50,"finished_seconds":4,"client_per_second":9}`))
	if want := (result{Version: "v1", InsertSeconds: 2, Seconds: 4, ClientPerSecond: 9}); err != nil || r != want {
		t.Errorf("got %+v, %v, want %+v", r, err, want)
	}
	for _, field := range []string{"early", "duplicates", "missing"} {
		if _, err := decodeBelfry([]byte(`{"jobs":100,"created_per_second":50,"finished_seconds":4,"` + field + `":1}`)); err == nil {
			t.Errorf("a run with %s is accepted", field)
		}
	}
}

func TestCPUTimeOfThisProcess(t *testing.T) {
	if cpuTime(0) != 0 {
		t.Error("an unknown server has used processor time")
	}
}
