package schema

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/belfry-sh/belfry"
)

// Check checks the struct that v points to by what its tags say: required fields,
// ranges, lengths and enumerations, whose values it brings into lower case. Fields that
// are zero are unset; a zero that a request sets is refused while it is decoded.
func Check(v any) []belfry.FieldError {
	s := state{}
	s.check(Of(reflect.TypeOf(v)), reflect.ValueOf(v).Elem(), "")
	return s.errors
}

func (s *state) check(t *Type, v reflect.Value, within string) {
	for _, f := range t.checked {
		value := f.Value(v)
		if value.IsZero() {
			if f.Required {
				s.fail(within+f.Name, "is required%s", f.forExample())
			}
			continue
		}
		switch f.Kind {
		case Object:
			s.check(f.Elem, value, within+f.Name+".")
		case Objects:
			for i := range value.Len() {
				before := len(s.errors)
				s.check(f.Elem, value.Index(i), "")
				s.prefixErrors(before, within+f.Name, i)
			}
		}
		if err := f.check(value); err != "" {
			s.fail(within+f.Name, "%s", err)
		}
	}
}

// hasChecks reports whether Check has anything to do for a field.
func (f *Field) hasChecks() bool {
	return f.Required || f.Kind == Object || f.Kind == Objects || len(f.Enum) > 0 || f.Pattern != nil ||
		f.Min != nil || f.MaxLen > 0 || f.MinItems > 0 || f.MaxItems > 0 || f.ItemMaxLen > 0
}

func (f *Field) forExample() string {
	if f.Example == "" {
		return ""
	}
	if f.Kind == Text || f.Kind == Time || f.Kind == ID || f.Kind == Token {
		return fmt.Sprintf("; for example %q", f.Example)
	}
	return "; for example " + f.Example
}

// check says what is wrong with a value; empty if nothing is. It normalizes
// enumerations.
func (f *Field) check(v reflect.Value) string {
	switch f.Kind {
	case Text:
		return f.checkText(v)
	case Int, Float:
		return f.checkNumber(numeric(v))
	case Texts:
		for _, item := range v.Interface().([]string) {
			if f.ItemMaxLen > 0 {
				if err := CheckText(item, f.ItemMaxLen, false); err != "" {
					return "has an item that " + err
				}
			}
		}
		return f.checkItems(v.Len())
	case Objects, List, TextMap:
		return f.checkItems(v.Len())
	}
	return ""
}

func numeric(v reflect.Value) float64 {
	if v.CanInt() {
		return float64(v.Int())
	}
	switch o := v.Interface().(type) {
	case belfry.Optional[int]:
		return float64(o.Value())
	case belfry.Optional[float64]:
		return o.Value()
	}
	return v.Float()
}

func (f *Field) checkNumber(n float64) string {
	switch {
	case f.Min != nil && f.Max != nil && !(n >= *f.Min && n <= *f.Max):
		return fmt.Sprintf("must be from %s to %s, not %s", Decimal(*f.Min), Decimal(*f.Max), Decimal(n))
	case f.Min != nil && f.Max == nil && !(n >= *f.Min):
		return fmt.Sprintf("must be at least %s, not %s", Decimal(*f.Min), Decimal(n))
	}
	return ""
}

