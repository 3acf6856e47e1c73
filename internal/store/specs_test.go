package store

import (
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

// What is stored must mean the same for ever, whatever becomes the default of new jobs.
func TestStoredSpecsKeepTheirMeaning(t *testing.T) {
	base := belfry.Spec{
		Type: "http", Schedule: "@daily", MissedWindow: "run_once", Queue: "default", Priority: "normal", Overlap: "skip", TimeoutSeconds: 60,
		MaxRetries: belfry.Some(3), RetryBackoff: "exponential", RetryBaseSeconds: belfry.Some(5.0), RetryCapSeconds: belfry.Some(1800.0), RetryJitter: belfry.Some(0.25),
	}
	worker := base
	worker.Type, worker.Handler, worker.Queue, worker.TimeoutSeconds = "worker", "report", "mail", 5
	worker.MaxRetries, worker.RetryJitter = belfry.Some(0), belfry.Some(0.0)
	for text, want := range map[string]belfry.Spec{
		`{"schedule":"@daily"}`: base,
		`{"type":"worker","handler":"report","schedule":"@daily","queue":"mail","timeout_seconds":5,"max_retries":0,"retry_jitter":0}`: worker,
	} {
		if got, err := DecodeSpec(text); err != nil || got != want {
			t.Errorf("%s is\n%+v, wants\n%+v (%v)", text, got, want, err)
		}
		if got, err := new(SpecEncoder).Encode(want); err != nil || got != text {
			t.Errorf("%+v is stored as %s, wants %s (%v)", want, got, text, err)
		}
	}
	// as it was stored before fields were left out
	whole := `{"type":"http","schedule":"@daily","missed_window":"run_once","queue":"default","priority":"normal","overlap":"skip","timeout_seconds":60,` +
		`"max_retries":3,"retry_backoff":"exponential","retry_base_seconds":5,"retry_cap_seconds":1800,"retry_jitter":0.25}`
	if got, err := DecodeSpec(whole); err != nil || got != base {
		t.Errorf("%s is\n%+v (%v)", whole, got, err)
	}
	if got, err := DecodeSpec(`{"schedule":`); err == nil || got != (belfry.Spec{}) {
		t.Errorf("half a spec is %+v (%v)", got, err)
	}
}

// Every spec that has its defaults is read back as it was.
func TestSpecsAreReadBack(t *testing.T) {
	spec := belfry.DefaultSpec()
	spec.Type, spec.Schedule, spec.Description = belfry.TypeHTTP, "0 3 * * *", "text"
	other := spec
	other.MissedWindow, other.Overlap, other.Priority, other.RetryBackoff = belfry.MissedSkip, belfry.OverlapParallel, "high", belfry.BackoffFixed
	other.StartsAt, other.RetryDelays, other.RetryCapSeconds = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), "5,10", belfry.Some(0.0)
	var encoder SpecEncoder
	for _, want := range []belfry.Spec{spec, other, spec} {
		text, err := encoder.Encode(want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := DecodeSpec(text); err != nil || got != want {
			t.Errorf("%s is\n%+v, wants\n%+v (%v)", text, got, want, err)
		}
	}
}
