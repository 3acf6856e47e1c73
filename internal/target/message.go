package target

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
)

const maxMessageHeader = 1024 // bytes of a value

// ParseMessage reads and validates the payload of a job of type message. It returns all
// errors at once. Whether there is such a connection, the server knows. Messages never
// repeat a value, since values may be secret.
func ParseMessage(raw json.RawMessage) (p belfry.MessagePayload, errors []belfry.FieldError) {
	errors, syntax := schema.Decode(raw, &p)
	if syntax != nil {
		return p, []belfry.FieldError{{Field: "payload", Message: `must be a JSON object; for example {"connection": "orders", "topic": "invoices", "body": {}}`}}
	}
	var more []belfry.FieldError
	fail := func(field, message string) {
		if message != "" {
			more = append(more, belfry.FieldError{Field: field, Message: message})
		}
	}
	if err := belfry.CheckMessageTemplate(p.Key); err != nil {
		fail("key", err.Error())
	}
	for _, name := range slices.Sorted(maps.Keys(p.Headers)) {
		fail("headers."+schema.Clip(name), checkMessageHeader(name, p.Headers[name]))
	}
	errors = schema.MergeErrors(errors, more)
	for i := range errors {
		errors[i].Field = "payload." + errors[i].Field
	}
	return p, errors
}

// messageHeader is what every broker takes as the name of a header.
var messageHeader = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?$`)

// reservedMessageHeaders begin the names of headers that Belfry or a broker sets.
var reservedMessageHeaders = regexp.MustCompile(`^(?i:idempotency-key$|key$|body$|belfry-|nats-|aws\.|amazon\.)`)

func checkMessageHeader(name, value string) string {
	switch {
	case !messageHeader.MatchString(name):
		return "is not a valid header name: it may have letters, digits and . _ - between them, up to 100"
	case reservedMessageHeaders.MatchString(name):
		return "is set by Belfry or the broker"
	case len(value) > maxMessageHeader:
		return fmt.Sprintf("has %d bytes, the maximum is %d", len(value), maxMessageHeader)
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "contains control characters"
	}
	if err := belfry.CheckMessageTemplate(value); err != nil {
		return err.Error()
	}
	return ""
}
