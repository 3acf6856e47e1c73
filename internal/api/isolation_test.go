package api_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/api"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/openapi"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/store/postgres"
)

const (
	inOurs      = "Belfry-Namespace: ours"
	inTheirs    = "Belfry-Namespace: theirs"
	foreignMark = "c4n4ry" // in everything of theirs that can have a text
)

// tenant is one of everything in the namespace theirs: how paths name them, by the names of
// parameters, and a worker with a run.
type tenant struct {
	refs   map[string][]string
	worker string
	held   belfry.ClaimedRun
}

func newTenant(s *service) tenant {
	s.t.Helper()
	var job, monitor struct {
		JobID belfry.ID `json:"job_id"`
		ID    belfry.ID `json:"monitor_id"`
	}
	s.expect(http.StatusCreated, &job, "POST", "/api/v1/jobs", `{"name": "send", "type": "worker", "schedule": "@yearly", "overlap": "parallel", "max_retries": 0, "payload": {"text": "`+foreignMark+`"}}`, inTheirs)
	s.expect(http.StatusOK, nil, "PATCH", "/api/v1/jobs/send", `{"description": "`+foreignMark+`"}`, inTheirs) // a second revision
	worker := s.registerWorker(inTheirs)
	claim := func() belfry.ClaimedRun {
		s.expect(http.StatusAccepted, nil, "POST", "/api/v1/jobs/send/trigger", "", inTheirs)
		s.fireTriggers()
		var c belfry.ClaimReply
		s.expect(http.StatusOK, &c, "POST", worker+"/claim", `{"handlers": ["send"], "wait_seconds": 0}`, inTheirs)
		if len(c.Runs) != 1 {
			s.t.Fatalf("claimed %+v", c)
		}
		return c.Runs[0]
	}
	dead, held := claim(), claim()
	s.expect(http.StatusOK, nil, "POST", worker+"/finish", fmt.Sprintf(`{"results": [{"run_id": %q, "attempt": 1, "token": %q, "outcome": "failed", "error": %q, "log": %[3]q}]}`, dead.ID, dead.Token, foreignMark), inTheirs)
	s.expect(http.StatusOK, nil, "POST", worker+"/heartbeat", fmt.Sprintf(`{"slots": 2, "handlers": ["send"], "logs": [{"run_id": %q, "attempt": 1, "token": %q, "text": %q}]}`, held.ID, held.Token, foreignMark), inTheirs)
	s.expect(http.StatusCreated, nil, "POST", "/api/v1/channels", `{"name": "oncall", "type": "webhook", "url": "https://example.com/`+foreignMark+`", "alerts": [{"on": "dead"}]}`, inTheirs)
	s.expect(http.StatusCreated, &monitor, "POST", "/api/v1/monitors", `{"name": "backup", "every_seconds": 60, "description": "`+foreignMark+`"}`, inTheirs)
	_, err := s.store.PutSecret(context.Background(), store.SecretRecord{Secret: belfry.Secret{Namespace: "theirs", Name: "hooks", Value: foreignMark}}, 0)
	s.check(err)
	now := s.store.Now().UTC().Truncate(time.Microsecond)
	alert := store.AlertRecord{Key: "k", SendAt: now.Add(time.Hour), Alert: belfry.Alert{ID: belfry.NewID(now), Namespace: "theirs", Channel: "oncall", Status: belfry.AlertFiring,
		StartedAt: now, LatestAt: now, Count: 1, Message: foreignMark, Subscription: belfry.Subscription{On: belfry.AlertDead}}}
	_, err = s.store.SaveAlerts(context.Background(), []store.AlertRecord{alert})
	s.check(err)
	return tenant{worker: worker, held: held, refs: map[string][]string{
		"job": {job.JobID.String(), "send"}, "run": {held.ID.String(), dead.ID.String()}, "channel": {"oncall"}, "monitor": {monitor.ID.String(), "backup"}, "alert": {alert.ID.String()}, "secret": {"hooks"},
	}}
}

