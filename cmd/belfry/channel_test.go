package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/belfry-sh/belfry"
)

func TestChannels(t *testing.T) {
	p := withServer(t)
	var refuse atomic.Bool
	var bodies atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
		bodies.Add(1)
	}))
	defer receiver.Close()
	if r := p.ok("channel", "list"); !strings.Contains(r.err, "No channels.") {
		t.Errorf("no channels: %+v", r)
	}
	created := p.ok("channel", "create", "ops", "--type", "webhook", "--url", receiver.URL+"/hook?token=canary", "--alert", "dead", "--alert", "not_finished job=payroll within=1h")
	if !strings.Contains(created.out, "whsec_") || strings.Contains(created.out, "canary") || !strings.Contains(created.err, "belfry channel test ops") {
		t.Errorf("created: %+v", created)
	}
	shown := p.ok("channel", "show", "ops")
	if strings.Contains(shown.out, "whsec_") || !strings.Contains(shown.out, "dead, not_finished job=payroll within=1h") {
		t.Errorf("shown: %s", shown.out)
	}
	if p.ok("channel", "test", "ops"); bodies.Load() != 1 {
		t.Errorf("the receiver got %d messages", bodies.Load())
	}
	refuse.Store(true)
	if r := p.run("channel", "test", "ops"); r.code == 0 || !strings.Contains(r.err, "500") || strings.Contains(r.err, "canary") {
		t.Errorf("a receiver that refuses: %+v", r)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"ops", "--type", "slack", "--url", "https://example.com/x"}, `there is a channel "ops" already; choose another name, or replace it`},
		{[]string{"x", "--type", "slack"}, "url: is missing"},
		{[]string{"x", "--type", "slack", "--url", "https://example.com/x", "--alert", "not_started"}, "alerts[0].within_seconds: must be at least 60"},
		{[]string{"x", "--type", "slack", "--url", "https://example.com/x", "--alert", "deadly"}, "alerts[0].on"},
		{[]string{"x", "--type", "slack", "--url", "https://example.com/x", "--alert", "dead colour=red"}, `"colour" is unknown`},
		{[]string{"x", "--type", "slack", "--url", "https://example.com/x", "--alert", "failing count=two"}, "count=two must be a whole number"},
		{[]string{"x", "--type", "slack", "--url", "https://example.com/x", "--alert", "dead", "--alert", "dead count=1"}, "alerts[1]: is the same as alerts[0]"},
	} {
		if r := p.run(append([]string{"channel", "create"}, tt.args...)...); r.code == 0 || !strings.Contains(r.err, tt.want) {
			t.Errorf("channel create %q: %+v, want %q", tt.args, r, tt.want)
		}
	}

	spaced := p.ok("channel", "create", "spaced", "--type", "slack", "--url", "https://example.com/x", "--alert", `failing job="my job" count=2`)
	if !strings.Contains(spaced.out, `failing job="my job" count=2`) {
		t.Errorf("a job whose name has a blank: %+v", spaced)
	}
	p.ok("channel", "delete", "spaced")

	file := filepath.Join(t.TempDir(), "channels.yaml")
	text := "channels:\n  - name: ops\n    type: webhook\n    url: " + receiver.URL + "/other\n  - name: mail\n    type: email\n    url: smtp://127.0.0.1:25\n    from: a@example.com\n    to: [b@example.com]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := p.ok("channel", "apply", "-f", file); !strings.Contains(r.err, "saved ops") || !strings.Contains(r.err, "created mail") {
		t.Errorf("apply: %+v", r)
	}
	var list []belfry.Channel
	if err := json.Unmarshal([]byte(p.ok("channel", "list", "-o", "json").out), &list); err != nil || len(list) != 2 || list[1].URL != receiver.URL+"/***" || list[1].Secret != "***" {
		t.Errorf("the channels are %+v (%v)", list, err)
	}
	if err := os.WriteFile(file, []byte("- name: bad\n  type: email\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := p.run("channel", "apply", "-f", file); r.code == 0 || !strings.Contains(r.err, "channels.yaml:") {
		t.Errorf("apply of a wrong channel: %+v", r)
	}
	p.ok("channel", "delete", "mail")
	if r := p.run("channel", "show", "mail"); r.code == 0 || !strings.Contains(r.err, `there is no channel "mail"`) {
		t.Errorf("a deleted channel: %+v", r)
	}
	if r := p.ok("alert", "list"); !strings.Contains(r.err, "No alerts.") {
		t.Errorf("no alerts: %+v", r)
	}
	if r := p.run("alert", "show", "x"); r.code != exitUsage {
		t.Errorf("a wrong id: %+v", r)
	}
}

func TestAlertFlags(t *testing.T) {
	for text, want := range map[string]belfry.Subscription{
		"dead":                                 {On: "dead"},
		" dead  job=payroll\ttag=a ":           {On: "dead", Job: "payroll", Tag: "a"},
		`failing job="my \"own\" job" count=5`: {On: "failing", Job: `my "own" job`, Count: 5},
		`lag job=a=b within=1h1m30s`:           {On: "lag", Job: "a=b", WithinSeconds: 3690},
		`slow within=2d tag="x y"`:             {On: "slow", Tag: "x y", WithinSeconds: 172800},
		`slow job="a" within=60m`:              {On: "slow", Job: "a", WithinSeconds: 3600},
	} {
		got, err := parseSubscription(text)
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v", text, got, err)
		}
		if again, err := parseSubscription(subscriptionText(got)); err != nil || again != want {
			t.Errorf("%s is written as %s, which is %+v, %v", text, subscriptionText(got), again, err)
		}
	}
	for text, want := range map[string]string{
		"":                      "is empty",
		"failing count=x":       "count=x must be a whole number, at least 1",
		"failing count=0":       "count=0 must be a whole number, at least 1",
		"lag within=1500ms":     "within=1500ms must be a duration of whole seconds",
		"lag within=0s":         "within=0s must be a duration of whole seconds",
		"lag within=soon":       "within=soon must be a duration of whole seconds",
		"failing job=my job":    "job must be NAME=VALUE, with quotes around a value that has blanks",
		"failing job=a b tag=c": "b must be NAME=VALUE",
		"failing job=":          "job= must be NAME=VALUE",
		`failing job="my job`:   "job= must be NAME=VALUE, with quotes",
		`failing job="a`:        "job= must be NAME=VALUE, with quotes",
		`failing job="a\z"`:     `job="a\z" must be NAME=VALUE, with quotes`,
		"failing name=x":        `"name" is unknown`,
	} {
		if _, err := parseSubscription(text); !isUsage(err) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "strconv") {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}
