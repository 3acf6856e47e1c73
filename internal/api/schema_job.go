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
	MaxMissed              int                 `json:"max_missed,omitempty"`
	CatchUpSeconds         int                 `json:"catch_up_window_seconds,omitempty"`
	Queue                  string              `json:"queue,omitempty"`
	Priority               belfry.Priority     `json:"priority,omitempty"`
	Overlap                belfry.Overlap      `json:"overlap,omitempty"`
	MaxQueued              int                 `json:"max_queued,omitempty"`
	TimeoutSeconds         int                 `json:"timeout_seconds,omitempty"`
	MaxRetries             int                 `json:"max_retries,omitempty"`
	RetryOn                belfry.RetryOn      `json:"retry_on,omitempty"`
	RetryBackoff           belfry.Backoff      `json:"retry_backoff,omitempty"`
	RetryBaseSeconds       float64             `json:"retry_base_seconds,omitempty"`
	RetryCapSeconds        float64             `json:"retry_cap_seconds,omitempty"`
	RetryJitter            float64             `json:"retry_jitter,omitempty"`
	RetryDelays            belfry.Delays       `json:"retry_delays,omitempty"`
	RetentionDays          int                 `json:"retention_days,omitempty"`
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
	MaxMissed              *int                 `json:"max_missed,omitempty"`
	CatchUpSeconds         *int                 `json:"catch_up_window_seconds,omitempty"`
	Queue                  *string              `json:"queue,omitempty"`
	Priority               *belfry.Priority     `json:"priority,omitempty"`
	Overlap                *belfry.Overlap      `json:"overlap,omitempty"`
	MaxQueued              *int                 `json:"max_queued,omitempty"`
	TimeoutSeconds         *int                 `json:"timeout_seconds,omitempty"`
	MaxRetries             *int                 `json:"max_retries,omitempty"`
	RetryOn                *belfry.RetryOn      `json:"retry_on,omitempty"`
	RetryBackoff           *belfry.Backoff      `json:"retry_backoff,omitempty"`
	RetryBaseSeconds       *float64             `json:"retry_base_seconds,omitempty"`
	RetryCapSeconds        *float64             `json:"retry_cap_seconds,omitempty"`
	RetryJitter            *float64             `json:"retry_jitter,omitempty"`
	RetryDelays            *belfry.Delays       `json:"retry_delays,omitempty"`
	RetentionDays          *int                 `json:"retention_days,omitempty"`
	IdempotencyKeyTemplate *string              `json:"idempotency_key_template,omitempty"`
	Status                 string               `json:"status,omitempty"`
}

// memberDefaults are what members have that are left out.
var memberDefaults = func() map[string]string {
	out := map[string]string{"Claim.limit": "1", "Claim.wait_seconds": strconv.Itoa(defaultWait), "HTTPPayload.method": `"POST"`,
		"JobInput.dst_overlap": `"auto"`, "PreviewInput.count": strconv.Itoa(defaultPreview), "BackfillInput.limit": strconv.Itoa(defaultBackfill),
		"JobInput.max_missed": strconv.Itoa(belfry.DefaultMaxMissed), "JobInput.max_queued": strconv.Itoa(belfry.DefaultMaxQueued), "JobInput.retry_on": `"all"`,
		"DiscardOrder.limit": strconv.Itoa(maxDecided), "RedriveOrder.limit": strconv.Itoa(maxDecided), "ActionOrder.limit": strconv.Itoa(maxActed)}
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