// isolationBodies are valid bodies of operations that have no example, or a wrong one here.
var isolationBodies = map[string]string{
	"editJob": `{"description": "x"}`, "putJob": `{"type": "worker", "handler": "send", "schedule": "@daily"}`, "rollbackJob": `{"revision": 1}`, "backfillJob": `{"from": "2020-01-01T00:00:00Z", "to": "2020-02-01T00:00:00Z"}`,
	"putChannel": `{"name": "oncall", "type": "webhook", "url": "https://example.com/ours", "alerts": [{"on": "dead"}]}`, "putSecret": `{"name": "hooks", "value": "x"}`, "triggerJob": `{}`, "redriveDeadLetter": `{}`, "acknowledgeAlert": `{}`,
}

func bodyOf(op openapi.Operation) string {
	if op.Method == http.MethodGet || op.Method == http.MethodDelete {
		return ""
	}
	if body, ok := isolationBodies[op.ID]; ok {
		return body
	}
	for _, title := range slices.Sorted(maps.Keys(op.Examples)) {
		return op.Examples[title]
	}
	return ""
}

// state is all that the tenant sees.
func (s *service) state(t tenant) map[string]string {
	state := map[string]string{}
	for _, op := range api.OperationsOf(s.Handler) {
		parameter := parameterOf(op)
		if op.Method != http.MethodGet || op.Global || strings.HasPrefix(op.Path, "/ping") {
			continue
		}
		for _, ref := range append(slices.Clone(t.refs[parameter]), "")[:max(1, len(t.refs[parameter]))] {
			path := strings.Replace(op.Path, "{"+parameter+"}", ref, 1)
			state[op.ID+" "+ref] = s.send("GET", path, "", inTheirs).body
		}
	}
	for name, text := range state { // Ids of requests and instants differ each time.
		if at := strings.Index(text, `"request_id"`); at >= 0 || strings.HasPrefix(name, "getForecast") {
			state[name] = text[:max(at, 0)]
		}
	}
	return state
}

// parameterOf is the name of the parameter in a path; empty if there is none.
func parameterOf(op openapi.Operation) string {
	_, rest, _ := strings.Cut(op.Path, "{")
	name, _, _ := strings.Cut(rest, "}")
	return strings.TrimSuffix(name, "$")
}

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// onEachStore tests the API over both databases, whose statements differ.
func onEachStore(t *testing.T, test func(t *testing.T, s *service)) {
	t.Run("sqlite", func(t *testing.T) { test(t, newService(t)) })
	t.Run("postgres", func(t *testing.T) {
		s, err := postgres.Open(t.Context(), postgres.Options{URL: pgtest.Database(t, postgres.Migrate), Shards: 4})
		if err != nil {
			t.Fatal(err)
		}
		test(t, newServiceOn(t, s))
	})
}

func TestIdsOfAnotherNamespaceAreNotFound(t *testing.T) { onEachStore(t, testIsolation) }

func testIsolation(t *testing.T, s *service) {
	theirs := newTenant(s)
	before := s.state(theirs)
	if n := strings.Count(fmt.Sprint(before), foreignMark); n < 10 {
		t.Fatalf("what they see has %d canaries: the test shows little", n)
	}
	tried := map[string]int{}
	for _, op := range api.OperationsOf(s.Handler) {
		parameter := parameterOf(op)
		if parameter == "" || parameter == "worker" || parameter == "token" || parameter == "key" || parameter == "namespace" { // see below; a token is for everybody who knows it
			continue
		}
		if theirs.refs[parameter] == nil {
			t.Errorf("%s: the tenant has no %s: give it one", op.ID, parameter)
		}
		for _, ref := range theirs.refs[parameter] {
			a := s.send(op.Method, strings.Replace(op.Path, "{"+parameter+"}", ref, 1), bodyOf(op), inOurs, "Content-Type: application/json")
			_, noID := belfry.ParseID(ref)
			if created := op.Method == http.MethodPut && noID != nil; created != (a.status < 300) || !created && a.status != http.StatusNotFound {
				t.Errorf("%s of %s: got %d: %s", op.ID, ref, a.status, a.body)
			}
			if strings.Contains(a.body, foreignMark) {
				t.Errorf("%s of %s tells: %s", op.ID, ref, a.body)
			}
			tried[parameter]++
			s.forgetOurs(op)
		}
	}
	if len(tried) != len(theirs.refs) {
		t.Errorf("tried %v", tried)
	}
	s.tryFiltersAndWorkers(theirs)
	if diff := gocmp.Diff(before, s.state(theirs)); diff != "" {
		t.Errorf("what they see has changed:\n%s", diff)
	}
}

