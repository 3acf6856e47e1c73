// Package notify sends an alert to a channel: a signed webhook, Slack, e-mail or PagerDuty.
// One call is one attempt. When and how often to try is up to the caller, whom an *Error
// tells what the receiver wants.
package notify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
	"github.com/belfry-sh/belfry/internal/secret"
	"github.com/belfry-sh/belfry/internal/target"
	"github.com/belfry-sh/belfry/internal/webhook"
)

const (
	timeout  = 10 * time.Second // of an attempt
	maxShown = 1 << 10          // bytes of a response in an error
	maxRead  = 8 << 10          // bytes of a response that are read, so that no secret is cut before it is masked
)

// Error is why a receiver did not take a message, or some of its recipients did not. It never contains secrets of the channel.
type Error struct {
	Message    string
	Permanent  bool          // it will not take it however often it is sent: the channel must be edited
	RetryAfter time.Duration // after what time the receiver wants to be asked again; zero: it did not say
	Sent       bool          // some of the recipients took it: it must not be sent again
}

func (e *Error) Error() string { return e.Message }

// Dial opens a connection. It decides which addresses may be reached; see target.Guard.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Sender sends alerts. It is safe for concurrent use.
type Sender struct {
	PublicURL string // of this server, for links to its API in messages; empty: there are none

	dial      Dial
	roots     *x509.CertPool
	transport *http.Transport
}

// New returns a Sender. Certificates must be signed by one of the roots; nil stands for
// those of the system.
func New(dial Dial, roots *x509.CertPool) *Sender {
	return &Sender{dial: dial, roots: roots, transport: &http.Transport{
		Proxy:                  nil, // the dialer would check the address of the proxy, not of the receiver
		DialContext:            dial,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		DisableKeepAlives:      true, // messages are rare
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
	}}
}

// Send sends an alert to a channel that Validate accepts. The error is an *Error. After a
// failure the receiver may have the message nevertheless; if it is sent again it has the same
// id, for as long as status, Count and SentCount of the alert stay the same.
func (s *Sender) Send(ctx context.Context, c belfry.Channel, a belfry.Alert) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if s.PublicURL != "" {
		a = withLinks(a, strings.TrimRight(s.PublicURL, "/")+"/api/v1/")
	}
	var err error
	switch c.Type {
	case belfry.ChannelWebhook:
		err = s.webhook(ctx, c, a)
	case belfry.ChannelSlack:
		err = s.post(ctx, c.URL, slackMessage(a), nil)
	case belfry.ChannelPagerDuty:
		err = s.pagerDuty(ctx, c, a)
	case belfry.ChannelEmail:
		err = s.email(ctx, c, a)
	default:
		err = &Error{Message: fmt.Sprintf("this node cannot send to a channel of type %q", c.Type), Permanent: true}
	}
	if err == nil {
		return nil
	}
	e := &Error{Message: err.Error()}
	errors.As(err, &e)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && !e.Sent {
		e = &Error{Message: fmt.Sprintf("%s did not answer within %.0f seconds", hostOf(c), timeout.Seconds())}
	}
	e.Message = sanitize.Text(masked(e.Message, c), maxShown+200)
	return e
}

// withLinks adds the addresses in the API of an alert and its items.
func withLinks(a belfry.Alert, api string) belfry.Alert {
	a.URL = api + "alerts/" + a.ID.String()
	if a.Subscription.On == belfry.AlertTest { // which is not stored
		a.URL = api + "channels/" + a.Channel
	}
	a.Items = slices.Clone(a.Items)
	for i := range a.Items {
		switch item := &a.Items[i]; {
		case !item.RunID.IsZero():
			item.URL = api + "runs/" + item.RunID.String()
		case !item.JobID.IsZero():
			item.URL = api + "jobs/" + item.JobID.String()
		case a.Subscription.On == belfry.AlertMonitor:
			item.URL = api + "monitors/" + url.PathEscape(item.Name)
		}
	}
	return a
}

// messageID identifies a message: it is the same when the message is sent again. If more
// has happened meanwhile it is another one, which a receiver must not take for a repetition.
func messageID(a belfry.Alert) string {
	return fmt.Sprintf("%s-%s-%d-%d", a.ID, a.Status, a.SentCount, a.Count)
}

// post sends JSON. Anything but a response of 2xx is an error; redirects are not followed.
func (s *Sender) post(ctx context.Context, address string, body any, sign func(http.Header, []byte)) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(text))
	if err != nil {
		return &Error{Message: "the url of the channel is not valid", Permanent: true}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "belfry")
	if sign != nil {
		sign(req.Header, text)
	}
	resp, err := s.transport.RoundTrip(req) // a client would follow redirects and name the URL in errors
	if err != nil {
		return fmt.Errorf("call %s: %w", req.URL.Host, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 200 && resp.StatusCode <= 299 {
		return nil
	}
	start, _ := io.ReadAll(io.LimitReader(resp.Body, maxRead)) // what cannot be read is not shown
	return statusError(req.URL.Host, resp, start)
}

// permanentStatuses say that the request is refused as long as the channel is what it is.
var permanentStatuses = []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone}

func statusError(host string, resp *http.Response, body []byte) *Error {
	code := resp.StatusCode
	e := &Error{Message: strings.TrimSpace(fmt.Sprintf("%s answered %d %s", host, code, http.StatusText(code)))}
	if code >= 300 && code <= 399 {
		e.Message += "; redirects are not followed, set the url to the final address"
	}
	if text := oneLine(string(body), maxRead); text != "" {
		e.Message += ": " + text
	}
	e.Permanent = slices.Contains(permanentStatuses, code)
	if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
		e.RetryAfter, _ = target.RetryAfter(resp.Header, time.Now())
	}
	return e
}

// Address is where messages of a channel are sent.
func Address(c belfry.Channel) string {
	return cmp.Or(c.URL, map[belfry.ChannelType]string{belfry.ChannelPagerDuty: pagerDutyURL}[c.Type])
}

func hostOf(c belfry.Channel) string {
	u, err := url.Parse(Address(c))
	if err != nil || u.Host == "" {
		return "the receiver"
	}
	return u.Host
}

// masked replaces what is secret of a channel, which a receiver or a library may repeat. Words of less
// than six bytes, such as "v2", stay readable.
func masked(text string, c belfry.Channel) string {
	if c.URL != "" {
		text = strings.ReplaceAll(text, c.URL, secret.Masked)
	}
	secrets := []string{c.Secret, strings.TrimPrefix(c.Secret, webhook.KeyPrefix)}
	if u, err := url.Parse(c.URL); err == nil {
		secrets = append(secrets, u.RequestURI(), u.Path, u.RawQuery)
		secrets = append(secrets, strings.Split(u.Path, "/")...)
		for _, values := range u.Query() {
			secrets = append(secrets, values...)
		}
		if password, ok := u.User.Password(); ok {
			secrets = append(secrets, u.User.String(), password,
				base64.StdEncoding.EncodeToString([]byte(password)), base64.StdEncoding.EncodeToString(plainCredentials(u.User.Username(), password)))
		}
	}
	return secret.NewRedactor(nil, secrets...).Redact(text, false)
}

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
