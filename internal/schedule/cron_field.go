package schedule

import (
	"strings"
)

// reader takes one field of an expression apart.
type reader struct {
	field *field
	word  word
	next  int // index into word.text
	out   values
}

// readField returns what a field names.
func readField(f *field, w word) (values, error) {
	if w.text == "?" {
		w.text = "*" // Meant for the day fields, harmless in others.
	}
	r := &reader{field: f, word: w}
	for {
		if err := r.item(); err != nil {
			return values{}, err
		}
		if r.next == len(w.text) {
			return r.out, nil
		}
		r.next++ // the comma
	}
}

// peek returns the next character in upper case, or 0 at the end of the item.
func (r *reader) peek() byte {
	if r.next == len(r.word.text) || r.word.text[r.next] == ',' {
		return 0
	}
	c := r.word.text[r.next]
	if 'a' <= c && c <= 'z' {
		c -= 'a' - 'A'
	}
	return c
}

// take reads the given character if it is the next one.
func (r *reader) take(c byte) bool {
	if r.peek() != c {
		return false
	}
	r.next++
	return true
}

func (r *reader) fail(next int, format string, args ...any) error {
	return at(r.word.pos+next, r.field.example, r.field.name+": "+format, args...)
}

// item reads one element of a list, to its end.
func (r *reader) item() error {
	start := r.next
	if r.peek() == 0 {
		return r.fail(start, "a list item is empty")
	}
	if err := r.element(); err != nil {
		return err
	}
	if r.peek() != 0 {
		rest, _, _ := strings.Cut(r.word.text[r.next:], ",")
		return r.fail(r.next, "unexpected %q after %q", clip(rest), clip(r.word.text[start:r.next]))
	}
	return nil
}

func (r *reader) element() error {
	f := r.field
	switch c := r.peek(); {
	case c == '*':
		r.next++
		return r.steps(f.low, f.high)
	case c == '?':
		return r.fail(r.next, `"?" stands alone in its field`)
	case c == '+' || c == '-':
		return r.fail(r.next, "numbers have no sign")
	case c == 'L' && f == dayField:
		r.next++
		return r.lastDay()
	}
	start := r.next
	a, err := r.value()
	if err != nil {
		return err
	}
	switch {
	case f == dayField && r.take('W'):
		r.out.nearest |= 1 << (a - f.low)
		return nil
	case f == weekdayField && r.take('L'):
		r.out.lastWeekday |= 1 << (a % 7)
		return nil
	case f == weekdayField && r.take('#'):
		n, err := r.number("the number after #", 1, 5)
		if err == nil {
			r.out.nth[n-1] |= 1 << (a % 7)
		}
		return err
	case !r.take('-'):
		if r.peek() == '/' {
			return r.steps(a, f.high)
		}
		r.out.addRange(f, a, a, 1)
		return nil
	}
	b, err := r.value()
	if err != nil {
		return err
	}
	if a > b && f == yearField {
		return r.fail(start, "the range %d-%d ends before it begins", a, b)
	}
	return r.steps(a, b)
}

// lastDay reads what follows an L: nothing, W, -n or -nW.
func (r *reader) lastDay() error {
	n := 0
	if r.take('-') {
		var err error
		if n, err = r.number("the number after L-", 0, 30); err != nil {
			return err
		}
	}
	if r.take('W') {
		r.out.lastNearest |= 1 << n
	} else {
		r.out.last |= 1 << n
	}
	return nil
}

// steps reads "/n" if it is there, and adds the values from a to b.
func (r *reader) steps(a, b int) error {
	step := 1
	if r.take('/') {
		var err error
		if step, err = r.number("the step", 1, maxNumber); err != nil {
			return err
		}
	}
	r.out.addRange(r.field, a, b, step)
	return nil
}

// value reads a number of the field's range or a name.
func (r *reader) value() (int, error) {
	if c := r.peek(); c < 'A' || c > 'Z' {
		return r.number("a value", r.field.low, r.field.most)
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
		return 0, r.fail(start, "H stands for a value that every job gets once, when it is created; here it is still open")
	case name == "L" && f == weekdayField:
		return 0, r.fail(start, "L needs a weekday before it, such as FRIL")
	case name == "W" && f == dayField:
		return 0, r.fail(start, "W needs a day before it, such as 15W")
	case f.names == "":
		return 0, r.fail(start, "%q is not a number", clip(written))
	}
	return 0, r.fail(start, "there is no %q; names have three letters, %s to %s", clip(written), f.names[:3], f.names[len(f.names)-3:])
}

// maxNumber is where reading a number stops to count.
const maxNumber = 1_000_000

// number reads digits. What says which number of the field it is.
func (r *reader) number(what string, low, high int) (int, error) {
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
		return 0, at(r.word.pos+start, r.field.example, "%s %s is out of range, it goes from %d to %d", r.field.name, clip(written), low, high)
	case written != "" && n < low && high == maxNumber:
		return 0, r.fail(start, "%s must be at least %d", what, low)
	case written != "":
		return 0, r.fail(start, "%s %s is out of range, it goes from %d to %d", what, clip(written), low, high)
	case c == 0:
		return 0, r.fail(start, "%s is missing", what)
	case c == '+' || c == '-':
		return 0, r.fail(start, "numbers have no sign")
	default:
		return 0, r.fail(start, "unexpected %q in place of %s", c, what)
	}
}
