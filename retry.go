package belfry

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"time"
)

// Backoff says how the delay between attempts grows.
type Backoff string

// BackoffExponential doubles the delay with every failure.
const BackoffExponential Backoff = "exponential"

// Retry is a job's policy for failed attempts.
type Retry struct {
	Max       int // failures after the first that are tried again
	Backoff   Backoff
	Base, Cap time.Duration
	Jitter    float64 // up to this part of the delay is added or taken away
}

// Delay is the wait before the next attempt after the given number of
// failures, the first being 1. The jitter is a function of run and failure, so
// that the same question has the same answer.
func (r Retry) Delay(run ID, failures int) time.Duration {
	doublings := min(max(failures, 1)-1, 62) // more than any cap allows
	d := math.Ldexp(float64(r.Base), doublings)
	d = min(d, float64(r.Cap))
	d += d * r.Jitter * (2*spread(run, failures) - 1)
	return max(time.Duration(d), 0).Round(time.Millisecond)
}

// spread maps run and failure to [0, 1).
func spread(run ID, failures int) float64 {
	h := fnv.New64a()
	h.Write(run[:])
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(failures)))
	x := h.Sum64()
	x ^= x >> 33 // FNV leaves the high bits of short inputs poorly mixed
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return float64(x>>11) / (1 << 53)
}
