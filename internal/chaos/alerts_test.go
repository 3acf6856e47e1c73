//go:build unix

package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/pgtest"
)

// fleet is nodes on one database, whose ids are known.
type fleet struct {
	tb    testing.TB
	url   string
	nodes []*process
	ids   map[string]*process // of all their lives
}

func newFleet(tb testing.TB, nodes int) *fleet {
	tb.Helper()
	f := &fleet{tb: tb, url: pgtest.Database(tb, nil), ids: map[string]*process{}}
	for range nodes {
		p := onPostgres(tb, f.url)
		f.nodes = append(f.nodes, p)
		f.identify(p)
	}
	return f
}

// identify waits for the id of a node that was just started.
func (f *fleet) identify(p *process) {
	f.tb.Helper()
	eventually(f.tb, "a node has its lease", time.Minute, func() bool {
		for _, id := range queryAll[string](f.tb, f.url, `SELECT owner::text FROM belfry.leases WHERE name LIKE 'node/%'`) {
			if f.ids[id] == nil {
				f.ids[id] = p
				return true
			}
		}
		return false
	})
}

// restart kills a node and starts it again.
func (f *fleet) restart(p *process) {
	f.tb.Helper()
	p.kill()
	p.start()
	f.identify(p)
}

// holder is the node that sends alerts, or that did last.
func (f *fleet) holder() *process {
	f.tb.Helper()
	owner := query[string](f.tb, f.url, `SELECT owner::text FROM belfry.leases WHERE name = 'alerts'`)
	if f.ids[owner] == nil {
		f.tb.Fatalf("%s sends alerts, which is no node", owner)
	}
	return f.ids[owner]
}

// other is a node that does not send alerts.
func (f *fleet) other() *process {
	holder := f.holder()
	others := slices.DeleteFunc(slices.Clone(f.nodes), func(p *process) bool { return p == holder })
	return others[rand.IntN(len(others))]
}

const (
	dying   = 1000 // jobs
	billing = 200  // of them have the tag
)

// whatDying is what the channels of alertTrouble are told of the jobs that die, and
// whatRecovered once they have succeeded.
var (
	whatDying     = map[string]int{"ops: dead": dying, "team: dead billing": billing, "team: failing billing": billing, "jobs: failing nightly": dying}
	whatRecovered = map[string]int{"team: recovered billing": billing, "jobs: recovered nightly": dying}
)

// alertTrouble creates channels, and jobs that are due at one instant and die, until the
// gate "fixed" is opened.
func alertTrouble(t *testing.T, f *fleet) (*driver, *alertReceiver) {
	t.Helper()
	d, people := newDriver(t, anyOf(f.nodes)), newAlertReceiver(t)
	people.channel(d.node(), "ops", spec{"on": "dead"})
	people.channel(d.node(), "team", spec{"on": "dead", "tag": "billing"}, spec{"on": "failing", "tag": "billing", "count": 1}, spec{"on": "recovered", "tag": "billing"})
	people.channel(d.node(), "jobs", spec{"on": "failing", "tag": "nightly", "count": 1}, spec{"on": "recovered", "tag": "nightly"})
	at := time.Now().Add(3 * time.Second).UTC().Format(time.RFC3339Nano)
	jobs := make([]spec, dying)
	for i := range jobs {
		tags := []string{"nightly"}
		if i%(dying/billing) == 0 {
			tags = append(tags, "billing")
		}
		jobs[i] = quick(spec{"name": fmt.Sprintf("job %d", i), "tags": tags, "schedule": at, "max_retries": 0, "timeout_seconds": 60, "payload": spec{"url": d.receiver.URL + "/until/fixed"}})
	}
	if err := request(d.node(), "POST", "/api/v1/jobs/bulk", jobs, nil); err != nil {
		t.Fatalf("import jobs: %v", err)
	}
	return d, people
}

