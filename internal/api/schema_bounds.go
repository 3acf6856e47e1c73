package api

import (
	"reflect"

	"github.com/belfry-sh/belfry"
)

// Limits of the policies of a job. Package control holds it to them.
const (
	maxMissed    = 1000
	maxCatchUp   = 10 * 366 * 24 * 60 * 60 // seconds
	maxQueued    = 10_000
	maxRetention = 36_500 // days
)

// bounds are what members must keep to that are read. A test drives the API to
// each of them and beyond.
var bounds = map[string]limits{
	"JobInput.name":                     {MaxLength: belfry.MaxName},
	"JobInput.type":                     {Enum: []string{belfry.TypeHTTP, belfry.TypeWorker}},
	"JobInput.schedule":                 {MinLength: 1},
	"Spec.dst_overlap":                  {Enum: []string{"first", "both"}},
	"JobInput.dst_overlap":              {Enum: []string{"auto", "first", "both"}},
	"JobInput.max_runs":                 between(0, maxRuns),
	"JobInput.jitter_seconds":           between(0, maxJitter),
	"PreviewInput.count":                between(1, maxPreview),
	"JobInput.queue":                    {Pattern: `^[a-zA-Z0-9._-]{1,100}$`},
	"JobInput.max_missed":               between(0, maxMissed),
	"JobInput.catch_up_window_seconds":  between(0, maxCatchUp),
	"JobInput.max_queued":               between(0, maxQueued),
	"JobInput.retry_delays":             {MaxItems: belfry.MaxDelays},
	"JobInput.retention_days":           between(0, maxRetention),
	"JobInput.timeout_seconds":          between(1, 24*60*60),
	"JobInput.max_retries":              between(0, 100),
	"JobInput.retry_base_seconds":       between(0, 24*60*60),
	"JobInput.retry_cap_seconds":        between(0, 7*24*60*60),
	"JobInput.retry_jitter":             between(0, 0.25),
	"JobInput.idempotency_key_template": {MaxLength: belfry.MaxKeyTemplate},
	"JobInput.status":                   {Enum: []string{"active", "paused"}},
	"HTTPPayload.url":                   {Pattern: `^https?://`, MaxLength: 2 << 10},
	"Claim.lanes":                       {MinItems: 1, MaxItems: maxLanes},
	"Claim.limit":                       between(1, maxClaim),
	"Claim.wait_seconds":                between(0, maxWait),
	"Beat.lanes":                        {MaxItems: maxLanes},
	"Beat.held":                         {MaxItems: maxHeld},
	"Beat.slots":                        between(0, 1<<20),
	"Results.results":                   {MinItems: 1, MaxItems: maxResults},
	"Result.attempt":                    {Minimum: new(float64(1))},
	"Result.outcome":                    {Enum: []string{"succeeded", "failed", "timed_out", "interrupted", "snoozed", "cancelled"}},
	"Result.retry_after_seconds":        between(0, belfry.MaxDelay.Seconds()),
	"DeadFilter.reason":                 {Enum: texts(deadReasons)},
	"DiscardOrder.limit":                between(1, maxDecided),
	"RedriveOrder.rate":                 between(minRate, maxRate),
	"JobFilter.type":                    {Enum: []string{belfry.TypeHTTP, belfry.TypeWorker}},
	"JobFilter.tags":                    {MaxItems: maxTagFilter},
	"ActionOrder.limit":                 between(1, maxActed),
	"BackfillInput.limit":               between(1, maxBackfill),
	"Rollback.revision":                 {Minimum: new(float64(1))},
	"HTTPPayload.method":                {Enum: []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}},
}

func between(low, high float64) limits { return limits{Minimum: &low, Maximum: &high} }

// forms are the types that a member of any form has most often.
var forms = map[string]reflect.Type{
	"JobInput.payload":  reflect.TypeFor[belfry.HTTPPayload](),
	"JobChange.payload": reflect.TypeFor[belfry.HTTPPayload](),
}

// spared are the members that are read and may be left out although they are always
// written.
var spared = map[string]bool{"Beat.slots": true, "Beat.lanes": true}
