package belfry

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Priority says which runs of a queue start first: "high" before "normal" before
// "low", or a digit from 0 to 9, where 9 is first. Waiting runs gain on others over
// time, see plan.Defaults.Ageing.
type Priority string

// The priorities that have a name. They are 9, 5 and 1.
const (
	PriorityHigh   Priority = "high"
	PriorityNormal Priority = "normal"
	PriorityLow    Priority = "low"
)

// The levels of a priority.
const (
	MinPriority    = 0
	NormalPriority = 5
	MaxPriority    = 9
)

var levelNames = map[string]int{"high": 9, "normal": NormalPriority, "low": 1}

// ParsePriority reads a name, in any case, or a digit, into its usual form, or says
// what is wrong in words that fit behind the name of a field.
func ParsePriority(text string) (Priority, error) {
	text = strings.ToLower(strings.TrimSpace(text))
	level, named := levelNames[text]
	if !named {
		n, err := strconv.Atoi(text)
		if err != nil || n < MinPriority || n > MaxPriority || len(text) != 1 {
			return "", fmt.Errorf(`must be "high", "normal" or "low", or a number from 0 to 9, where 9 is first`)
		}
		level = n
	}
	switch level {
	case levelNames["high"]:
		return PriorityHigh, nil
	case NormalPriority:
		return PriorityNormal, nil
	case levelNames["low"]:
		return PriorityLow, nil
	}
	return Priority(strconv.Itoa(level)), nil
}

// Level is the priority as a number from 0 to 9; normal for one that is not known.
func (p Priority) Level() int {
	if level, named := levelNames[string(p)]; named {
		return level
	}
	if len(p) == 1 && p[0] >= '0' && p[0] <= '9' {
		return int(p[0] - '0')
	}
	return NormalPriority
}

// EnumValues lists the named priorities.
func (Priority) EnumValues() []EnumValue {
	return []EnumValue{{"high", "first; the same as 9"}, {"normal", "the same as 5"}, {"low", "the same as 1"}}
}

// UnmarshalJSON reads a name or a number.
func (p *Priority) UnmarshalJSON(text []byte) error {
	name := string(text)
	if len(text) > 0 && text[0] == '"' {
		if err := json.Unmarshal(text, &name); err != nil {
			return err
		}
	}
	if name == "null" || name == "" {
		*p = ""
		return nil
	}
	parsed, err := ParsePriority(name)
	if err != nil {
		return err
	}
	*p = parsed
	return nil
}
