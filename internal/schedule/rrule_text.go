package schedule

import (
	"slices"
	"strings"
)

// calendarProperties are the properties that a calendar rule may have. They may
// follow each other after a blank, when a line break cannot be typed.
var calendarProperties = []string{"DTSTART", "RRULE", "RDATE", "EXDATE", "EXRULE"}

// calendarLine is a property as it is written, without the breaks of a folded
// line.
type calendarLine struct {
	text string
	from []int // where each character stands in the whole text
}

// at returns an Error about the character i of a line.
func (l *calendarLine) at(i int, format string, args ...any) error {
	pos := 0
	if len(l.from) > 0 {
		pos = l.from[min(i, len(l.from)-1)] + max(0, i-len(l.from)+1)
	}
	return at(pos, calendarExample, format, args...)
}

// add appends a part of the text that begins at pos.
func (l *calendarLine) add(part string, pos int) {
	l.text += part
	for i := range len(part) {
		l.from = append(l.from, pos+i)
	}
}

// propertyName returns the letters at the beginning of a text and the character after
// them, or 0. The name is in upper case.
func propertyName(text string) (name string, end byte) {
	n := 0
	for n < len(text) && (text[n] == '-' || 'A' <= text[n]&^0x20 && text[n]&^0x20 <= 'Z') {
		n++
	}
	if n == len(text) {
		return strings.ToUpper(text), 0
	}
	return strings.ToUpper(text[:n]), text[n]
}

// isRule says whether a line is a recurrence rule, with or without its name.
func (l *calendarLine) isRule() bool {
	name, end := propertyName(l.text)
	return end == '=' || name == "RRULE"
}

// calendarLines takes a text apart into properties. They stand on lines of their
// own or have blanks between them. A line that begins with a blank continues the
// one before; blanks after a mark such as ";" are dropped.
func calendarLines(text string) ([]*calendarLine, error) {
	var lines []*calendarLine
	blanks := "" // before the word
	for pos := 0; pos < len(text); {
		word := text[pos:]
		if n := strings.IndexAny(word, " \t\r\n"); n >= 0 {
			word = word[:n]
		}
		if word == "" {
			blanks += text[pos : pos+1]
			pos++
			continue
		}
		if i := strings.IndexFunc(word, func(r rune) bool { return r <= ' ' || r > '~' }); i >= 0 {
			return nil, at(pos+i, calendarExample, "unexpected character %q", []rune(word[i:])[0])
		}
		begins := true
		if len(lines) > 0 {
			var err error
			if begins, err = beginsLine(lines[len(lines)-1], blanks, word, pos); err != nil {
				return nil, err
			}
		}
		if begins {
			lines = append(lines, &calendarLine{})
		}
		lines[len(lines)-1].add(word, pos)
		pos += len(word)
		blanks = ""
	}
	return lines, nil
}

// beginsLine decides whether a word is the beginning of a property or belongs to
// the line before it.
func beginsLine(last *calendarLine, blanks, word string, pos int) (bool, error) {
	const marks = ";:,="
	name, end := propertyName(word)
	property := name != "" && (end == ':' || end == ';')
	broken := strings.ContainsAny(blanks, "\r\n")
	folded := broken && (blanks[len(blanks)-1] == ' ' || blanks[len(blanks)-1] == '\t')
	switch {
	case broken && !folded:
		return true, nil
	case property && (!folded || slices.Contains(calendarProperties, name)):
		return true, nil
	case name != "" && end == '=' && !last.isRule():
		return true, nil // A rule without its name.
	case folded, strings.IndexByte(marks, word[0]) >= 0, strings.IndexByte(marks, last.text[len(last.text)-1]) >= 0:
		return false, nil
	case last.isRule():
		return false, at(pos, calendarExample, "a %q is missing before %q", ";", clip(word))
	}
	return false, at(pos, calendarExample, "unexpected %q after %q", clip(word), clip(last.text))
}
