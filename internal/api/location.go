package api

import (
	"encoding/json"
	"fmt"
	"strings"
)

// location is a place in a JSON value: the objects and arrays around it.
type location []level

type level struct {
	object  bool            // or else an array
	members map[string]bool // of an object, so far
	name    string          // of the current member
	inside  bool            // the current member's name is known
	index   int             // of the current element
}

// awaitsName tells whether a string at this place is a member's name.
func (l location) awaitsName() bool {
	return len(l) > 0 && l[len(l)-1].object && !l[len(l)-1].inside
}

// enter goes to the member of a name, which is still in quotes, and tells whether
// the object had it already.
func (l location) enter(quoted []byte) bool {
	name := string(quoted[1 : len(quoted)-1])
	if strings.Contains(name, `\`) {
		json.Unmarshal(quoted, &name) // It was checked before.
	}
	top := &l[len(l)-1]
	if top.members == nil {
		top.members = make(map[string]bool)
	}
	had := top.members[name]
	top.members[name] = true
	top.name, top.inside = name, true
	return had
}

// next goes on behind a comma.
func (l location) next() {
	top := &l[len(l)-1]
	top.inside = false
	top.index++
}

func (l location) String() string {
	var b strings.Builder
	for i, level := range l {
		switch {
		case !level.object:
			fmt.Fprintf(&b, "[%d]", level.index)
		case i == 0:
			b.WriteString(clip(level.name))
		default:
			b.WriteString("." + clip(level.name))
		}
	}
	return b.String()
}
