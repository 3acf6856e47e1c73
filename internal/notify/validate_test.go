package notify_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/notify"
	"github.com/belfry-sh/belfry/internal/webhook"
)

func TestValidate(t *testing.T) {
	const hook = "https://example.com/hook"
	long := "whsec_" + strings.Repeat("QUFB", 22) // 66 bytes
	email := func(change func(*belfry.Channel)) belfry.Channel {
		c := emailChannel("smtp://mail.example.com")
		change(&c)
		return c
	}
	for _, tt := range []struct {
		name string
		c    belfry.Channel
		want string // "field: part of the message", separated by "; "
	}{
		{"nothing", belfry.Channel{}, "name: is required; type: is required"},
		{"another type", belfry.Channel{Name: "x", Type: "pager"}, `type: must be "webhook", "slack"`},
		{"a name with blanks", belfry.Channel{Name: "on call", Type: "slack", URL: hook}, "name: must be lower-case letters"},
		{"webhook", belfry.Channel{Name: "x", Type: "webhook", URL: hook}, ""},
		{"webhook with a secret", belfry.Channel{Name: "x", Type: "webhook", URL: hook, Secret: webhook.NewKey()}, ""},
		{"webhook without url", belfry.Channel{Name: "x", Type: "webhook"}, "url: is missing"},
		{"webhook with a wrong scheme", belfry.Channel{Name: "x", Type: "webhook", URL: "ftp://example.com"}, "url: must begin with http:// or https://"},
		{"webhook with a password", belfry.Channel{Name: "x", Type: "webhook", URL: "https://u:CANARY@example.com"}, "url: must not contain a user name"},
		{"webhook with a plain secret", belfry.Channel{Name: "x", Type: "webhook", URL: hook, Secret: "CANARY"}, "secret: must be whsec_"},
		{"webhook with a short secret", belfry.Channel{Name: "x", Type: "webhook", URL: hook, Secret: "whsec_QUFB"}, "secret: must be whsec_"},
		{"webhook with a long secret", belfry.Channel{Name: "x", Type: "webhook", URL: hook, Secret: long}, "secret: must be whsec_"},
		{"webhook with recipients", belfry.Channel{Name: "x", Type: "webhook", URL: hook, From: "a@example.com", To: []string{"a@example.com"}}, `from: is not used by a channel of type "webhook"; to: is not used`},
		{"slack", belfry.Channel{Name: "x", Type: "Slack", URL: hook}, ""},
		{"slack with a secret", belfry.Channel{Name: "x", Type: "slack", URL: hook, Secret: "CANARY"}, "secret: is not used"},
		{"pagerduty", belfry.Channel{Name: "x", Type: "pagerduty", Secret: "key"}, ""},
		{"pagerduty without a key", belfry.Channel{Name: "x", Type: "pagerduty", URL: "events"}, "secret: is missing; url: must begin with"},
		{"subscriptions", subscribed("dead within=60; failing count=3; slow within=60; not_finished within=60; dead job=a; dead tag=a; lag; skipped; monitor; recovered; large_catch_up"), ""},
		{"a test", subscribed("test"), `alerts[0].on: must be "dead", "failing"`},
		{"numbers of other kinds", subscribed("slow count=2; failing within=60; monitor count=1 within=60; deadly count=1"),
			`alerts[3].on: must be; alerts[0].count: is not used by "slow", only by dead, failing, skipped; alerts[1].within_seconds: is not used by "failing", only by dead, lag, not_finished, not_started, slow; alerts[2].count: is not used; alerts[2].within_seconds: is not used`},
		{"the same twice", subscribed("dead; dead count=1 within=600; lag; lag job=x; lag job=x within=60; failing; failing count=3"),
			"alerts[1]: is the same as alerts[0]; alerts[4]: is the same as alerts[3]; alerts[6]: is the same as alerts[5]"},
		{"too soon", subscribed("not_started; not_finished within=59"), "alerts[0].within_seconds: must be at least 60; alerts[1].within_seconds: must be at least 60"},
		{"email", email(func(*belfry.Channel) {}), ""},
		{"email without anything", belfry.Channel{Name: "x", Type: "email"}, "from: is missing; to: is missing; url: is missing"},
		{"email to nobody", email(func(c *belfry.Channel) { c.From, c.To = "belfry", []string{"a@example.com", "b@"} }), "from: is not an address; to[1]: is not an address"},
		{"email over http", email(func(c *belfry.Channel) { c.URL = hook }), "url: must begin with smtp:// (STARTTLS) or smtps://"},
		{"email with a bad password", email(func(c *belfry.Channel) { c.URL = "smtp://u:CANARY%@mail.example.com" }), "url: is not a valid URL"},
		{"email without a password", email(func(c *belfry.Channel) { c.URL = "smtp://u@mail.example.com" }), "url: has a user without a password"},
		{"email in clear", email(func(c *belfry.Channel) { c.URL = "smtp://u:CANARY@mail.example.com?tls=off" }), "url: has a password and tls=off"},
		{"email in clear on this machine", email(func(c *belfry.Channel) { c.URL = "smtp://u:p@localhost?tls=off" }), ""},
		{"email with a path", email(func(c *belfry.Channel) { c.URL = "smtp://mail.example.com/x" }), "url: must not have a path"},
		{"email with another parameter", email(func(c *belfry.Channel) { c.URL = "smtps://mail.example.com?tls=off" }), "url: has a parameter that is not known"},
		{"email to port 0", email(func(c *belfry.Channel) { c.URL = "smtp://mail.example.com:0" }), "url: has a port"},
		{"email without a host", email(func(c *belfry.Channel) { c.URL = "smtp://:25" }), "url: has no host"},
	} {
		var got []string
		for _, e := range notify.Validate(tt.c) {
			got = append(got, e.Field+": "+e.Message)
		}
		text := strings.Join(got, "; ")
		if strings.Contains(text, "CANARY") {
			t.Errorf("%s: the message repeats a secret: %s", tt.name, text)
		}
		if tt.want == "" && len(got) > 0 || tt.want != "" && len(got) != strings.Count(tt.want, "; ")+1 {
			t.Errorf("%s: got %s", tt.name, text)
		}
		for want := range strings.SplitSeq(tt.want, "; ") {
			if !strings.Contains(text, want) {
				t.Errorf("%s: got %s, want %s", tt.name, text, want)
			}
		}
	}
}

// subscribed is a channel with alerts, written as belfry channel create takes them.
func subscribed(text string) belfry.Channel {
	c := belfry.Channel{Name: "x", Type: "slack", URL: "https://example.com/hook"}
	for alert := range strings.SplitSeq(text, "; ") {
		words := strings.Fields(alert)
		s := belfry.Subscription{On: belfry.AlertKind(words[0])}
		for _, word := range words[1:] {
			name, value, _ := strings.Cut(word, "=")
			n, _ := strconv.Atoi(value)
			switch name {
			case "job":
				s.Job = value
			case "tag":
				s.Tag = value
			case "count":
				s.Count = n
			case "within":
				s.WithinSeconds = n
			}
		}
		c.Alerts = append(c.Alerts, s)
	}
	return c
}
