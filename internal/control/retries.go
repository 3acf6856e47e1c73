package control

import (
	"strings"

	"github.com/belfry-sh/belfry"
)

var (
	backoffs = []belfry.Backoff{
		belfry.BackoffImmediate, belfry.BackoffFixed, belfry.BackoffLinear, belfry.BackoffExponential, belfry.BackoffList,
	}
	retried = []belfry.RetryOn{retryOnAll, belfry.RetryOnServerErrors}
)

// retryOnAll is how people write belfry.RetryOnAll.
const retryOnAll belfry.RetryOn = "all"

// retries checks what is tried again, and after how long.
func (e *examination) retries(s *belfry.Spec) {
	e.between("max_retries", float64(s.MaxRetries), 0, maxRetries)
	e.retryOn(s)
	s.RetryBackoff = choose(e, "retry_backoff", s.RetryBackoff, backoffs)
	e.delays(s)
	e.between("retry_base_seconds", s.RetryBaseSeconds, 0, maxBaseSeconds)
	e.between("retry_cap_seconds", s.RetryCapSeconds, 0, maxCapSeconds)
	bounded := s.RetryBackoff != belfry.BackoffImmediate && s.RetryBackoff != belfry.BackoffList
	if bounded && s.RetryBaseSeconds <= maxBaseSeconds && s.RetryBaseSeconds > s.RetryCapSeconds {
		e.fault("retry_cap_seconds", "must be at least retry_base_seconds, which is %v", s.RetryBaseSeconds)
	}
	e.between("retry_jitter", s.RetryJitter, 0, maxJitter)
}

// retryOn checks which failures are tried again.
func (e *examination) retryOn(s *belfry.Spec) {
	if s.RetryOn == belfry.RetryOnAll {
		return
	}
	if s.RetryOn = choose(e, "retry_on", s.RetryOn, retried); s.RetryOn == retryOnAll {
		s.RetryOn = belfry.RetryOnAll
	}
}

// delays checks the list of delays, which goes with a backoff of its own. That need
// not be said: the usual backoff gives way to it.
func (e *examination) delays(s *belfry.Spec) {
	const example = "for example [10, 60, 600]"
	if s.RetryDelays == "" {
		if s.RetryBackoff == belfry.BackoffList {
			e.fault("retry_delays", "is missing: with the backoff %q it says how many seconds to wait before each retry; %s", belfry.BackoffList, example)
		}
		return
	}
	list, err := belfry.NewDelays(s.RetryDelays.Seconds())
	if err != nil {
		e.fault("retry_delays", "%s; %s", err, example)
	}
	s.RetryDelays = list
	switch s.RetryBackoff {
	case belfry.BackoffExponential:
		s.RetryBackoff = belfry.BackoffList
	case belfry.BackoffImmediate, belfry.BackoffFixed, belfry.BackoffLinear:
		e.fault("retry_delays", "goes with the backoff %q, and not with %q; leave one of them out", belfry.BackoffList, s.RetryBackoff)
	}
}

// follow lets the list of delays and the backoff follow each other in an edit that
// changed one of them and left the other alone.
func follow(s *belfry.Spec, before belfry.Spec) {
	backoff := belfry.Backoff(strings.ToLower(strings.TrimSpace(string(s.RetryBackoff))))
	switch {
	case s.RetryDelays == before.RetryDelays && backoff != before.RetryBackoff && backoff != belfry.BackoffList:
		s.RetryDelays = ""
	case s.RetryDelays != before.RetryDelays && backoff == before.RetryBackoff && s.RetryDelays != "":
		s.RetryBackoff = belfry.BackoffList
	case s.RetryDelays != before.RetryDelays && backoff == before.RetryBackoff && backoff == belfry.BackoffList:
		s.RetryBackoff = belfry.DefaultSpec().RetryBackoff
	}
}
