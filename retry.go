package belfry

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"time"
)

// Backoff says how the delay between attempts grows.
type Backoff string

// The ways to wait. All but a list keep to base and cap.
const (
	BackoffImmediate   Backoff = "immediate"   // not at all
	BackoffFixed       Backoff = "fixed"       // the same time after every failure
	BackoffLinear      Backoff = "linear"      // once, twice, three times as long
	BackoffExponential Backoff = "exponential" // twice as long after every failure
	BackoffList        Backoff = "list"        // as the job lists it; the last delay holds for all that follow
)

// RetryOn says which failures are worth another attempt.
type RetryOn string

// The failures that are tried again.
const (
	RetryOnAll          RetryOn = ""              // every failure
	RetryOnServerErrors RetryOn = "server_errors" // all but answers of 4xx that will not change: 408, 425 and 429 are tried again
)

// Retry is a job's policy for failed attempts.
type Retry struct {
	Max       int // failures after the first that are tried again
	On        RetryOn
	Backoff   Backoff
	Base, Cap time.Duration
	Jitter    float64 // up to this part of the delay is added or taken away
	Delays    Delays  // of BackoffList
}

// Delay is the wait before the next attempt after the given number of
// failures, the first being 1. The jitter is a function of run and failure, so
// that the same question has the same answer.
func (r Retry) Delay(run ID, failures int) time.Duration {
	n := max(failures, 1)
	d, most := float64(r.Base), float64(r.Cap)
	switch r.Backoff {
	case BackoffImmediate:
		return 0
	case BackoffFixed:
	case BackoffLinear:
		d *= float64(n)
	case BackoffList:
		d = float64(r.Delays.at(n - 1))
		most = d
	default:
		d = math.Ldexp(d, min(n-1, 62)) // more doublings than any cap allows
	}
	d = min(d, most)
	d += d * r.Jitter * (2*spread(run, failures) - 1)
	return max(time.Duration(d), 0).Round(time.Millisecond)
}

// useless tells whether another attempt after an answer of this status is not
// worth it. Zero stands for no answer.
func (r Retry) permanent(status int) bool {
	if r.On != RetryOnServerErrors || status < 400 || status > 499 {
		return false
	}
	return status != 408 && status != 425 && status != 429
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