// forgetOurs deletes what an operation has created under a name, which others would find.
func (s *service) forgetOurs(op openapi.Operation) {
	if path := map[string]string{"putJob": "/api/v1/jobs/send?history=delete", "putChannel": "/api/v1/channels/oncall", "putMonitor": "/api/v1/monitors/backup", "putSecret": "/api/v1/secrets/hooks"}[op.ID]; path != "" {
		s.send("DELETE", path, "", inOurs)
	}
}

// tryFiltersAndWorkers names what is theirs in queries and bodies.
func (s *service) tryFiltersAndWorkers(theirs tenant) {
	for _, op := range api.OperationsOf(s.Handler) {
		if op.Global || parameterOf(op) != "" || op.Method != http.MethodGet {
			continue
		}
		for _, parameter := range slices.Sorted(maps.Keys(theirs.refs)) {
			if a := s.send("GET", op.Path+"?"+parameter+"="+theirs.refs[parameter][0], "", inOurs); strings.Contains(a.body, foreignMark) {
				s.t.Errorf("%s by %s tells: %s", op.ID, parameter, a.body)
			}
		}
		if a := s.send("GET", op.Path, "", inOurs); strings.Contains(a.body, foreignMark) {
			s.t.Errorf("%s tells: %s", op.ID, a.body)
		}
	}
	for path, body := range map[string]string{"jobs/actions": `{"action": "delete", "all": true}`, "dead-letters/discard": `{"all": true}`, "dead-letters/redrive": `{"all": true}`} {
		s.expect(http.StatusOK, nil, "POST", "/api/v1/"+path, body, inOurs)
	}
	run := theirs.held
	for _, worker := range []string{theirs.worker, s.registerWorker(inOurs)} {
		for verb, body := range map[string]string{
			"claim":     `{"handlers": ["send"], "wait_seconds": 0}`,
			"finish":    fmt.Sprintf(`{"results": [{"run_id": %q, "attempt": 1, "token": %q, "outcome": "succeeded"}]}`, run.ID, run.Token),
			"heartbeat": fmt.Sprintf(`{"slots": 2, "handlers": ["send"], "held": [{"run_id": %q, "attempt": 1}], "logs": [{"run_id": %[1]q, "attempt": 1, "token": %[2]q, "text": "ours"}]}`, run.ID, run.Token),
		} {
			if a := s.send("POST", worker+"/"+verb, body, inOurs); strings.Contains(a.body, foreignMark) || strings.Contains(a.body, "accepted") {
				s.t.Errorf("%s: %s", verb, a.body)
			}
		}
	}
}

// Who has another namespace finds nothing, whatever role they have.
func TestNamespacesOfOthersAreNotFound(t *testing.T) {
	s := newService(t)
	theirs := newTenant(s)
	theirs.refs["namespace"], theirs.refs["worker"] = []string{"theirs"}, []string{unknownID}
	for _, role := range []belfry.Role{belfry.RoleAdmin, belfry.RoleWorker, belfry.RoleReader} {
		p := &auth.Principal{Actor: belfry.Actor{Kind: belfry.ActorKey, ID: "k"}, Role: role, Namespaces: []string{"ours"}}
		for _, op := range api.OperationsOf(s.Handler) {
			if op.Permission == auth.Public || op.Permission == auth.Known || strings.Contains(op.Path, "/keys") { // which have tests of their own
				continue
			}
			parameter := parameterOf(op)
			path := strings.Replace(op.Path, "{"+parameter+"}", cmp.Or(append(slices.Clone(theirs.refs[parameter]), "")[0], "x"), 1)
			a := s.as(p).send(op.Method, path, bodyOf(op), inTheirs, "Content-Type: application/json")
			want := http.StatusNotFound
			switch {
			case op.Global && (!p.Has(op.Permission) || !op.Scoped):
				want = http.StatusForbidden
			case op.ID == "listNamespaces":
				want = http.StatusOK
			}
			if a.status != want || strings.Contains(a.body, foreignMark) || op.Scoped && strings.Contains(a.body, `"name":"theirs"`) {
				t.Errorf("%s %s: got %d, want %d: %s", role, op.ID, a.status, want, a.body)
			}
		}
	}
}
