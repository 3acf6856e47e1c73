package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/belfry-sh/belfry"
)

// maxMembers is how many members a request's body may have.
const maxMembers = 200

// object is the JSON object of a request's body while its members are taken out
// of it. Null, and an empty string, count as left out.
type object struct {
	names  []string // as given
	values map[string]json.RawMessage
	taken  []string          // the names that somebody asked for
	hints  map[string]string // what to say of names that nobody asks for
	faults []belfry.Fault
}

// readObject reads one JSON object. What makes no sense as JSON is an error; a
// member that is there twice is a fault.
func readObject(body []byte) (*object, error) {
	if err := checkJSON(body); err != nil {
		return nil, err
	}
	o := &object{values: make(map[string]json.RawMessage)}
	if body = bytes.TrimSpace(body); body[0] != '{' {
		return nil, refuse("the body must be a JSON object, not %s", kindOf(body))
	}
	members := json.NewDecoder(bytes.NewReader(body))
	members.Token()
	for members.More() {
		token, err := members.Token()
		name, _ := token.(string)
		var value json.RawMessage
		if err == nil {
			err = members.Decode(&value)
		}
		if err != nil {
			return nil, refuse("the body is not JSON that can be read")
		}
		if _, had := o.values[name]; !had {
			o.names = append(o.names, name)
		}
		o.values[name] = value
		if len(o.names) > maxMembers {
			return nil, refuse("the body has more than %d members", maxMembers)
		}
	}
	o.faults = repeated(body)
	return o, nil
}

func (o *object) fault(field, format string, args ...any) {
	o.faults = append(o.faults, belfry.Fault{Field: field, Message: fmt.Sprintf(format, args...)})
}

// take gives a member that is there.
func (o *object) take(name string) (value json.RawMessage, ok bool) {
	o.taken = append(o.taken, name)
	value, ok = o.values[name]
	if ok && (string(value) == "null" || string(value) == `""`) {
		return nil, false
	}
	return value, ok
}

// text takes a string; what is not there leaves the target as it is.
func (o *object) text(name string, target *string) {
	value, ok := o.take(name)
	if ok && json.Unmarshal(value, target) != nil {
		o.fault(name, "must be a string, not %s", kindOf(value))
	}
}

// whole takes a number without a fraction.
func (o *object) whole(name string, target *int) {
	value, ok := o.take(name)
	if !ok {
		return
	}
	n, err := strconv.Atoi(string(value))
	switch {
	case err == nil:
		*target = n
	case kindOf(value) != "a number":
		o.fault(name, "must be a whole number, not %s", kindOf(value))
	default:
		o.fault(name, "must be a whole number of a sensible size, not %.40s", value)
	}
}

// number takes any number.
func (o *object) number(name string, target *float64) {
	value, ok := o.take(name)
	if !ok {
		return
	}
	switch err := json.Unmarshal(value, target); {
	case err == nil:
	case kindOf(value) != "a number":
		o.fault(name, "must be a number, not %s", kindOf(value))
	default:
		o.fault(name, "must be a number of a sensible size, not %.40s", value)
	}
}

// finish names the members that nobody took, and gives all faults.
func (o *object) finish() []belfry.Fault {
	for _, name := range o.names {
		if len(o.faults) >= maxFaults {
			break
		}
		if slices.Contains(o.taken, name) {
			continue
		}
		if hint := o.hints[name]; hint != "" {
			o.fault(name, "%s", hint)
		} else if near := nearest(name, o.taken); near != "" {
			o.fault(clip(name), "is not known; did you mean %q?", near)
		} else {
			o.fault(clip(name), "is not known; known are %s", strings.Join(o.taken, ", "))
		}
	}
	return o.faults
}

// kindOf says what a JSON value is.
func kindOf(value []byte) string {
	switch value[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a truth value"
	case 'n':
		return "null"
	}
	return "a number"
}
