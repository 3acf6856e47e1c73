//go:build unix

package chaos

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// alertReceiver is the server that webhook channels send to, each to its own path. It
// checks the signature of every message and records it before it responds.
type alertReceiver struct {
	*httptest.Server
	tb  testing.TB
	key []byte

	mu        sync.Mutex // guards the fields below
	messages  []*alertMessage
	responses map[string]response // by channel
	closing   chan struct{}
}

// response is how a channel's messages are answered.
type response int

const (
	accept response = iota // 200
	refuse                 // 500
	hang                   // nothing, until the sender gives up
	think                  // 200 after the next look of every node
)

// alertMessage is one request that reached the receiver.
type alertMessage struct {
	ID       string // the same if the message is sent again
	Type     string
	Alert    apiAlert
	Arrived  time.Time
	OverAt   time.Time // zero: the sender waits for the answer
	Accepted bool
}

// apiAlert is an alert in a message, and as the API shows it.
type apiAlert struct {
	ID           string `json:"alert_id"`
	Channel      string `json:"channel"`
	Subscription struct {
		On  string `json:"on"`
		Tag string `json:"tag"`
	} `json:"subscription"`
	Status    string     `json:"status"`
	Count     int        `json:"count"`
	Message   string     `json:"message"`
	Items     []struct{} `json:"items"`
	SentCount int        `json:"sent_count"`
}

// topic is what an alert is about, and who is told.
func (a *apiAlert) topic() string {
	return strings.TrimSpace(a.Channel + ": " + a.Subscription.On + " " + a.Subscription.Tag)
}

// lasting reports whether an alert goes on until it is resolved.
func (a *apiAlert) lasting() bool { return a.Subscription.On != "recovered" }

func newAlertReceiver(tb testing.TB) *alertReceiver {
	r := &alertReceiver{tb: tb, key: []byte("0123456789abcdef0123456789abcdef"), responses: map[string]response{}, closing: make(chan struct{})}
	r.Server = httptest.NewServer(r)
	tb.Cleanup(func() {
		close(r.closing)
		r.Close()
	})
	return r
}

// channel creates a channel that sends here. Its messages about one alert come at least
// coolDown apart.
func (r *alertReceiver) channel(base, name string, alerts ...spec) {
	r.tb.Helper()
	body := spec{"name": name, "type": "webhook", "url": r.URL + "/" + name, "secret": "whsec_" + base64.StdEncoding.EncodeToString(r.key),
		"alerts": alerts, "cooldown_seconds": int(coolDown.Seconds())}
	if err := request(base, "POST", "/api/v1/channels", body, nil); err != nil {
		r.tb.Fatalf("create a channel: %v", err)
	}
}

const coolDown = 10 * time.Second // the least that a channel may have

// respond says how the messages of a channel are answered from now on.
func (r *alertReceiver) respond(channel string, how response) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.responses[channel] = how
}

