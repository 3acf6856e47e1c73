package web_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

// auditOf is what the API lists, latest first.
func (s *site) auditOf(query string) (entries []belfry.AuditEntry) {
	s.t.Helper()
	r, _ := http.NewRequest("GET", s.address+"/api/v1/audit?"+query, nil)
	r.Header.Set("Authorization", "Bearer "+key)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	if err := json.Unmarshal(text, &entries); err != nil {
		s.t.Fatalf("%v: %s", err, text)
	}
	return entries
}

// Each change on the page leaves one entry with the name of the key that its person has.
func TestChangesOnThePageAreAudited(t *testing.T) {
	t.Parallel()
	s, _ := keyed(t)
	c := person(t)
	post(t, c, s.address+"/login", url.Values{"key": {"wrong"}})
	post(t, c, s.address+"/login", url.Values{"key": {key}})
	yes := url.Values{"confirm": {"yes"}}
	job := url.Values{"name": {"plain"}, "schedule": {"0 9 * * *"}, "timezone": {"UTC"}, "type": {"http"}, "payload.url": {s.receiver + "/ok"}}
	created := post(t, c, s.address+"/jobs/new", job).Request.URL.Path
	id := strings.TrimPrefix(created, "/jobs/")
	bulk := url.Values{"job": {id}, "action": {"resume"}, "scope": {"selected"}, "confirm": {"yes"}}
	channel := url.Values{"name": {"ops"}, "type": {"slack"}, "url": {"https://hooks.slack.com/services/T0/B0/c4n4ry"}, "alerts": {"dead"}}
	var want []string
	for _, step := range []struct {
		path   string
		form   url.Values
		action string
	}{
		{created + "/pause", nil, "pause"}, {"/jobs", bulk, "resume"}, {created + "/trigger", nil, "trigger"}, {"/jobs/preview", job, ""},
		{created + "/cancel", nil, ""}, {created + "/cancel", yes, "cancel"}, {"/channels/+new", channel, "create"}, {"/channels/ops/delete", yes, "delete"}, {created + "/delete", yes, "delete"},
	} {
		if answer := post(t, c, s.address+step.path, step.form); answer.StatusCode >= 400 {
			t.Errorf("%s: %d", step.path, answer.StatusCode)
		}
		if step.action != "" {
			want = append([]string{step.action}, want...)
		}
	}
	_, shown := get(t, c, s.address+"/audit?job="+id)
	_, page := get(t, c, s.address+created)
	post(t, c, s.address+"/logout", nil)
	var got []string
	for _, e := range s.auditOf("") {
		got = append(got, string(e.Action))
		if e.Actor.Name != "ada" || e.Address != "127.0.0.1" || e.RequestID == "" || strings.Contains(string(e.After), "c4n4ry") {
			t.Errorf("an entry is %s", belfry.MustJSON(e))
		}
	}
	if want = append(want, "create"); !slices.Equal(got, want) {
		t.Errorf("the changes are %q, want %q", got, want)
	}
	var logins []string
	for _, e := range s.auditOf("scope=global") {
		logins = append(logins, string(e.Action)+" "+e.Actor.Name+" "+string(e.Actor.Kind))
	}
	if want := []string{"logout ada key", "login ada key", "login_failed  unknown"}; !slices.Equal(logins, want) {
		t.Errorf("the logins are %q, want %q", logins, want)
	}
	for _, text := range []string{shown, page} {
		if !strings.Contains(text, "Pause job plain") || !strings.Contains(text, "ada") {
			t.Errorf("a page does not show who paused the job: %s", text)
		}
	}
}
