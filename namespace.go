package belfry

import "time"

// Namespace is a part of the cluster with jobs of its own, and what it may use.
type Namespace struct {
	_         struct{}  `doc:"A namespace, its quota, and what it uses."`
	Name      string    `json:"name" required:"true" maxlen:"63" pattern:"^[a-z0-9-]{1,63}$" patterndoc:"must be 1 to 63 lower-case letters, digits and hyphens" example:"billing" doc:"Name: 1 to 63 lower-case letters, digits and hyphens."`
	CreatedAt time.Time `json:"created_at,omitzero" readonly:"true" doc:"When it was created; missing if nobody did: it is there because it has jobs, or is 'default'."`
	UpdatedAt time.Time `json:"updated_at,omitzero" readonly:"true" doc:"When its quota was changed last."`
	Usage     *Usage    `json:"usage,omitempty" readonly:"true" doc:"What it uses now."`
	Quota
}

// Quota is what a namespace may use. Zero is no limit, except for the weight.
type Quota struct {
	MaxJobs            int     `json:"max_jobs,omitempty" min:"0" max:"1000000000" doc:"How many jobs it may have that have not ended; 0 is no limit."`
	MinIntervalSeconds float64 `json:"min_interval_seconds,omitempty" min:"0" max:"31536000" doc:"Shortest time between two occurrences of a schedule; 0 is no limit."`
	MaxRunning         int     `json:"max_running,omitempty" min:"0" max:"1000000" doc:"How many of its runs may execute at once in the cluster; 0 is no limit."`
	Weight             int     `json:"weight,omitempty" min:"1" max:"1000" implicit:"1" doc:"Its share of the slots of a worker while several namespaces need them, relative to the weights of others."`
	MaxStoredBytes     int64   `json:"max_stored_bytes,omitempty" min:"0" max:"1000000000000000" doc:"How many bytes its jobs and their payloads may take; 0 is no limit."`
	RateLimit          float64 `json:"rate_limit,omitempty" min:"0" max:"1000000" doc:"How many requests a second all its keys may make together at a node, and twice as many at once; 0 is no limit."`
}

// Usage is what a namespace uses.
type Usage struct {
	Jobs        int64 `json:"jobs" example:"1200" doc:"Jobs that have not ended."`
	StoredBytes int64 `json:"stored_bytes" example:"734003" doc:"Bytes of these jobs: what they declare, as JSON, and their payloads."`
	Running     int64 `json:"running" example:"7" doc:"Runs that execute now."`
}
