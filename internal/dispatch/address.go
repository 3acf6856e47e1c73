package dispatch

import (
	"net/url"
	"slices"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/broker"
	"github.com/belfry-sh/belfry/internal/schema"
)

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
