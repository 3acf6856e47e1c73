package target

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
)

const (
	maxHeaderName    = 100  // characters
	maxMessageHeader = 1024 // bytes of a value
)

// ParseMessage reads and validates the payload of a job of type message. It returns all
// errors at once. Whether there is such a connection, the server knows. Messages never
// repeat a value, since values may be secret.
func ParseMessage(raw json.RawMessage) (p belfry.MessagePayload, errors []belfry.FieldError) {
	errors, syntax := schema.Decode(raw, &p)
	if syntax != nil {
		return p, []belfry.FieldError{{Field: "payload", Message: `must be a JSON object; for example {"connection": "orders", "topic": "invoices", "body": {}}`}}
	}
	var more fieldErrors
	if err := belfry.CheckMessageTemplate(p.Key); err != nil {
		more.add("key", err.Error())
	}
	for _, name := range slices.Sorted(maps.Keys(p.Headers)) {
		more.add("headers."+schema.Clip(name), checkMessageHeader(name, p.Headers[name]))
	}
	return p, more.inPayload(errors)
}

// letters and what else a name that every broker takes may have.
const (
	letters   = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	NameChars = letters + "._-"
)

// reservedMessageHeaders are set by Belfry or a broker: names, and beginnings of names.
var reservedMessageHeaders = []string{"idempotency-key", "key", "body", "belfry-*", "nats-*", "aws.*", "amazon.*"}

func checkMessageHeader(name, value string) string {
	lower := strings.ToLower(name)
	reserved := func(own string) bool {
		start, any := strings.CutSuffix(own, "*")
		return lower == own || any && strings.HasPrefix(lower, start)
	}
	switch {
	case name == "" || len(name) > maxHeaderName || strings.Trim(name, NameChars) != "" || strings.Trim(name, "._-") != name:
		return fmt.Sprintf("is not a valid header name: it has up to %d letters and digits, with . _ and - between them", maxHeaderName)
	case slices.ContainsFunc(reservedMessageHeaders, reserved):
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
