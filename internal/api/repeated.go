package api

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/belfry-sh/belfry"
)

// repeated names the members that an object, at any depth, has twice: whoever
// reads them might see the one that was not checked. The text must be JSON.
func repeated(text []byte) []belfry.FieldError {
	var faults []belfry.FieldError
	w := walk{levels: make([]level, 0, 8), names: make([][]byte, 0, 32)}
	for i := 0; i < len(text) && len(faults) < maxFaults; i++ {
		switch text[i] {
		case '{', '[':
			w.levels = append(w.levels, level{object: text[i] == '{', first: len(w.names)})
		case '}', ']':
			top := w.levels[len(w.levels)-1]
			w.names = w.names[:top.first]
			w.levels = w.levels[:len(w.levels)-1]
		case ',':
			top := &w.levels[len(w.levels)-1]
			top.inside = false
			top.index++
		case '"':
			end := closingQuote(text, i)
			if w.awaitsName() && w.enter(text[i:end+1]) {
				faults = append(faults, belfry.FieldError{Field: w.path(), Message: "is there twice"})
			}
			i = end
		}
	}
	return faults
}

// walk is a place in a JSON value: the objects and arrays around it, and the names
// that those objects had so far.
type walk struct {
	levels []level
	names  [][]byte // without their quotes and escapes
}

type level struct {
	object bool // or else an array
	inside bool // the current member's name is known
	index  int  // of the current element
	first  int  // of its names
	many   map[string]bool
}

// fewNames is how many names are looked through one by one.
const fewNames = 16

// awaitsName tells whether a string at this place is a member's name.
func (w *walk) awaitsName() bool {
	return len(w.levels) > 0 && w.levels[len(w.levels)-1].object && !w.levels[len(w.levels)-1].inside
}

// enter goes to the member of a name, which is still in quotes, and tells whether
// the object had it already.
func (w *walk) enter(quoted []byte) (had bool) {
	top := &w.levels[len(w.levels)-1]
	name := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		name = []byte(unquote(quoted))
	}
	before := w.names[top.first:]
	if len(before) < fewNames {
		for _, n := range before {
			had = had || bytes.Equal(n, name)
		}
	} else {
		had = top.hadMany(before, name)
	}
	w.names = append(w.names, name)
	top.inside = true
	return had
}

// hadMany tells whether an object of many names had one already, and notes it.
func (l *level) hadMany(before [][]byte, name []byte) bool {
	if l.many == nil {
		l.many = make(map[string]bool)
		for _, n := range before {
			l.many[string(n)] = true
		}
	}
	had := l.many[string(name)]
	l.many[string(name)] = true
	return had
}

func (w *walk) path() string {
	var b strings.Builder
	for i, l := range w.levels {
		if !l.object {
			fmt.Fprintf(&b, "[%d]", l.index)
			continue
		}
		if i > 0 {
			b.WriteByte('.')
		}
		last := len(w.names)
		if i+1 < len(w.levels) {
			last = w.levels[i+1].first
		}
		b.WriteString(clip(string(w.names[last-1])))
	}
	return b.String()
}
