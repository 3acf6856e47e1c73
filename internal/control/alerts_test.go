package control_test

import (
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/control/controltest"
	"github.com/belfry-sh/belfry/internal/plan"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/webhook"
)

const (
	canary     = "CANARY-0123456789"
	routingKey = "CANARY56789abcdef0123456789abcdef"
)

// channelsWithSecrets are a channel of each type, with what is shown of its address.
func channelsWithSecrets() map[string]belfry.Channel {
	return map[string]belfry.Channel{
		"https://hooks.slack.com/***":          {Name: "slack", Type: belfry.ChannelSlack, URL: "https://hooks.slack.com/services/" + canary},
		"https://example.com/***":              {Name: "hook", Type: belfry.ChannelWebhook, URL: "https://example.com/" + canary + "?a=" + canary, Secret: webhook.NewKey()},
		"https://query.example.com/***":        {Name: "query", Type: belfry.ChannelWebhook, URL: "https://query.example.com?" + canary, Secret: webhook.NewKey()},
		"https://example.com":                  {Name: "plain", Type: belfry.ChannelWebhook, URL: "https://example.com", Secret: webhook.NewKey()},
		"https://events.eu.pagerduty.com/v2/x": {Name: "pager", Type: belfry.ChannelPagerDuty, URL: "https://events.eu.pagerduty.com/v2/x", Secret: routingKey},
		"":                                     {Name: "default", Type: belfry.ChannelPagerDuty, Secret: routingKey},
		"smtp://***@mail.example.com:587":      {Name: "mail", Type: belfry.ChannelEmail, URL: "smtp://u:" + canary + "@mail.example.com:587", From: "a@example.com", To: []string{"b@example.com"}},
	}
}

func storedChannel(t *testing.T, s store.Store, name string) belfry.Channel {
	t.Helper()
	list, err := s.Channels(t.Context(), ns)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("there is no channel %s", name)
	return belfry.Channel{}
}

func TestAChannelThatIsSentBackAsItWasShownKeepsItsSecrets(t *testing.T) {
	s := controltest.Open(t)
	c := control.New(s, plan.Defaults{})
	for want, channel := range channelsWithSecrets() {
		if _, _, err := c.PutChannel(t.Context(), ns, channel); err != nil {
			t.Fatal(err)
		}
		shown, err := c.Channel(t.Context(), ns, channel.Name)
		if err != nil || shown.URL != want || strings.Contains(string(belfry.MustJSON(shown)), "CANARY") || shown.Secret != "" && shown.Secret != "***" {
			t.Errorf("%s is shown as %+v (%v), want the url %s", channel.Name, shown, err, want)
		}
		for _, secret := range []string{shown.Secret, ""} {
			shown.Secret, shown.Paused = secret, !shown.Paused
			if _, created, err := c.PutChannel(t.Context(), ns, shown); err != nil || created {
				t.Errorf("%s with the secret %q: %v", channel.Name, secret, err)
			}
			if got := storedChannel(t, s, channel.Name); got.URL != channel.URL || got.Secret != channel.Secret || got.Paused != shown.Paused {
				t.Errorf("%s is stored as %+v", channel.Name, got)
			}
		}
	}
}

func TestMaskedSecretsAreNotStored(t *testing.T) {
	const still = "is masked; give the "
	c := newControl(t)
	put := func(channel belfry.Channel, want ...string) {
		t.Helper()
		_, _, err := c.PutChannel(t.Context(), ns, channel)
		if len(want) == 0 {
			if err != nil {
				t.Error(err)
			}
			return
		}
		got := errorsOf(t, err)
		for i, text := range want {
			if len(got) != len(want) || !strings.HasPrefix(got[i], text) {
				t.Errorf("%s: got %q, want %q", channel.URL, got, want)
			}
		}
	}
	// There is nothing to keep.
	put(belfry.Channel{Name: "a", Type: "slack", URL: "https://hooks.slack.com/***"}, "url: "+still)
	put(belfry.Channel{Name: "a", Type: "webhook", URL: "https://example.com/path?***"}, "url: "+still)
	put(belfry.Channel{Name: "a", Type: "webhook", URL: "https://example.com", Secret: "***"}, "secret: "+still)
	put(belfry.Channel{Name: "a", Type: "pagerduty", Secret: "***"}, "secret: "+still)
	put(belfry.Channel{Name: "a", Type: "email", URL: "smtp://***@mail.example.com", From: "a@example.com", To: []string{"b@example.com"}}, "url: "+still)
	// What is kept belongs to another type, or another server.
	for _, channel := range channelsWithSecrets() {
		put(channel)
	}
	const moved = "secret: is not kept, because the url has another origin now"
	put(belfry.Channel{Name: "slack", Type: "webhook", URL: "https://hooks.slack.com/***", Secret: "***"}, "url: "+still, "secret: "+still)
	put(belfry.Channel{Name: "slack", Type: "slack", URL: "https://evil.example.com/***"}, "url: "+still)
	put(belfry.Channel{Name: "mail", Type: "email", URL: "smtp://***@evil.example.com:587", From: "a@example.com", To: []string{"b@example.com"}}, "url: "+still)
	for _, secret := range []string{"***", ""} {
		put(belfry.Channel{Name: "hook", Type: "webhook", URL: "https://evil.example.com", Secret: secret}, moved)
		put(belfry.Channel{Name: "pager", Type: "pagerduty", URL: "https://evil.example.com/v2/x", Secret: secret}, moved)
		put(belfry.Channel{Name: "pager", Type: "pagerduty", URL: "http://events.eu.pagerduty.com/v2/x", Secret: secret}, moved)
		put(belfry.Channel{Name: "default", Type: "pagerduty", URL: "https://evil.example.com", Secret: secret}, moved)
		put(belfry.Channel{Name: "default", Type: "pagerduty", URL: "https://events.pagerduty.com:443/v2/enqueue", Secret: secret})
		put(belfry.Channel{Name: "hook", Type: "webhook", URL: "https://example.com/other", Secret: secret})
	}
	put(belfry.Channel{Name: "hook", Type: "webhook", URL: "https://new.example.com", Secret: webhook.NewKey()})
	put(belfry.Channel{Name: "stars", Type: "webhook", URL: "https://example.com/%2A%2A%2A"})
}
