package notify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime/quotedprintable"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/notify"
	"github.com/belfry-sh/belfry/internal/target"
	"github.com/belfry-sh/belfry/internal/webhook"
)

// sink is a receiver that keeps what it gets.
type sink struct {
	*httptest.Server
	answer http.HandlerFunc // nil: 202

	mutex  sync.Mutex
	bodies []string
	header []http.Header
}

func newSink(t *testing.T, answer http.HandlerFunc) *sink {
	s := &sink{answer: answer}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != "POST" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s with %q: %v", r.Method, r.Header.Get("Content-Type"), err)
		}
		s.mutex.Lock()
		s.bodies, s.header = append(s.bodies, string(body)), append(s.header, r.Header.Clone())
		s.mutex.Unlock()
		if s.answer == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		s.answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *sink) last(t *testing.T) (string, http.Header) {
	t.Helper()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if len(s.bodies) == 0 {
		t.Fatal("the receiver got nothing")
	}
	return s.bodies[len(s.bodies)-1], s.header[len(s.header)-1]
}

var loopback = target.NewGuard(false, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})

func newSender() *notify.Sender { return notify.New(loopback.Dialer(nil).DialContext, nil) }

func mustSend(t *testing.T, c belfry.Channel, a belfry.Alert) {
	t.Helper()
	if errors := notify.Validate(c); len(errors) > 0 {
		t.Fatalf("the channel is not valid: %v", errors)
	}
	if err := newSender().Send(t.Context(), c, a); err != nil {
		t.Fatal(err)
	}
}

// failure sends an alert that the receiver does not take.
func failure(t *testing.T, s *notify.Sender, c belfry.Channel) *notify.Error {
	t.Helper()
	err := s.Send(t.Context(), c, newAlert(belfry.AlertDead, belfry.AlertFiring))
	var e *notify.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an *Error", err)
	}
	return e
}

