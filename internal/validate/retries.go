package validate

import "github.com/belfry-sh/belfry"

// retries settles what depends on each other in a retry policy: a list of delays has a
// backoff of its own and says how many retries there are, another backoff replaces the
// list, and a longer first delay raises the longest one, unless the request sets those
// itself. Fields that are unset get their defaults afterwards.
func (c *check) retries(s *belfry.Spec) {
	c.delays(s)
	delays := s.RetryDelays != "" && c.sets("retry_delays")
	backoff := s.RetryBackoff != "" && c.sets("retry_backoff")
	switch {
	case delays:
		if !backoff {
			s.RetryBackoff = belfry.BackoffList
		}
		if s.MaxRetries.IsZero() || !c.sets("max_retries") {
			s.MaxRetries = belfry.Some(len(s.RetryDelays.Seconds()))
		}
	case backoff && s.RetryBackoff != belfry.BackoffList:
		s.RetryDelays = ""
	case !backoff && s.RetryBackoff == belfry.BackoffList && s.RetryDelays == "":
		s.RetryBackoff = ""
	}
	c.backoff(s)
	if base, ok := s.RetryBaseSeconds.Get(); ok && c.sets("retry_base_seconds") && (s.RetryCapSeconds.IsZero() || !c.sets("retry_cap_seconds")) {
		if s.RetryCapSeconds.IsZero() {
			s.RetryCapSeconds = belfry.DefaultSpec().RetryCapSeconds
		}
		s.RetryCapSeconds = belfry.Some(max(s.RetryCapSeconds.Value(), base))
	}
}

// delays checks the list of delays.
func (c *check) delays(s *belfry.Spec) {
	list, err := belfry.NewDelays(s.RetryDelays.Seconds())
	if err != nil {
		c.fail("retry_delays", "%s; for example [10, 60, 600]", err)
	}
	s.RetryDelays = list
}

// backoff checks that a list of delays comes with its backoff, and the backoff with a
// list.
func (c *check) backoff(s *belfry.Spec) {
	list := s.RetryBackoff == belfry.BackoffList
	switch {
	case list && s.RetryDelays == "":
		c.fail("retry_delays", "is missing: backoff %q needs the seconds to wait before each retry, for example [10, 60, 600]", belfry.BackoffList)
	case !list && s.RetryDelays != "" && !c.failed("retry_backoff"):
		c.fail("retry_delays", "needs backoff %q, not %q; leave one of them out", belfry.BackoffList, s.RetryBackoff)
	}
}

// longestDelay checks that the longest delay is not shorter than the first one.
func (c *check) longestDelay(s belfry.Spec) {
	if s.RetryBackoff == belfry.BackoffImmediate || s.RetryBackoff == belfry.BackoffList || c.failed("retry_base_seconds") || c.failed("retry_cap_seconds") {
		return
	}
	if base := s.RetryBaseSeconds.Value(); base > s.RetryCapSeconds.Value() {
		c.fail("retry_cap_seconds", "must be at least retry_base_seconds, which is %v", base)
	}
}
