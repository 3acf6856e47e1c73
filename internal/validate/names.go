package validate

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
)

const (
	maxTag     = 100 // characters
	maxHandler = 200
	tooLong    = "has %d characters, the maximum is %d"
)

var namespaces = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// Namespace reports whether a namespace may have this name: 1 to 63 lower case
// letters, digits and hyphens.
func Namespace(name string) bool { return namespaces.MatchString(name) }

// Name says what is wrong with the name of a job, in words that follow the name of a
// field; "" if nothing is.
func Name(name string) string {
	switch _, err := belfry.ParseID(name); {
	case err == nil:
		return "must not look like an id, since either finds a job"
	case name == "." || name == "..":
		return "must not be . or .., which cannot be part of an address"
	}
	return checkLine(name, belfry.MaxName)
}

// Handler says what is wrong with the name of a user's handler; "" if nothing is.
func Handler(name string) string {
	switch {
	case name == "":
		return "must not be empty"
	case strings.TrimSpace(name) != name:
		return "must not start or end with blanks"
	case strings.Contains(name, "/"):
		return `must not contain "/"`
	case slices.ContainsFunc(belfry.ReservedHandlers, func(own string) bool { return strings.EqualFold(own, name) }):
		return strings.ToLower(name) + " is run by Belfry itself; choose another name"
	}
	return checkLine(name, maxHandler)
}

// Queue says what is wrong with the name of a queue; "" if nothing is.
func Queue(name string) string {
	if queueField.Pattern.MatchString(name) {
		return ""
	}
	return queueField.PatternDoc
}

var queueField = schema.For[belfry.Spec]().Field("queue")

// checkLine says what is wrong with a line of text for people.
func checkLine(text string, longest int) string {
	switch n := utf8.RuneCountInString(text); {
	case !utf8.ValidString(text):
		return "must be valid UTF-8"
	case strings.ContainsFunc(text, invisible):
		return "must not contain control characters"
	case n > longest:
		return fmt.Sprintf(tooLong, n, longest)
	}
	return ""
}

// invisible reports characters that would garble a line of text: controls, line
// separators and changes of the direction of writing.
func invisible(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' ||
		r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}

func (c *check) name(name string) string {
	trimmed := strings.TrimSpace(name)
	switch {
	case name == "":
	case trimmed == "":
		c.fail("name", "must not be blank; leave it out for a job without a name")
	default:
		if problem := Name(trimmed); problem != "" {
			c.fail("name", "%s", problem)
		}
	}
	return trimmed
}

// tags returns the tags sorted, each once.
func (c *check) tags(tags []string) []string {
	var out []string
	for i, tag := range tags {
		tag = strings.TrimSpace(tag)
		if problem := checkTag(tag); problem != "" {
			c.fail(fmt.Sprintf("tags[%d]", i), "%s", problem)
		}
		out = append(out, tag)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func checkTag(tag string) string {
	switch n := utf8.RuneCountInString(tag); {
	case n == 0:
		return "must not be empty"
	case n > maxTag:
		return fmt.Sprintf(tooLong, n, maxTag)
	case !utf8.ValidString(tag) || strings.ContainsFunc(tag, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && !strings.ContainsRune("._:/=@-", r)
	}):
		return "may contain letters, digits and . _ : / = @ -"
	}
	return ""
}
