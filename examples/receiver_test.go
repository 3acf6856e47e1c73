//go:build unix

package examples

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// proxy forwards to the receiver, and can lose its responses.
type proxy struct {
	*httptest.Server
	to   atomic.Pointer[url.URL]
	lose atomic.Int32 // how many of the next responses
}

func newProxy(t *testing.T) *proxy {
	w := &proxy{}
	w.Server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(w.to.Load()) },
		ModifyResponse: func(*http.Response) error {
			if w.lose.Add(-1) >= 0 {
				return errors.New("lost")
			}
			w.lose.Store(0)
			return nil
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	})
	t.Cleanup(w.Close)
	return w
}

// startReceiver starts the receiver behind the proxy.
func (w *proxy) startReceiver(t *testing.T, path string) *program {
	t.Helper()
	p := start(t, nil, "receiver", "-listen", "127.0.0.1:0", "-ledger", path)
	to, err := url.Parse(p.says(`listening on (\S+)\n`))
	if err != nil {
		t.Fatal(err)
	}
	w.to.Store(to)
	return p
}

// charges are those of the receiver, by key.
func (w *proxy) charges(t *testing.T) map[string]int {
	t.Helper()
	resp, err := http.Get(w.to.Load().String() + "/charges")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var list []struct {
		Key    string
		Amount int
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	amounts := map[string]int{}
	for _, c := range list {
		amounts[c.Key] += c.Amount
	}
	return amounts
}

// chargeJob is a job that calls the receiver.
func (w *proxy) chargeJob(name, schedule string) job {
	return job{"name": name, "schedule": schedule, "retry_base_seconds": 0.1, "timeout_seconds": 10,
		"payload": job{"url": w.URL + "/charge", "method": "POST", "body": job{"amount": 5}}}
}

func TestReceiverChargesOnce(t *testing.T) {
	t.Parallel()
	s, w := serve(t), newProxy(t)
	path := filepath.Join(t.TempDir(), "charges.log")
	receiver := w.startReceiver(t, path)

	// The response to the first attempt is lost, so it is retried.
	w.lose.Store(1)
	s.create(w.chargeJob("lost-answer", time.Now().UTC().Format(time.RFC3339Nano)))
	run := s.succeeded("lost-answer", 1)[0]
	if run.Attempt != 2 || !strings.Contains(run.Output, "charged before") {
		t.Errorf("the run whose first response was lost is %+v", run)
	}
	if got := w.charges(t); len(got) != 1 || got[run.Key] != 5 {
		t.Errorf("the charges are %v, want 5 for %s", got, run.Key)
	}

	// Every occurrence of this job has the same key, so that Belfry itself calls only
	// once. The receiver is killed while it writes.
	once := w.chargeJob("only-once", "* * * * * *")
	once["idempotency_key_template"] = "fee-{{name}}"
	s.create(once)
	s.succeeded("only-once", 1)
	s.skipped("only-once", "duplicate_key")
	receiver.end(syscall.SIGKILL)
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"key":"half a li`); err != nil {
		t.Fatal(err)
	}
	file.Close()
	w.startReceiver(t, path)
	s.create(w.chargeJob("afterwards", time.Now().UTC().Format(time.RFC3339Nano)))
	last := s.succeeded("afterwards", 1)[0]
	s.request("DELETE", "/jobs/only-once", nil, nil)
	s.create(once) // another job, which does not know the runs of the first one
	if r := s.succeeded("only-once", 1)[0]; r.Key != "fee-only-once" || !strings.Contains(r.Output, "charged before") {
		t.Errorf("the run of the other job is %+v", r)
	}
	if got := w.charges(t); len(got) != 3 || got[run.Key] != 5 || got["fee-only-once"] != 5 || got[last.Key] != 5 {
		t.Errorf("after the restart the charges are %v", got)
	}
	if text, err := os.ReadFile(path); err != nil || strings.Count(string(text), "\n") != 3 || strings.Contains(string(text), "half a li") {
		t.Errorf("the ledger is %q (%v)", text, err)
	}
}

func TestReceiverRefusesInvalidRequests(t *testing.T) {
	t.Parallel()
	w := newProxy(t)
	w.startReceiver(t, filepath.Join(t.TempDir(), "charges.log"))
	for _, tt := range []struct{ name, key, body, want string }{
		{"no key", "", `{"amount": 5}`, "Idempotency-Key is missing"},
		{"no JSON", "a", `five`, "must be JSON"},
	} {
		req, err := http.NewRequest("POST", w.URL+"/charge", strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", tt.key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var text [100]byte
		n, _ := resp.Body.Read(text[:])
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(text[:n]), tt.want) {
			t.Errorf("%s: the response is %s: %s", tt.name, resp.Status, text[:n])
		}
	}
	if got := w.charges(t); len(got) != 0 {
		t.Errorf("the charges are %v", got)
	}
}
