package client

import (
	"time"

	"github.com/belfry-sh/belfry"
)

// Draft is a job as it is asked for. What is not set is the server's default;
// where zero is worth asking for, the field is a pointer, as in
// MaxRetries: new(0).
type Draft struct {
	Name                   string              `json:"name,omitempty"`
	Tags                   []string            `json:"tags,omitempty"`
	Type                   string              `json:"type,omitempty"`    // "http" if the payload has a url, otherwise "worker"
	Handler                string              `json:"handler,omitempty"` // of type worker; its name unless set
	Schedule               string              `json:"schedule,omitempty"`
	Timezone               string              `json:"timezone,omitempty"`
	DSTGap                 belfry.DSTGap       `json:"dst_gap,omitempty"`
	DSTOverlap             belfry.DSTOverlap   `json:"dst_overlap,omitempty"`
	StartsAt               time.Time           `json:"starts_at,omitzero"`
	EndsAt                 time.Time           `json:"ends_at,omitzero"`
	MaxRuns                int                 `json:"max_runs,omitempty"`
	JitterSeconds          int                 `json:"jitter_seconds,omitempty"`
	MissedWindow           belfry.MissedWindow `json:"missed_window,omitempty"`
	MaxMissed              int                 `json:"max_missed,omitempty"`
	CatchUpSeconds         int                 `json:"catch_up_window_seconds,omitempty"`
	Queue                  string              `json:"queue,omitempty"`
	Priority               belfry.Priority     `json:"priority,omitempty"` // "normal" to edit it back
	Overlap                belfry.Overlap      `json:"overlap,omitempty"`
	MaxQueued              int                 `json:"max_queued,omitempty"`
	TimeoutSeconds         int                 `json:"timeout_seconds,omitempty"`
	MaxRetries             *int                `json:"max_retries,omitempty"`
	RetryOn                belfry.RetryOn      `json:"retry_on,omitempty"`
	RetryBackoff           belfry.Backoff      `json:"retry_backoff,omitempty"`
	RetryBaseSeconds       *float64            `json:"retry_base_seconds,omitempty"`
	RetryCapSeconds        *float64            `json:"retry_cap_seconds,omitempty"`
	RetryJitter            *float64            `json:"retry_jitter,omitempty"`
	RetryDelays            []float64           `json:"retry_delays,omitempty"` // in seconds; the number of retries unless MaxRetries is set
	RetentionDays          int                 `json:"retention_days,omitempty"`
	IdempotencyKeyTemplate string              `json:"idempotency_key_template,omitempty"`
	Status                 belfry.JobStatus    `json:"status,omitempty"`  // belfry.StatusPaused, or nothing
	Payload                any                 `json:"payload,omitempty"` // written as JSON; a json.RawMessage as it is
}