func TestWebhookIsSignedAsStandardWebhooks(t *testing.T) {
	s := newSink(t, nil)
	c := belfry.Channel{Name: "hook", Type: belfry.ChannelWebhook, URL: s.URL + "/hook?a=b", Secret: webhook.NewKey()}
	a := newAlert(belfry.AlertDead, belfry.AlertFiring)
	mustSend(t, c, a)
	body, header := s.last(t)
	verifier, err := standardwebhooks.NewWebhook(c.Secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := verifier.Verify([]byte(body), header); err != nil {
		t.Errorf("the signature is refused: %v", err)
	}
	if verifier.Verify([]byte(body+" "), header) == nil {
		t.Error("the signature does not cover the body")
	}
	var got struct {
		Type      string       `json:"type"`
		Timestamp time.Time    `json:"timestamp"`
		Data      belfry.Alert `json:"data"`
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if got.Type != "alert.firing" || !got.Timestamp.Equal(a.LatestAt) || got.Data.ID != a.ID || len(got.Data.Items) != len(a.Items) {
		t.Errorf("got %s", body)
	}
	if id := header.Get("webhook-id"); id == "" || strings.Contains(id, ".") {
		t.Errorf("id %q: the signature has full stops between its parts", id)
	}
}

func TestARepeatedMessageHasTheSameIDAndBody(t *testing.T) {
	s := newSink(t, nil)
	c := belfry.Channel{Name: "hook", Type: belfry.ChannelWebhook, URL: s.URL, Secret: webhook.NewKey()}
	ids := map[string]string{}
	for range 2 {
		for _, status := range []belfry.AlertStatus{belfry.AlertFiring, belfry.AlertAcknowledged, belfry.AlertResolved} {
			for changed := range 3 {
				a := newAlert(belfry.AlertDead, status)
				a.SentCount += changed % 2
				a.Count += int64(changed / 2) // more happened before the message is repeated
				mustSend(t, c, a)
				body, header := s.last(t)
				id := header.Get("webhook-id")
				if before, known := ids[id]; known && before != body {
					t.Errorf("message %s changed:\n%s\n%s", id, before, body)
				}
				ids[id] = body
			}
		}
	}
	if len(ids) != 9 {
		t.Errorf("9 messages have the ids %q", slices.Sorted(maps.Keys(ids)))
	}
}

func TestTypesOfWebhooks(t *testing.T) {
	s := newSink(t, nil)
	c := belfry.Channel{Name: "hook", Type: belfry.ChannelWebhook, URL: s.URL, Secret: webhook.NewKey()}
	for want, a := range map[string]belfry.Alert{
		"alert.firing":       newAlert(belfry.AlertLag, belfry.AlertFiring),
		"alert.acknowledged": newAlert(belfry.AlertLag, belfry.AlertAcknowledged),
		"alert.resolved":     newAlert(belfry.AlertLag, belfry.AlertResolved),
		"alert.test":         newAlert(belfry.AlertTest, belfry.AlertFiring),
	} {
		mustSend(t, c, a)
		if body, _ := s.last(t); !strings.HasPrefix(body, `{"type":"`+want+`",`) {
			t.Errorf("%s: got %s", want, body)
		}
	}
}

func compileSchema(t *testing.T, path string) *jsonschema.Schema {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource(path, document); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile(path)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func checkSchema(t *testing.T, schema *jsonschema.Schema, body string) {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
	if err == nil {
		err = schema.Validate(value)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, body)
	}
}

// hostile is an alert with as much as possible of what formats have a meaning for.
func hostile() belfry.Alert {
	a := newAlert(belfry.AlertDead, belfry.AlertFiring)
	evil := "<!channel> & <https://evil.example|click> \r\nBcc: evil@example.com\r\n.\r\n\x00\u202e" + strings.Repeat("&<>", 500)
	a.Message, a.Namespace, a.AcknowledgedBy, a.Count = evil, "default", evil, 5000
	a.Items = nil
	for range 30 {
		a.Items = append(a.Items, belfry.AlertItem{Name: evil, Error: evil, ScheduledAt: a.StartedAt})
	}
	return a
}

func TestSlackMessages(t *testing.T) {
	s := newSink(t, nil)
	schema := compileSchema(t, "testdata/slack.schema.json")
	c := belfry.Channel{Name: "slack", Type: belfry.ChannelSlack, URL: s.URL + "/services/T0/B0/secret"}
	for _, a := range append(allAlerts(), hostile()) {
		mustSend(t, c, a)
		body, _ := s.last(t)
		checkSchema(t, schema, body)
		link := `\u003c` + a.URL + `|Open in Belfry\u003e`
		escaped := regexp.MustCompile(`\\u0026(amp|lt|gt);`).ReplaceAllString(strings.Replace(body, link, "", 1), "") // as in JSON
		if strings.Contains(escaped, `\u0026`) || strings.Contains(escaped, `\u003c`) || strings.Contains(escaped, `\u003e`) {
			t.Errorf("the message has a character that is not escaped: %s", escaped)
		}
		if n := strings.Count(body, "• "); n > 11 {
			t.Errorf("the message has %d items", n)
		}
		if !strings.Contains(body, link) {
			t.Errorf("the message has no link: %s", body)
		}
	}
}

func TestPagerDutyEvents(t *testing.T) {
	s := newSink(t, nil)
	schema := compileSchema(t, "testdata/pagerduty.schema.json")
	c := belfry.Channel{Name: "pd", Type: belfry.ChannelPagerDuty, URL: s.URL + "/v2/enqueue", Secret: "0123456789abcdef0123456789abcdef"}
	actions := map[belfry.AlertStatus]string{belfry.AlertFiring: "trigger", belfry.AlertAcknowledged: "acknowledge", belfry.AlertResolved: "resolve"}
	for _, a := range append(allAlerts(), hostile()) {
		s.bodies = nil
		mustSend(t, c, a)
		want := []string{actions[a.Status]}
		switch a.Subscription.On {
		case belfry.AlertTest, belfry.AlertRecovered, belfry.AlertCatchUp: // nothing resolves them later
			if a.Status == belfry.AlertFiring {
				want = append(want, "resolve")
			}
		}
		var actions []string
		for _, body := range s.bodies {
			checkSchema(t, schema, body)
			var got struct {
				RoutingKey  string `json:"routing_key"`
				EventAction string `json:"event_action"`
				DedupKey    string `json:"dedup_key"`
			}
			if err := json.Unmarshal([]byte(body), &got); err != nil || got.RoutingKey != c.Secret || got.DedupKey != a.ID.String() {
				t.Errorf("%s: %v", body, err)
			}
			actions = append(actions, got.EventAction)
		}
		if !slices.Equal(actions, want) {
			t.Errorf("%s, %s: sent %q, want %q", a.Subscription.On, a.Status, actions, want)
		}
	}
}

// An event that opens an incident which could not be resolved is an error, so that both are
// sent again.
func TestAnIncidentThatPagerDutyDoesNotResolve(t *testing.T) {
	s := newSink(t, func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), `"resolve"`) {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	c := belfry.Channel{Name: "pd", Type: belfry.ChannelPagerDuty, URL: s.URL, Secret: "key"}
	var e *notify.Error
	if err := newSender().Send(t.Context(), c, newAlert(belfry.AlertTest, belfry.AlertFiring)); !errors.As(err, &e) || e.Sent || len(s.bodies) != 2 {
		t.Errorf("%d events, %v", len(s.bodies), err)
	}
}

func TestLinksToTheAPI(t *testing.T) {
	const api = "https://belfry.example.com/up/api/v1/"
	sender := newSender()
	sender.PublicURL = "https://belfry.example.com/up/"
	run := newAlert(belfry.AlertDead, belfry.AlertFiring)
	job := newAlert(belfry.AlertRecovered, belfry.AlertFiring)
	job.Items[0].JobID, job.Items[0].RunID = job.ID, belfry.ID{}
	monitor := newAlert(belfry.AlertMonitor, belfry.AlertFiring)
	monitor.Items[0].Name = "a b"
	for _, tt := range []struct {
		alert  belfry.Alert
		itself string
		item   string
	}{
		{run, "alerts/" + run.ID.String(), "runs/" + run.Items[0].RunID.String()},
		{job, "alerts/" + job.ID.String(), "jobs/" + job.ID.String()},
		{monitor, "alerts/" + run.ID.String(), "monitors/a%20b"},
		{newAlert(belfry.AlertTest, belfry.AlertFiring), "channels/oncall", ""},
	} {
		mail, hook := (&mailServer{}).serve(t, nil, false), newSink(t, nil)
		for _, c := range []belfry.Channel{
			{Type: belfry.ChannelWebhook, URL: hook.URL, Secret: webhook.NewKey()}, {Type: belfry.ChannelSlack, URL: hook.URL},
			{Type: belfry.ChannelPagerDuty, URL: hook.URL, Secret: "key"}, emailChannel("smtp://" + mail.address),
		} {
			if err := sender.Send(t.Context(), c, tt.alert); err != nil {
				t.Fatal(err)
			}
			text := ""
			if c.Type == belfry.ChannelEmail {
				body, err := io.ReadAll(quotedprintable.NewReader(readMail(t, mail.messages[0]).Body))
				if err != nil {
					t.Fatal(err)
				}
				text = string(body)
			} else {
				text, _ = hook.last(t)
			}
			if !strings.Contains(text, api+tt.itself) || tt.item != "" && !strings.Contains(text, api+tt.item) {
				t.Errorf("%s of %s: no links to %s and %q in %s", c.Type, tt.alert.Subscription.On, tt.itself, tt.item, text)
			}
			if c.Type == belfry.ChannelSlack {
				checkSchema(t, compileSchema(t, "testdata/slack.schema.json"), text)
			}
		}
		if len(tt.alert.Items) > 0 && tt.alert.Items[0].URL != "" {
			t.Error("the alert of the caller was changed")
		}
	}
	large := hostile()
	for i := range large.Items {
		large.Items[i].RunID = large.ID
	}
	hook := newSink(t, nil)
	sender.PublicURL = "https://" + strings.Repeat("a", 92) // the longest
	if err := sender.Send(t.Context(), belfry.Channel{Type: belfry.ChannelSlack, URL: hook.URL}, large); err != nil {
		t.Fatal(err)
	}
	body, _ := hook.last(t)
	checkSchema(t, compileSchema(t, "testdata/slack.schema.json"), body)
	if n := strings.Count(body, "/api/v1/runs/"+large.ID.String()+"|"); n != 10 {
		t.Errorf("%d links to runs in %s", n, body)
	}
}

func TestPermanentAndTemporaryFailures(t *testing.T) {
	for status, permanent := range map[int]bool{400: true, 401: true, 403: true, 404: true, 410: true, 408: false, 409: false, 429: false, 500: false, 502: false, 503: false, 301: false} {
		s := newSink(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "90")
			w.WriteHeader(status)
			io.WriteString(w, "reason\n"+strings.Repeat("x", 100_000))
		})
		e := failure(t, newSender(), belfry.Channel{Type: belfry.ChannelSlack, URL: s.URL})
		wait := time.Duration(0)
		if status == 429 || status == 503 {
			wait = 90 * time.Second
		}
		if e.Permanent != permanent || e.RetryAfter != wait || !strings.Contains(e.Message, http.StatusText(status)) || !strings.Contains(e.Message, ": reason xxx") || len(e.Message) > 1300 {
			t.Errorf("%d: got %+v", status, e)
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	other := newSink(t, nil)
	s := newSink(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusPermanentRedirect)
	})
	e := failure(t, newSender(), belfry.Channel{Type: belfry.ChannelSlack, URL: s.URL})
	if len(other.bodies) > 0 || !strings.Contains(e.Message, "redirects are not followed") {
		t.Errorf("%d requests followed; the error is %v", len(other.bodies), e)
	}
}

