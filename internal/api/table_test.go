package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry/internal/api"
)

// at is the path of an operation, with something in its place.
func at(op api.Operation, id string) string {
	return strings.NewReplacer("{id}", id, "{worker}", unknownID, "{$}", "").Replace(op.Path)
}

// spoken tells whether an operation looks into a namespace.
func spoken(op api.Operation) bool {
	return strings.HasPrefix(op.Path, "/api/v1/") && !strings.HasSuffix(op.Path, ".json")
}

// bad is a request that must be refused.
type bad struct {
	name, method, path, body string
	headers                  []string
	status                   int
	field                    string
}

// badBodies is what may be wrong with the body of an operation.
func badBodies(op api.Operation, path string) []bad {
	if len(op.Media) == 0 {
		return nil
	}
	bulk := op.ID == "importJobs"
	wrong := func(name, body string, status int, field string, headers ...string) bad {
		if len(headers) == 0 {
			headers = []string{"Content-Type: " + op.Media[0]}
		}
		return bad{name, op.Method, path, body, headers, status, field}
	}
	broken, place := http.StatusBadRequest, func(field string) string { return field }
	if bulk { // Lines are told apart, whatever is in them.
		broken = http.StatusUnprocessableEntity
		place = func(field string) string { return strings.TrimSuffix("line 1."+field, ".") }
	}
	most := api.MaxBody
	switch {
	case bulk:
		most = api.MaxBulk
	case op.ID == "finishRuns":
		most = api.MaxResultBody
	}
	list := []bad{
		wrong("half an object", `{"`, broken, place("")),
		wrong("something that is no JSON", `job`, broken, place("")),
		wrong("not UTF-8", "{\"a\": \"\xff\"}", broken, place("")),
		wrong("too deep", strings.Repeat(`{"a":`, 40)+"1"+strings.Repeat("}", 40), broken, place("")),
		wrong("a string", `"job"`, broken, place("")),
		wrong("an unknown member", `{"colour": 1}`, http.StatusUnprocessableEntity, place("colour")),
		wrong("a member twice", `{"colour": 1, "colour": 2}`, http.StatusUnprocessableEntity, place("colour")),
		wrong("another content type", `{}`, http.StatusUnsupportedMediaType, "", "Content-Type: text/plain"),
		wrong("a form", `a=b`, http.StatusUnsupportedMediaType, "", "Content-Type: application/x-www-form-urlencoded"),
		wrong("compressed", `{}`, http.StatusUnsupportedMediaType, "", "Content-Encoding: gzip"),
		wrong("too large", strings.Repeat(" ", most+1), http.StatusRequestEntityTooLarge, ""),
	}
	if op.Required {
		list = append(list, wrong("nothing", ``, http.StatusBadRequest, ""), wrong("blanks", " \n", http.StatusBadRequest, ""))
	}
	for _, field := range op.Fields {
		list = append(list, wrong("a wrong type of "+field, fmt.Sprintf(`{%q: {"x": 1}}`, field), http.StatusUnprocessableEntity, place(field)))
	}
	return list
}

