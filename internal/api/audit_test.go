package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/api"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/openapi"
	"github.com/belfry-sh/belfry/internal/store"
)

// audited is a request that changes something, and the entry that it leaves.
type audited struct {
	prepare func(s *service) (path, body string) // leaves entries of its own
	action  belfry.AuditAction
	kind    belfry.AuditKind
	shows   string // in before or after
}

// canary is in every place of a request that may hold a secret.
const canary = "c4n4ryb8c1d5e7f9a0b2c4d6" // base64 of 18 bytes

const secretJob = `{"name": "%s", "schedule": "@yearly", "max_retries": 0, "overlap": "parallel", "payload": {"url": "https://example.com/hook?token=` + canary + `",
	"headers": {"Authorization": "Bearer ` + canary + `", "X-Api-Key": "` + canary + `"}, "body": {"password": "` + canary + `", "month": 5}}}`

func (s *service) secretJob(name string) string {
	s.t.Helper()
	return "/api/v1/jobs/" + s.create(fmt.Sprintf(secretJob, name)).ID.String()
}

// deadRun is a dead letter of a new job.
func (s *service) deadRun(name string) string {
	s.t.Helper()
	var run belfry.TriggerResult
	s.expect(http.StatusAccepted, &run, "POST", s.secretJob(name)+"/trigger", "")
	for range 20 { // Others may be claimed first.
		if s.failTriggered(); s.send("GET", "/api/v1/dead-letters/"+run.RunID.String(), "").status == http.StatusOK {
			break
		}
	}
	return run.RunID.String()
}

func (s *service) monitor(name string) string {
	s.t.Helper()
	s.expect(http.StatusCreated, nil, "POST", "/api/v1/monitors", `{"name": "`+name+`", "every_seconds": 60}`)
	return "/api/v1/monitors/" + name
}

const secretChannel = `{"name": "%s", "type": "webhook", "url": "https://example.com/` + canary + `", "secret": "whsec_` + canary + `%s", "alerts": [{"on": "dead"}]}`

func (s *service) channel(name string) string {
	s.t.Helper()
	s.expect(http.StatusCreated, nil, "POST", "/api/v1/channels", fmt.Sprintf(secretChannel, name, "aaaaaaaa"))
	return "/api/v1/channels/" + name
}

func onJob(name, action, body string) func(s *service) (string, string) {
	return func(s *service) (string, string) { return s.secretJob(name) + action, body }
}

