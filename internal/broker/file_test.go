package broker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry"
)

func load(t *testing.T, text string) (*Connections, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "connections.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil {
		t.Logf("%v", err)
	}
	return c, err
}

// The example is what the documentation shows.
func TestLoadTheExample(t *testing.T) {
	t.Setenv("KAFKA_PASSWORD", "secret")
	c, err := Load("../../examples/connections.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(c.Names(), " "); got != "cache events jobs mail orders" {
		t.Errorf("it has %s", got)
	}
}

func TestLoadNamesLineAndKey(t *testing.T) {
	secret := secretFile(t, "hunter2")
	t.Setenv("BROKER_PASSWORD", "hunter2")
	for _, tt := range []struct{ name, text, want string }{
		{"an unknown key", "connections:\n  orders:\n    url: kafka://a\n    usernam: x\n", ":4: connections.orders.usernam is unknown; did you mean \"username\"?"},
		{"another root", "connections:\n  a: {url: kafka://a}\nbrokers: {}\n", ":3: brokers is unknown"},
		{"no url", "connections:\n  orders:\n    username: x\n", ":3: connections.orders.url is required; for example"},
		{"no map", "connections:\n  orders: kafka://a\n", ":2: connections.orders must be a map such as {url: kafka://host:9092}"},
		{"an unknown scheme", "connections:\n  orders:\n    url: mqtt://a\n", ":3: connections.orders.url must begin with one of kafka, nats"},
		{"credentials in the url", "connections:\n  orders:\n    url: amqp://me:hunter2@host\n", ":3: connections.orders.url must not contain a user name or password; use username, and password_file or password_env"},
		{"no host", "connections: {orders: {url: 'nats://'}}", ":1: connections.orders.url has no host"},
		{"several hosts of Redis", "connections: {orders: {url: 'redis://a,b'}}", "has several hosts, which only kafka and nats may have"},
		{"an unknown option", "connections: {orders: {url: 'kafka://a?acks=0'}}", `url has an unknown option "acks"`},
		{"an unknown version", "connections: {orders: {url: 'kafka://a?version=new'}}", `url has a version that is not one of Kafka`},
		{"a Redis database that is none", "connections: {orders: {url: 'redis://a/x'}}", `url has a path that is not the number of a database`},
		{"two passwords", "connections: {orders: {url: 'redis://a', password_file: '" + secret + "', password_env: BROKER_PASSWORD}}", "password_env cannot be combined with password_file"},
		{"a missing file", "connections:\n  orders:\n    url: redis://a\n    password_file: /nonexistent\n", ":4: connections.orders.password_file the file cannot be read"},
		{"a missing variable", "connections: {orders: {url: redis://a, password_env: BROKER_PASWORD}}", "the environment variable BROKER_PASWORD is not set"},
		{"half a key pair", "connections: {orders: {url: redis://a, cert_file: a.pem}}", "key_file and cert_file belong together"},
		{"certificates that are none", "connections: {orders: {url: redis://a, ca_file: '" + secret + "'}}", "has no certificate in PEM form"},
		{"a wrong mechanism", "connections: {orders: {url: kafka://a, sasl: md5}}", "sasl"},
		{"a name with blanks", "connections: {my orders: {url: kafka://a}}", "the name of a connection must have 1 to 100 letters"},
		{"no YAML", "connections: [", "did not find expected node content"},
		{"a key twice", "connections:\n  orders: {url: kafka://a, url: kafka://b}\n", `line 2: mapping key "url" already defined`},
		{"a name twice", "connections:\n  orders: {url: kafka://a}\n  orders: {url: kafka://b}\n", `line 3: mapping key "orders" already defined at line 2`},
		{"nothing", "", "there are no connections"},
		{"no connection", "connections: {}", "there are no connections"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.text)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("a secret is shown: %v", err)
			}
		})
	}
}

func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"kafka://a:1,b":            "kafka a:1 b:9092 / ",
		"nats://[::1]":             "nats [::1]:4222 / ",
		"NATS://a:4222/":           "nats a:4222 / ",
		"amqps://a/billing%2Fmain": "amqps a:5671 /billing/main ",
		"redis://a:6380/3":         "redis a:6380 /3 ",
		"sqs://eu-west-1?endpoint=http%3A%2F%2F127.0.0.1%3A4566": "sqs eu-west-1 / http://127.0.0.1:4566",
	} {
		a, problem := parseAddress(text)
		if got := a.scheme + " " + strings.Join(a.hosts, " ") + " /" + a.path + " " + a.query.Get("endpoint"); problem != "" || got != want {
			t.Errorf("%s: got %q, %s", text, got, problem)
		}
	}
}

// What a broker would refuse is refused when the job is created.
func TestCheck(t *testing.T) {
	c, err := load(t, "connections: {kafka: {url: kafka://a}, nats: {url: nats://a}, rabbit: {url: amqp://a}, sqs: {url: sqs://eu-west-1}, redis: {url: redis://a}}")
	if err != nil {
		t.Fatal(err)
	}
	many := map[string]string{"a": "", "b": "", "c": "", "d": ""}
	for _, tt := range []struct {
		from  *Connections
		p     belfry.MessagePayload
		field string
		want  string
	}{
		{c, belfry.MessagePayload{Connection: "kafka", Topic: "invoices", Headers: many}, "", ""},
		{c, belfry.MessagePayload{Connection: "nats", Topic: "invoices.created"}, "", ""},
		{c, belfry.MessagePayload{Connection: "rabbit", Topic: "invoices"}, "", ""},
		{c, belfry.MessagePayload{Connection: "redis", Topic: "invoices"}, "", ""},
		{c, belfry.MessagePayload{Connection: "sqs", Topic: "invoices", Body: []byte(`{}`)}, "", ""},
		{c, belfry.MessagePayload{Connection: "other", Topic: "invoices"}, "payload.connection", "is unknown; this server has kafka, nats, rabbit, redis, sqs"},
		{nil, belfry.MessagePayload{Connection: "kafka", Topic: "invoices"}, "payload.connection", "cannot be used: this server has no connections"},
		{c, belfry.MessagePayload{Connection: "kafka", Topic: "in voices"}, "payload.topic", "as a Kafka topic"},
		{c, belfry.MessagePayload{Connection: "nats", Topic: "invoices.*"}, "payload.topic", "without wildcards"},
		{c, belfry.MessagePayload{Connection: "nats", Topic: ".invoices"}, "payload.topic", "without wildcards"},
		{c, belfry.MessagePayload{Connection: "rabbit", Topic: strings.Repeat("x", 256)}, "payload.topic", "has more than 255 bytes"},
		{c, belfry.MessagePayload{Connection: "sqs", Topic: "invoices"}, "payload.body", "takes no message without a body"},
		{c, belfry.MessagePayload{Connection: "sqs", Topic: "invoices", Headers: many}, "payload.headers", "has 4 headers"},
	} {
		errors := tt.from.Check(tt.p)
		if tt.want == "" && len(errors) > 0 || tt.want != "" && (len(errors) != 1 || errors[0].Field != tt.field || !strings.Contains(errors[0].Message, tt.want)) {
			t.Errorf("%v: got %v", tt.p, errors)
		}
	}
}
