package notify

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/webhook"
)

// event is the body of a webhook.
type event struct {
	Type      string       `json:"type"`
	Timestamp time.Time    `json:"timestamp"`
	Data      belfry.Alert `json:"data"`
}

// webhook sends the alert, signed as Standard Webhooks 1.0 does.
func (s *Sender) webhook(ctx context.Context, c belfry.Channel, a belfry.Alert) error {
	key, err := webhook.ParseKey(c.Secret)
	if err != nil {
		return &Error{Message: "the secret of the channel " + err.Error(), Permanent: true}
	}
	e := event{Type: "alert." + string(a.Status), Timestamp: occurred(a), Data: a}
	if a.Subscription.On == belfry.AlertTest {
		e.Type = "alert.test"
	}
	return s.post(ctx, c.URL, e, func(h http.Header, body []byte) {
		webhook.Sign(h, messageID(a), time.Now(), body, key)
	})
}

// occurred is when what a message reports happened.
func occurred(a belfry.Alert) time.Time {
	at := a.LatestAt
	switch {
	case a.Status == belfry.AlertResolved && a.ResolvedAt != nil:
		at = *a.ResolvedAt
	case a.Status == belfry.AlertAcknowledged && a.AcknowledgedAt != nil:
		at = *a.AcknowledgedAt
	case at.IsZero():
		at = a.StartedAt
	}
	return at.UTC()
}

const maxSlackText = 3000 // characters of a block

// slackMessage is a message of an incoming webhook. Receivers that do not know blocks show
// the text.
func slackMessage(a belfry.Alert) map[string]any {
	m := Describe(a)
	markdown := func(text string) map[string]any { // make no links of names that happen to be in the text
		return map[string]any{"type": "mrkdwn", "text": text, "verbatim": true}
	}
	section := func(text string) map[string]any { return map[string]any{"type": "section", "text": markdown(text)} }
	first := "*" + escapeSlack(m.Title, maxTitle*5) + "*"
	if m.Text != "" {
		first += "\n" + escapeSlack(m.Text, maxSlackText-len(first)-1)
	}
	blocks := []any{section(first)}
	if len(m.Items) > 0 {
		lines := make([]string, len(m.Items))
		for i, item := range m.Items {
			room := maxSlackText/(maxItems+1) - len("• \n") - len(slackLink(item.URL, ""))
			lines[i] = "• " + slackLink(item.URL, escapeSlack(item.Text, room))
		}
		blocks = append(blocks, section(strings.Join(lines, "\n")))
	}
	if m.URL != "" {
		blocks = append(blocks, section(slackLink(m.URL, "Open in Belfry")))
	}
	facts := markdown(escapeSlack(strings.Join(m.Facts, "  ·  "), maxSlackText))
	blocks = append(blocks, map[string]any{"type": "context", "elements": []any{facts}})
	return map[string]any{"text": escapeSlack(m.Title+"\n"+m.String(), maxSlackText), "blocks": blocks}
}

// slackLink is a text that leads to an address, if there is one.
func slackLink(address, text string) string {
	if address == "" {
		return text
	}
	return "<" + strings.NewReplacer("&", "&amp;", "<", "%3C", ">", "%3E", "|", "%7C").Replace(address) + "|" + text + ">"
}

var slackEntities = map[rune]string{'&': "&amp;", '<': "&lt;", '>': "&gt;"}

// escapeSlack escapes what Slack would take for links, mentions and entities, and cuts the
// result to at most so many bytes without cutting an entity.
func escapeSlack(text string, longest int) string {
	var b strings.Builder
	for _, r := range text {
		part := cmp.Or(slackEntities[r], string(r))
		if b.Len()+len(part) > longest {
			return strings.TrimSuffix(b.String(), "\n")
		}
		b.WriteString(part)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// pagerDutyURL is where PagerDuty takes events, unless the channel has another address, such
// as that of its European region.
const pagerDutyURL = "https://events.pagerduty.com/v2/enqueue"

var pagerDutyActions = map[belfry.AlertStatus]string{
	belfry.AlertFiring: "trigger", belfry.AlertAcknowledged: "acknowledge", belfry.AlertResolved: "resolve",
}

// severities of kinds that are not an error.
var severities = map[belfry.AlertKind]string{
	belfry.AlertSlow: "warning", belfry.AlertSkipped: "warning", belfry.AlertLag: "warning", belfry.AlertCatchUp: "warning",
	belfry.AlertRecovered: "info", belfry.AlertTest: "info",
}

// pagerDuty sends an event of the Events API v2.
func (s *Sender) pagerDuty(ctx context.Context, c belfry.Channel, a belfry.Alert) error {
	m := Describe(a)
	event := map[string]any{
		"routing_key": c.Secret, "event_action": pagerDutyActions[a.Status], "dedup_key": a.ID, "client": "Belfry",
		"payload": map[string]any{
			"summary": m.Title, "source": "belfry/" + a.Namespace, "severity": cmp.Or(severities[a.Subscription.On], "error"), "timestamp": occurred(a), "class": a.Subscription.On,
			"custom_details": map[string]any{"message": m.Text, "namespace": a.Namespace, "channel": a.Channel, "count": a.Count, "items": m.lines(), "started_at": a.StartedAt},
		},
	}
	if m.URL != "" {
		event["client_url"], event["links"] = m.URL, []any{map[string]string{"href": m.URL, "text": "Open in Belfry"}}
	}
	err := s.post(ctx, Address(c), event, nil)
	if err == nil && a.Status == belfry.AlertFiring && !a.Subscription.On.Lasts() {
		// Nothing resolves it later. Change events are no way out: PagerDuty notifies nobody of them.
		event["event_action"] = pagerDutyActions[belfry.AlertResolved]
		err = s.post(ctx, Address(c), event, nil)
	}
	return err
}
