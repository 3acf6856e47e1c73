package control

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/belfry-sh/belfry"
)

// Limits on names that people give.
const (
	maxTags    = 20
	maxTag     = 100 // characters
	maxHandler = 200 // characters
)

func (e *examination) name(name string) string {
	trimmed := strings.TrimSpace(name)
	switch {
	case name == "":
	case trimmed == "":
		e.fault("name", "must not be blank; leave it out for a job without a name")
	default:
		if problem := checkName(trimmed); problem != "" {
			e.fault("name", "%s", problem)
		}
	}
	return trimmed
}

// checkName says what is wrong with the name of a job that has one.
func checkName(name string) string {
	if problem := checkText(name, belfry.MaxName); problem != "" {
		return problem
	}
	if _, err := belfry.ParseID(name); err == nil {
		return "must not look like an id, since a job is found by either"
	}
	if name == "." || name == ".." {
		return "must not be . or .., which cannot stand in an address"
	}
	return ""
}

// checkText says what is wrong with a line of text for people.
func checkText(text string, most int) string {
	switch n := utf8.RuneCountInString(text); {
	case !utf8.ValidString(text):
		return "must be valid UTF-8"
	case strings.ContainsFunc(text, invisible):
		return "must not have control characters"
	case n > most:
		return counted(n, most)
	}
	return ""
}

// invisible tells characters that would garble a line of text: controls, line
// separators and those that turn the direction of writing around.
func invisible(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' ||
		r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}

// checkHandler says what is wrong with the name of a user's own handler.
func checkHandler(name string) string {
	switch {
	case name == "":
		return "must not be empty"
	case strings.TrimSpace(name) != name:
		return "must not begin or end with blanks"
	case strings.Contains(name, "/"):
		return `must not have "/"`
	case slices.ContainsFunc(belfry.ReservedHandlers, func(own string) bool { return strings.EqualFold(own, name) }):
		return strings.ToLower(name) + " is run by Belfry itself; choose another name"
	}
	return checkText(name, maxHandler)
}

// tags returns the tags sorted, each once.
func (e *examination) tags(tags []string) []string {
	var out []string
	for i, tag := range tags {
		tag = strings.TrimSpace(tag)
		if problem := checkTag(tag); problem != "" {
			e.fault(fmt.Sprintf("tags[%d]", i), "%s", problem)
		}
		out = append(out, tag)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if len(out) > maxTags {
		e.fault("tags", "has %d tags, the most is %d", len(out), maxTags)
	}
	return out
}

func checkTag(tag string) string {
	switch n := utf8.RuneCountInString(tag); {
	case n == 0:
		return "must not be empty"
	case n > maxTag:
		return counted(n, maxTag)
	case !utf8.ValidString(tag) || strings.ContainsFunc(tag, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && !strings.ContainsRune("._:/=@-", r)
	}):
		return "may have letters, digits and . _ : / = @ -"
	}
	return ""
}

func counted(n, most int) string { return fmt.Sprintf("has %d characters, the most is %d", n, most) }
