package dispatch

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/servertest"
)

func TestAddressesAreChecked(t *testing.T) {
	for address, want := range map[string]string{
		"redis://host":                            "must be database, or begin with",
		"":                                        "must be database, or begin with",
		"database://":                             "must be database, or begin with",
		"nats://":                                 "has no host",
		"nats://host?prefix=Belfry":               "prefix",
		"nats://host?prefx=b":                     "prefx",
		"nats://host?prefix=a&prefix=b":           "prefix",
		"nats://host?%zz":                         "options that cannot be read",
		"kafka://a,b?sasl=other&username=x":       "sasl",
		"kafka://a?endpoint=http://x":             "endpoint",
		"amqps://host?ca_file=/does/not/exist":    "ca_file",
		"nats://host?password_file=/not/there":    "password_file",
		"nats://me:hunter2secret@host":            "must not contain a user name or password",
		"sqs://key:a/hunter2secret+@eu-west-1":    "must not contain a user name or password",
		"nats://host?password_env=BELFRY_NOT_SET": "BELFRY_NOT_SET",
	} {
		q, err := Open(address)
		if err == nil {
			q.Close()
			t.Errorf("%s is accepted", address)
		} else if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2secret") {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
	for _, address := range []string{"nats://127.0.0.1:1", "kafka://127.0.0.1:1,[::1]:2?prefix=b-1", "amqp://127.0.0.1:1/vhost", "amqps://127.0.0.1", "sqs://eu-west-1?endpoint=http://127.0.0.1:1"} {
		open(t, address)
	}
}

// Other programs may send to the same names.
func TestMessagesThatAreNotAnnouncementsAreIgnored(t *testing.T) {
	ids := newIDs(3)
	got := appendIDs(nil, "hello\n"+encode(ids)+"\n\x00\n"+strings.Repeat("x", maxBody))
	if len(got) != 3 || got[0] != ids[0] || got[2] != ids[2] {
		t.Errorf("read %v, want %v", got, ids)
	}
	if got := appendIDs(nil, strings.Repeat(ids[0].String()+"\n", 1_000_000)); len(got) > maxBody/30 {
		t.Errorf("read %d ids of one message", len(got))
	}
	if name := laneName("my queue.a/http:x", "."); name != "my-queue-a.http-x" {
		t.Errorf("the name of a lane is %s", name)
	}
}

// What nobody receives does not pile up, and clusters with other prefixes do not hear of it.
func TestAStreamIsBoundedAndOfOneCluster(t *testing.T) {
	server := servertest.NATS(t)
	ours, theirs := open(t, "nats://"+server.Addr), open(t, "nats://"+server.Addr+"?prefix=other")
	r := &receiver{got: map[belfry.ID]int{}}
	ids, foreign := newIDs(2), newIDs(2)
	call, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	await(t, "both announce", func() bool {
		return ours.Announce(call, lane, inGroups(ids)) == nil && theirs.Announce(call, lane, inGroups(foreign)) == nil
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go r.listen(ctx, ours, 10)
	await(t, "the announcements arrive", func() bool { return r.has(ids) })
	if r.has(foreign[:1]) {
		t.Error("announcements of another cluster arrive")
	}
	js := ours.(*natsQueue).js
	stream, err := js.Stream(t.Context(), "belfry")
	if err == nil {
		_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "made", Subjects: []string{"made.ready.>"}, Description: "by an operator"})
	}
	if err != nil {
		t.Fatal(err)
	}
	made := open(t, "nats://"+server.Addr+"?prefix=made")
	await(t, "a stream that was there is used", func() bool { return made.Announce(call, lane, inGroups(ids)) == nil })
	await(t, "the stream of an operator has the announcement, and is as it was", func() bool { // It is stored after the server has answered.
		found, err := js.Stream(t.Context(), "made")
		return err == nil && found.CachedInfo().State.Msgs > 0 && found.CachedInfo().Config.Description == "by an operator"
	})
	if c := stream.CachedInfo().Config; c.MaxAge != time.Minute || c.MaxMsgsPerSubject != maxKept {
		t.Errorf("the stream keeps announcements for %v, %d at most", c.MaxAge, c.MaxMsgsPerSubject)
	}
}