var auditedOperations = map[string]audited{
	"createJob": {func(*service) (string, string) { return "/api/v1/jobs", fmt.Sprintf(secretJob, "created") }, belfry.AuditCreate, belfry.AuditJob, `"schedule":"@yearly"`},
	"importJobs": {func(*service) (string, string) {
		return "/api/v1/jobs/bulk", strings.ReplaceAll(fmt.Sprintf(secretJob, "imported"), "\n", "")
	}, belfry.AuditImport, belfry.AuditJob, ``},
	"editJob": {onJob("edited", "", `{"schedule": "@daily", "payload": {"url": "https://example.com/?token=`+canary+`x"}}`), belfry.AuditEdit, belfry.AuditJob, `"schedule":"@daily"`},
	"putJob": {func(s *service) (string, string) {
		s.secretJob("put")
		return "/api/v1/jobs/put", validJobWithout("name")
	}, belfry.AuditEdit, belfry.AuditJob, `30 9 * * MON-FRI`},
	"deleteJob": {onJob("deleted", "", ""), belfry.AuditDelete, belfry.AuditJob, `"schedule":"@yearly"`},
	"pauseJob":  {onJob("paused", "/pause", ""), belfry.AuditPause, belfry.AuditJob, `"status":"paused"`},
	"resumeJob": {func(s *service) (string, string) {
		path := s.secretJob("resumed")
		s.expect(http.StatusOK, nil, "POST", path+"/pause", "")
		return path + "/resume", ""
	}, belfry.AuditResume, belfry.AuditJob, `"status":"paused"`},
	"cancelJob":  {onJob("cancelled", "/cancel", ""), belfry.AuditCancel, belfry.AuditJob, ``},
	"triggerJob": {onJob("triggered", "/trigger", `{"payload": {"password": "`+canary+`", "month": 7}}`), belfry.AuditTrigger, belfry.AuditJob, `"run_id"`},
	"backfillJob": {func(s *service) (string, string) {
		return "/api/v1/jobs/" + s.create(`{"schedule": "@hourly", "payload": {"url": "https://example.com"}}`).ID.String() + "/backfill", fmt.Sprintf(`{"from": %q}`, s.store.Now().Add(-5*time.Hour).Format(time.RFC3339))
	}, belfry.AuditBackfill, belfry.AuditJob, `"from"`},
	"rollbackJob": {func(s *service) (string, string) {
		path := s.secretJob("back")
		s.expect(http.StatusOK, nil, "PATCH", path, `{"schedule": "@daily"}`)
		return path + "/rollback", `{"revision": 1}`
	}, belfry.AuditRollback, belfry.AuditJob, `"schedule":"@daily"`},
	"bulkJobs": {func(s *service) (string, string) {
		s.create(`{"name": "bulk", "tags": ["bulk"], "schedule": "@yearly", "payload": {"url": "https://example.com"}}`)
		return "/api/v1/jobs/actions", `{"action": "pause", "filter": {"tags": ["bulk"]}}`
	}, belfry.AuditPause, belfry.AuditJob, `"status":"paused"`},

	"cancelRun": {func(s *service) (string, string) {
		var run belfry.TriggerResult
		s.expect(http.StatusAccepted, &run, "POST", s.secretJob("ran")+"/trigger", "")
		return "/api/v1/runs/" + run.RunID.String() + "/cancel", ""
	}, belfry.AuditCancel, belfry.AuditRun, ``},
	"redriveDeadLetter": {func(s *service) (string, string) {
		return "/api/v1/dead-letters/" + s.deadRun("dead-1") + "/redrive", `{"payload": {"password": "` + canary + `"}}`
	}, belfry.AuditRedrive, belfry.AuditRun, `"password":"***"`},
	"discardDeadLetter": {func(s *service) (string, string) { return "/api/v1/dead-letters/" + s.deadRun("dead-2"), "" }, belfry.AuditDiscard, belfry.AuditRun, ``},
	"redriveDeadLetters": {func(s *service) (string, string) {
		s.deadRun("dead-3")
		return "/api/v1/dead-letters/redrive", `{"filter": {"job": "dead-3"}}`
	}, belfry.AuditRedrive, belfry.AuditRun, ``},
	"discardDeadLetters": {func(s *service) (string, string) {
		s.deadRun("dead-4")
		return "/api/v1/dead-letters/discard", `{"filter": {"job": "dead-4"}}`
	}, belfry.AuditDiscard, belfry.AuditRun, ``},

	"createMonitor": {func(*service) (string, string) { return "/api/v1/monitors", `{"name": "m1", "every_seconds": 60}` }, belfry.AuditCreate, belfry.AuditMonitor, `"every_seconds":60`},
	"putMonitor":    {func(s *service) (string, string) { return s.monitor("m2"), `{"every_seconds": 90}` }, belfry.AuditEdit, belfry.AuditMonitor, `"every_seconds":90`},
	"editMonitor":   {func(s *service) (string, string) { return s.monitor("m3"), `{"every_seconds": 90}` }, belfry.AuditEdit, belfry.AuditMonitor, `"every_seconds":90`},
	"deleteMonitor": {func(s *service) (string, string) { return s.monitor("m4"), "" }, belfry.AuditDelete, belfry.AuditMonitor, `"every_seconds":60`},

	"createChannel": {func(*service) (string, string) {
		return "/api/v1/channels", fmt.Sprintf(secretChannel, "c1", "aaaaaaaa")
	}, belfry.AuditCreate, belfry.AuditChannel, `"secret":"***"`},
	"putChannel": {func(s *service) (string, string) {
		return s.channel("c2"), fmt.Sprintf(secretChannel, "c2", "bbbbbbbb")
	}, belfry.AuditEdit, belfry.AuditChannel, `"secret":"***"`},
	"deleteChannel": {func(s *service) (string, string) { return s.channel("c3"), "" }, belfry.AuditDelete, belfry.AuditChannel, `"type":"webhook"`},
	"testChannel":   {func(s *service) (string, string) { return s.channel("c4") + "/test", "" }, belfry.AuditTest, belfry.AuditChannel, ``},
	"acknowledgeAlert": {func(s *service) (string, string) {
		now := s.store.Now().Truncate(time.Millisecond)
		a := belfry.Alert{ID: belfry.NewID(now), Namespace: "default", Channel: "c1", Status: belfry.AlertFiring, StartedAt: now, LatestAt: now, Message: "a run died", Subscription: belfry.Subscription{On: belfry.AlertDead}}
		_, err := s.store.SaveAlerts(context.Background(), []store.AlertRecord{{Key: "k", Alert: a}})
		s.check(err)
		return "/api/v1/alerts/" + a.ID.String() + "/acknowledge", ""
	}, belfry.AuditAcknowledge, belfry.AuditAlert, ``},

	"createKey": {func(*service) (string, string) { return "/api/v1/keys", `{"name": "k1", "role": "reader"}` }, belfry.AuditCreate, belfry.AuditKey, `"role":"reader"`},
	"revokeKey": {func(s *service) (string, string) { return s.apiKey("k2"), "" }, belfry.AuditRevoke, belfry.AuditKey, `"revoked_at"`},
	"rotateKey": {func(s *service) (string, string) { return s.apiKey("k3") + "/rotate", "" }, belfry.AuditRotate, belfry.AuditKey, `"replaced_by"`},

	"createNamespace": {func(*service) (string, string) { return "/api/v1/namespaces", `{"name": "n1", "max_jobs": 5}` }, belfry.AuditCreate, belfry.AuditTenant, `"max_jobs":5`},
	"editNamespace": {func(s *service) (string, string) {
		s.expect(http.StatusCreated, nil, "POST", "/api/v1/namespaces", `{"name": "n2", "max_jobs": 5}`)
		return "/api/v1/namespaces/n2", `{"max_jobs": 6}`
	}, belfry.AuditEdit, belfry.AuditTenant, `"max_jobs":6`},
	"deleteNamespace": {func(s *service) (string, string) {
		s.expect(http.StatusCreated, nil, "POST", "/api/v1/namespaces", `{"name": "n3"}`)
		return "/api/v1/namespaces/n3", ""
	}, belfry.AuditDelete, belfry.AuditTenant, ``},

	"putSecret": {func(*service) (string, string) {
		return "/api/v1/secrets/s1", `{"name": "s1", "value": "` + canary + `", "allowed_hosts": ["example.com"]}`
	}, belfry.AuditCreate, belfry.AuditSecret, `"value":"***"`},
	"deleteSecret": {func(s *service) (string, string) {
		s.expect(http.StatusCreated, nil, "PUT", "/api/v1/secrets/s2", `{"value": "`+canary+`"}`)
		return "/api/v1/secrets/s2", ""
	}, belfry.AuditDelete, belfry.AuditSecret, ``},
	"reencrypt": {func(*service) (string, string) { return "/api/v1/encryption/reencrypt", `{}` }, belfry.AuditRotate, belfry.AuditSecret, ``},
}