func TestPrivateAddressesAreRefused(t *testing.T) {
	s := newSink(t, nil)
	guarded := notify.New(target.NewGuard(false, nil).Dialer(nil).DialContext, nil)
	for _, c := range []belfry.Channel{
		{Type: belfry.ChannelWebhook, URL: s.URL, Secret: webhook.NewKey()},
		{Type: belfry.ChannelSlack, URL: s.URL},
		{Type: belfry.ChannelPagerDuty, URL: s.URL, Secret: "key"},
		{Type: belfry.ChannelEmail, URL: strings.Replace(s.URL, "http:", "smtp:", 1), From: "a@example.com", To: []string{"b@example.com"}},
	} {
		if e := failure(t, guarded, c); !strings.Contains(e.Message, "not allowed") {
			t.Errorf("%s: got %v", c.Type, e)
		}
	}
	if len(s.bodies) > 0 {
		t.Error("the receiver was reached")
	}
}

// silent is a connection whose other end reads everything and answers nothing.
func silent(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	go io.Copy(io.Discard, far)
	return near, nil
}

func TestAReceiverThatHangsIsLeftAfterTenSeconds(t *testing.T) {
	for _, c := range []belfry.Channel{
		{Type: belfry.ChannelWebhook, URL: "http://example.com/hook", Secret: webhook.NewKey()},
		{Type: belfry.ChannelEmail, URL: "smtp://example.com", From: "a@example.com", To: []string{"b@example.com"}},
		{Type: belfry.ChannelEmail, URL: "smtps://example.com", From: "a@example.com", To: []string{"b@example.com"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			e := failure(t, notify.New(silent, nil), c)
			if took := time.Since(start); took != 10*time.Second || e.Permanent || e.Message != "example.com did not answer within 10 seconds" {
				t.Errorf("%s: after %s: %+v", c.URL, took, e)
			}
		})
	}
}

