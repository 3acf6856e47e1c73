package api

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/belfry-sh/belfry"
)

// takeRetries takes what becomes of failed attempts. A list of delays is the way to
// wait for as long as no other is asked for, and says how many retries there are if
// nothing else does.
func takeRetries(o *object, s *belfry.Spec) {
	o.whole("max_retries", &s.MaxRetries, usual.MaxRetries)
	o.text("retry_on", (*string)(&s.RetryOn), string(usual.RetryOn))
	o.text("retry_backoff", (*string)(&s.RetryBackoff), string(usual.RetryBackoff))
	o.number("retry_base_seconds", &s.RetryBaseSeconds, usual.RetryBaseSeconds)
	o.number("retry_cap_seconds", &s.RetryCapSeconds, usual.RetryCapSeconds)
	if o.find("retry_base_seconds") >= 0 && o.find("retry_cap_seconds") < 0 {
		s.RetryCapSeconds = max(s.RetryCapSeconds, s.RetryBaseSeconds) // Nobody asked for less.
	}
	o.number("retry_jitter", &s.RetryJitter, usual.RetryJitter)

	backoff, delays := o.has("retry_backoff"), o.has("retry_delays")
	o.delays("retry_delays", &s.RetryDelays)
	switch listed := len(s.RetryDelays.Seconds()); {
	case delays && listed > 0:
		if !backoff {
			s.RetryBackoff = belfry.BackoffList
		}
		if !o.has("max_retries") {
			s.MaxRetries = listed
		}
	case backoff && o.find("retry_delays") < 0 && !strings.EqualFold(string(s.RetryBackoff), string(belfry.BackoffList)):
		s.RetryDelays = "" // Another way to wait takes the place of the list.
	case !backoff && listed == 0 && s.RetryBackoff == belfry.BackoffList:
		s.RetryBackoff = usual.RetryBackoff // What it listed is gone.
	}
}

// has tells whether a member has a value.
func (o *object) has(name string) bool {
	i := o.find(name)
	return i >= 0 && string(o.members[i].value) != "null" && string(o.members[i].value) != `""`
}

// delays takes an array of seconds.
func (o *object) delays(name string, target *belfry.Delays) {
	m, is := o.take(name)
	if is == nothing {
		return
	}
	if *target = ""; is == noValue {
		return
	}
	if m.value[0] != '[' {
		o.fault(m.written, "must be an array of seconds, as in [5, 30, 120], not %s", kindOf(m.value))
		return
	}
	var seconds []float64
	for i, element := range elements(m.value) {
		n, err := strconv.ParseFloat(string(element), 64)
		if err != nil || kindOf(element) != "a number" {
			o.fault(fmt.Sprintf("%s[%d]", m.written, i), "must be a number of seconds, not %.40s", element)
			return
		}
		seconds = append(seconds, n)
	}
	list, err := belfry.NewDelays(seconds)
	if err != nil {
		o.fault(m.written, "%s", err)
		return
	}
	*target = list
}

// priority takes a name or a number. Which there are is for others to check.
func (o *object) priority(name string, target *belfry.Priority) {
	m, is := o.take(name)
	switch {
	case is == nothing:
	case is == noValue:
		*target = usual.Priority
	case m.value[0] == '"':
		*target = belfry.Priority(unquote(m.value))
	case kindOf(m.value) == "a number":
		*target = belfry.Priority(m.value)
	default:
		o.fault(m.written, `must be "high", "normal" or "low", or a number from 0 to 9, not %s`, kindOf(m.value))
	}
}