func (s *service) apiKey(name string) string {
	s.t.Helper()
	var k belfry.APIKey
	s.expect(http.StatusCreated, &k, "POST", "/api/v1/keys", `{"name": "`+name+`", "role": "reader"}`)
	return "/api/v1/keys/" + k.ID
}

// namespace is where the entry belongs.
func (a audited) namespace(e belfry.AuditEntry) string {
	switch a.kind {
	case belfry.AuditKey:
		return ""
	case belfry.AuditTenant:
		return e.Object.Name
	}
	if e.Object.Name == "*" {
		return ""
	}
	return "default"
}

func validJobWithout(string) string {
	return `{"schedule": "30 9 * * MON-FRI", "payload": {"url": "https://example.com/hook"}}`
}

// acceptor accepts all messages, and has encrypted everything.
type acceptor struct{}

func (acceptor) Reencrypt(context.Context, string) (belfry.Reencryption, error) {
	return belfry.Reencryption{}, nil
}

func (acceptor) Send(context.Context, belfry.Channel, belfry.Alert) error { return nil }

func newAuditedService(t *testing.T, options ...func(*api.Options)) *service {
	return newService(t, append(options, func(o *api.Options) {
		o.Control.SendThrough(acceptor{})
		o.Control.EncryptWith(acceptor{})
	})...)
}

