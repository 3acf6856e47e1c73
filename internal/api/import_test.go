package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/api"
)

const importPath = "/api/v1/jobs/bulk"

func jobLine(name string) string {
	return `{"name": "` + name + `", "schedule": "30 9 * * MON-FRI", "timezone": "Europe/Paris", "payload": {"url": "https://example.com/hook"}}`
}

func TestImportCreatesJobs(t *testing.T) {
	s := newService(t)
	lines := "\n" + jobLine("a") + "\r\n   \n\n" + jobLine("b")
	array := "[" + jobLine("a") + ",\n " + strings.Replace(jobLine("b"), "hook", `]}\\\",{[`, 1) + "\t]\n"
	for i, tt := range []struct{ name, media, body string }{
		{"lines", "application/x-ndjson", lines},
		{"lines by another name", "application/jsonl; charset=utf-8", lines},
		{"lines by a third name", "application/ndjson", lines},
		{"an array", "application/json", array},
		{"an array that does not say so", "", array},
		{"lines that do not say so", "", lines},
	} {
		headers := []string{"Content-Type: " + tt.media, fmt.Sprintf("Belfry-Namespace: ns-%d", i)}
		if tt.media == "" {
			headers = headers[1:]
		}
		var m belfry.ImportResult
		a := s.expect(http.StatusCreated, &m, "POST", importPath, tt.body, headers...)
		if m.Created != 2 || len(m.JobIDs) != 2 || a.header.Get("Content-Length") != fmt.Sprint(len(a.body)) || !strings.HasSuffix(a.body, "]}\n") {
			t.Errorf("%s: got %s", tt.name, a.body)
		}
		for j, name := range []string{"a", "b"} {
			var job belfry.Job
			s.expect(http.StatusOK, &job, "GET", "/api/v1/jobs/"+name, "", headers[len(headers)-1])
			if job.ID != m.JobIDs[j] {
				t.Errorf("%s: %s is %s, want %s", tt.name, name, job.ID, m.JobIDs[j])
			}
		}
	}
}

func TestImportIsAllOrNothing(t *testing.T) {
	s := newService(t)
	s.create(validJob)
	good, bad := jobLine("a"), `{"name": "b", "schedule": "61 9 * * *", "colour": 1, "payload": {"url": "https://example.com/hook"}}`
	large := `{"payload": "` + strings.Repeat("x", 1<<20) + `"}`
	for _, tt := range []struct {
		name, media, body string
		status            int
		fields            []string
		says              string
	}{
		{"lines with errors", "application/x-ndjson", good + "\n\n" + bad + "\n" + `{"name": ` + "\n" + `[]` + "\n" + good, 422,
			[]string{"line 3.colour", "line 3.schedule", "line 4", "line 5"}, "is not valid JSON: column 9: unexpected end of JSON"},
		{"an array with errors", "application/json", "[" + good + "," + bad + ", 7]", 422, []string{"[1].colour", "[1].schedule", "[2]"}, "must be a JSON object, not a number"},
		{"a large line", "application/x-ndjson", good + "\n" + large + "\n" + bad, 422, []string{"line 2", "line 3.colour", "line 3.schedule"}, "has more than 1048576 bytes"},
		{"a large last line", "application/x-ndjson", good + "\n" + large, 422, []string{"line 2"}, "has more than 1048576 bytes"},
		{"a large element", "application/json", "[" + good + "," + large + "," + bad + "]", 422, []string{"[1]", "[2].colour", "[2].schedule"}, "has more than 1048576 bytes"},
		{"a name that is taken", "application/x-ndjson", good + "\n" + validJob, 409, []string{"name"}, ""},
		{"a name twice", "application/x-ndjson", good + "\n" + good, 409, []string{"name"}, ""},
		{"no line", "application/x-ndjson", "\n \n", 400, nil, "there is no job"},
		{"no element", "application/json", " [ ] ", 400, nil, "there is no job"},
		{"nothing", "application/json", "", 400, nil, "there is no job"},
		{"an object", "application/json", good, 400, nil, "application/x-ndjson"},
		{"lines as an array", "application/json", good + "\n" + good, 400, nil, "application/x-ndjson"},
		{"half an array", "application/json", "[" + good, 400, nil, "unexpected end"},
		{"an array without its end", "application/json", "[" + good + ",", 400, nil, "unexpected end"},
		{"half an element", "application/json", "[" + good + `,{"a": "`, 400, nil, "unexpected end in [1]"},
		{"a comma too much", "application/json", "[" + good + ",]", 400, nil, "[1] is empty"},
		{"two commas", "application/json", "[" + good + ",," + good + "]", 400, nil, "[1] is empty"},
		{"an element that is no JSON", "application/json", "[" + good + `, {"name" "x"}, ` + good + "]", 400, nil, "[1] is not valid JSON"},
		{"something behind the array", "application/json", "[" + good + "] x", 400, nil, "after the array"},
		{"text", "text/plain", good, 415, nil, ""},
		{"no media type", "", good, 415, nil, "Content-Type: application/x-ndjson"},
	} {
		a := s.send("POST", importPath, tt.body, "Content-Type: "+tt.media)
		if a.status != tt.status {
			t.Errorf("%s: got %d, want %d: %s", tt.name, a.status, tt.status, a.body)
			continue
		}
		p := a.problem(t)
		fields := p.fields()
		slices.Sort(fields)
		if !slices.Equal(fields, tt.fields) || !strings.Contains(strings.ReplaceAll(a.body, `\"`, `"`), tt.says) {
			t.Errorf("%s: got %s, want %v and %q", tt.name, a.body, tt.fields, tt.says)
		}
	}
	if ids, _ := s.listIDs("/api/v1/jobs"); len(ids) != 1 {
		t.Errorf("there are %d jobs after all that", len(ids))
	}
	many := strings.Repeat(bad+"\n", 1000)
	if p := s.send("POST", importPath, many, "Content-Type: application/x-ndjson").problem(t); len(p.Errors) != 100 || p.Errors[99].Field != "line 50.schedule" {
		t.Errorf("got %d errors, the last is %+v", len(p.Errors), p.Errors[len(p.Errors)-1])
	}
}

