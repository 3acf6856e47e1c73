package belfry

import "time"

// Namespace is a part of the cluster with jobs of its own, and what it may use.
type Namespace struct {
	_         struct{}  `doc:"A namespace and its quota."`
	Name      string    `json:"name" required:"true" maxlen:"63" example:"billing" doc:"Name: 1 to 63 lower-case letters, digits and hyphens."`
	CreatedAt time.Time `json:"created_at,omitzero" readonly:"true" doc:"When it was created."`
	UpdatedAt time.Time `json:"updated_at,omitzero" readonly:"true" doc:"When its quota was changed last."`
	Quota
}

// Quota is what a namespace may use. Zero is no limit, except for the weight.
type Quota struct {
	_                  struct{} `doc:"What a namespace may use. Zero is no limit, except for the weight."`
	MaxJobs            int      `json:"max_jobs,omitempty" min:"0" max:"1000000000" doc:"How many jobs it may have that have not ended."`
	MinIntervalSeconds float64  `json:"min_interval_seconds,omitempty" min:"0" max:"31536000" doc:"Shortest time between two occurrences of a schedule."`
	MaxRunning         int      `json:"max_running,omitempty" min:"0" max:"1000000" doc:"How many of its runs may execute at once in the cluster."`
	Weight             int      `json:"weight,omitempty" min:"1" max:"1000" implicit:"1" doc:"Its share of the slots of a worker while several namespaces need them, relative to the weights of others."`
	MaxStoredBytes     int64    `json:"max_stored_bytes,omitempty" min:"0" doc:"How many bytes its jobs and their payloads may take."`
	RateLimit          float64  `json:"rate_limit,omitempty" min:"0" max:"1000000" doc:"How many requests a second all its keys may make together, and twice as many at once."`
}
