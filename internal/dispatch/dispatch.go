// Package dispatch tells workers of ready runs over a message broker, so that they need not
// ask the database for work.
//
// An announcement is a hint: the id of a run that was ready. A worker claims the run in the
// database before it runs it, so that an announcement that is lost, doubled, late or reordered
// changes nothing. An Announcer, on the node that owns a shard, announces runs that stay ready
// again. A Source, on a node that works, also asks the database once a second, and as often as
// without a broker while none brings work.
package dispatch

import (
	"context"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/broker"
	"github.com/belfry-sh/belfry/internal/schema"
)

// Queue carries announcements of ready runs from schedulers to workers. Its methods may be
// called concurrently.
type Queue interface {
	// Announce sends ids of ready runs of a lane, until the deadline that ctx has. A group is
	// a message, which reaches one worker, if any.
	Announce(ctx context.Context, lane string, groups [][]belfry.ID) error

	// Receive waits for announcements of a lane and returns some, about max at most. An error
	// is the broker's, or that of ctx.
	Receive(ctx context.Context, lane string, max int) ([]belfry.ID, error)

	Close()
}

// maxAge is for how many seconds a broker keeps announcements that nobody receives, and
// maxKept how many of a lane, where it can be limited.
const (
	maxAge  = 60
	maxKept = 100_000
)

// A worker that has few slots gets few runs at once, so that others get the rest: a group is
// no larger than this part of the slots of the smallest worker, and maxGroup at most.
const (
	slotsPerRun = 4
	maxGroup    = 8
)

// messages is how many to ask for if there are so many slots.
func messages(slots int) int { return max(slots/slotsPerRun, 1) }

// encode is the body of a message: ids, one per line.
func encode(runs []belfry.ID) string {
	lines := make([]string, len(runs))
	for i, id := range runs {
		lines[i] = id.String()
	}
	return strings.Join(lines, "\n")
}

// maxBody is the length of a body that is read; no message of a Queue is longer.
const maxBody = 4 << 10

// appendIDs adds the ids of a body. What is no id is left out.
func appendIDs(runs []belfry.ID, body string) []belfry.ID {
	for line := range strings.Lines(body[:min(len(body), maxBody)]) {
		if id, err := belfry.ParseID(strings.TrimSuffix(line, "\n")); err == nil {
			runs = append(runs, id)
		}
	}
	return runs
}

// orNil is the error of a Receive: none if there are runs, since the next one will fail too.
func orNil(runs []belfry.ID, err error) error {
	if len(runs) > 0 {
		return nil
	}
	return err
}

// laneName is a lane in the words that all brokers allow: letters, digits, hyphens and the
// separator.
func laneName(lane, separator string) string {
	return strings.ReplaceAll(notInNames.ReplaceAllString(lane, "-"), "/", separator)
}

var notInNames = regexp.MustCompile("[^a-zA-Z0-9/-]")

// options is what an address may say behind the question mark, beside the fields of a
// connection.
type options struct {
	Prefix string `json:"prefix" maxlen:"40" pattern:"^[a-z0-9-]+$" patterndoc:"have small letters, digits and hyphens" implicit:"belfry" example:"belfry" doc:"With what names of streams, topics and queues begin."`
}

// kinds are the brokers that carry announcements.
var kinds = map[string]func(c broker.Connection, prefix string) (Queue, error){
	"nats": openNATS, "kafka": openKafka, "amqp": openAMQP, "amqps": openAMQP, "sqs": openSQS,
}

// Open makes the queue of an address: that of a broker, with the fields of a connection as
// options, such as nats://host:4222?username=belfry&password_file=/run/secrets/nats. It does not
// wait for the broker, which may be there later.
func Open(address string) (Queue, error) {
	invalid := func(errors ...belfry.FieldError) error {
		return &belfry.Error{Code: belfry.Invalid, Message: "the address of the broker is not valid", Fields: errors}
	}
	base, text, _ := strings.Cut(address, "?")
	query, err := url.ParseQuery(text)
	if err != nil {
		return nil, invalid(belfry.FieldError{Field: "url", Message: "has options that cannot be read"})
	}
	scheme, _, _ := strings.Cut(base, "://")
	open := kinds[scheme]
	if open == nil {
		return nil, invalid(belfry.FieldError{Field: "url", Message: "must be database, or begin with nats://, kafka://, amqp://, amqps:// or sqs://"})
	}
	if strings.Contains(base, "@") { // also in what looks like a path
		return nil, invalid(belfry.FieldError{Field: "url", Message: "must not contain a user name or password; use the options username, and password_file or password_env"})
	}
	// These two are part of the URL of a connection.
	rest := url.Values{}
	for _, name := range []string{"version", "endpoint"} {
		if query.Has(name) {
			rest[name] = query[name]
			query.Del(name)
		}
	}
	if len(rest) > 0 {
		base += "?" + rest.Encode()
	}
	query.Set("url", base)
	var c broker.Connection
	var o options
	errors := schema.DecodeQuery(query, &c, &o)
	c, more := broker.New(c)
	if errors = schema.MergeErrors(errors, more); len(errors) > 0 {
		return nil, invalid(slices.Clip(errors)...)
	}
	return open(c, o.Prefix)
}
