package api_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry/internal/api"
)

func TestRateLimitPerKey(t *testing.T) {
	const other = "another-key-of-more-than-thirty-two-characters"
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, withKeys(t, "dev:"+other), func(o *api.Options) { o.RateLimit = 0.5 }) // and one at once
		list := func(key string) reply { return s.send("GET", "/api/v1/jobs", "", "Authorization: Bearer "+key) }
		if a := list(testKey); a.status != http.StatusOK {
			t.Fatalf("got %s", a.body)
		}
		a := list(testKey)
		p := a.problem(t)
		wait, err := strconv.Atoi(a.header.Get("Retry-After"))
		if p.Status != http.StatusTooManyRequests || p.Code != "rate_limited" || err != nil || wait != 2 {
			t.Fatalf("got %s, to be tried again after %q", a.body, a.header.Get("Retry-After"))
		}
		if a := list(other); a.status != http.StatusOK {
			t.Errorf("another key is limited: %s", a.body)
		}
		for range 10 {
			s.expect(http.StatusOK, nil, "GET", "/livez", "")
			s.expect(http.StatusOK, nil, "GET", "/readyz", "")
			if a := list(strings.Repeat("x", 40)); a.status != http.StatusUnauthorized {
				t.Errorf("got %d", a.status)
			}
		}
		time.Sleep(time.Duration(wait) * time.Second)
		if a := list(testKey); a.status != http.StatusOK {
			t.Errorf("after %d s: got %s", wait, a.body)
		}
	})
	open := newService(t, func(o *api.Options) { o.RateLimit = 0.001 })
	for range 5 {
		open.expect(http.StatusOK, nil, "GET", "/api/v1/jobs", "")
	}
}

func TestRateLimitBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, withKeys(t), func(o *api.Options) { o.RateLimit = 10 })
		passed := func() (n int) {
			for range 50 {
				if s.send("GET", "/", "", "Authorization: Bearer "+testKey).status == http.StatusOK {
					n++
				}
			}
			return n
		}
		if n := passed(); n != 20 {
			t.Errorf("%d passed at once, want 20", n)
		}
		time.Sleep(500 * time.Millisecond)
		if n := passed(); n != 5 {
			t.Errorf("%d passed after half a second, want 5", n)
		}
	})
}
