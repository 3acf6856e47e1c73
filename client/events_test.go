package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

// A stream that breaks continues after its last event, and nothing comes twice.
func TestWatchEventsContinues(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	answers := []func(w http.ResponseWriter){
		func(w http.ResponseWriter) { send(w, 1, 2) },
		func(w http.ResponseWriter) { http.Error(w, "later", http.StatusServiceUnavailable) },
		func(w http.ResponseWriter) { send(w, 1, 2, 3) },
		func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"code": "forbidden", "detail": "no more"}`)
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Header.Get("Accept") != "text/event-stream, application/problem+json" || r.URL.RawQuery != "kind=run_dead" {
			t.Errorf("it asks for %s with %v", r.URL, r.Header)
		}
		asked = append(asked, r.Header.Get("Last-Event-ID"))
		answers[min(len(asked), len(answers))-1](w)
	}))
	defer server.Close()
	c, err := client.New(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for e, err := range c.WatchEvents(t.Context(), belfry.EventFilter{Kind: belfry.EventRunDead}, belfry.ID{}) {
		if err != nil {
			got = append(got, fmt.Sprint(belfry.CodeOf(err)))
		} else {
			got = append(got, e.Message)
		}
	}
	if want := []string{"1", "2", "unavailable", "3", "forbidden"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if want := []string{"", eventID(2).String(), eventID(2).String(), eventID(3).String()}; !slices.Equal(asked, want) {
		t.Errorf("it asked for what comes after %q, want %q", asked, want)
	}
}

func TestWatchEventsEnds(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"another program": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"an old server":   func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "[]") },
	} {
		server := httptest.NewServer(answer)
		c, err := client.New(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, err := range c.WatchEvents(t.Context(), belfry.EventFilter{}, belfry.ID{}) {
			if n++; belfry.CodeOf(err) != belfry.Internal {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d errors", name, n)
		}
		server.Close()
	}
	c, _ := live(t)
	ctx, cancel := context.WithCancel(t.Context())
	for e, err := range c.WatchEvents(ctx, belfry.EventFilter{}, eventID(1)) { // the node itself has joined
		if err == nil && e.Kind == belfry.EventNodeJoined {
			cancel()
		} else if !errors.Is(err, context.Canceled) {
			t.Errorf("got %+v, %v", e, err)
		}
	}
	cancel()
}

// The timeout of an HTTP client is for answers that end.
func TestWatchEventsIgnoresTheTimeoutOfTheHTTPClient(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		send(w)
		http.NewResponseController(w).Flush()
		select {
		case <-time.After(300 * time.Millisecond):
		case <-r.Context().Done():
		}
		send(w, 1)
	}))
	defer server.Close()
	c, err := client.New(server.URL, client.WithHTTPClient(&http.Client{Timeout: 100 * time.Millisecond}))
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range c.WatchEvents(t.Context(), belfry.EventFilter{}, belfry.ID{}) {
		if err != nil || e.Message != "1" {
			t.Errorf("got %+v, %v", e, err)
		}
		break
	}
}

func eventID(n byte) belfry.ID { return belfry.ID{1, 0, 0, 0, 0, 0, 0x70, n, 0x80} }

func send(w http.ResponseWriter, events ...byte) {
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, "retry: 2000\n\n: nothing happened\n\n")
	for _, n := range events {
		fmt.Fprintf(w, "id: %s\ndata: {\"event_id\": %q, \"message\": \"%d\"}\n\n", eventID(n), eventID(n), n)
	}
}
