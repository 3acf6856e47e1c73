package api

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// limiter bounds the requests a second of each API key. It never has more entries
// than there were names of keys.
type limiter struct {
	every rate.Limit
	burst int
	keys  sync.Map // name of a key to *rate.Limiter
}

// newLimiter allows so many requests a second, and twice as many at once; nil for
// no limit.
func newLimiter(perSecond float64) *limiter {
	if perSecond <= 0 || math.IsNaN(perSecond) || math.IsInf(perSecond, 1) {
		return nil
	}
	return &limiter{
		every: rate.Limit(perSecond),
		burst: max(1, int(min(2*perSecond, math.MaxInt32))),
	}
}

// allow counts a request, or says when to try again.
func (l *limiter) allow(key string, now time.Time) error {
	if l == nil {
		return nil
	}
	known, ok := l.keys.Load(key)
	if !ok {
		known, _ = l.keys.LoadOrStore(key, rate.NewLimiter(l.every, l.burst))
	}
	r := known.(*rate.Limiter).ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait <= 0 {
		return nil
	}
	r.CancelAt(now)
	return tooMany(wait, "too many requests with this API key; try again later")
}