func TestErrorsContainNoSecret(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusBadRequest)
		io.WriteString(w, strings.Repeat("x", 940)) // a secret crosses the end of what is shown
		io.WriteString(w, r.URL.String()+" "+r.URL.Path+" "+r.URL.RawQuery+" "+string(body))
	}
	for _, c := range []belfry.Channel{
		{Type: belfry.ChannelSlack, URL: "/services/T0CANARY/B0CANARY/pathCANARY?token=queryCANARY"},
		{Type: belfry.ChannelWebhook, URL: "/hook/pathCANARY", Secret: webhook.NewKey()},
		{Type: belfry.ChannelPagerDuty, URL: "/v2/enqueue", Secret: "routing-key-CANARY"},
	} {
		s := newSink(t, echo)
		path := c.URL
		c.URL = s.URL + path
		secret := strings.TrimPrefix(c.Secret, "whsec_")
		check := func(e *notify.Error) {
			if strings.Contains(e.Message, "CANARY") || strings.Contains(e.Message, "CANAR") || secret != "" && strings.Contains(e.Message, secret) {
				t.Errorf("%s: %s", c.Type, e.Message)
			}
		}
		check(failure(t, newSender(), c))
		s.Close() // and then the connection is refused
		check(failure(t, newSender(), c))
		c.URL = "http://name.invalid" + path
		check(failure(t, newSender(), c))
		c.URL = "http://exa mple.com" + path
		check(failure(t, newSender(), c))
	}
}