// export is all audit entries, and their text.
func (s *service) export(query string, headers ...string) (entries []belfry.AuditEntry, text string) {
	s.t.Helper()
	text = s.expect(http.StatusOK, nil, "GET", "/api/v1/audit"+query, "", append(headers, "Accept: application/x-ndjson")...).body
	for line := range strings.Lines(text) {
		var e belfry.AuditEntry
		s.check(json.Unmarshal([]byte(line), &e))
		entries = append(entries, e)
	}
	return entries, text
}

// Every operation that changes something leaves exactly one entry, which says who it was, and
// has no secret. A new operation must be added to the list.
func TestEveryOperationIsAudited(t *testing.T) {
	s := newAuditedService(t, withKeys(t))
	key := "Authorization: Bearer " + testKey
	plain := *s
	plain.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+testKey)
		s.Handler.ServeHTTP(w, r)
	})
	operations := 0
	for _, op := range api.OperationsOf(s.Handler) {
		if op.Method == http.MethodGet || op.Permission == auth.Public || op.Permission == auth.Work || op.Permission == auth.Read || op.Permission == auth.Known {
			continue
		}
		operations++
		want, known := auditedOperations[op.ID]
		if !known {
			t.Errorf("no test says which audit entry the operation %s leaves", op.ID)
			continue
		}
		path, body := want.prepare(&plain)
		before, _ := plain.export("?scope=all")
		media := openapi.MediaJSON
		if len(op.Media) > 0 {
			media = op.Media[0]
		}
		a := s.send(op.Method, path, body, key, "X-Request-Id: the-request", "Content-Type: "+media)
		after, _ := plain.export("?scope=all")
		if a.status >= 300 || len(after) != len(before)+1 {
			t.Errorf("%s: %d leaves %d entries, wants one: %s", op.ID, a.status, len(after)-len(before), a.body)
			continue
		}
		e := after[0]
		if e.Action != want.action || e.Object.Kind != want.kind || e.Object.ID+e.Object.Name == "" || e.Namespace != want.namespace(e) || e.At.IsZero() ||
			e.Actor.Kind != belfry.ActorKey || e.Actor.Name != "ops" || e.RequestID != "the-request" || e.Address != "192.0.2.1" || !strings.Contains(string(e.Before)+string(e.After), want.shows) {
			t.Errorf("%s left %s", op.ID, belfry.MustJSON(e))
		}
		if job := want.kind == belfry.AuditJob || want.kind == belfry.AuditRun; job && want.action != belfry.AuditImport && e.JobID.IsZero() {
			t.Errorf("%s left an entry without a job: %s", op.ID, belfry.MustJSON(e))
		}
	}
	if operations != len(auditedOperations) {
		t.Errorf("%d operations change something, %d are listed", operations, len(auditedOperations))
	}
	if _, text := plain.export("?scope=all"); strings.Contains(text, "c4n4ry") {
		t.Errorf("the audit has a secret:\n%s", text)
	}
}

