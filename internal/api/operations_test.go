package api_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/api"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/openapi"
	"github.com/belfry-sh/belfry/internal/schema"
)

const unknownID = "0190b0f2-0000-7000-8000-000000000001"

// pathOf is the path of an operation for a job or run.
func pathOf(op openapi.Operation, id string) string {
	return strings.NewReplacer("{job}", id, "{run}", id, "{worker}", unknownID, "{alert}", unknownID, "{channel}", "oncall", "{monitor}", "backup", "{namespace}", "default", "{key}", "none", "{secret}", "stripe-key", "{token}", unknownID, "{$}", "").Replace(op.Path)
}

const validMonitor = `{"name": "backup", "every_seconds": 86400}`

// badRequest is a request that must be refused.
type badRequest struct {
	name, method, path, body string
	headers                  []string
	status                   int
	field                    string
}

// fieldsOf lists the fields of a type that requests may set.
func fieldsOf(t reflect.Type) []*schema.Field {
	if t == nil {
		return nil
	}
	if t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return slices.DeleteFunc(slices.Clone(schema.Of(t).Fields), func(f *schema.Field) bool { return f.ReadOnly })
}

// badBodies lists bodies that an operation must refuse.
func badBodies(op openapi.Operation, path string) []badRequest {
	if op.Method == "GET" || op.Method == "DELETE" || strings.HasPrefix(op.Path, "/ping/") { // The body of a ping is ignored.
		return nil
	}
	media, most := openapi.MediaJSON, api.MaxBody
	syntax, place := http.StatusBadRequest, func(field string) string { return field }
	switch op.ID {
	case "importJobs": // a line that is no JSON is an error of that line
		media, most = openapi.MediaLines, api.MaxBulk
		syntax, place = http.StatusUnprocessableEntity, func(field string) string { return strings.TrimSuffix("line 1."+field, ".") }
	case "finishRuns":
		most = api.MaxFinishBody
	case "heartbeat":
		most = api.MaxHeartbeatBody
	}
	bad := func(name, body string, status int, field string, headers ...string) badRequest {
		if len(headers) == 0 {
			headers = []string{"Content-Type: " + media}
		}
		return badRequest{name, op.Method, path, body, headers, status, field}
	}
	list := []badRequest{
		bad("half an object", `{"`, syntax, place("")),
		bad("no JSON", `job`, syntax, place("")),
		bad("invalid UTF-8", "{\"a\": \"\xff\"}", syntax, place("")),
		bad("too deep", strings.Repeat(`{"a":`, 40)+"1"+strings.Repeat("}", 40), syntax, place("")),
		bad("a string", `"job"`, syntax, place("")),
		bad("an unknown field", `{"colour": 1}`, http.StatusUnprocessableEntity, place("colour")),
		bad("a duplicate field", `{"colour": 1, "colour": 2}`, http.StatusUnprocessableEntity, place("colour")),
		bad("plain text", `{}`, http.StatusUnsupportedMediaType, "", "Content-Type: text/plain"),
		bad("no media type", `{}`, http.StatusUnsupportedMediaType, "", "Content-Type: "),
		bad("a form", `a=b`, http.StatusUnsupportedMediaType, "", "Content-Type: application/x-www-form-urlencoded"),
		bad("a media type that cannot be parsed", `{}`, http.StatusUnsupportedMediaType, "", "Content-Type: ;"),
		bad("another charset", `{}`, http.StatusUnsupportedMediaType, "", "Content-Type: application/json; charset=latin1"),
		bad("a compressed body", `{}`, http.StatusUnsupportedMediaType, "", "Content-Encoding: gzip"),
		bad("too many bytes", strings.Repeat(" ", most+1), http.StatusRequestEntityTooLarge, ""),
	}
	if op.Body != nil && !op.Optional {
		list = append(list, bad("no body", ``, http.StatusBadRequest, ""), bad("a blank body", " \n", http.StatusBadRequest, ""))
	}
	for _, f := range fieldsOf(op.Body) {
		value := `{"x": 1}`
		switch f.Kind {
		case schema.Raw:
			continue
		case schema.Object:
			value = "7"
		}
		list = append(list, bad("a wrong type of "+f.Name, fmt.Sprintf(`{%q: %s}`, f.Name, value), http.StatusUnprocessableEntity, place(f.Name)))
	}
	return list
}

