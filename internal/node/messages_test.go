package node

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/servertest"
)

func connectionsFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "connections.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A job of type message publishes to the broker that its connection leads to. While the
// broker is away its runs fail, and say so.
func TestMessages(t *testing.T) {
	server := servertest.NATS(t)
	stream := func() jetstream.Stream {
		conn, err := nats.Connect(server.Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		js, err := jetstream.New(conn)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "INVOICES", Subjects: []string{"invoices.>"}})
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	stream()
	base, _ := startNode(t, func(c *Config) {
		c.ConnectionsFile = connectionsFile(t, "connections: {orders: {url: 'nats://"+server.Addr+"'}, spare: {url: 'redis://127.0.0.1:1'}}")
	})
	const message = `"type":"message","payload":{"connection":"orders","topic":"invoices.created","key":"{{run_id}}","body":{"month":"march"}}`
	publish := func() *jetstream.RawStreamMsg {
		t.Helper()
		run := runFields(t, base, message)
		if run.Status != belfry.RunSucceeded {
			t.Fatalf("the run is %s: %s", run.Status, run.Error)
		}
		msg, err := stream().GetLastMsgForSubject(t.Context(), "invoices.created")
		if err != nil {
			t.Fatal(err)
		}
		if msg.Header.Get("Key") != run.ID.String() || msg.Header.Get("Nats-Msg-Id") != run.IdempotencyKey || string(msg.Data) != `{"month":"march"}` {
			t.Errorf("the message of %+v is %s %s", run, msg.Header, msg.Data)
		}
		return msg
	}
	first := publish()
	server.Kill()
	if run := runFields(t, base, message); run.Status != belfry.RunDead || !strings.HasPrefix(run.Error, "publish to orders: ") {
		t.Errorf("without the broker the run is %s: %s", run.Status, run.Error)
	}
	server.Start()
	if again := publish(); again.Sequence != first.Sequence+1 {
		t.Errorf("message %d follows %d", again.Sequence, first.Sequence)
	}
}

// What no node could publish is refused when the job is created.
func TestMessagesForUnknownConnections(t *testing.T) {
	for name, tt := range map[string]struct{ file, want string }{
		"no such connection": {connectionsFile(t, "connections: {orders: {url: 'nats://127.0.0.1:1'}, spare: {url: 'redis://127.0.0.1:1'}}"), "is unknown; this server has orders, spare"},
		"no file":            {"", "cannot be used: this server has no connections; its operator declares them in a file, see --connections of belfry serve"},
	} {
		t.Run(name, func(t *testing.T) {
			base, _ := startNode(t, func(c *Config) { c.ConnectionsFile = tt.file })
			var p belfry.Problem
			status := request(t, "POST", base+"/api/v1/jobs", `{"type":"message","schedule":"@daily","payload":{"connection":"other","topic":"a"}}`, &p)
			if status != http.StatusUnprocessableEntity || len(p.Errors) != 1 || p.Errors[0].Field != "payload.connection" || p.Errors[0].Message != tt.want {
				t.Errorf("got %d %+v", status, p)
			}
		})
	}
}

func TestAFileOfConnectionsThatIsWrong(t *testing.T) {
	c := Defaults()
	c.Listen, c.Data, c.ConnectionsFile = "127.0.0.1:0", t.TempDir(), connectionsFile(t, "connections:\n  orders:\n    uri: nats://a\n")
	if _, err := New(t.Context(), c, nil); err == nil || !strings.Contains(err.Error(), "--connections: ") || !strings.Contains(err.Error(), ":3: connections.orders.uri is unknown") {
		t.Errorf("got %v", err)
	}
}
