package broker

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry/internal/servertest"
)

// A broker from before 0.11 takes messages too, without headers. Its own command-line
// client, which is none of ours, reads them.
func TestPublishToOldKafka(t *testing.T) {
	if os.Getenv("BELFRY_TEST_CHAOS") != "1" {
		t.Skip("a real Kafka takes long: set BELFRY_TEST_CHAOS=1")
	}
	s := servertest.OldKafka(t)
	f := fixture{server: s, connection: checked(t, Connection{URL: "kafka://" + s.Addr + "?version=0.9.0"}), topic: "invoices"}
	c := connections(t, f.connection)
	const total = 20
	for n := range total {
		p := f.payload(fmt.Sprint(n))
		p.Key = "{{unix}}"
		f.publish(t, c, run(n, p)) // The first creates the topic.
		if n == total/2 {
			s.Kill()
			s.Start()
		}
	}
	if _, err := exec.LookPath("kcat"); err != nil {
		t.Skip("kcat is not installed: apt-get install kcat")
	}
	out, err := exec.CommandContext(waitContext(t), "kcat", "-b", s.Addr, "-X", "broker.version.fallback=0.9.0.1", "-X", "api.version.request=false", "-C", "-t", "invoices", "-e", "-q", "-f", "%k=%s\n").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for n := range total {
		if line := fmt.Sprintf("%d=%d\n", run(n, f.payload("0")).ScheduledAt.Unix(), n); !strings.Contains(string(out), line) {
			t.Errorf("kcat did not print %q but\n%s", line, out)
		}
	}
}

// What is published to a broker of the current protocol is what kcat, whose client library
// is none of ours, reads.
func TestKcatReadsWhatIsPublished(t *testing.T) {
	path, err := exec.LookPath("kcat")
	if err != nil {
		t.Skip("kcat is not installed: apt-get install kcat")
	}
	s := servertest.Kafka(t)
	f := kafkaFixture(t, s, checked(t, Connection{URL: "kafka://" + s.Addr}))
	p := f.payload(`{"month":"march"}`)
	p.Key, p.Headers = "{{date}}", map[string]string{"source": "billing"}
	f.publish(t, connections(t, f.connection), run(1, p))
	out, err := exec.CommandContext(waitContext(t), path, "-b", s.Addr, "-C", "-t", "invoices", "-o", "beginning", "-c", "1", "-q", "-f", "%k %s %h\n").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if text := string(out); !strings.HasPrefix(text, `2027-03-01 {"month":"march"} `) || !strings.Contains(text, "Idempotency-Key=invoice-1") || !strings.Contains(text, "source=billing") {
		t.Errorf("kcat printed %s", text)
	}
}
