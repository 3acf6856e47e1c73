package broker

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

// One test for all brokers, since some of them take seconds to start: what is published
// arrives, what cannot be published fails with its reason, and a broker that was killed or
// frozen is used again when it is back.
func TestPublish(t *testing.T) {
	var all sync.WaitGroup
	defer all.Wait()
	for name, start := range fixtures {
		// They wait more than they compute: all at once, however few processors there are.
		all.Go(func() {
			t.Run(name, func(t *testing.T) { testPublish(t, start(t)) })
		})
	}
}

func testPublish(t *testing.T, f fixture) {
	orders := connections(t, f.connection)
	t.Run("arrives", func(t *testing.T) { f.arrives(t, orders) })
	t.Run("missing topic", func(t *testing.T) { f.failsForMissingTopic(t, orders) })
	t.Run("wrong password", func(t *testing.T) { f.failsForWrongPassword(t) })
	t.Run("lost acknowledgement", func(t *testing.T) { f.survivesLostAcknowledgement(t, orders) })
	t.Run("kill", func(t *testing.T) { f.survivesKill(t, orders) })
}

func (f fixture) payload(body string) belfry.MessagePayload {
	return belfry.MessagePayload{Topic: f.topic, Key: f.key, Body: []byte(body)}
}

func (f fixture) arrives(t *testing.T, c *Connections) {
	p := f.payload(`{"month":"march"}`)
	if p.Key == "" {
		p.Key = "{{date}}"
	}
	p.Headers = map[string]string{"source": "billing at {{hour}}", "content-type": "application/vnd.example+json"}
	r := run(1, p)
	if err := c.Handle(waitContext(t), r); err != nil {
		t.Fatal(err)
	}
	if err := c.Handle(waitContext(t), run(2, f.payload(`"plain text"`))); err != nil {
		t.Fatal(err)
	}
	list := f.receive(t)
	if len(list) != 2 {
		t.Fatalf("received %v", list)
	}
	want := map[string]string{
		"Idempotency-Key": "invoice-1", "source": "billing at 2027-03-01T10+01:00", "Content-Type": "application/vnd.example+json", "Belfry-Attempt": "1",
		"Belfry-Job-Id": r.JobID.String(), "Belfry-Run-Id": r.ID.String(), "Belfry-Scheduled-At": "2027-03-01T09:00:01Z",
	}
	for name, value := range want {
		if list[0].headers[name] != value {
			t.Errorf("header %s is %q, want %q", name, list[0].headers[name], value)
		}
	}
	if key := strings.Replace(p.Key, "{{date}}", "2027-03-01", 1); list[0].body != `{"month":"march"}` || list[0].key != key || list[1].body != "plain text" {
		t.Errorf("received %v", list)
	}
	if got := list[1].headers["Content-Type"]; got != "text/plain; charset=utf-8" {
		t.Errorf("the content type of a text is %q", got)
	}
}

func (f fixture) failsForMissingTopic(t *testing.T, c *Connections) {
	if f.missingTopic == "" {
		t.Skip("it creates topics")
	}
	p := f.payload(`{}`)
	p.Topic = f.missingTopic
	if err := c.Handle(waitContext(t), run(3, p)); err == nil || !strings.Contains(err.Error(), f.missingText) {
		t.Errorf("got %v, want %q", err, f.missingText)
	}
	if f.forgets {
		f.failsForURLOfAnotherServer(t, c)
	}
	if f.key == "" {
		return
	}
	for range 2 { // A message that comes back does not harm the next one.
		err := c.Handle(waitContext(t), run(3, belfry.MessagePayload{Topic: "unknown"}))
		if err == nil || !strings.Contains(err.Error(), `RabbitMQ has no queue for the message: NO_ROUTE (exchange "", routing key "unknown")`) {
			t.Errorf("a queue that does not exist: %v", err)
		}
	}
	f.publish(t, c, run(3, f.payload(`{}`)))
}

