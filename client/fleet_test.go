package client_test

import (
	"testing"

	"github.com/belfry-sh/belfry"
)

func TestFleetAndForecastCalls(t *testing.T) {
	c, _ := live(t)
	m := belfry.Manifest{Name: "report", Spec: belfry.Spec{Schedule: "0 * * * *", Queue: "mail"}, Payload: belfry.MustJSON(map[string]string{"url": "https://example.com"})}
	must[belfry.Job](t)(c.CreateJob(t.Context(), m))
	f := must[belfry.Forecast](t)(c.Forecast(t.Context(), belfry.ForecastQuery{Queue: "mail", JitterSeconds: 60}))
	if f.Jobs != 1 || f.DayRuns < 23 || f.DayRuns > 24 || f.WithJitter == nil || f.WithJitter.JitterSeconds != 60 || f.Peak() != 1 {
		t.Errorf("got %d jobs, %d runs, peak %d, %+v", f.Jobs, f.DayRuns, f.Peak(), f.WithJitter)
	}
	if other := must[belfry.Forecast](t)(c.Forecast(t.Context(), belfry.ForecastQuery{Queue: "other"})); other.Jobs != 0 || other.Peak() != 0 {
		t.Errorf("another queue has %d jobs", other.Jobs)
	}
	if fleet := must[belfry.Fleet](t)(c.Fleet(t.Context())); fleet.Database.Version == "" || fleet.At.IsZero() {
		t.Errorf("got %+v", fleet)
	}
}