// badParameters lists queries and headers that an operation must refuse.
func badParameters(op openapi.Operation, path, body string) []badRequest {
	var list []badRequest
	bad := func(name, query, field string, headers ...string) {
		list = append(list, badRequest{name, op.Method, path + query, body, headers, http.StatusBadRequest, field})
	}
	if strings.HasPrefix(op.Path, "/api/v1/") && op.ID != "getOpenAPI" {
		bad("an unknown parameter", "?colour=red", "colour")
		bad("a query that cannot be parsed", "?%zz", "")
		bad("an invalid namespace", "", "Belfry-Namespace", "Belfry-Namespace: A B")
		bad("two namespaces", "", "Belfry-Namespace", "Belfry-Namespace: a", "Belfry-Namespace: b")
	}
	for _, t := range op.Query {
		for _, f := range fieldsOf(t) {
			for _, value := range badValues(f) {
				bad("a wrong "+f.Query, "?"+f.Query+"="+url.QueryEscape(value), f.Query)
			}
			if f.Kind != schema.Texts {
				bad("two of "+f.Query, "?"+f.Query+"=1&"+f.Query+"=1", f.Query)
			}
		}
	}
	for _, name := range op.Headers {
		switch name {
		case "Idempotency-Key":
			bad("a long key", "", name, name+": "+strings.Repeat("x", 201))
			bad("a key that is not ASCII", "", name, name+": \u00e9")
			bad("an empty key", "", name, name+": ")
			bad("two keys", "", name, name+": a", name+": b")
		case "If-Match":
			bad("a tag without quotes", "", name, name+": abc")
			bad("half a tag", "", name, name+`: "abc`)
			bad("tags without a comma", "", name, name+`: "a" "b"`)
		}
	}
	return list
}

// badValues lists texts that a parameter must refuse.
func badValues(f *schema.Field) []string {
	switch {
	case f.Name == "cursor":
		return []string{"x", "EQAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}
	case f.Name == "at":
		return []string{"yesterday", "09:30"}
	case f.Kind == schema.Int:
		return []string{"ten", "1.5", schema.Decimal(*f.Min - 1), schema.Decimal(*f.Max + 1)}
	case f.Kind == schema.Bool:
		return []string{"yes", "1"}
	case f.Kind == schema.Time:
		return []string{"soon", "2027-03-01T09:00:00", "1066-10-14T09:00:00Z"}
	case len(f.Enum) > 0:
		return []string{"unheard-of"}
	}
	return []string{"\x00", "\xff", strings.Repeat("x", max(f.MaxLen, f.ItemMaxLen)+1)}
}

// validBodies are bodies of operations on a job or run that are not about a manifest.
var validBodies = map[string]string{
	"rollbackJob": `{"revision": 1}`,
	"backfillJob": `{"from": "2026-01-01T00:00:00Z"}`,
	"editMonitor": `{"grace_seconds": 60}`,
	"putMonitor":  `{"every_seconds": 60}`,
}

// badPaths lists jobs, runs and workers that an operation must not find.
func badPaths(op openapi.Operation, body, elsewhere string) (list []badRequest) {
	if valid := validBodies[op.ID]; valid != "" {
		body = valid
	}
	if strings.Contains(op.Path, "{job}") || strings.Contains(op.Path, "{run}") {
		for name, id := range map[string]string{"an unknown id": unknownID, "an id of another namespace": elsewhere, "an unknown name": "no%2Fsuch%20name", "a path": "..%2f..%2fetc%2fpasswd"} {
			if _, err := url.PathUnescape(id); err == nil && (op.ID != "putJob" || len(id) == len(unknownID)) {
				list = append(list, badRequest{name, op.Method, pathOf(op, id), body, nil, http.StatusNotFound, ""})
			}
		}
	}
	if strings.Contains(op.Path, "{monitor}") {
		for name, ref := range map[string]string{"an unknown id": unknownID, "an unknown name": "no%2Fsuch%20name"} {
			if op.ID != "putMonitor" || ref == unknownID {
				list = append(list, badRequest{name, op.Method, strings.Replace(op.Path, "{monitor}", ref, 1), body, nil, http.StatusNotFound, ""})
			}
		}
	}
	if strings.Contains(op.Path, "{worker}") {
		list = append(list, badRequest{"a worker without an id", op.Method, strings.Replace(op.Path, "{worker}", "me", 1), "{}", nil, http.StatusBadRequest, "worker"})
	}
	return list
}

// badMethods lists methods that a path does not support.
func badMethods(op openapi.Operation, path string, methods map[string][]string) (list []badRequest) {
	parent := op.Path[:strings.LastIndex(op.Path, "/")+1] // where /jobs/bulk is, /jobs/{job} takes other methods
	supported := slices.Concat(methods[op.Path], methods[parent+"{job}"], methods[parent+"{run}"])
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"} {
		if !slices.Contains(supported, method) {
			list = append(list, badRequest{"the method " + method, method, path, "", nil, http.StatusMethodNotAllowed, ""})
		}
	}
	return list
}