// badQueries is what may be wrong with the address and the headers.
func badQueries(op api.Operation, path, body string) []bad {
	wrong := func(name, query, field string, headers ...string) bad {
		return bad{name, op.Method, path + query, body, headers, http.StatusBadRequest, field}
	}
	var list []bad
	if spoken(op) {
		list = append(list,
			wrong("an unknown parameter", "?colour=red", "colour"),
			wrong("a query that cannot be read", "?%zz", ""),
			wrong("a namespace that cannot be", "", "Belfry-Namespace", "Belfry-Namespace: A B"),
			wrong("two namespaces", "", "Belfry-Namespace", "Belfry-Namespace: a", "Belfry-Namespace: b"))
	}
	for _, p := range op.Parameters {
		switch p {
		case "limit":
			list = append(list, wrong("no limit", "?limit=0", p), wrong("a high limit", "?limit=501", p), wrong("two limits", "?limit=1&limit=2", p))
		case "cursor":
			list = append(list, wrong("a cursor that is none", "?cursor=x", p), wrong("an old cursor", "?cursor=EQAAAAAAAAAAAAAAAAAAAAA", p),
				wrong("a cursor of nothing", "?cursor=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", p))
		case "Idempotency-Key":
			list = append(list, wrong("a long key", "", p, p+": "+strings.Repeat("x", 201)), wrong("an odd key", "", p, p+": \u00e9"),
				wrong("two keys", "", p, p+": a", p+": b"))
		case "If-Match":
			list = append(list, wrong("no tag", "", p, p+": abc"), wrong("half a tag", "", p, p+`: "abc`), wrong("tags without a comma", "", p, p+`: "a" "b"`))
		}
	}
	return list
}

// rightBodies are those that nothing is wrong with, of operations that take no job.
var rightBodies = map[string]string{
	"rollbackJob": `{"revision": 1}`,
	"backfillJob": `{"from": "2026-01-01T00:00:00Z"}`,
}

// besides is the path that takes a name where another has a word of its own, as in
// /jobs/bulk: what a method has no word for is a name to it.
func besides(path string) string {
	return path[:strings.LastIndex(path, "/")+1] + "{id}"
}

func TestEveryOperationRefusesWhatIsWrong(t *testing.T) {
	s := serve(t)
	job := s.create(validJob)
	elsewhere := s.create(validJob, "Belfry-Namespace: other")
	methods := make(map[string][]string)
	for _, op := range api.OperationsOf(s.Handler) {
		methods[op.Path] = append(methods[op.Path], op.Method)
	}
	var all []bad
	for _, op := range api.OperationsOf(s.Handler) {
		path := at(op, job.ID.String())
		body := ""
		if op.Required {
			body = validJob
		}
		all = append(all, badBodies(op, path)...)
		all = append(all, badQueries(op, path, body)...)
		if strings.Contains(op.Path, "{id}") {
			if right := rightBodies[op.ID]; right != "" {
				body = right
			}
			for name, id := range map[string]string{"an unknown id": unknownID, "an id of another namespace": elsewhere.ID.String()} {
				all = append(all, bad{name, op.Method, at(op, id), body, nil, http.StatusNotFound, ""})
			}
			if op.ID != "putJob" {
				all = append(all, bad{"an unknown name", op.Method, at(op, "no%2Fsuch%20name"), body, nil, http.StatusNotFound, ""})
			}
		}
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"} {
			if !slices.Contains(methods[op.Path], method) && !slices.Contains(methods[besides(op.Path)], method) {
				all = append(all, bad{"the method " + method, method, path, "", nil, http.StatusMethodNotAllowed, ""})
			}
		}
	}
	for _, b := range all {
		a := s.ask(b.method, b.path, b.body, b.headers...)
		if a.status != b.status {
			t.Errorf("%s %s: %s: got %d, want %d: %.300s", b.method, b.path, b.name, a.status, b.status, a.body)
			continue
		}
		p := a.problem(t)
		if b.field != "" && !slices.Contains(p.fields(), b.field) {
			t.Errorf("%s %s: %s: %q is not among the faults %v", b.method, b.path, b.name, b.field, p.Errors)
		}
	}
	t.Logf("%d requests were refused", len(all))
	if ids, _ := s.follow("/api/v1/jobs"); len(ids) != 1 {
		t.Errorf("there are %d jobs after all that", len(ids))
	}
	if after := s.want(http.StatusOK, nil, "GET", "/api/v1/jobs/"+job.ID.String(), ""); !strings.Contains(after.body, `"revision":1,"status":"scheduled"`) {
		t.Errorf("the job has become %s", after.body)
	}
}

const aKey = "a-key-of-more-than-thirty-two-characters"

