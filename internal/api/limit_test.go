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

func TestAKeyMayOnlyAskSoOften(t *testing.T) {
	const other = "another-key-of-more-than-thirty-two-characters"
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, keyed(t, "dev:"+other), func(o *api.Options) { o.RateLimit = 0.5 }) // and one at once
		ask := func(key string) answer { return s.ask("GET", "/api/v1/jobs", "", "Authorization: Bearer "+key) }
		if a := ask(aKey); a.status != http.StatusOK {
			t.Fatalf("got %s", a.body)
		}
		a := ask(aKey)
		p := a.problem(t)
		wait, err := strconv.Atoi(a.header.Get("Retry-After"))
		if p.Status != http.StatusTooManyRequests || p.Code != "rate_limited" || err != nil || wait != 2 {
			t.Fatalf("got %s, to be tried again after %q", a.body, a.header.Get("Retry-After"))
		}
		if a := ask(other); a.status != http.StatusOK {
			t.Errorf("another key is held up: %s", a.body)
		}
		for range 10 {
			s.want(http.StatusOK, nil, "GET", "/livez", "")
			s.want(http.StatusOK, nil, "GET", "/readyz", "")
			if a := ask(strings.Repeat("x", 40)); a.status != http.StatusUnauthorized {
				t.Errorf("got %d", a.status)
			}
		}
		time.Sleep(time.Duration(wait) * time.Second)
		if a := ask(aKey); a.status != http.StatusOK {
			t.Errorf("after %d s: got %s", wait, a.body)
		}
	})
	open := serve(t, func(o *api.Options) { o.RateLimit = 0.001 })
	for range 5 {
		open.want(http.StatusOK, nil, "GET", "/api/v1/jobs", "")
	}
}

func TestTwiceTheRateAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, keyed(t), func(o *api.Options) { o.RateLimit = 10 })
		passed := func() (n int) {
			for range 50 {
				if s.ask("GET", "/", "", "Authorization: Bearer "+aKey).status == http.StatusOK {
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
