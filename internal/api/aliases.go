package api

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// spell renames the members that are known under another spelling: a name in
// camelCase is the one with underscores. What is given in both is a fault that
// names both.
func (o *object) spell() {
	for i := range o.members {
		m := &o.members[i]
		name, ok := snake(m.name)
		if !ok || !slices.Contains(o.known, name) {
			continue
		}
		if other := o.find(name); other >= 0 {
			o.twice(*m, o.members[other])
		}
		m.name = name
	}
}

// twice tells of two members that mean the same.
func (o *object) twice(one, other member) {
	o.fault(clip(one.written), "means the same as %s, which is there too; give one of them", other.written)
}

// snake writes a name in camelCase with underscores. It is not ok for any other.
func snake(name string) (string, bool) {
	const most = 64
	first := strings.IndexFunc(name, func(r rune) bool { return r >= 'A' && r <= 'Z' })
	if first < 1 || len(name) > most {
		return "", false
	}
	out := make([]byte, 0, len(name)+4)
	for i := range len(name) {
		c := name[i]
		if c >= 'A' && c <= 'Z' {
			out = append(out, '_', c-'A'+'a')
		} else {
			out = append(out, c)
		}
	}
	return string(out), true
}

// policyField is a retry policy as an object of its own.
const policyField = "retry_policy"

// policyNames are the members of a retry policy, and what a job calls them.
var policyNames = map[string]string{
	"max_retries":    "max_retries",
	"backoff_ms":     "retry_base_seconds",
	"max_backoff_ms": "retry_cap_seconds",
	"jitter":         "retry_jitter",
	"delays_ms":      "retry_delays",
	"backoff":        "retry_backoff",
	"strategy":       "retry_backoff",
}

// The last of them is another name of the one before it.
var policyFields = []string{"max_retries", "backoff_ms", "max_backoff_ms", "jitter", "delays_ms", "backoff", "strategy"}

// unfold replaces a retry policy by the members of the job that it stands for.
func (o *object) unfold() {
	at := o.find(policyField)
	if at < 0 {
		return
	}
	policy := o.members[at]
	o.members = slices.Delete(o.members, at, at+1)
	switch {
	case string(policy.value) == "null":
		for _, name := range policyFields[:len(policyFields)-1] {
			o.put(member{name: policyNames[name], written: policy.written, value: policy.value})
		}
		return
	case policy.value[0] != '{':
		o.fault(policy.written, "must be an object, not %s", kindOf(policy.value))
		return
	}
	inner := &object{known: policyFields, within: policy.written + "."}
	if !inner.split(policy.value) {
		o.fault(policy.written, "has more than %d members", maxMembers)
		return
	}
	inner.spell()
	for _, m := range inner.members {
		name, known := policyNames[m.name]
		if !known {
			continue // finish tells of it
		}
		switch m.name {
		case "backoff_ms", "max_backoff_ms":
			m.value = inner.seconds(m)
		case "delays_ms":
			m.value = inner.secondsEach(m)
		}
		m.name = name
		o.put(m)
	}
	o.faults = append(o.faults, inner.finish()...)
}

// put adds a member that must not be there yet.
func (o *object) put(m member) {
	if at := o.find(m.name); at >= 0 {
		o.twice(m, o.members[at])
		return
	}
	o.members = append(o.members, m)
}

// seconds turns milliseconds into the text of seconds.
func (o *object) seconds(m member) []byte {
	ms, err := strconv.ParseFloat(string(m.value), 64)
	switch {
	case err == nil && kindOf(m.value) == "a number":
		return strconv.AppendFloat(nil, ms/1000, 'g', -1, 64)
	case string(m.value) == "null":
	case kindOf(m.value) == "a number":
		o.fault(m.written, "must be a number of a sensible size, not %.40s", m.value)
	default:
		o.fault(m.written, "must be a number, not %s", kindOf(m.value))
	}
	return []byte("null")
}

// secondsEach turns an array of milliseconds into the text of an array of seconds.
func (o *object) secondsEach(m member) []byte {
	if string(m.value) == "null" {
		return m.value
	}
	if m.value[0] != '[' {
		o.fault(m.written, "must be an array of numbers, not %s", kindOf(m.value))
		return []byte("null")
	}
	before := len(o.faults)
	out := []byte{'['}
	for i, element := range elements(m.value) {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, o.seconds(member{written: fmt.Sprintf("%s[%d]", m.written, i), value: element})...)
	}
	if len(o.faults) > before {
		return []byte("null")
	}
	return append(out, ']')
}
