package openapi

import (
	"bytes"
	"encoding/json"
	"html/template"
	"regexp"
	"strings"

	"github.com/belfry-sh/belfry/internal/jsontext"
)

// prose is a text of a few sentences, in which `marks` set code off and blank
// lines part paragraphs.
func prose(text string) template.HTML {
	var b strings.Builder
	for i, part := range strings.Split(text, "`") {
		if i%2 == 1 {
			b.WriteString("<code>" + template.HTMLEscapeString(part) + "</code>")
			continue
		}
		b.WriteString(strings.ReplaceAll(template.HTMLEscapeString(part), "\n\n", "<br /><br />"))
	}
	return template.HTML(b.String())
}

// sentence is prose that begins with a capital and ends with a full stop.
func sentence(text string) template.HTML {
	if text == "" {
		return ""
	}
	return prose(strings.ToUpper(text[:1]) + text[1:] + ".")
}

// breakable is a name that may be broken between its words.
func breakable(name string) template.HTML {
	return template.HTML(breaks.Replace(template.HTMLEscapeString(name)))
}

var breaks = strings.NewReplacer("_", "_<wbr />", ".", ".<wbr />", "/", "/<wbr />", "-", "-<wbr />")

var jsonTokens = regexp.MustCompile(`"(?:[^"\\]|\\.)*"(\s*:)?|-?\d[\d.eE+-]*|\b(?:true|false|null)\b`)

// highlight is JSON, or lines of it, with its parts set off. Any other text stays
// as it is.
func highlight(text string) template.HTML {
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if !json.Valid([]byte(text)) && !json.Valid([]byte(first)) {
		return template.HTML(template.HTMLEscapeString(text))
	}
	var b strings.Builder
	end := 0
	for _, m := range jsonTokens.FindAllStringSubmatchIndex(text, -1) {
		b.WriteString(template.HTMLEscapeString(text[end:m[0]]))
		token, kind := text[m[0]:m[1]], "n"
		switch {
		case m[2] >= 0:
			token, kind = text[m[0]:m[2]], "k"
		case token[0] == '"':
			kind = "s"
		}
		b.WriteString(`<span class="` + kind + `">` + template.HTMLEscapeString(token) + "</span>")
		end = m[0] + len(token)
	}
	b.WriteString(template.HTMLEscapeString(text[end:]))
	return template.HTML(b.String())
}

// curl is the command that asks for an operation with its first example.
func (d *Document) curl(path, method string, op *pathOperation) string {
	parts := []string{"curl"}
	for _, p := range op.Parameters {
		if p = d.resolve(p); p.In == "path" {
			path = strings.ReplaceAll(path, "{"+p.Name+"}", unquoted(p.Example))
		}
	}
	if method != "GET" && (op.RequestBody == nil || method != "POST") {
		parts[0] += " -X " + method
	}
	parts[0] += ` "$BELFRY_SERVER` + path + `"`
	if d.options.Keyed && op.Security == nil {
		parts = append(parts, `-H "Authorization: Bearer $BELFRY_KEY"`)
	}
	if op.RequestBody != nil {
		for _, m := range op.RequestBody.Content {
			if len(m.value.Examples) == 0 {
				continue
			}
			flag := "-d"
			if m.name == MediaLines {
				flag = "--data-binary" // -d would take the ends of lines away.
			}
			parts = append(parts, "-H 'Content-Type: "+m.name+"'", flag+" "+shellQuote(unquoted(m.value.Examples[0].value.Value)))
			break
		}
	}
	return strings.Join(parts, " \\\n  ")
}

// shellQuote makes one word of a text for a shell.
func shellQuote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

const pageColumns = 58 // of an example

// layOut lays JSON out for people: what fits into a line stays in one. What is not
// JSON stays as it is.
func layOut(text []byte) string {
	if !json.Valid(text) {
		return strings.TrimSpace(string(text))
	}
	var b strings.Builder
	writeJSON(&b, bytes.TrimSpace(text), 0, 0)
	return b.String()
}

// writeJSON writes a value at a depth, behind a number of characters.
func writeJSON(b *strings.Builder, value []byte, depth, behind int) {
	line := oneLine(value)
	if len(line)+2*depth+behind <= pageColumns || value[0] != '{' && value[0] != '[' {
		b.WriteString(line)
		return
	}
	indent := "\n" + strings.Repeat("  ", depth)
	before := string(value[0])
	member := func(name string, value []byte) {
		b.WriteString(before + indent + "  " + name)
		writeJSON(b, value, depth+1, len(name))
		before = ","
	}
	if value[0] == '[' {
		for _, element := range jsontext.Elements(value) {
			member("", element)
		}
	} else {
		jsontext.Members(value, func(quoted, value []byte) bool {
			member(string(quoted)+": ", value)
			return true
		})
	}
	b.WriteString(indent + string(value[len(value)-1]))
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