func (r *alertReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	m, err := r.read(req)
	if err != nil {
		r.tb.Errorf("a message that is not valid: %v", err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.messages = append(r.messages, m)
	how := r.responses[m.Alert.Channel]
	r.mu.Unlock()
	answer := make(<-chan time.Time)
	switch how {
	case accept, refuse:
		answer = time.After(0)
	case think:
		answer = time.After(6 * time.Second)
	}
	select {
	case <-answer:
	case <-req.Context().Done():
	case <-r.closing:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m.OverAt, m.Accepted = time.Now(), how != refuse && req.Context().Err() == nil
	if how == refuse {
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// read checks the signature of a message as Standard Webhooks says, and decodes it.
func (r *alertReceiver) read(req *http.Request) (*alertMessage, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	m := &alertMessage{ID: req.Header.Get("Webhook-Id"), Arrived: time.Now()}
	mac := hmac.New(sha256.New, r.key)
	fmt.Fprintf(mac, "%s.%s.%s", m.ID, req.Header.Get("Webhook-Timestamp"), body)
	if got, want := req.Header.Get("Webhook-Signature"), "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)); m.ID == "" || got != want {
		return nil, fmt.Errorf("message %q is signed with %q", m.ID, got)
	}
	seconds, err := strconv.ParseInt(req.Header.Get("Webhook-Timestamp"), 10, 64)
	if age := time.Since(time.Unix(seconds, 0)); err != nil || age < -time.Minute || age > time.Minute {
		return nil, fmt.Errorf("message %q is %v old (%v)", m.ID, age, err)
	}
	err = json.Unmarshal(body, &struct {
		Type *string
		Data *apiAlert
	}{&m.Type, &m.Alert})
	if err != nil || m.Type != "alert."+m.Alert.Status || req.URL.Path != "/"+m.Alert.Channel {
		return nil, fmt.Errorf("at %s: %s (%v)", req.URL.Path, body, err)
	}
	return m, nil
}

// sent is a copy of the messages to a channel, or to all if it is empty, by their arrival.
func (r *alertReceiver) sent(channel string) (messages []alertMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.messages {
		if channel == "" || m.Alert.Channel == channel {
			messages = append(messages, *m)
		}
	}
	return messages
}

// accepted is sent without what was not accepted.
func (r *alertReceiver) accepted(channel string) []alertMessage {
	return slices.DeleteFunc(r.sent(channel), func(m alertMessage) bool { return !m.Accepted })
}

// awaitCounts waits until the channels were told of so many things of each topic.
func (r *alertReceiver) awaitCounts(limit time.Duration, want map[string]int) {
	r.tb.Helper()
	var got map[string]int
	complete := false
	defer func() {
		if !complete {
			r.tb.Logf("the counts are %v, want %v", got, want)
		}
	}()
	eventually(r.tb, "every alert is told with its whole count", limit, func() bool {
		got = counts(r.accepted(""))
		complete = !slices.ContainsFunc(slices.Collect(maps.Keys(want)), func(topic string) bool { return got[topic] < want[topic] })
		return complete
	})
}

// awaitAgain waits until a message whose sender was killed is accepted from another one. It
// may count more by then.
func (r *alertReceiver) awaitAgain(limit time.Duration, lost alertMessage) {
	r.tb.Helper()
	eventually(r.tb, fmt.Sprintf("message %s is sent again", lost.ID), limit, func() bool {
		return slices.ContainsFunc(r.accepted(lost.Alert.Channel), func(m alertMessage) bool {
			return m.Alert.ID == lost.Alert.ID && m.Alert.Status == lost.Alert.Status && m.Alert.SentCount == lost.Alert.SentCount && m.Alert.Count >= lost.Alert.Count
		})
	})
}

// counts is how many things were told of each topic. Messages about an alert that lasts say
// how many there were since it began, the others how many there are since the last message.
func counts(messages []alertMessage) map[string]int {
	most, topics := map[string]int{}, map[string]string{}
	for _, m := range messages {
		of := m.ID
		if m.Alert.lasting() {
			of = m.Alert.ID
		}
		most[of], topics[of] = max(most[of], m.Alert.Count), m.Alert.topic()
	}
	total := map[string]int{}
	for of, n := range most {
		total[topics[of]] += n
	}
	return total
}

// awaitResolved waits until every alert is resolved and nothing is left to send, and
// returns the alerts.
func (r *alertReceiver) awaitResolved(limit time.Duration, node func() string, url string) (alerts []apiAlert) {
	r.tb.Helper()
	eventually(r.tb, "every alert is resolved, and its last message is sent", limit, func() bool {
		var err error
		alerts, err = pages[apiAlert](node(), "/api/v1/alerts?limit=500")
		return err == nil && !slices.ContainsFunc(alerts, func(a apiAlert) bool { return a.Status != "resolved" }) &&
			query[int](r.tb, url, `SELECT count(*) FROM belfry.alerts WHERE send_at IS NOT NULL`) == 0
	})
	return alerts
}

// wantTold expects that every alert was told when it began, when it was over if it lasted,
// and in few messages, which come after the cool-down and say something new.
func (r *alertReceiver) wantTold(alerts []apiAlert) {
	r.tb.Helper()
	messages := r.accepted("")
	topics := map[string]int{}
	for _, a := range alerts {
		var last alertMessage
		told := map[string]int{}
		for _, m := range messages {
			if m.Alert.ID != a.ID {
				continue
			}
			told[m.Alert.Status]++
			if m.Alert.Status == "firing" && last.ID != "" && m.ID != last.ID {
				if gap := m.Arrived.Sub(last.Arrived); gap < coolDown-clockSlack || a.lasting() && m.Alert.Count <= last.Alert.Count {
					r.tb.Errorf("%v after %+v the message was %+v", gap, last.Alert, m.Alert)
				}
			}
			if len(m.Alert.Items) == 0 || m.Alert.Message == "" {
				r.tb.Errorf("a message does not say what happened: %+v", m)
			}
			last = m
		}
		if told["firing"] == 0 || a.lasting() && told["resolved"] == 0 || a.lasting() && last.Alert.Status != "resolved" {
			r.tb.Errorf("the messages about %+v were %v", a, told)
		}
		topics[a.topic()] += told["firing"]
	}
	for topic, n := range topics {
		if n > 20 {
			r.tb.Errorf("%q took %d messages", topic, n)
		}
	}
	r.tb.Logf("%d alerts, messages that they fire: %v", len(alerts), topics)
}

// wantOnce expects that no message came twice and that the alerts count them.
func (r *alertReceiver) wantOnce(alerts []apiAlert) {
	r.tb.Helper()
	seen, of := map[string]bool{}, map[string]int{}
	for _, m := range r.sent("") {
		if seen[m.ID] || !m.Accepted {
			r.tb.Errorf("a message that came twice, or was not accepted: %+v", m)
		}
		seen[m.ID] = true
		of[m.Alert.ID]++
	}
	began := map[string]string{}
	for _, a := range alerts {
		if other := began[a.topic()]; a.lasting() && other != "" {
			r.tb.Errorf("%q began twice, with %s and %s", a.topic(), other, a.ID)
		}
		began[a.topic()] = a.ID
		if a.SentCount != of[a.ID] {
			r.tb.Errorf("of %+v %d messages came", a, of[a.ID])
		}
	}
}
