package api_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/api"
	"github.com/belfry-sh/belfry/internal/auth"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/role_matrix.txt")

// compareGolden compares a text with that of a file.
func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if diff := cmp.Diff(string(want), got); err != nil || diff != "" {
		t.Errorf("%s (-want +got), write it with: go test ./internal/api -run RoleMatrix -rewrite\n%v %s", file, err, diff)
	}
}

// verdict is what the authorization of a request decided.
func verdict(a reply) string {
	switch {
	case a.status == 401 || a.status == 403:
		return fmt.Sprint(a.status)
	case a.status == 404 && strings.Contains(a.body, "there is no namespace"):
		return "404"
	}
	return "yes"
}

// S4, S6: who may do what, in a namespace of theirs and in another one, as a table that is made of
// the list of operations and what a server answers.
func TestRoleMatrix(t *testing.T) {
	s := newKeyedService(t, "")
	roles := []belfry.Role{"", belfry.RoleReader, belfry.RoleOperator, belfry.RoleAuthor, belfry.RoleAdmin, belfry.RoleWorker}
	keys := map[belfry.Role]string{}
	var table strings.Builder
	fmt.Fprintf(&table, "Each cell: in a namespace of the key, in another one; last an admin of all namespaces.\n\n%-20s %-8s", "operation", "needs")
	for _, role := range roles {
		if role == "" {
			fmt.Fprintf(&table, " %-8s", "none")
			continue
		}
		fmt.Fprintf(&table, " %-8s", role)
		keys[role] = s.createKey(fmt.Sprintf(`{"role": %q, "namespaces": ["own"]}`, role)).Key
	}
	table.WriteString(" all\n")
	for i, op := range api.OperationsOf(s.Handler) {
		fmt.Fprintf(&table, "%-20s %-8s", op.ID, op.Permission)
		for _, role := range roles {
			var cells []string
			for _, namespace := range []string{"own", "other"} {
				headers := []string{"Belfry-Namespace: " + namespace, fmt.Sprint("Remote: 198.51.100.", i)}
				if role != "" {
					headers = append(headers, bearer(keys[role]))
				}
				cells = append(cells, verdict(s.send(op.Method, pathOf(op, unknownID), "{}", headers...)))
			}
			fmt.Fprintf(&table, " %-8s", strings.Join(cells, " "))
		}
		fmt.Fprintf(&table, " %s\n", verdict(s.send(op.Method, pathOf(op, unknownID), "{}", bearer(testKey))))
	}
	compareGolden(t, "testdata/role_matrix.txt", table.String())
}