// redriveAll redrives the dead letters at a rate, and lets them succeed.
func (d *driver) redriveAll(rate int) {
	d.tb.Helper()
	d.receiver.open("fixed")
	if result := d.bulkDead("redrive", spec{}, spec{"all": true, "rate": rate}); result.Done != dying {
		d.tb.Fatalf("the redrive of %d dead letters says %+v", dying, result)
	}
}

func TestAlertsOfAThousandDeathsAreSentOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	d, people := alertTrouble(t, f)
	people.respond("ops", think) // so that two nodes that send would both do
	people.awaitCounts(2*time.Minute, whatDying)
	d.redriveAll(dying / 14) // slowly enough that several rounds find some that have succeeded
	people.awaitCounts(2*time.Minute, whatRecovered)
	alerts := people.awaitResolved(2*time.Minute, d.node, f.url)
	people.wantTold(alerts)
	people.wantOnce(alerts)
	for _, want := range []map[string]int{whatDying, whatRecovered} {
		for topic, n := range want {
			if got := counts(people.sent(""))[topic]; got != n {
				t.Errorf("%q was told of %d, want %d", topic, got, n)
			}
		}
	}
	before := len(people.sent(""))
	for _, p := range f.nodes {
		p.drain(time.Minute)
	}
	if after := len(people.sent("")); after != before {
		t.Errorf("%d messages came after the last one", after-before)
	}
}

// TestKilledNodesLoseNoAlert kills nodes while jobs die and while messages are being sent.
func TestKilledNodesLoseNoAlert(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	d, people := alertTrouble(t, f)
	people.respond("ops", hang)
	eventually(t, "jobs die", time.Minute, func() bool { return len(d.receiver.all()) > dying/10 })
	f.restart(f.other())
	people.awaitAgain(2*time.Minute, f.killSender(people, "ops"))
	people.awaitCounts(2*time.Minute, whatDying)
	if longRun {
		people.respond("team", hang)
	}
	d.redriveAll(dying)
	f.restart(f.other())
	if longRun { // while it says that it is over, and in any other state
		people.awaitAgain(2*time.Minute, f.killSender(people, "team"))
		for range 10 {
			time.Sleep(time.Duration(rand.IntN(12000)) * time.Millisecond)
			f.restart(f.holder())
		}
	}
	people.awaitCounts(2*time.Minute, whatRecovered)
	alerts := people.awaitResolved(2*time.Minute, d.node, f.url)
	people.wantTold(alerts)
}

// killSender waits until a message to a channel that hangs is being sent, kills the sender,
// and lets the receiver answer from then on. It returns the message.
func (f *fleet) killSender(people *alertReceiver, channel string) (lost alertMessage) {
	f.tb.Helper()
	eventually(f.tb, "a message is being sent", time.Minute, func() bool {
		if sent := people.sent(channel); len(sent) > 0 {
			lost = sent[len(sent)-1]
		}
		return lost.ID != "" && lost.OverAt.IsZero()
	})
	sender := f.holder()
	sender.kill()
	people.respond(channel, accept)
	sender.start()
	f.identify(sender)
	return lost
}

// apiChannel is a channel as the API shows it.
type apiChannel struct {
	Failures  int        `json:"failures"`
	Error     string     `json:"error"`
	NextTryAt *time.Time `json:"next_try_at"`
	SentAt    *time.Time `json:"sent_at"`
}

// awaitChannel waits until a channel is shown with at least so many failures, or with none.
func (d *driver) awaitChannel(name string, failures int) (c apiChannel) {
	d.tb.Helper()
	eventually(d.tb, fmt.Sprintf("channel %s has %d failures", name, failures), 2*time.Minute, func() bool {
		c = apiChannel{}
		err := request(d.node(), "GET", "/api/v1/channels/"+name, nil, &c)
		return err == nil && (c.Failures > 0) == (failures > 0) && c.Failures >= failures && (c.NextTryAt != nil) == (failures > 0)
	})
	return c
}

