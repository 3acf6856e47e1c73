package notify

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/belfry-sh/belfry"
)

const (
	maxItems = 10
	maxTitle = 150 // characters
	maxLine  = 300
	maxText  = 1000
	maxNames = 3 // in a title
)

// Message is an alert in words. All types of channels use the same.
type Message struct {
	Title string   // one line
	Text  string   // what happened, in one line; may be empty
	Items []Item   // some of what it is about
	Facts []string // where and when, a line each
	URL   string   // where to see more; may be empty
}

// Item is a line about a run, a job or a monitor, and where to see it, if that is known.
type Item struct{ Text, URL string }

// phrases are the titles of each kind: of one thing, by its name, and of several, by their
// number.
var phrases = map[belfry.AlertKind]struct{ one, many string }{
	belfry.AlertDead:        {"Dead letter of job %s", "%s dead letters"},
	belfry.AlertFailing:     {"Job %s is failing", "%s jobs are failing"},
	belfry.AlertRecovered:   {"Job %s has recovered", "%s jobs have recovered"},
	belfry.AlertNotStarted:  {"Job %s did not start in time", "%s runs did not start in time"},
	belfry.AlertNotFinished: {"Job %s did not finish in time", "%s runs did not finish in time"},
	belfry.AlertSlow:        {"A run of job %s takes too long", "%s runs take too long"},
	belfry.AlertSkipped:     {"Job %s skips its occurrences", "%s jobs skip their occurrences"},
	belfry.AlertLag:         {"A run of job %s waits too long", "%s due runs wait too long"},
	belfry.AlertCatchUp:     {"Large catch-up of job %s", "%s large catch-ups"},
	belfry.AlertMonitor:     {"Monitor %s is down", "%s monitors are down"},
}

// Describe puts an alert into words.
func Describe(a belfry.Alert) Message {
	m := Message{Title: title(a), Text: oneLine(a.Message, maxText), URL: a.URL}
	items := a.Items[:min(len(a.Items), maxItems)]
	for _, item := range items {
		m.Items = append(m.Items, Item{itemLine(item), item.URL})
	}
	if more := a.Count - int64(len(items)); more > 0 && len(items) > 0 {
		m.Items = append(m.Items, Item{Text: fmt.Sprintf("and %s more", Thousands(more))})
	}
	m.Facts = append(m.Facts, "Namespace: "+oneLine(a.Namespace, maxLine))
	if a.Subscription.On == belfry.AlertTest {
		return m
	}
	m.Facts = append(m.Facts, "Since: "+instant(a.StartedAt))
	if a.LatestAt.Sub(a.StartedAt) >= time.Second {
		m.Facts = append(m.Facts, "Latest: "+instant(a.LatestAt))
	}
	if at := a.AcknowledgedAt; at != nil {
		by := ""
		if a.AcknowledgedBy != "" {
			by = " by " + oneLine(a.AcknowledgedBy, maxLine)
		}
		m.Facts = append(m.Facts, "Acknowledged: "+instant(*at)+by)
	}
	if at := a.ResolvedAt; at != nil {
		m.Facts = append(m.Facts, "Resolved: "+instant(*at)+", after "+Duration(at.Sub(a.StartedAt)))
	}
	return m
}

// String is the message as plain text, without its title.
func (m Message) String() string {
	var b strings.Builder
	paragraph := func(prefix string, lines ...string) {
		for i, line := range lines {
			if line == "" {
				continue
			}
			if i == 0 && b.Len() > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(prefix + line + "\n")
		}
	}
	paragraph("", m.Text)
	paragraph("- ", m.lines()...)
	paragraph("", m.Facts...)
	paragraph("", m.URL)
	return b.String()
}

// lines are the items as plain text.
func (m Message) lines() (lines []string) {
	for _, item := range m.Items {
		lines = append(lines, strings.TrimSpace(item.Text+" "+item.URL))
	}
	return lines
}

func title(a belfry.Alert) string {
	kind := a.Subscription.On
	if kind == belfry.AlertTest {
		return "Test alert of channel " + oneLine(a.Channel, maxTitle)
	}
	words, known := phrases[kind]
	if !known {
		words.one, words.many = "Alert about %s", "Alert about %s runs or jobs"
	}
	names := itemNames(a)
	text := ""
	if a.Count > 1 {
		text = fmt.Sprintf(words.many, Thousands(a.Count))
		if len(names) > 0 {
			text += ": " + strings.Join(names, ", ")
		}
	} else {
		text = fmt.Sprintf(words.one, append(names, "without a name")[0])
	}
	if kind != belfry.AlertRecovered { // which is good news as it is
		switch a.Status {
		case belfry.AlertAcknowledged:
			text = "Acknowledged: " + text
		case belfry.AlertResolved:
			text = "Resolved: " + text
		}
	}
	return oneLine(text, maxTitle)
}

// itemNames are some names of what an alert is about. If there are more they end in "…".
func itemNames(a belfry.Alert) []string {
	if name := a.Subscription.Job; name != "" {
		return []string{oneLine(name, maxTitle)}
	}
	var names []string
	for _, item := range a.Items {
		if name := itemName(item); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	// Each item is one of what is counted, except that of deaths, which is one job.
	others := a.Subscription.On != belfry.AlertDead && a.Count > int64(len(a.Items))
	if len(names) > maxNames || len(names) > 0 && others {
		names = append(names[:min(len(names), maxNames)], "…")
	}
	return names
}

func itemName(item belfry.AlertItem) string {
	if item.Name == "" && !item.JobID.IsZero() {
		return item.JobID.String()
	}
	return oneLine(item.Name, 60)
}

func itemLine(item belfry.AlertItem) string {
	var parts []string
	if name := itemName(item); name != "" {
		parts = append(parts, name)
	}
	if !item.ScheduledAt.IsZero() {
		parts = append(parts, instant(item.ScheduledAt))
	}
	if !item.RunID.IsZero() {
		parts = append(parts, "run "+item.RunID.String())
	}
	line := strings.Join(parts, ", ")
	if item.Error != "" {
		line = strings.TrimPrefix(line+": ", ": ") + item.Error
	}
	return oneLine(line, maxLine)
}

func instant(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// Duration is a duration in whole seconds, without parts at its end that are zero.
func Duration(d time.Duration) string {
	text := max(d, 0).Round(time.Second).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Thousands writes a number with commas.
func Thousands(n int64) string {
	text := strconv.FormatInt(n, 10)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// oneLine makes text from outside one line of at most so many characters. Control
// characters, line breaks and changes of the direction of writing become blanks.
func oneLine(text string, longest int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) > longest {
		return string(runes[:longest-1]) + "…"
	}
	return string(runes)
}