func TestNobodyGivesRightsThatTheyLack(t *testing.T) {
	s := newKeyedService(t, "")
	some := bearer(s.createKey(`{"role": "admin", "namespaces": ["a", "b"]}`).Key)
	all := s.createKey(`{"role": "reader"}`)
	abroad := s.createKey(`{"role": "reader", "namespaces": ["a", "c"]}`)
	for body, status := range map[string]int{
		`{"role": "reader", "namespaces": ["a"]}`:                         201,
		`{"role": "admin", "namespaces": ["b", "a"]}`:                     201,
		`{"role": "worker", "namespaces": ["a"], "queues": ["q"]}`:        201,
		`{"role": "reader"}`:                                              403,
		`{"role": "reader", "namespaces": []}`:                            403,
		`{"role": "reader", "namespaces": ["a", "c"]}`:                    403,
		`{"role": "author", "namespaces": ["a"], "commands": true}`:       403,
		`{"role": "owner", "namespaces": ["a"]}`:                          422,
		`{"namespaces": ["a"]}`:                                           422,
		`{"role": "reader", "namespaces": ["A b"]}`:                       422,
		`{"role": "reader", "namespaces": ["a"], "queues": ["q"]}`:        422,
		`{"role": "worker", "namespaces": ["a"], "queues": ["q q"]}`:      422,
		`{"role": "reader", "namespaces": ["a"], "expires_seconds": -1}`:  422,
		`{"role": "reader", "namespaces": ["a"], "name": "with a blank"}`: 422,
	} {
		if a := s.send("POST", "/api/v1/keys", body, some); a.status != status {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	a := s.expect(http.StatusOK, nil, "GET", "/api/v1/keys", "", some)
	for _, hidden := range []belfry.APIKey{all, abroad} {
		if strings.Contains(a.body, hidden.ID) {
			t.Errorf("an admin of a and b sees the key of %q", hidden.Namespaces)
		}
		s.expect(http.StatusNotFound, nil, "DELETE", "/api/v1/keys/"+hidden.ID, "", some)
		s.expect(http.StatusNotFound, nil, "POST", "/api/v1/keys/"+hidden.ID+"/rotate", "", some)
	}
	if n := strings.Count(a.body, `"key_id"`); n != 4 {
		t.Errorf("an admin of a and b sees %d keys, want 4", n)
	}
	var page []belfry.APIKey
	list := s.expect(http.StatusOK, &page, "GET", "/api/v1/keys?limit=3", "", some)
	if len(page) != 3 || list.header.Get("Link") == "" {
		t.Errorf("a page has %d keys", len(page))
	}
	commands := s.createKey(`{"role": "author", "namespaces": ["a"], "commands": true}`)
	s.expect(http.StatusForbidden, nil, "POST", "/api/v1/keys/"+commands.ID+"/rotate", "", some)
}

// S8: what a worker executes is chosen by those who may.
func TestCommandsNeedTheirOwnPermission(t *testing.T) {
	s := newKeyedService(t, "")
	with, without := bearer(s.createKey(`{"role": "author", "namespaces": ["default"], "commands": true}`).Key), bearer(s.createKey(`{"role": "author"}`).Key)
	const command = `{"name": "backup", "schedule": "@daily", "type": "command", "payload": {"command": "backup"}}`
	mine := strings.Replace(command, "backup", "mine", 1)
	const plain = `{"name": "plain", "schedule": "@daily", "payload": {"url": "https://example.com/hook"}}`
	s.expect(http.StatusCreated, nil, "POST", "/api/v1/jobs", command, with)
	s.expect(http.StatusOK, nil, "PATCH", "/api/v1/jobs/backup", `{"type": "http", "payload": {"url": "https://example.com"}}`, with)
	s.expect(http.StatusOK, nil, "PATCH", "/api/v1/jobs/backup", `{"type": "command", "payload": {"command": "other"}}`, with)
	s.expect(http.StatusCreated, nil, "POST", "/api/v1/jobs", plain, without)
	for _, r := range []struct{ method, path, body string }{
		{"POST", "/jobs", mine},
		{"POST", "/jobs?dry_run=true", mine},
		{"PUT", "/jobs/plain", `{"schedule": "@daily", "type": "command", "payload": {"command": "backup"}}`},
		{"PUT", "/jobs/new", `{"schedule": "@daily", "type": "command", "payload": {"command": "backup"}}`},
		{"PATCH", "/jobs/plain", `{"type": "command", "payload": {"command": "backup"}}`},
		{"PATCH", "/jobs/plain?dry_run=true", `{"type": "command", "payload": {"command": "backup"}}`},
		{"PATCH", "/jobs/backup", `{"timeout_seconds": 7}`},
		{"POST", "/jobs/backup/rollback", `{"revision": 1}`},
		{"POST", "/jobs/backup/trigger", `{"payload": {"args": ["--full"]}}`},
		{"POST", "/jobs/bulk", "[" + plain + "," + mine + "]"},
		{"POST", "/jobs/bulk?dry_run=true", "[" + mine + "]"},
	} {
		a := s.send(r.method, "/api/v1"+r.path, r.body, without, "Content-Type: application/json")
		if a.status != http.StatusForbidden || !strings.Contains(a.body, "permission commands") {
			t.Errorf("%s %s %s: %d %s", r.method, r.path, r.body, a.status, a.body)
		}
	}
	s.expect(http.StatusAccepted, nil, "POST", "/api/v1/jobs/backup/trigger", "", without)
	s.expect(http.StatusOK, nil, "POST", "/api/v1/jobs/backup/pause", "", without)
}

func TestBulkActionsNeedWhatEachNeeds(t *testing.T) {
	s := newKeyedService(t, "")
	operator, author := bearer(s.createKey(`{"role": "operator"}`).Key), bearer(s.createKey(`{"role": "author"}`).Key)
	for action, status := range map[string]int{"pause": 200, "resume": 200, "trigger": 200, "cancel": 200, "retry": 200, "delete": 403} {
		for _, dry := range []bool{true, false} {
			body := fmt.Sprintf(`{"action": %q, "all": true, "dry_run": %t}`, action, dry)
			if a := s.send("POST", "/api/v1/jobs/actions", body, operator); a.status != status {
				t.Errorf("an operator, %s: %d %s", body, a.status, a.body)
			}
			s.expect(http.StatusOK, nil, "POST", "/api/v1/jobs/actions", body, author)
		}
	}
}

// S23
func TestWorkersHaveTheirNamespacesAndQueues(t *testing.T) {
	s := newKeyedService(t, "")
	key := bearer(s.createKey(`{"role": "worker", "namespaces": ["a"], "queues": ["q"]}`).Key)
	const path, inA, inB = "/api/v1/workers/" + unknownID, "Belfry-Namespace: a", "Belfry-Namespace: b"
	body := func(queue string) string {
		return fmt.Sprintf(`{"queue": %s, "handlers": ["h"], "wait_seconds": 0}`, queue)
	}
	beat := func(queue string) string {
		return fmt.Sprintf(`{"queue": %s, "handlers": ["h"], "slots": 1, "register": true}`, queue)
	}
	for queue, status := range map[string]int{`"q"`: 200, `["q"]`: 200, `"other"`: 403, `["q", "other"]`: 403, `null`: 403} {
		if a := s.send("POST", path+"/claim", body(queue), key, inA); a.status != status {
			t.Errorf("a claim of %s: %d %s", queue, a.status, a.body)
		}
		if a := s.send("POST", path+"/heartbeat", beat(queue), key, inA); a.status != status {
			t.Errorf("a heartbeat of %s: %d %s", queue, a.status, a.body)
		}
	}
	const job = `{"name": "pay", "schedule": "@yearly", "type": "worker", "handler": "h", "queue": "q"}`
	s.expect(http.StatusCreated, nil, "POST", "/api/v1/jobs", job, bearer(testKey), inB)
	s.expect(http.StatusAccepted, nil, "POST", "/api/v1/jobs/pay/trigger", "", bearer(testKey), inB)
	s.fireTriggers()
	s.expect(http.StatusOK, nil, "POST", path+"/heartbeat", beat(`"q"`), bearer(testKey), inB)
	var claimed belfry.ClaimReply
	s.expect(http.StatusOK, &claimed, "POST", path+"/claim", body(`"q"`), bearer(testKey), inB)
	run := claimed.Runs[0]
	result := func(token belfry.Token) string {
		return fmt.Sprintf(`{"results": [{"run_id": %q, "attempt": 1, "token": %q, "outcome": "succeeded"}]}`, run.ID, token)
	}
	s.expect(http.StatusNotFound, nil, "POST", path+"/finish", result(run.Token), key, inB)
	for _, headers := range [][]string{{key, inA}, {bearer(testKey), inA}} { // of another namespace, and
		if a := s.expect(http.StatusOK, nil, "POST", path+"/finish", result(run.Token), headers...); !strings.Contains(a.body, "late") {
			t.Errorf("a run of another namespace was finished: %s", a.body)
		}
	}
	if a := s.expect(http.StatusOK, nil, "POST", path+"/finish", result(belfry.NewToken()), bearer(testKey), inB); !strings.Contains(a.body, "late") { // with a wrong token
		t.Errorf("a run was finished with a wrong token: %s", a.body)
	}
	if a := s.expect(http.StatusOK, nil, "POST", path+"/finish", result(run.Token), bearer(testKey), inB); !strings.Contains(a.body, "accepted") {
		t.Errorf("the run was not finished: %s", a.body)
	}
}

// A claim that waits, and a stream of events, end with their key.
func TestWhatWaitsEndsWithTheKey(t *testing.T) {
	s := newKeyedService(t, "")
	worker, reader := s.createKey(`{"role": "worker"}`), s.createKey(`{"role": "reader"}`)
	answers := make(chan reply, 2)
	go func() {
		answers <- s.send("POST", "/api/v1/workers/"+unknownID+"/claim", `{"handlers": ["h"], "wait_seconds": 30}`, bearer(worker.Key))
	}()
	go func() {
		answers <- s.send("GET", "/api/v1/events", "", bearer(reader.Key), "Accept: text/event-stream")
	}()
	began := time.Now()
	for _, k := range []belfry.APIKey{worker, reader} {
		s.expect(http.StatusNoContent, nil, "DELETE", "/api/v1/keys/"+k.ID, "", bearer(testKey))
	}
	for range 2 {
		if a := <-answers; a.status != http.StatusUnauthorized && !strings.HasPrefix(a.body, "retry:") {
			t.Errorf("the answer is %d %s", a.status, a.body)
		}
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("they ended after %s", took)
	}
}

// A client that changes to the next key within the overlap has no request refused.
func TestRotationUnderLoad(t *testing.T) {
	s := newKeyedService(t, "")
	current := s.createKey(`{"role": "reader", "name": "load", "namespaces": ["default"]}`)
	var mu sync.Mutex // of current
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	made := make(chan struct{}, 1) // a request was made
	for range 4 {
		clients.Go(func() {
			for ctx.Err() == nil {
				mu.Lock()
				key := current.Key
				mu.Unlock()
				if a := s.send("GET", "/api/v1/jobs?limit=1", "", bearer(key)); a.status != http.StatusOK {
					t.Errorf("a request is refused: %d %s", a.status, a.body)
					stop()
				}
				select {
				case made <- struct{}{}:
				default:
				}
			}
		})
	}
	await := func() {
		select {
		case <-made:
		case <-ctx.Done(): // one was refused
		}
	}
	first := current
	for range 5 {
		await()
		var next belfry.APIKey
		s.expect(http.StatusCreated, &next, "POST", "/api/v1/keys/"+current.ID+"/rotate", `{"overlap_seconds": 60}`, bearer(testKey))
		s.expect(http.StatusConflict, nil, "POST", "/api/v1/keys/"+current.ID+"/rotate", "", bearer(testKey))
		if next.Role != first.Role || next.Name != first.Name || !cmp.Equal(next.Namespaces, first.Namespaces) || next.ID == current.ID || time.Until(*next.ExpiresAt) < 89*24*time.Hour {
			t.Errorf("the next key is %+v", next)
		}
		mu.Lock()
		current = next
		mu.Unlock()
	}
	await()
	stop()
	clients.Wait()
	var list []belfry.APIKey
	s.expect(http.StatusOK, &list, "GET", "/api/v1/keys", "", bearer(testKey))
	old := list[len(list)-1]
	if old.ID != first.ID || old.ReplacedBy == "" || time.Until(*old.ExpiresAt) > time.Minute {
		t.Errorf("the old key is %+v", old)
	}
}

// S4: an operation without a permission does not start.
func TestPrincipalsAreChecked(t *testing.T) {
	p := &auth.Principal{Role: belfry.RoleReader, Namespaces: []string{"a"}}
	for _, tt := range []struct {
		permission auth.Permission
		namespace  string
		want       belfry.Code
	}{{auth.Read, "a", ""}, {auth.Read, "b", belfry.NotFound}, {auth.Write, "b", belfry.NotFound}, {auth.Write, "a", belfry.Forbidden}, {auth.Read, "", belfry.Forbidden}, {auth.Known, "b", ""}, {"other", "a", belfry.Forbidden}} {
		if err := p.Check(tt.permission, tt.namespace); err == nil && tt.want != "" || err != nil && belfry.CodeOf(err) != tt.want {
			t.Errorf("%s in %q: %v", tt.permission, tt.namespace, err)
		}
	}
}