func TestEveryOperationRefusesBadRequests(t *testing.T) {
	s := newService(t)
	job := s.create(validJob)
	elsewhere := s.create(validJob, "Belfry-Namespace: other")
	s.expect(http.StatusCreated, nil, "POST", "/api/v1/monitors", validMonitor)
	operations := api.OperationsOf(s.Handler)
	methods := make(map[string][]string)
	for _, op := range operations {
		methods[op.Path] = append(methods[op.Path], op.Method)
	}
	var all []badRequest
	for _, op := range operations {
		path, body := pathOf(op, job.ID.String()), ""
		if op.Body != nil && !op.Optional {
			body = validJob
		}
		all = slices.Concat(all, badBodies(op, path), badParameters(op, path, body), badPaths(op, body, elsewhere.ID.String()), badMethods(op, path, methods))
	}
	for _, b := range all {
		a := s.send(b.method, b.path, b.body, b.headers...)
		if a.status != b.status {
			t.Errorf("%s %s: %s: got %d, want %d: %.300s", b.method, b.path, b.name, a.status, b.status, a.body)
			continue
		}
		p := a.problem(t)
		if b.field != "" && !slices.Contains(p.fields(), b.field) {
			t.Errorf("%s %s: %s: the errors %v do not name %q", b.method, b.path, b.name, p.Errors, b.field)
		}
		if (a.header.Get("Allow") != "") != (a.status == http.StatusMethodNotAllowed) {
			t.Errorf("%s %s: %s: the header Allow is %q", b.method, b.path, b.name, a.header.Get("Allow"))
		}
	}
	t.Logf("%d bad requests", len(all))
	if len(all) < 1000 {
		t.Errorf("only %d bad requests were generated", len(all))
	}
	s.expectUnchanged(job)
}

// expectUnchanged checks that a job is the only one and as it was created.
func (s *service) expectUnchanged(job belfry.Job) {
	s.t.Helper()
	if ids, _ := s.listIDs("/api/v1/jobs"); !slices.Equal(ids, []string{job.ID.String()}) {
		s.t.Errorf("the jobs are %v", ids)
	}
	var after belfry.Job
	s.expect(http.StatusOK, &after, "GET", "/api/v1/jobs/"+job.ID.String(), "")
	if diff := cmp.Diff(job, after, jobOptions); diff != "" {
		s.t.Errorf("the job changed (-before +after):\n%s", diff)
	}
	if runs, _ := s.listIDs("/api/v1/runs"); len(runs) > 0 {
		s.t.Errorf("there are runs: %v", runs)
	}
}

const testKey = "a-key-of-more-than-thirty-two-characters"