// keyed lets in only those who have a key.
func keyed(t testing.TB, lines ...string) func(*api.Options) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(strings.Join(append([]string{"ops:" + aKey}, lines...), "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := api.LoadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	return func(o *api.Options) { o.Keys = keys }
}

func TestEveryOperationNeedsAKey(t *testing.T) {
	s := serve(t, keyed(t))
	for _, op := range api.OperationsOf(s.Handler) {
		for _, headers := range [][]string{nil, {"Authorization: Bearer " + strings.Repeat("x", 40)}, {"Authorization: Basic b3BzOng="}} {
			a := s.ask(op.Method, at(op, unknownID), "", headers...)
			if (a.status == http.StatusUnauthorized) == op.Open {
				t.Errorf("%s %s with %v: got %d", op.Method, op.Path, headers, a.status)
			}
			if a.status >= 400 {
				a.problem(t)
			}
		}
		if a := s.ask(op.Method, at(op, unknownID), "", "Authorization: Bearer "+aKey); a.status == http.StatusUnauthorized {
			t.Errorf("%s %s does not accept a key", op.Method, op.Path)
		}
	}
}

func TestACursorIsOfOneListOnly(t *testing.T) {
	s := serve(t)
	one := s.create(`{"name": "one", "queue": "q", "schedule": "@yearly", "overlap": "parallel", "payload": {"url": "https://example.com"}}`)
	for i := range 3 {
		s.create(`{"queue": "q", "schedule": "@yearly", "payload": {"url": "https://example.com"}}`)
		s.want(http.StatusAccepted, nil, "POST", "/api/v1/jobs/one/trigger", "")
		s.turn()
		s.want(http.StatusOK, nil, "PATCH", "/api/v1/jobs/one", fmt.Sprintf(`{"timeout_seconds": %d}`, 100+i))
	}
	s.bury("dead", `"error": "no paper"`, `"error": "no paper"`)
	lists := []string{
		"/api/v1/dead-letters?limit=1", "/api/v1/dead-letters?limit=1&job=dead", "/api/v1/dead-letters?limit=1&error=paper", "/api/v1/dead-letters?limit=1&reason=out_of_retries",
		"/api/v1/jobs?limit=1", "/api/v1/jobs?limit=1&queue=q", "/api/v1/jobs?limit=1&type=http", "/api/v1/jobs?limit=1&status=scheduled",
		"/api/v1/runs?limit=1", "/api/v1/runs?limit=1&status=ready", "/api/v1/jobs/one/runs?limit=1", "/api/v1/jobs/one/history?limit=1",
		"/api/v1/jobs/one/revisions?limit=1", "/api/v1/jobs/" + one.ID.String() + "/runs?limit=1",
	}
	cursors := make([]string, len(lists))
	for i, path := range lists {
		link := s.want(http.StatusOK, nil, "GET", path, "").header.Get("Link")
		_, rest, _ := strings.Cut(link, "cursor=")
		if cursors[i], _, _ = strings.Cut(strings.Split(rest, ">")[0], "&"); cursors[i] == "" {
			t.Fatalf("%s has no second page: %q", path, link)
		}
	}
	for i, path := range lists {
		for j, cursor := range cursors {
			a := s.ask("GET", path+"&cursor="+cursor, "")
			if i == j {
				if a.status != http.StatusOK {
					t.Errorf("%s does not go on: %s", path, a.body)
				}
				continue
			}
			if p := a.problem(t); p.Status != http.StatusBadRequest || !slices.Equal(p.fields(), []string{"cursor"}) {
				t.Errorf("%s goes on with the cursor of %s: %s", path, lists[j], a.body)
			}
		}
		if a := s.ask("GET", path+"&cursor="+cursors[i], "", "Belfry-Namespace: other"); a.status < 400 {
			t.Errorf("%s goes on in another namespace", path)
		}
	}
}

func TestRefusalsLeaveNothingBehind(t *testing.T) {
	s := serve(t)
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
