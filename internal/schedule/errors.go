package schedule

import (
	"fmt"
	"strings"
)

// Error says why a schedule or its time zone is refused.
type Error struct {
	Field   string // what is at fault: "schedule" or "timezone"
	Column  int    // where in the field, counted from 1; 0 means all of it
	Message string // what is wrong
	Example string // a correct value of the field
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Field)
	if e.Column > 0 {
		fmt.Fprintf(&b, ", column %d", e.Column)
	}
	b.WriteString(": ")
	b.WriteString(e.Message)
	if e.Example != "" {
		fmt.Fprintf(&b, "; for example %q", e.Example)
	}
	return b.String()
}

const (
	cronExample    = "30 9 * * MON-FRI"
	instantExample = "2026-03-01T09:00:00Z"
	zoneExample    = "Europe/Paris"

	intervalExample = "R5/2026-03-01T09:00:00Z/PT15M"
)

// refuse returns an Error about the schedule as a whole.
func refuse(format string, args ...any) error {
	return &Error{Field: "schedule", Message: fmt.Sprintf(format, args...), Example: cronExample}
}

// refuseInterval returns an Error about an interval as a whole.
func refuseInterval(format string, args ...any) error {
	return &Error{Field: "schedule", Message: fmt.Sprintf(format, args...), Example: intervalExample}
}

// refuseZone returns an Error about the time zone.
func refuseZone(example, format string, args ...any) error {
	return &Error{Field: "timezone", Message: fmt.Sprintf(format, args...), Example: example}
}

// clip shortens text that a message repeats.
func clip(s string) string {
	const most = 24
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