// Decimal writes a number without an exponent.
func Decimal(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

func (f *Field) checkItems(n int) string {
	switch {
	case f.MaxItems > 0 && n > f.MaxItems:
		return fmt.Sprintf("has %d items, the maximum is %d", n, f.MaxItems)
	case n < f.MinItems:
		return fmt.Sprintf("has %d items, the minimum is %d", n, f.MinItems)
	}
	return ""
}

func (f *Field) checkText(v reflect.Value) string {
	text := v.String()
	if len(f.Enum) > 0 {
		word, err := f.Choose(text)
		if err == "" {
			v.SetString(word)
		}
		return err
	}
	if f.MaxLen > 0 {
		if err := CheckText(text, f.MaxLen, f.Multiline); err != "" {
			return err
		}
	}
	if f.Pattern != nil && !f.Pattern.MatchString(text) {
		if hidden := CheckVisible(text); hidden != "" {
			return hidden
		}
		if f.PatternDoc != "" {
			return f.PatternDoc
		}
		return "must match " + f.Pattern.String()
	}
	return ""
}

// Choose returns the value of an enumeration that a text names, in any case; the word
// for the zero value is "". The error follows the name of the field.
func (f *Field) Choose(text string) (word, err string) {
	word = strings.ToLower(strings.TrimSpace(text))
	if word == f.Zero {
		return "", ""
	}
	names := slices.Clone(f.Accept)
	for _, e := range f.Enum {
		if strings.EqualFold(e.Value, word) {
			return e.Value, ""
		}
		if len(f.Accept) == 0 {
			names = append(names, e.Value)
		}
	}
	return choose(text, names)
}

// ChooseAccepted is Choose among the values that requests should have.
func (f *Field) ChooseAccepted(text string) (word, err string) { return choose(text, f.Accept) }

func choose(text string, names []string) (word, err string) {
	word = strings.ToLower(strings.TrimSpace(text))
	quoted := make([]string, len(names))
	for i, name := range names {
		if strings.EqualFold(name, word) {
			return name, ""
		}
		quoted[i] = strconv.Quote(name)
	}
	err = "must be " + quoted[len(quoted)-1]
	if last := len(quoted) - 1; last > 0 {
		err = "must be " + strings.Join(quoted[:last], ", ") + " or " + quoted[last]
	}
	if near := Nearest(text, names); near != "" {
		err += fmt.Sprintf("; did you mean %q?", near)
	}
	return word, err
}

// CheckText says what is wrong with a text of limited length, in words that follow the
// name of its field; "" if nothing is.
func CheckText(text string, longest int, multiline bool) string {
	n := utf8.RuneCountInString(text)
	switch hidden := CheckVisible(text); {
	case !utf8.ValidString(text):
		return "must be valid UTF-8"
	case multiline && strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }):
		return "must not contain control characters"
	case !multiline && hidden != "":
		return hidden
	case n > longest:
		return fmt.Sprintf("has %d characters, the maximum is %d", n, longest)
	}
	return ""
}

// CheckVisible names the first character of a line of text that cannot be seen or garbles the
// line, so that two texts look alike that are not; "" if there is none. Emoji may be joined.
func CheckVisible(text string) string {
	var before rune
	for i, r := range text {
		if r < utf8.RuneSelf && r >= ' ' && r != 0x7f { // the usual case
			before = r
			continue
		}
		kind := ""
		switch {
		case unicode.IsControl(r) || r == '\u2028' || r == '\u2029':
			kind = "control characters"
		case unicode.Is(unicode.Bidi_Control, r):
			kind = "characters that control the direction of writing"
		case r == '\u200d' && unicode.In(before, unicode.So, unicode.Sk, unicode.Variation_Selector) && startsWithSymbol(text[i+len("\u200d"):]):
		case unicode.Is(unicode.Cf, r) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r):
			kind = "invisible characters"
		}
		if kind != "" {
			return fmt.Sprintf("must not contain %s, such as %U at character %d", kind, r, utf8.RuneCountInString(text[:i])+1)
		}
		before = r
	}
	return ""
}

func startsWithSymbol(text string) bool {
	r, _ := utf8.DecodeRuneInString(text)
	return unicode.Is(unicode.So, r) && r != utf8.RuneError
}

// CheckYear refuses instants outside of FirstYear to LastYear.
func CheckYear(at time.Time) error {
	if y := at.UTC().Year(); y < FirstYear || y > LastYear {
		return fmt.Errorf("must be in the years %d to %d", FirstYear, LastYear)
	}
	return nil
}

// Nearest returns the name that somebody may have meant who wrote another: one that
// differs in a few letters, or of which it is the beginning or the end. Case and
// separators do not count. It is empty if there is none.
func Nearest(written string, names []string) string {
	const longest = 64
	if len(written) > longest {
		return ""
	}
	w := bareName(written)
	best, least := "", max(1, len(w)/4)+1
	for _, name := range names {
		n := bareName(name)
		d := distance(w, n)
		if len(w) >= 4 && (strings.HasPrefix(n, w) || strings.HasSuffix(n, w)) {
			d = 1
		}
		if d < least {
			best, least = name, d
		}
	}
	return best
}

var separators = strings.NewReplacer("_", "", "-", "", " ", "")

// bareName is a name in lower case without separators.
func bareName(name string) string { return strings.ToLower(separators.Replace(name)) }

// distance counts the letters to insert, delete, replace or swap with their neighbour
// to turn a into b.
func distance(a, b string) int {
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(last[j]+cost, next[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = last, next
	}
	return row[len(b)]
}
