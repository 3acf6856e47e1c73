package client

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/belfry-sh/belfry"
)

const imported = `{"created":1,"job_ids":["01890a5d-ac96-774b-bcce-b302099a8057"]}`

// manifests yields n manifests and counts them.
func manifests(n int, drawn *atomic.Int64) iter.Seq2[belfry.Manifest, error] {
	return func(yield func(belfry.Manifest, error) bool) {
		for i := range n {
			drawn.Add(1)
			if !yield(belfry.Manifest{Name: fmt.Sprint(i), Spec: belfry.Spec{Schedule: "@daily"}}, nil) {
				return
			}
		}
	}
}

func TestImportStreams(t *testing.T) {
	const jobs = 100_000
	var drawn atomic.Int64
	lines := 0
	c := serving(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "POST" || r.URL.Path != "/api/v1/jobs/bulk" || r.Header.Get("Content-Type") != "application/x-ndjson" || r.Header.Get("Idempotency-Key") == "" {
			t.Errorf("the request is %s %s with %v", r.Method, r.URL, r.Header)
		}
		for in := bufio.NewScanner(r.Body); in.Scan(); lines++ {
			if want := fmt.Sprintf(`{"name":"%d","schedule":"@daily"}`, lines); in.Text() != want {
				t.Fatalf("line %d is %s", lines, in.Text())
			}
			if lines == 0 && drawn.Load() == jobs {
				t.Error("the whole sequence was read before the first job arrived")
			}
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, imported)
	})
	ids, err := c.ImportJobs(t.Context(), manifests(jobs, &drawn))
	if err != nil || len(ids) != 1 || lines != jobs {
		t.Errorf("got %v and %v, %d lines", ids, err, lines)
	}
}

func TestImportRefusedBeforeTheSequenceStarts(t *testing.T) {
	var drawn atomic.Int64
	c := serving(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"detail":"an API key is required","code":"unauthorized"}`)
	})
	if _, err := c.ImportJobs(t.Context(), manifests(1e6, &drawn)); belfry.CodeOf(err) != belfry.Unauthorized || drawn.Load() != 0 {
		t.Errorf("got %v after %d jobs", err, drawn.Load())
	}
}

func TestImportRetriesOnlyBeforeTheSequenceStarts(t *testing.T) {
	var drawn atomic.Int64
	tries, keys := 0, map[string]bool{}
	c := serving(t, func(w http.ResponseWriter, r *http.Request) {
		keys[r.Header.Get("Idempotency-Key")] = true
		if tries++; tries < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, imported)
	})
	if _, err := c.ImportJobs(t.Context(), manifests(10, &drawn)); err != nil || tries != 3 || drawn.Load() != 10 || len(keys) != 1 {
		t.Errorf("got %v after %d tries with %d keys, %d drawn", err, tries, len(keys), drawn.Load())
	}
	tries = 0
	c = serving(t, func(w http.ResponseWriter, r *http.Request) {
		tries++
		bufio.NewReader(r.Body).ReadString('\n')
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	if _, err := c.ImportJobs(t.Context(), manifests(10, &drawn)); belfry.CodeOf(err) != belfry.Unavailable || tries != 1 {
		t.Errorf("got %v after %d tries", err, tries)
	}
}

func TestImportOfABrokenSequence(t *testing.T) {
	broken := errors.New("the file is broken")
	for name, tt := range map[string]struct {
		second belfry.Manifest
		err    error
		want   string
	}{
		"an error of the sequence":  {belfry.Manifest{}, broken, "import jobs: line 2: the file is broken"},
		"a payload that is no JSON": {belfry.Manifest{Payload: json.RawMessage("{")}, nil, "import jobs: line 2 has no JSON form"},
		"no payload":                {belfry.Manifest{Name: "x"}, nil, ""},
	} {
		ended := make(chan bool, 1)
		c := serving(t, func(w http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			ended <- err == nil
			fmt.Fprint(w, imported)
		})
		_, err := c.ImportJobs(t.Context(), func(yield func(belfry.Manifest, error) bool) {
			_ = yield(belfry.Manifest{Name: "first"}, nil) && yield(tt.second, tt.err) && yield(belfry.Manifest{Name: "third"}, nil)
		})
		complete := <-ended
		if tt.want == "" {
			if err != nil || !complete {
				t.Errorf("%s: got %v", name, err)
			}
			continue
		}
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) || complete || tt.err != nil && !errors.Is(err, tt.err) {
			t.Errorf("%s: got %v, and the server saw an end: %v", name, err, complete)
		}
	}
}

// A sequence must not continue after its import has ended, nor panic in another
// goroutine.
func TestImportStopsItsSequence(t *testing.T) {
	c := serving(t, func(w http.ResponseWriter, r *http.Request) {
		bufio.NewReader(r.Body).ReadString('\n')
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		fmt.Fprint(w, `{"detail":"too large","code":"too_large"}`)
	})
	var running atomic.Int64
	endless := func(yield func(belfry.Manifest, error) bool) {
		running.Add(1)
		defer running.Add(-1)
		for yield(belfry.Manifest{Name: strings.Repeat("x", 1000)}, nil) {
		}
	}
	_, err := c.ImportJobs(t.Context(), endless)
	if err == nil || running.Load() != 0 {
		t.Errorf("got %v, and the sequence runs %d times", err, running.Load())
	}
	defer func() {
		if v := recover(); v != "ouch" {
			t.Errorf("recovered %v", v)
		}
	}()
	c.ImportJobs(t.Context(), func(func(belfry.Manifest, error) bool) { panic("ouch") })
	t.Error("the panic went nowhere")
}
