package api

import (
	"bytes"
	"encoding/json"
	"strings"
)

const pageColumns = 58 // of an example

// laid lays JSON out for people: what fits into a line stays in one. What is not
// JSON stays as it is.
func laid(text []byte) string {
	if !json.Valid(text) {
		return strings.TrimSpace(string(text))
	}
	var b strings.Builder
	layJSON(&b, bytes.TrimSpace(text), 0, 0)
	return b.String()
}

// layJSON writes a value at a depth, behind a number of characters.
func layJSON(b *strings.Builder, value []byte, depth, behind int) {
	line := oneLine(value)
	if len(line)+2*depth+behind <= pageColumns || value[0] != '{' && value[0] != '[' {
		b.WriteString(line)
		return
	}
	in := json.NewDecoder(bytes.NewReader(value))
	in.Token()
	b.WriteByte(value[0])
	for first := true; in.More(); first = false {
		if !first {
			b.WriteByte(',')
		}
		b.WriteString("\n" + strings.Repeat("  ", depth+1))
		name := ""
		if value[0] == '{' {
			token, _ := in.Token()
			text, _ := token.(string)
			name = quoted(text) + ": "
		}
		b.WriteString(name)
		var member json.RawMessage
		if in.Decode(&member) != nil {
			return // It was valid as a whole.
		}
		layJSON(b, member, depth+1, len(name))
	}
	b.WriteString("\n" + strings.Repeat("  ", depth) + string(value[len(value)-1]))
}

// oneLine is JSON with a blank behind every comma and colon, and none elsewhere.
func oneLine(value []byte) string {
	var b bytes.Buffer
	if json.Indent(&b, value, "", "") != nil {
		return string(value)
	}
	text := strings.ReplaceAll(b.String(), ",\n", ", ") // A text in JSON has no raw line breaks.
	return strings.ReplaceAll(text, "\n", "")
}

// quoted is a text as JSON, with < and > as they are.
func quoted(text string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(text)
	return strings.TrimSpace(b.String())
}
