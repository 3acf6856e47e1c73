package api

import (
	"math"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/belfry-sh/belfry"
)

// limiter bounds the requests a second of each API key. It never has more entries
// than there were names of keys.
type limiter struct {
	every rate.Limit
	burst int

	mu   sync.Mutex // guards the map
	keys map[string]*rate.Limiter
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
		keys:  make(map[string]*rate.Limiter),
	}
}

// allow counts a request, or says when to try again.
func (l *limiter) allow(key string, now time.Time) error {
	if l == nil {
		return nil
	}
	r := l.of(key).ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait <= 0 {
		return nil
	}
	r.CancelAt(now)
	seconds := max(1, int64(math.Ceil(wait.Seconds())))
	return &httpError{code: belfry.RateLimited, detail: "too many requests with this API key; try again later", header: map[string]string{"Retry-After": strconv.FormatInt(seconds, 10)}}
}

func (l *limiter) of(key string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := l.keys[key]
	if found == nil {
		found = rate.NewLimiter(l.every, l.burst)
		l.keys[key] = found
	}
	return found
}
