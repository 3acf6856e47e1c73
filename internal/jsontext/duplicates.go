package jsontext

import (
	"bytes"
	"fmt"
	"strings"
)

// maxDuplicates is how many duplicate names are reported.
const maxDuplicates = 50

// Duplicates returns the paths of names that an object, at any depth, has twice:
// another reader might use the value that was not validated.
func Duplicates(text []byte) []string {
	var paths []string
	w := walk{levels: make([]level, 0, 8), names: make([][]byte, 0, 32)}
	for i := 0; i < len(text) && len(paths) < maxDuplicates; i++ {
		switch text[i] {
		case '{', '[':
			w.levels = append(w.levels, level{object: text[i] == '{', first: len(w.names)})
		case '}', ']':
			top := w.levels[len(w.levels)-1]
			w.names = w.names[:top.first]
			w.levels = w.levels[:len(w.levels)-1]
		case ',':
			top := &w.levels[len(w.levels)-1]
			top.named = false
			top.index++
		case '"':
			end := closingQuote(text, i)
			if w.expectsName() && w.enter(text[i:end+1]) {
				paths = append(paths, w.path())
			}
			i = end
		}
	}
	return paths
}

// walk is a place in a JSON value: the objects and arrays around it, and the names in
// those objects so far.
type walk struct {
	levels []level
	names  [][]byte // unquoted
}

type level struct {
	object bool // otherwise an array
	named  bool // the name of the current member is known
	index  int  // of the current element
	first  int  // index of its first name
	many   map[string]bool
}

// fewNames is up to how many names a linear search is faster than a map.
const fewNames = 16

func (w *walk) expectsName() bool {
	return len(w.levels) > 0 && w.levels[len(w.levels)-1].object && !w.levels[len(w.levels)-1].named
}

// enter moves to the member of a name and reports whether the object had it already.
func (w *walk) enter(quoted []byte) (duplicate bool) {
	top := &w.levels[len(w.levels)-1]
	name := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		name = []byte(Unquote(quoted))
	}
	before := w.names[top.first:]
	if len(before) < fewNames {
		for _, n := range before {
			duplicate = duplicate || bytes.Equal(n, name)
		}
	} else {
		duplicate = top.seen(before, name)
	}
	w.names = append(w.names, name)
	top.named = true
	return duplicate
}

// seen adds a name to the set of an object with many names and reports whether it was
// there.
func (l *level) seen(before [][]byte, name []byte) bool {
	if l.many == nil {
		l.many = make(map[string]bool)
		for _, n := range before {
			l.many[string(n)] = true
		}
	}
	duplicate := l.many[string(name)]
	l.many[string(name)] = true
	return duplicate
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
		b.Write(w.names[last-1][:min(len(w.names[last-1]), 64)])
	}
	return b.String()
}
