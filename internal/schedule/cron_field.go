package schedule

import (
	"strings"
)

// fieldParser takes one field of an expression apart.
type fieldParser struct {
	field *cronField
	word  word
	next  int // index into word.text
	out   fieldValues
}

// parseField returns what a field names.
func parseField(f *cronField, w word) (fieldValues, error) {
	if w.text == "?" {
		w.text = "*" // Meant for the day fields, harmless in others.
	}
	r := &fieldParser{field: f, word: w}
	for {
		if err := r.parseItem(); err != nil {
			return fieldValues{}, err
		}
		if r.next == len(w.text) {
			return r.out, nil
		}
		r.next++ // the comma
	}
}

// peek returns the next character in upper case, or 0 at the end of the item.
func (r *fieldParser) peek() byte {
	if r.next == len(r.word.text) || r.word.text[r.next] == ',' {
		return 0
	}
	c := r.word.text[r.next]
	if 'a' <= c && c <= 'z' {
		c -= 'a' - 'A'
	}
	return c
}

// accept reads the given character if it is the next one.
func (r *fieldParser) accept(c byte) bool {
	if r.peek() != c {
		return false
	}
	r.next++
	return true
}

func (r *fieldParser) errorAt(next int, format string, args ...any) error {
	return errorAt(r.word.pos+next, r.field.example, r.field.name+": "+format, args...)
}

// parseItem reads one element of a list, to its end.
func (r *fieldParser) parseItem() error {
	start := r.next
	if r.peek() == 0 {
		return r.errorAt(start, "a list item is empty")
	}
	if err := r.parseElement(); err != nil {
		return err
	}
	if r.peek() != 0 {
		rest, _, _ := strings.Cut(r.word.text[r.next:], ",")
		return r.errorAt(r.next, "unexpected %q after %q", truncate(rest), truncate(r.word.text[start:r.next]))
	}
	return nil
}

func (r *fieldParser) parseElement() error {
	f := r.field
	switch c := r.peek(); {
	case c == '*':
		r.next++
		return r.parseStep(f.low, f.high)
	case c == '?':
		return r.errorAt(r.next, `"?" stands alone in its field`)
	case c == '+' || c == '-':
		return r.errorAt(r.next, "numbers have no sign")
	case c == 'L' && f == dayField:
		r.next++
		return r.parseLastDay()
	}
	start := r.next
	a, err := r.parseValue()
	if err != nil {
		return err
	}
	switch {
	case f == dayField && r.accept('W'):
		r.out.nearest |= 1 << (a - f.low)
		return nil
	case f == weekdayField && r.accept('L'):
		r.out.lastWeekday |= 1 << (a % 7)
		return nil
	case f == weekdayField && r.accept('#'):
		n, err := r.parseNumber("the number after #", 1, 5)
		if err == nil {
			r.out.nth[n-1] |= 1 << (a % 7)
		}
		return err
	case !r.accept('-'):
		if r.peek() == '/' {
			return r.parseStep(a, f.high)
		}
		r.out.addRange(f, a, a, 1)
		return nil
	}
	b, err := r.parseValue()
	if err != nil {
		return err
	}
	if a > b && f == yearField {
		return r.errorAt(start, "the range %d-%d ends before it begins", a, b)
	}
	return r.parseStep(a, b)
}

// parseLastDay reads what follows an L: nothing, W, -n or -nW.
func (r *fieldParser) parseLastDay() error {
	n := 0
	if r.accept('-') {
		var err error
		if n, err = r.parseNumber("the number after L-", 0, 30); err != nil {
			return err
		}
	}
	if r.accept('W') {
		r.out.lastNearest |= 1 << n
	} else {
		r.out.last |= 1 << n
	}
	return nil
}

// parseStep reads "/n" if it is there, and adds the values from a to b.
func (r *fieldParser) parseStep(a, b int) error {
	step := 1
	if r.accept('/') {
		var err error
		if step, err = r.parseNumber("the step", 1, maxNumber); err != nil {
			return err
		}
	}
	r.out.addRange(r.field, a, b, step)
	return nil
}

// parseValue reads a number of the field's range or a name.
func (r *fieldParser) parseValue() (int, error) {
	if c := r.peek(); c < 'A' || c > 'Z' {
		return r.parseNumber("a value", r.field.low, r.field.most)
	}
	f, start := r.field, r.next
	for c := r.peek(); 'A' <= c && c <= 'Z'; c = r.peek() {
		r.next++
	}
	written := r.word.text[start:r.next]
	name := strings.ToUpper(written)
	if f == weekdayField && len(name) == 4 && name[3] == 'L' {
		name = name[:3]
		r.next--
	}
	if i := strings.Index(f.names, name); len(name) == 3 && i >= 0 && i%3 == 0 {
		return f.low + i/3, nil
	}
	switch {
	case name == "H":
		return 0, r.errorAt(start, "H stands for a value that every job gets once, when it is created; here it is still open")
	case name == "L" && f == weekdayField:
		return 0, r.errorAt(start, "L needs a weekday before it, such as FRIL")
	case name == "W" && f == dayField:
		return 0, r.errorAt(start, "W needs a day before it, such as 15W")
	case f.names == "":
		return 0, r.errorAt(start, "%q is not a number", truncate(written))
	}
	return 0, r.errorAt(start, "there is no %q; names have three letters, %s to %s", truncate(written), f.names[:3], f.names[len(f.names)-3:])
}

// maxNumber is where reading a number stops to count.
const maxNumber = 1_000_000

// parseNumber reads digits. What says which number of the field it is.
func (r *fieldParser) parseNumber(what string, low, high int) (int, error) {
	start, n := r.next, 0
	for c := r.peek(); '0' <= c && c <= '9'; c = r.peek() {
		n = min(n*10+int(c-'0'), maxNumber)
		r.next++
	}
	written := r.word.text[start:r.next]
	switch c := r.peek(); {
	case written != "" && low <= n && n <= high:
		return n, nil
	case written != "" && what == "a value":
		return 0, errorAt(r.word.pos+start, r.field.example, "%s %s is out of range, it goes from %d to %d", r.field.name, truncate(written), low, high)
	case written != "" && n < low && high == maxNumber:
		return 0, r.errorAt(start, "%s must be at least %d", what, low)
	case written != "":
		return 0, r.errorAt(start, "%s %s is out of range, it goes from %d to %d", what, truncate(written), low, high)
	case c == 0:
		return 0, r.errorAt(start, "%s is missing", what)
	case c == '+' || c == '-':
		return 0, r.errorAt(start, "numbers have no sign")
	default:
		return 0, r.errorAt(start, "unexpected %q in place of %s", c, what)
	}
}