// Requests that change nothing, and those of workers and monitors, leave no entry.
func TestWhatIsNotAudited(t *testing.T) {
	s := newAuditedService(t)
	job := s.secretJob("job")
	var m belfry.Monitor
	s.expect(http.StatusCreated, &m, "POST", "/api/v1/monitors", `{"name": "m", "every_seconds": 60}`)
	s.expect(http.StatusOK, nil, "POST", job+"/pause", "")
	channel := s.channel("c")
	before, _ := s.export("")
	for _, r := range []struct{ method, path, body string }{
		{"POST", job + "/pause", ""},
		{"PATCH", job, `{"schedule": "@yearly"}`},
		{"PATCH", job + "?dry_run=true", `{"schedule": "@daily"}`},
		{"POST", "/api/v1/jobs?dry_run=true", `{"schedule": "@daily", "payload": {"url": "https://example.com"}}`},
		{"POST", "/api/v1/jobs", `{"name": "job", "schedule": "@daily", "payload": {"url": "https://example.com"}}`},
		{"POST", "/api/v1/jobs", `{"schedule": "nonsense"}`},
		{"POST", "/api/v1/jobs/bulk", ""},
		{"POST", "/api/v1/jobs/none/trigger", ""},
		{"PATCH", "/api/v1/monitors/m", `{"every_seconds": 60}`},
		{"PUT", channel, `{"name": "c", "type": "webhook", "url": "https://example.com/***", "secret": "***", "alerts": [{"on": "dead"}]}`},
		{"POST", "/api/v1/dead-letters/discard", `{"all": true}`},
		{"POST", "/api/v1/schedules/preview", `{"schedule": "@daily"}`},
		{"POST", "/ping/" + m.Token.String(), ""},
		{"POST", "/api/v1/workers/" + belfry.NewID(s.store.Now()).String() + "/heartbeat", `{"node": "n", "slots": 1, "queue": "default", "handlers": ["h"], "register": true}`},
	} {
		s.send(r.method, r.path, r.body)
		if after, _ := s.export(""); len(after) != len(before) {
			t.Errorf("%s %s %s left %s", r.method, r.path, r.body, belfry.MustJSON(after[0]))
			before = after
		}
	}
}

func TestARepeatedRequestIsAuditedOnce(t *testing.T) {
	s := newAuditedService(t)
	for range 3 {
		s.expect(http.StatusCreated, nil, "POST", "/api/v1/jobs", validJob, "Idempotency-Key: create")
		s.expect(http.StatusAccepted, nil, "POST", "/api/v1/jobs/report/trigger", "", "Idempotency-Key: trigger")
		s.expect(http.StatusCreated, nil, "POST", "/api/v1/jobs/bulk", strings.Replace(validJob, "report", "other", 1), "Idempotency-Key: import", "Content-Type: application/x-ndjson")
	}
	if entries, _ := s.export(""); len(entries) != 3 {
		t.Errorf("there are %d entries: %s", len(entries), belfry.MustJSON(entries))
	}
}

