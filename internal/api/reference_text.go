package api

import (
	"encoding/json"
	"html/template"
	"regexp"
	"strings"
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
func (d *document) curl(path, method string, op *documentOperation) string {
	parts := []string{"curl"}
	for _, p := range op.Parameters {
		if p = d.resolve(p); p.In == "path" {
			path = strings.ReplaceAll(path, "{"+p.Name+"}", bareText(p.Example))
		}
	}
	if method != "GET" && (op.RequestBody == nil || method != "POST") {
		parts[0] += " -X " + method
	} else if op.RequestBody == nil && method == "POST" {
		parts[0] += " -X POST"
	}
	parts[0] += ` "$BELFRY_SERVER` + path + `"`
	if d.keyed && op.Security == nil {
		parts = append(parts, `-H "Authorization: Bearer $BELFRY_KEY"`)
	}
	if op.RequestBody != nil {
		for _, m := range op.RequestBody.Content {
			if len(m.value.Examples) == 0 {
				continue
			}
			flag := "-d"
			if m.name == mediaLines {
				flag = "--data-binary" // -d would take the ends of lines away.
			}
			body := strings.ReplaceAll(bareText(m.value.Examples[0].value.Value), "'", `'\''`)
			parts = append(parts, "-H 'Content-Type: "+m.name+"'", flag+" '"+body+"'")
			break
		}
	}
	return strings.Join(parts, " \\\n  ")
}
