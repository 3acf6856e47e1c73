package validate

import (
	"testing"

	"github.com/belfry-sh/belfry"
)

func TestRetryErrors(t *testing.T) {
	for _, tt := range []struct {
		name         string
		change       func(*belfry.Spec)
		field, words string
	}{
		{"a list without delays", func(s *belfry.Spec) { s.RetryBackoff = "list" }, "retry_delays", "for example [10, 60, 600]"},
		{"delays with another backoff", func(s *belfry.Spec) { s.RetryBackoff, s.RetryDelays = "fixed", "1,2" }, "retry_delays", `not "fixed"`},
		{"a cap below the base", func(s *belfry.Spec) { s.RetryCapSeconds = belfry.Some(1.0) }, "retry_cap_seconds", "at least"},
		{"a cap below the base, linear", func(s *belfry.Spec) { s.RetryBackoff, s.RetryCapSeconds = "linear", belfry.Some(1.0) }, "retry_cap_seconds", "at least"},
		{"a cap below a given base", func(s *belfry.Spec) { s.RetryBaseSeconds, s.RetryCapSeconds = belfry.Some(10.0), belfry.Some(9.0) }, "retry_cap_seconds", "which is 10"},
		{"a wrong base alone", func(s *belfry.Spec) { s.RetryBaseSeconds = belfry.Some(-1.0) }, "retry_base_seconds", "86400"},
	} {
		in := input("@daily")
		tt.change(&in.Spec)
		_, errors := create(in)
		if oneError(t, errors, tt.field, tt.words); t.Failed() {
			t.Fatal(tt.name)
		}
	}
}

func TestRetriesAreNormalized(t *testing.T) {
	for _, tt := range []struct {
		name         string
		change, want func(*belfry.Spec)
	}{
		{"delays make a list with one retry each", func(s *belfry.Spec) { s.RetryDelays = "1,2.5" }, func(s *belfry.Spec) {
			s.RetryDelays, s.RetryBackoff, s.MaxRetries = "1,2.5", belfry.BackoffList, belfry.Some(2)
		}},
		{"delays and a number of retries", func(s *belfry.Spec) { s.RetryDelays, s.MaxRetries = "1,2", belfry.Some(9) }, func(s *belfry.Spec) {
			s.RetryDelays, s.RetryBackoff, s.MaxRetries = "1,2", belfry.BackoffList, belfry.Some(9)
		}},
		{"a list has no cap", func(s *belfry.Spec) { s.RetryDelays, s.RetryCapSeconds = "3600", belfry.Some(1.0) }, func(s *belfry.Spec) {
			s.RetryDelays, s.RetryBackoff, s.RetryCapSeconds, s.MaxRetries = "3600", belfry.BackoffList, belfry.Some(1.0), belfry.Some(1)
		}},
		{"immediate has no cap", func(s *belfry.Spec) { s.RetryBackoff, s.RetryCapSeconds = "Immediate", belfry.Some(1.0) }, func(s *belfry.Spec) {
			s.RetryBackoff, s.RetryCapSeconds = belfry.BackoffImmediate, belfry.Some(1.0)
		}},
		{"a base above the usual cap raises it", func(s *belfry.Spec) { s.RetryBaseSeconds = belfry.Some(3600.0) }, func(s *belfry.Spec) {
			s.RetryBaseSeconds, s.RetryCapSeconds = belfry.Some(3600.0), belfry.Some(3600.0)
		}},
		{"all failures", func(s *belfry.Spec) { s.RetryOn = "ALL" }, func(s *belfry.Spec) { s.RetryOn = belfry.RetryOnAll }},
		{"some failures", func(s *belfry.Spec) { s.RetryOn = "Server_Errors" }, func(s *belfry.Spec) { s.RetryOn = belfry.RetryOnServerErrors }},
	} {
		in := input("@daily")
		tt.change(&in.Spec)
		want := belfry.Spec{Type: "http", Schedule: "@daily", Timezone: "UTC"}.WithDefaults()
		if tt.want(&want); mustCreate(t, in).Spec != want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", tt.name, mustCreate(t, in).Spec, want)
		}
	}
}

func TestDelaysAndBackoffFollowEachOther(t *testing.T) {
	list := func(s *belfry.Spec) { s.RetryDelays = "1,2" }
	for _, tt := range []struct {
		name         string
		before, edit func(*belfry.Spec)
		given        string
		backoff      belfry.Backoff
		delays       belfry.Delays
		retries      int
	}{
		{"another backoff drops the list", list, func(s *belfry.Spec) { s.RetryBackoff = "FIXED" }, "retry_backoff", "fixed", "", 2},
		{"the usual backoff drops the list", list, func(s *belfry.Spec) { s.RetryBackoff = "exponential" }, "retry_backoff", "exponential", "", 2},
		{"the same backoff keeps the list", list, func(s *belfry.Spec) { s.RetryBackoff = "List" }, "retry_backoff", "list", "1,2", 2},
		{"a list replaces another backoff", func(s *belfry.Spec) { s.RetryBackoff = "fixed" }, func(s *belfry.Spec) { s.RetryDelays = "3" }, "retry_delays", "list", "3", 1},
		{"no list is the usual backoff", list, func(s *belfry.Spec) { s.RetryDelays = "" }, "retry_delays", "exponential", "", 2},
		{"another field changes neither", list, func(s *belfry.Spec) { s.MaxRetries = belfry.Some(7) }, "max_retries", "list", "1,2", 7},
	} {
		in := input("@daily")
		tt.before(&in.Spec)
		r, errors := edit(mustCreate(t, in), func(m *belfry.Manifest) { tt.edit(&m.Spec) }, tt.given)
		s := r.Manifest.Spec
		if len(errors) > 0 || s.RetryBackoff != tt.backoff || s.RetryDelays != tt.delays || s.MaxRetries.Value() != tt.retries {
			t.Errorf("%s: %q %q %d, errors %v", tt.name, s.RetryBackoff, s.RetryDelays, s.MaxRetries.Value(), errors)
		}
	}
}