// keyed lets in only those who have a key.
func withKeys(t testing.TB, lines ...string) func(*api.Options) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(strings.Join(append([]string{"ops:" + testKey}, lines...), "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := api.LoadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	return func(o *api.Options) { o.Access = api.NewAccess(keys, nil, slog.New(slog.DiscardHandler)) }
}

func TestEveryOperationRequiresAPIKey(t *testing.T) {
	s := newService(t, withKeys(t))
	for i, op := range api.OperationsOf(s.Handler) {
		for _, headers := range [][]string{nil, {"Authorization: Bearer " + strings.Repeat("x", 40)}, {"Authorization: Basic b3BzOng="}} {
			a := s.send(op.Method, pathOf(op, unknownID), "", append(headers, fmt.Sprint("Remote: 198.51.100.", i))...)
			if (a.status == http.StatusUnauthorized) == (op.Permission == auth.Public) {
				t.Errorf("%s %s with %v: got %d", op.Method, op.Path, headers, a.status)
			}
			if a.status >= 400 {
				a.problem(t)
			}
		}
		if a := s.send(op.Method, pathOf(op, unknownID), "", "Authorization: Bearer "+testKey); a.status == http.StatusUnauthorized {
			t.Errorf("%s %s does not accept a key", op.Method, op.Path)
		}
	}
}

func TestCursorBelongsToOneList(t *testing.T) {
	s := newService(t)
	one := s.create(`{"name": "one", "queue": "q", "schedule": "@yearly", "overlap": "parallel", "payload": {"url": "https://example.com"}}`)
	for i := range 3 {
		s.create(`{"queue": "q", "schedule": "@yearly", "payload": {"url": "https://example.com"}}`)
		s.expect(http.StatusAccepted, nil, "POST", "/api/v1/jobs/one/trigger", "")
		s.fireTriggers()
		s.expect(http.StatusOK, nil, "PATCH", "/api/v1/jobs/one", fmt.Sprintf(`{"timeout_seconds": %d}`, 100+i))
	}
	s.createDeadLetters("dead", `"error": "no paper"`, `"error": "no paper"`)
	lists := []string{
		"/api/v1/dead-letters?limit=1", "/api/v1/dead-letters?limit=1&job=dead", "/api/v1/dead-letters?limit=1&error=paper", "/api/v1/dead-letters?limit=1&reason=out_of_retries",
		"/api/v1/jobs?limit=1", "/api/v1/jobs?limit=1&queue=q", "/api/v1/jobs?limit=1&type=http", "/api/v1/jobs?limit=1&status=scheduled",
		"/api/v1/runs?limit=1", "/api/v1/runs?limit=1&status=ready", "/api/v1/jobs/one/runs?limit=1", "/api/v1/jobs/one/history?limit=1",
		"/api/v1/jobs/one/revisions?limit=1", "/api/v1/jobs/" + one.ID.String() + "/runs?limit=1",
	}
	cursors := make([]string, len(lists))
	for i, path := range lists {
		link := s.expect(http.StatusOK, nil, "GET", path, "").header.Get("Link")
		_, rest, _ := strings.Cut(link, "cursor=")
		if cursors[i], _, _ = strings.Cut(strings.Split(rest, ">")[0], "&"); cursors[i] == "" {
			t.Fatalf("%s has no second page: %q", path, link)
		}
	}
	for i, path := range lists {
		for j, cursor := range cursors {
			a := s.send("GET", path+"&cursor="+cursor, "")
			if i == j {
				if a.status != http.StatusOK {
					t.Errorf("%s does not continue: %s", path, a.body)
				}
				continue
			}
			if p := a.problem(t); p.Status != http.StatusBadRequest || !slices.Equal(p.fields(), []string{"cursor"}) {
				t.Errorf("%s continues with the cursor of %s: %s", path, lists[j], a.body)
			}
		}
		if a := s.send("GET", path+"&cursor="+cursors[i], "", "Belfry-Namespace: other"); a.status < 400 {
			t.Errorf("%s continues in another namespace", path)
		}
	}
}

func TestRefusedRequestsLeaveNoMemory(t *testing.T) {
	s := newService(t)
	large := `{"payload": "` + strings.Repeat("x", 32<<10) + `", "colour": 1, "schedule": 5}`
	huge := strings.Repeat("x", api.MaxBody+1)
	heap := func() uint64 {
		s.log.b.Reset()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	refuse := func(times int) {
		for i := range times {
			body, want := large, http.StatusUnprocessableEntity
			if i%4 == 1 {
				body, want = huge, http.StatusRequestEntityTooLarge
			}
			r := httptest.NewRequest("POST", "/api/v1/jobs", strings.NewReader(body))
			r.Host, r.ContentLength = "localhost", -1
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			if s.ServeHTTP(w, r); w.Code != want || w.Body.Len() > 4<<10 {
				t.Fatalf("got %d and %d bytes", w.Code, w.Body.Len())
			}
		}
	}
	refuse(20)
	before := heap()
	refuse(2000)
	if after := heap(); after > before+4<<20 {
		t.Errorf("%d bytes are in use, %d were before", after, before)
	}
}