// jobReader is a body of many lines, generated while it is read.
type jobReader struct {
	n, of int
	pad   string
	rest  []byte
}

func (m *jobReader) Read(p []byte) (int, error) {
	if len(m.rest) == 0 {
		if m.n == m.of {
			return 0, io.EOF
		}
		m.rest = fmt.Appendf(nil, `{"name": "job-%d", "schedule": "30 9 * * *", "payload": {"url": "https://example.com/hook", "body": "%s"}}`+"\n", m.n, m.pad)
		m.n++
	}
	n := copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

// post sends a body of unknown length.
func (s *service) post(path string, body io.Reader, media string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", path, body)
	r.Host, r.ContentLength = "localhost", -1
	r.Header.Set("Content-Type", media)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// heapPeak gives the most memory of the heap that was in use while something was
// done.
func heapPeak(do func()) uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	stop, peak := make(chan struct{}), make(chan uint64)
	go func() {
		var most uint64
		for tick := time.NewTicker(time.Millisecond); ; {
			metrics.Read(sample)
			most = max(most, sample[0].Value.Uint64())
			select {
			case <-stop:
				tick.Stop()
				peak <- most
				return
			case <-tick.C:
			}
		}
	}()
	do()
	close(stop)
	return <-peak
}

func TestImportUsesBoundedMemory(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	s := newService(t)
	defer debug.SetGCPercent(debug.SetGCPercent(10)) // What is garbage must not count.
	size := func(jobs int) uint64 {
		return heapPeak(func() {
			runtime.GC()
			body := &jobReader{n: 10_000 * jobs, of: 10_000*jobs + jobs, pad: strings.Repeat("x", 16<<10)}
			w := s.post(importPath, body, "application/x-ndjson")
			var m belfry.ImportResult
			if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil || w.Code != http.StatusCreated || m.Created != jobs {
				t.Fatalf("got %d, error %v: %.200s\n%s", w.Code, err, w.Body, s.log)
			}
		})
	}
	few, more := size(200), size(2000) // 3 MiB and 32 MiB
	t.Logf("at the most %d and %d bytes were in use", few, more)
	if more > few+8<<20 {
		t.Errorf("ten times the jobs took %d bytes instead of %d", more, few)
	}
	if left, err := os.ReadDir(dir); err != nil || slices.ContainsFunc(left, func(e os.DirEntry) bool { return strings.Contains(e.Name(), "import") }) {
		t.Errorf("left over are %v, error %v", left, err)
	}
	r := httptest.NewRequest("POST", importPath, new(endlessReader))
	r.Host, r.ContentLength = "localhost", -1
	r.Header.Set("Content-Type", "application/x-ndjson")
	over := httptest.NewRecorder()
	if s.ServeHTTP(over, r); over.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a body without an end: got %d", over.Code)
	}
}

