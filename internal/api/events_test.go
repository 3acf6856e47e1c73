package api_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/api"
	"github.com/belfry-sh/belfry/internal/store"
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

// stream reads server-sent events: the lines of one after the other.
func stream(t *testing.T, url string, header ...string) (next func() string, answer *http.Response) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	answer, err = http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	lines := bufio.NewScanner(answer.Body)
	return func() (text string) {
		for lines.Scan() && lines.Text() != "" {
			text += lines.Text() + "\n"
		}
		return text
	}, answer
}

func TestStreamEvents(t *testing.T) {
	draining := make(chan struct{})
	s := newService(t, func(o *api.Options) { o.Draining = draining })
	server := httptest.NewServer(s)
	t.Cleanup(server.Close) // after the streams
	add := func(message string) belfry.Event {
		e := belfry.Event{ID: belfry.NewID(time.Now()), Namespace: belfry.DefaultNamespace, Kind: belfry.EventRunDead, At: time.Now().UTC().Truncate(time.Microsecond), Message: message}
		if _, err := s.store.AddEvents(t.Context(), []store.NewEvent{{Event: e}}); err != nil {
			t.Fatal(err)
		}
		return e
	}
	text := func(e belfry.Event) string { return fmt.Sprintf("id: %s\ndata: %s\n", e.ID, belfry.MustJSON(e)) }
	url := server.URL + "/api/v1/events"
	old := add("old")
	time.Sleep(2 * time.Millisecond) // another id
	next, answer := stream(t, url+"?kind=run_dead")
	if got := answer.Header; answer.StatusCode != 200 || got.Get("Content-Type") != "text/event-stream" || got.Get("Cache-Control") != "no-store" {
		t.Fatalf("got %d with %v", answer.StatusCode, got)
	}
	if got := next(); got != "retry: 2000\n" {
		t.Errorf("it begins with %q", got)
	}
	first := add("a line\nand another")
	if got := next(); got != text(first) {
		t.Errorf("got %q, want %q", got, text(first))
	}
	resumed, _ := stream(t, url, "Last-Event-ID: "+old.ID.String())
	resumed()
	if got := resumed(); got != text(first) {
		t.Errorf("after the old one comes %q", got)
	}
	for path, header := range map[string]string{"": "Last-Event-ID: 5", "?kind=nothing": "X-A: b", "?job=nothing": "X-A: b"} {
		_, answer := stream(t, url+path, header)
		var problem struct{ Detail string }
		if err := json.NewDecoder(answer.Body).Decode(&problem); err != nil || answer.StatusCode < 400 || answer.StatusCode > 404 {
			t.Errorf("%s with %q: %d (%v)", path, header, answer.StatusCode, err)
		}
	}
	close(draining)
	if got := next(); got != "" {
		t.Errorf("at the end comes %q", got)
	}
}
