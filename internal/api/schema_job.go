package api

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/belfry-sh/belfry"
)

// jobInput describes a job as it is read. It is decoded by hand, for the sake of
// what is said about mistakes; a test holds the two together.
type jobInput struct {
	Name                   string              `json:"name,omitempty"`
	Tags                   []string            `json:"tags,omitempty"`
	Type                   string              `json:"type,omitempty"`
	Handler                string              `json:"handler,omitempty"`
	Schedule               string              `json:"schedule"`
	Timezone               string              `json:"timezone,omitempty"`
	DSTGap                 belfry.DSTGap       `json:"dst_gap,omitempty"`
	DSTOverlap             string              `json:"dst_overlap,omitempty"`
	StartsAt               time.Time           `json:"starts_at,omitzero"`
	EndsAt                 time.Time           `json:"ends_at,omitzero"`
	MaxRuns                int                 `json:"max_runs,omitempty"`
	JitterSeconds          int                 `json:"jitter_seconds,omitempty"`
	Payload                json.RawMessage     `json:"payload,omitempty"`
	MissedWindow           belfry.MissedWindow `json:"missed_window,omitempty"`
	Queue                  string              `json:"queue,omitempty"`
	Overlap                belfry.Overlap      `json:"overlap,omitempty"`
	TimeoutSeconds         int                 `json:"timeout_seconds,omitempty"`
	MaxRetries             int                 `json:"max_retries,omitempty"`
	RetryBackoff           belfry.Backoff      `json:"retry_backoff,omitempty"`
	RetryBaseSeconds       float64             `json:"retry_base_seconds,omitempty"`
	RetryCapSeconds        float64             `json:"retry_cap_seconds,omitempty"`
	RetryJitter            float64             `json:"retry_jitter,omitempty"`
	IdempotencyKeyTemplate string              `json:"idempotency_key_template,omitempty"`
	Status                 string              `json:"status,omitempty"`
}

// jobChange describes a change of a job: of its members, those to be changed. What
// is null gets its default.
type jobChange struct {
	Name                   *string              `json:"name,omitempty"`
	Tags                   *[]string            `json:"tags,omitempty"`
	Type                   *string              `json:"type,omitempty"`
	Handler                *string              `json:"handler,omitempty"`
	Schedule               string               `json:"schedule,omitempty"`
	Timezone               *string              `json:"timezone,omitempty"`
	DSTGap                 *belfry.DSTGap       `json:"dst_gap,omitempty"`
	DSTOverlap             *string              `json:"dst_overlap,omitempty"`
	StartsAt               *time.Time           `json:"starts_at,omitempty"`
	EndsAt                 *time.Time           `json:"ends_at,omitempty"`
	MaxRuns                *int                 `json:"max_runs,omitempty"`
	JitterSeconds          *int                 `json:"jitter_seconds,omitempty"`
	Payload                json.RawMessage      `json:"payload,omitempty"`
	MissedWindow           *belfry.MissedWindow `json:"missed_window,omitempty"`
	Queue                  *string              `json:"queue,omitempty"`
	Overlap                *belfry.Overlap      `json:"overlap,omitempty"`
	TimeoutSeconds         *int                 `json:"timeout_seconds,omitempty"`
	MaxRetries             *int                 `json:"max_retries,omitempty"`
	RetryBackoff           *belfry.Backoff      `json:"retry_backoff,omitempty"`
	RetryBaseSeconds       *float64             `json:"retry_base_seconds,omitempty"`
	RetryCapSeconds        *float64             `json:"retry_cap_seconds,omitempty"`
	RetryJitter            *float64             `json:"retry_jitter,omitempty"`
	IdempotencyKeyTemplate *string              `json:"idempotency_key_template,omitempty"`
	Status                 string               `json:"status,omitempty"`
}

// memberDefaults are what members have that are left out.
var memberDefaults = func() map[string]string {
	out := map[string]string{"Claim.limit": "1", "Claim.wait_seconds": strconv.Itoa(defaultWait), "HTTPPayload.method": `"POST"`,
		"JobInput.dst_overlap": `"auto"`, "PreviewInput.count": strconv.Itoa(defaultPreview)}
	spec, _ := json.Marshal(belfry.DefaultSpec()) // It has only texts and numbers.
	var members map[string]json.RawMessage
	json.Unmarshal(spec, &members)
	for name, value := range members {
		if string(value) != `""` {
			out["JobInput."+name] = string(value)
		}
	}
	return out
}()