// pausedReader is a body that stops half way until it is opened.
type pausedReader struct {
	io.Reader
	reached chan<- struct{}
	open    <-chan struct{}
	left    int
}

func (g *pausedReader) Read(p []byte) (int, error) {
	if g.left == 0 {
		g.reached <- struct{}{}
		<-g.open
		g.left = -1
	}
	if g.left > 0 {
		p = p[:min(len(p), g.left)]
	}
	n, err := g.Reader.Read(p)
	if g.left > 0 {
		g.left -= n
	}
	return n, err
}

func TestImportsAtOnceAreLimited(t *testing.T) {
	s := newService(t)
	reached, open := make(chan struct{}), make(chan struct{})
	answers := make(chan int)
	slow := func(i, left int) {
		body := &pausedReader{Reader: io.MultiReader(strings.NewReader(strings.Repeat("\n", 80<<10)), strings.NewReader(jobLine(fmt.Sprint(i)))), reached: reached, open: open, left: left}
		answers <- s.post(importPath, body, "application/x-ndjson").Code
	}
	const idle = 50 // that have sent next to nothing and hold no place
	for i := range idle {
		go slow(i, 10)
		<-reached
	}
	s.expect(http.StatusCreated, nil, "POST", importPath, jobLine("meanwhile"), "Content-Type: application/x-ndjson")
	for i := range api.MaxSpools {
		go slow(idle+i, 70<<10)
		<-reached
	}
	a := s.send("POST", importPath, jobLine("x"), "Content-Type: application/x-ndjson")
	if p := a.problem(t); p.Status != http.StatusServiceUnavailable || p.Code != "unavailable" || a.header.Get("Retry-After") == "" {
		t.Errorf("got %s", a.body)
	}
	s.create(validJob) // other requests are served
	close(open)
	for range idle + api.MaxSpools {
		if code := <-answers; code != http.StatusCreated && code != http.StatusServiceUnavailable {
			t.Errorf("got %d", code)
		}
	}
	s.expect(http.StatusCreated, nil, "POST", importPath, jobLine("at last"), "Content-Type: application/x-ndjson")
}

func TestImportOfTruncatedBodyCreatesNothing(t *testing.T) {
	s := newService(t)
	for _, n := range []int{100, 70 << 10, 3 << 20} {
		text := bytes.Repeat([]byte(jobLine("x")+"\n"), n/len(jobLine("x")))
		broken := io.MultiReader(bytes.NewReader(text), truncatedReader{})
		if w := s.post(importPath, broken, "application/x-ndjson"); w.Code != http.StatusBadRequest {
			t.Errorf("after %d bytes: got %d %s", n, w.Code, w.Body)
		}
	}
	if ids, _ := s.listIDs("/api/v1/jobs"); len(ids) != 0 {
		t.Errorf("there are %d jobs", len(ids))
	}
}

type truncatedReader struct{}

func (truncatedReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// BenchmarkImport is jobs a second over HTTP into SQLite.
func BenchmarkImport(b *testing.B) {
	s := newService(b)
	const jobs = 20_000
	for i := 0; b.Loop(); i++ {
		r := httptest.NewRequest("POST", importPath, &jobReader{of: jobs})
		r.Host, r.ContentLength = "localhost", -1
		r.Header.Set("Content-Type", "application/x-ndjson")
		r.Header.Set("Belfry-Namespace", fmt.Sprintf("ns-%d", i))
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, r); w.Code != http.StatusCreated {
			b.Fatalf("got %d: %.300s", w.Code, w.Body)
		}
	}
	b.ReportMetric(float64(b.N)*jobs/b.Elapsed().Seconds(), "jobs/s")
}