// An import leaves one entry, which every one of its jobs has. Each job of a bulk action, and of
// dead letters, has one of its own.
func TestAuditOfManyJobs(t *testing.T) {
	s := newAuditedService(t)
	var body strings.Builder
	for i := range 300 {
		fmt.Fprintf(&body, `{"name": "job-%d", "schedule": "@yearly", "max_retries": 0, "overlap": "parallel", "payload": {"url": "https://example.com"}}`+"\n", i)
	}
	var result belfry.ImportResult
	s.expect(http.StatusCreated, &result, "POST", "/api/v1/jobs/bulk", body.String(), "Content-Type: application/x-ndjson")
	if all, _ := s.export(""); len(all) != 1 || all[0].Count != 300 || all[0].Object.ID != result.JobIDs[0].String() || all[0].Object.LastID != result.JobIDs[299] {
		t.Fatalf("the import left %s", belfry.MustJSON(all))
	}
	later := s.secretJob("later")
	s.expect(http.StatusOK, nil, "POST", "/api/v1/jobs/actions", `{"action": "pause", "filter": {"search": "job-1"}}`)
	for range 3 {
		s.expect(http.StatusAccepted, nil, "POST", "/api/v1/jobs/job-7/trigger", "")
		s.failTriggered()
	}
	s.deadRun("dead")
	s.expect(http.StatusOK, nil, "POST", "/api/v1/dead-letters/discard", `{"all": true}`)
	for job, want := range map[string]string{
		"job-0": "import", "job-299": "import", "job-150": "pause import", "job-7": "discard trigger trigger trigger import", "dead": "discard trigger create", later[len("/api/v1/jobs/"):]: "create",
	} {
		var got []string
		entries, _ := s.export("?job=" + job)
		for _, e := range entries {
			got = append(got, string(e.Action))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s has the changes %q, want %q", job, got, want)
		}
		if job == "job-7" && (entries[0].Count != 3 || entries[0].Object.Kind != belfry.AuditJob || entries[0].Object.Name != "job-7") {
			t.Errorf("the dead letters of a job left %s", belfry.MustJSON(entries[0]))
		}
	}
	if pauses, _ := s.export("?action=pause"); len(pauses) != 111 || pauses[0].RequestID != pauses[110].RequestID {
		t.Errorf("%d pauses are recorded", len(pauses))
	}
}

func TestAuditIsListedInPagesAndExported(t *testing.T) {
	s := newAuditedService(t)
	s.create(validJob)
	for i := range 620 {
		s.check(s.store.AddAudit(context.Background(), belfry.AuditEntry{ID: belfry.NewID(s.store.Now()), Namespace: "default", Action: belfry.AuditEdit, Count: i, Actor: belfry.Actor{Kind: belfry.ActorKey, ID: "k1"}}))
	}
	count := 0
	for path := "/api/v1/audit?limit=500&actor=k1"; path != ""; {
		var page []belfry.AuditEntry
		path = nextPage(t, s.expect(http.StatusOK, &page, "GET", path, ""))
		count += len(page)
	}
	exported, _ := s.export("?actor=k1")
	if all, _ := s.export(""); count != 620 || len(exported) != 620 || len(all) != 621 {
		t.Errorf("%d are listed, %d exported, %d without a filter", count, len(exported), len(all))
	}
	if elsewhere, _ := s.export("", "Belfry-Namespace: other"); len(elsewhere) != 0 {
		t.Errorf("another namespace has %d entries", len(elsewhere))
	}
	if a := s.send("GET", "/api/v1/audit?scope=nonsense", "", "Accept: application/x-ndjson"); a.status != http.StatusBadRequest {
		t.Errorf("a wrong filter is answered with %d", a.status)
	}
}

// Only an admin of all namespaces sees what belongs to none, and what belongs to others.
func TestScopesOfTheAudit(t *testing.T) {
	s := newAuditedService(t)
	s.create(validJob)
	for _, tt := range []struct {
		principal auth.Principal
		refused   bool
	}{
		{auth.Principal{Role: belfry.RoleAdmin}, false},
		{auth.Principal{Role: belfry.RoleAdmin, Namespaces: []string{"default"}}, true},
		{auth.Principal{Role: belfry.RoleAuthor}, true},
		{auth.Principal{Role: belfry.RoleReader}, true},
	} {
		for _, accept := range []string{"application/json", "application/x-ndjson"} {
			for _, scope := range []string{"", "namespace", "global", "all"} {
				r := httptest.NewRequest("GET", "/api/v1/audit?scope="+scope, nil)
				if scope == "" {
					r = httptest.NewRequest("GET", "/api/v1/audit", nil)
				}
				r.Header.Set("Accept", accept)
				w := httptest.NewRecorder()
				api.ServeAs(s.Handler, "listAudit", &tt.principal, w, r)
				if want := tt.refused && (scope == "global" || scope == "all"); (w.Code == http.StatusForbidden) != want {
					t.Errorf("%s of %v, scope %q, %s: got %d", tt.principal.Role, tt.principal.Namespaces, scope, accept, w.Code)
				}
			}
		}
	}
}