// TestBadChannelsDelayNothing has a channel that hangs and one that refuses messages, which
// come before the one that works.
func TestBadChannelsDelayNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	d, people := newDriver(t, anyOf(f.nodes)), newAlertReceiver(t)
	for _, name := range []string{"a-hangs", "b-refuses", "c-works"} {
		people.channel(d.node(), name, spec{"on": "dead"})
	}
	people.respond("a-hangs", hang)
	people.respond("b-refuses", refuse)
	running := d.every(1, "/ok", quick(nil))
	d.createDead(20, "/until/fixed")

	await := func(channel string, n int) alertMessage {
		t.Helper()
		eventually(t, fmt.Sprintf("message %d reaches %s", n, channel), 2*time.Minute, func() bool { return len(people.sent(channel)) >= n })
		return people.sent(channel)[n-1]
	}
	works, refused := await("c-works", 1), await("b-refuses", 1)
	first := d.awaitChannel("b-refuses", 1)
	d.createDead(20, "/cut/1") // of another cause: another alert
	silent := d.awaitChannel("a-hangs", 1)
	hung := people.sent("a-hangs")[0]
	if !works.Arrived.Before(hung.OverAt) || !refused.Arrived.Before(hung.OverAt) {
		t.Errorf("a message that hangs from %v to %v delayed those of %v and %v", hung.Arrived, hung.OverAt, works.Arrived, refused.Arrived)
	}
	runs, err := runsOf(d.node(), running.ID)
	meanwhile := 0
	for _, r := range runs {
		if r.Status == "succeeded" && r.StartedAt.After(hung.Arrived) && r.FinishedAt.Before(hung.OverAt) {
			meanwhile++
		}
	}
	if err != nil || meanwhile < 3 {
		t.Errorf("%d runs succeeded in the %v that a message hung (%v)", meanwhile, hung.OverAt.Sub(hung.Arrived), err)
	}
	if !strings.Contains(first.Error, "500") || !strings.Contains(silent.Error, "did not answer") || first.SentAt != nil || silent.SentAt != nil {
		t.Errorf("the channels say %+v and %+v", first, silent)
	}

	again := await("b-refuses", 2)
	second := d.awaitChannel("b-refuses", 2)
	pause, longer := first.NextTryAt.Sub(refused.Arrived), second.NextTryAt.Sub(again.Arrived)
	if again.Arrived.Before(first.NextTryAt.Add(-clockSlack)) || pause < 10*time.Second-clockSlack || longer < 20*time.Second-clockSlack {
		t.Errorf("a message was refused at %v, until %v, and at %v, until %v", refused.Arrived, first.NextTryAt, again.Arrived, second.NextTryAt)
	}
	people.awaitCounts(2*time.Minute, map[string]int{"c-works: dead": 40})
	people.respond("a-hangs", accept)
	people.respond("b-refuses", accept)
	want := map[string]int{"a-hangs: dead": 40, "b-refuses: dead": 40, "c-works: dead": 40}
	people.awaitCounts(2*time.Minute, want)
	for channel := range want {
		name, _, _ := strings.Cut(channel, ":")
		if c := d.awaitChannel(name, 0); c.Error != "" || c.SentAt == nil {
			t.Errorf("channel %s works again and says %+v", name, c)
		}
		alerts, ids := map[string]bool{}, map[string]bool{}
		for _, m := range people.accepted(name) {
			if ids[m.ID] {
				t.Errorf("a message was accepted twice: %+v", m)
			}
			alerts[m.Alert.ID], ids[m.ID] = true, true
		}
		if len(alerts) != 2 {
			t.Errorf("channel %s was told of %d alerts, want 2", name, len(alerts))
		}
	}
	if n := len(people.sent("c-works")) - len(people.accepted("c-works")); n != 0 {
		t.Errorf("%d messages to the channel that works were not accepted", n)
	}
}
