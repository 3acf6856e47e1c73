package api_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
)

func TestListLargeCatchUpEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		c := newContract(t, s)
		const jobs = 3
		var want []string
		for i := range jobs {
			job := s.create(fmt.Sprintf(`{"name": "j%d", "schedule": "* * * * *", "missed_window": "run_all", "payload": {"url": "https://example.com"}}`, i))
			want = append(want, job.ID.String())
			s.expectDocumented(c, 200, nil, "POST", fmt.Sprintf("/api/v1/jobs/j%d/pause", i), "")
		}
		for i := range jobs {
			time.Sleep(25 * time.Minute)
			s.expectDocumented(c, 200, nil, "POST", fmt.Sprintf("/api/v1/jobs/j%d/resume", i), `{"catch_up": true}`)
		}
		slices.Reverse(want)
		var got []string
		pages := 0
		for path := "/api/v1/events?limit=1"; path != ""; pages++ {
			var events []belfry.Event
			a := s.expectDocumented(c, 200, &events, "GET", path, "")
			for _, e := range events {
				if got = append(got, e.JobID.String()); e.Kind != "large_catch_up" || e.Message == "" || e.Count < 20 {
					t.Errorf("got %s", a.body)
				}
			}
			path = nextPage(t, a)
		}
		if !slices.Equal(got, want) || pages != jobs {
			t.Errorf("got %v on %d pages, want %v", got, pages, want)
		}
		if a := s.expectDocumented(c, 200, nil, "GET", "/api/v1/events", "", "Belfry-Namespace: other"); a.body != "[]\n" {
			t.Errorf("another namespace has %s", a.body)
		}
	})
}
