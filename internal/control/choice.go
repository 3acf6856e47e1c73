package control

import (
	"fmt"
	"strings"

	"github.com/belfry-sh/belfry"
)

// choose brings a value that people write in any case of letters into one of the
// forms that there are, or faults the field.
func choose[T ~string](e *examination, field string, value T, there []T) T {
	plain := T(strings.ToLower(strings.TrimSpace(string(value))))
	for _, one := range there {
		if one == plain {
			return plain
		}
	}
	e.fault(field, "%s", choices(string(value), there))
	return plain
}

// choices says what there is instead of what somebody wrote, and what they may have
// meant.
func choices[T ~string](written string, there []T) string {
	names := make([]string, len(there))
	quoted := make([]string, len(there))
	for i, one := range there {
		names[i], quoted[i] = string(one), fmt.Sprintf("%q", string(one))
	}
	message := "must be " + strings.Join(quoted[:len(quoted)-1], ", ") + " or " + quoted[len(quoted)-1]
	if near := schema.Nearest(written, names); near != "" && strings.TrimSpace(written) != "" {
		message += fmt.Sprintf("; did you mean %q?", near)
	}
	return message
}
