package api

import (
	"bytes"
	"encoding"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
)

// maxMembers is how many members an object that is asked for may have.
const maxMembers = 200

// object is a JSON object of a request while its members are taken out of it.
// Null, and an empty string, stand for the default.
type object struct {
	members []member
	within  string            // the path of the object and a dot, if it is inside another
	known   []string          // the names that members may have
	ignored []string          // those that they may have too, without any effect
	hints   map[string]string // what to say of others
	faults  []belfry.FieldError

	asked *[]string // notes the names that were asked for, if it is set
}

type member struct {
	name    string // as it is known
	written string // as it was given, with its path
	value   []byte
}

// readObject reads one JSON object whose members have known names, in either
// spelling. What makes no sense as JSON is a flaw; a member that is not known or
// there twice is a fault.
func readObject(text []byte, known []string) (*object, *flaw) {
	if f := checkJSON(text); f != nil {
		return nil, f
	}
	if text = bytes.TrimSpace(text); text[0] != '{' {
		return nil, flawed("must be a JSON object, not %s", kindOf(text))
	}
	o := &object{known: known}
	if !o.split(text) {
		return nil, flawed("has more than %d members", maxMembers)
	}
	o.faults = repeated(text)
	o.spell()
	return o, nil
}

// split lists the members of an object that is valid JSON. Of a member that is
// there twice, the last one counts.
func (o *object) split(text []byte) bool {
	o.members = make([]member, 0, 12)
	for i := skipBlanks(text, 1, ','); text[i] != '}'; {
		end := closingQuote(text, i) + 1
		m := o.named(text[i:end])
		start := skipBlanks(text, end, ':')
		i = valueEnd(text, start)
		m.value = text[start:i]
		if at := o.find(m.name); at >= 0 {
			o.members[at] = m
		} else if len(o.members) == maxMembers {
			return false
		} else {
			o.members = append(o.members, m)
		}
		i = skipBlanks(text, i, ',')
	}
	return true
}

// named is the member of a name that is in quotes.
func (o *object) named(quoted []byte) member {
	for _, known := range o.known { // A name that is known needs no memory of its own.
		if o.within == "" && string(quoted[1:len(quoted)-1]) == known {
			return member{name: known, written: known}
		}
	}
	name := unquote(quoted)
	return member{name: name, written: o.within + name}
}

// find gives the index of a member, or -1.
func (o *object) find(name string) int {
	for i := range o.members {
		if o.members[i].name == name {
			return i
		}
	}
	return -1
}

func (o *object) fault(field, format string, args ...any) {
	if len(o.faults) < maxFaults {
		o.faults = append(o.faults, belfry.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
}

// given is how much of a member there is.
type given int

const (
	nothing given = iota
	noValue       // null or an empty string
	aValue
)

// take gives a member.
func (o *object) take(name string) (member, given) {
	if o.asked != nil {
		*o.asked = append(*o.asked, name)
	}
	i := o.find(name)
	if i < 0 {
		return member{}, nothing
	}
	m := o.members[i]
	if string(m.value) == "null" || string(m.value) == `""` {
		return m, noValue
	}
	return m, aValue
}

// text takes a string; what is not there leaves the target as it is.
func (o *object) text(name string, target *string, usual string) {
	switch m, is := o.take(name); {
	case is == nothing:
	case is == noValue:
		*target = usual
	case m.value[0] != '"':
		o.fault(m.written, "must be a string, not %s", kindOf(m.value))
	default:
		*target = unquote(m.value)
	}
}

// whole takes a number without a fraction.
func (o *object) whole(name string, target *int, usual int) {
	m, is := o.take(name)
	if is == nothing {
		return
	}
	if is == noValue {
		*target = usual
		return
	}
	n, err := strconv.Atoi(string(m.value))
	switch {
	case err == nil:
		*target = n
	case kindOf(m.value) != "a number":
		o.fault(m.written, "must be a whole number, not %s", kindOf(m.value))
	default:
		o.fault(m.written, "must be a whole number of a sensible size, not %.40s", m.value)
	}
}

// number takes any number.
func (o *object) number(name string, target *float64, usual float64) {
	m, is := o.take(name)
	if is == nothing {
		return
	}
	if is == noValue {
		*target = usual
		return
	}
	if kindOf(m.value) != "a number" {
		o.fault(m.written, "must be a number, not %s", kindOf(m.value))
		return
	}
	n, err := strconv.ParseFloat(string(m.value), 64)
	if err != nil {
		o.fault(m.written, "must be a number of a sensible size, not %.40s", m.value)
		return
	}
	*target = n
}

// The years that an instant may lie in.
const (
	firstYear = 1970
	lastYear  = 2499
)

// instant takes a point in time, in the form of RFC 3339 with an offset. Null is
// none.
func (o *object) instant(name string, target *time.Time) {
	m, is := o.take(name)
	if is == nothing {
		return
	}
	if *target = (time.Time{}); is == noValue {
		return
	}
	if m.value[0] != '"' {
		o.fault(m.written, "must be a string, not %s", kindOf(m.value))
	} else if at, problem := parseInstant(unquote(m.value)); problem != "" {
		o.fault(m.written, "%s", problem)
	} else {
		*target = at
	}
}

// truth takes true or false.
func (o *object) truth(name string, target *bool) {
	m, is := o.take(name)
	if is == nothing {
		return
	}
	*target = string(m.value) == "true"
	if is == aValue && kindOf(m.value) != "a truth value" {
		o.fault(m.written, "must be true or false, not %s", kindOf(m.value))
	}
}

// texts takes an array of strings.
func (o *object) texts(name string, target *[]string) {
	m, is := o.take(name)
	if is == nothing {
		return
	}
	if *target = nil; is == noValue {
		return
	}
	if m.value[0] != '[' {
		o.fault(m.written, "must be an array of strings, not %s", kindOf(m.value))
		return
	}
	for i, element := range elements(m.value) {
		if element[0] != '"' {
			o.fault(fmt.Sprintf("%s[%d]", m.written, i), "must be a string, not %s", kindOf(element))
			continue
		}
		*target = append(*target, unquote(element))
	}
}

// needed takes a string that must be there, of a type that reads its own text form.
func (o *object) needed(name string, target encoding.TextUnmarshaler, what string) {
	switch m, is := o.take(name); {
	case is != aValue:
		o.fault(o.within+name, "is missing; it must be %s", what)
	case m.value[0] != '"':
		o.fault(m.written, "must be %s, not %s", what, kindOf(m.value))
	case target.UnmarshalText([]byte(unquote(m.value))) != nil:
		o.fault(m.written, "must be %s", what)
	}
}

// finish names the members that are not known, and gives all faults.
func (o *object) finish() []belfry.FieldError {
	for _, m := range o.members {
		if slices.Contains(o.known, m.name) || slices.Contains(o.ignored, m.name) {
			continue
		}
		written := clip(m.written)
		if hint := o.hints[m.name]; hint != "" {
			o.fault(written, "%s", hint)
		} else if near := schema.Nearest(m.name, o.known); near != "" {
			o.fault(written, "is not known; did you mean %q?", near)
		} else if len(o.known) == 0 {
			o.fault(written, "is not known; there are no members here: leave it out")
		} else {
			o.fault(written, "is not known; known are %s", strings.Join(o.known, ", "))
		}
	}
	return o.faults
}