// The URL of a queue does not lead the request elsewhere: whoever may create jobs does not
// choose which servers are called.
func (f fixture) failsForURLOfAnotherServer(t *testing.T, c *Connections) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("another server was called") }))
	defer other.Close()
	p := f.payload(`{}`)
	p.Topic = other.URL + "/000000000000/" + f.topic + "-unknown"
	if err := c.Handle(waitContext(t), run(3, p)); err == nil || !strings.Contains(err.Error(), "SQS has no queue") {
		t.Errorf("got %v", err)
	}
}

func (f fixture) failsForWrongPassword(t *testing.T) {
	if f.wrongText == "" {
		t.Skip("it takes any")
	}
	wrong := f.connection
	wrong.PasswordFile = secretFile(t, "guessed-wrong")
	err := connections(t, wrong).Handle(waitContext(t), run(3, f.payload(`{}`)))
	if err == nil || !strings.Contains(err.Error(), f.wrongText) || strings.Contains(err.Error(), "guessed") {
		t.Errorf("got %v, want %q", err, f.wrongText)
	}
}

// A broker that is frozen may get a message that nobody knows it has. The next attempt
// publishes it again, with the same key.
func (f fixture) survivesLostAcknowledgement(t *testing.T, c *Connections) {
	before := len(f.receive(t))
	f.publish(t, c, run(5, f.payload(`{}`))) // It is connected.
	before++
	r := run(4, f.payload(`{}`))
	f.server.Pause()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Second, nil)
	defer cancel()
	err := c.Handle(ctx, r)
	f.server.Resume()
	if err == nil || !strings.Contains(err.Error(), "publish to orders: the broker did not acknowledge the message within 1.") {
		t.Fatalf("got %v", err)
	}
	r.Attempt++
	attempts := 1 + f.publish(t, c, r)
	list := f.receive(t)[before:]
	for _, m := range list {
		if m.headers["Idempotency-Key"] != "invoice-4" {
			t.Errorf("received %v", m)
		}
	}
	if n := len(list); n < 1 || n > attempts || f.dedupes && n != 1 {
		t.Errorf("the message arrived %d times after %d attempts", n, attempts)
	}
}

// publish tries until the broker acknowledges, as the retries of a job do, and returns how
// often it did.
func (f fixture) publish(t *testing.T, c *Connections, r *belfry.Run) (attempts int) {
	t.Helper()
	for ctx := waitContext(t); ; {
		attempts++
		err := c.Handle(ctx, r)
		if err == nil {
			return attempts
		}
		select {
		case <-ctx.Done():
			t.Error(err)
			return attempts
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (f fixture) survivesKill(t *testing.T, c *Connections) {
	before := len(f.receive(t))
	const total = 40
	acknowledged := make(chan int, total)
	go func() {
		defer close(acknowledged)
		for n := range total {
			f.publish(t, c, run(100+n, f.payload(fmt.Sprint(n))))
			acknowledged <- n
		}
	}()
	for range total / 4 {
		<-acknowledged
	}
	f.server.Kill()
	start := time.Now()
	err := c.Handle(waitContext(t), run(99, f.payload(`"while it is away"`)))
	if err == nil || !strings.HasPrefix(err.Error(), "publish to orders: ") {
		t.Errorf("got %v", err)
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("it took %s to notice: %v", took, err)
	}
	t.Log(err)
	f.server.Start()
	for range acknowledged {
	}
	keys := map[string]int{}
	for _, m := range f.receive(t)[before:] {
		keys[m.headers["Idempotency-Key"]]++
	}
	for n := range total {
		switch count := keys[fmt.Sprint("invoice-", 100+n)]; {
		case count == 0 && !f.forgets:
			t.Errorf("message %d was acknowledged and is lost", n)
		case count > 1 && f.dedupes:
			t.Errorf("message %d arrived %d times", n, count)
		}
	}
}
