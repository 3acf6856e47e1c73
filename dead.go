package belfry

import (
	"encoding/json"
	"time"
)

// DeadLetter is a run out of attempts, with what it takes to decide about it.
type DeadLetter struct {
	Run
	JobName     string          `json:"job_name,omitempty"`
	Fingerprint string          `json:"fingerprint"`       // the same for failures of a kind
	Payload     json.RawMessage `json:"payload,omitempty"` // that its attempts had; only of a single one
}

// DeadGroup is the dead letters whose failures are of a kind.
type DeadGroup struct {
	Fingerprint string    `json:"fingerprint"`
	Count       int       `json:"count"`
	Jobs        int       `json:"jobs"`  // how many jobs they are of
	Error       string    `json:"error"` // of the latest
	HTTPStatus  int       `json:"http_status,omitempty"`
	FirstAt     time.Time `json:"first_at"` // when the first and the last of them died
	LastAt      time.Time `json:"last_at"`
	LatestRunID ID        `json:"latest"` // the run that died last
}
