// Package secret hides secrets in payloads before they are shown, and restores them when
// a hidden payload is sent back.
package secret

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
)

// Masked stands where a secret was.
const Masked = "***"

// maxNested bounds how deep texts that hold JSON themselves are looked into.
const maxNested = 3

// Mask returns the payload with whatever looks like a secret replaced by
// Masked: the value of every key that sounds like one, at any depth; user names
// and telling parameters in URLs; the same in texts that are forms or JSON; and
// texts that are credentials by their form. All else keeps its order and form,
// but for white space. What is not JSON is masked whole.
func Mask(payload json.RawMessage) json.RawMessage {
	if len(payload) == 0 {
		return payload
	}
	if !json.Valid(payload) {
		return json.RawMessage(`"` + Masked + `"`)
	}
	return maskJSON(payload, 0, whatever)
}

// hide gives what stands in the place of a secret.
type hide func(secret string) string

// whatever hides all secrets alike.
func whatever(string) string { return Masked }

// maskJSON rewrites valid JSON token by token, so that order and doubled keys
// stay as they are.
func maskJSON(payload []byte, nested int, hide hide) []byte {
	m := masker{in: json.NewDecoder(bytes.NewReader(payload)), nested: nested, hide: hide}
	m.in.UseNumber()
	m.out.Grow(len(payload))
	m.text = json.NewEncoder(&m.out)
	m.text.SetEscapeHTML(false)
	for {
		token, err := m.in.Token()
		if err != nil { // the end: the input is valid
			return m.out.Bytes()
		}
		m.take(token)
	}
}

// masker copies JSON while it masks. Open objects and arrays are a stack.
type masker struct {
	in     *json.Decoder
	out    bytes.Buffer
	text   *json.Encoder
	open   []frame
	nested int
	hide   hide
}

// frame is an object or array that is not closed yet.
type frame struct {
	object bool
	key    bool // a key comes next
	begun  bool // it has a member
}

func (m *masker) take(token json.Token) {
	if d, ok := token.(json.Delim); ok && (d == '}' || d == ']') {
		m.open = m.open[:len(m.open)-1]
		m.out.WriteByte(byte(d))
		return
	}
	top := m.top()
	if top != nil && top.object && top.key {
		m.member(top, token.(string))
		return
	}
	if top != nil && !top.object {
		m.comma(top)
	}
	if top != nil {
		top.key = top.object
	}
	switch v := token.(type) {
	case json.Delim:
		m.out.WriteByte(byte(v))
		m.open = append(m.open, frame{object: v == '{', key: v == '{'})
	case string:
		m.write(maskText(v, m.nested, m.hide))
	default:
		m.write(v)
	}
}

// member copies a key; if it names a secret, its value is skipped.
func (m *masker) member(top *frame, key string) {
	m.comma(top)
	m.write(key)
	m.out.WriteByte(':')
	top.key = false
	if !secretName(key) {
		return
	}
	var skipped json.RawMessage
	if m.in.Decode(&skipped) == nil {
		m.write(m.hide(plain(skipped)))
		top.key = true
	}
}

// plain is the text that a value is, or else the value as it is written.
func plain(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) != nil {
		return string(value)
	}
	return text
}

func (m *masker) top() *frame {
	if len(m.open) == 0 {
		return nil
	}
	return &m.open[len(m.open)-1]
}

func (m *masker) comma(top *frame) {
	if top.begun {
		m.out.WriteByte(',')
	}
	top.begun = true
}

// write puts a scalar; the encoder ends it with a new line, which is taken back.
func (m *masker) write(v any) {
	if m.text.Encode(v) == nil {
		m.out.Truncate(m.out.Len() - 1)
	}
}

// maskText masks inside a text: JSON, a URL, or the fields of a form.
func maskText(s string, nested int, hide hide) string {
	if trimmed := strings.TrimLeft(s, " \t\r\n"); nested < maxNested && trimmed != "" &&
		(trimmed[0] == '{' || trimmed[0] == '[') && json.Valid([]byte(s)) {
		if masked := string(maskJSON([]byte(s), nested+1, hide)); strings.Contains(masked, Masked) {
			return masked
		}
		return s
	}
	if kind, rest, _ := strings.Cut(s, " "); rest != "" && (strings.EqualFold(kind, "bearer") || strings.EqualFold(kind, "basic")) {
		return kind + " " + hide(rest)
	}
	if strings.HasPrefix(s, "eyJ") && strings.Count(s, ".") == 2 { // a signed token: {" in base64
		return hide(s)
	}
	if scheme, rest, ok := strings.Cut(s, "://"); ok && !strings.ContainsAny(scheme, " \t\r\n") {
		return scheme + "://" + maskURL(rest, hide)
	}
	if strings.Contains(s, "=") && !strings.ContainsAny(s, " \t\r\n") {
		return maskForm(s, hide)
	}
	return s
}

// maskURL masks what follows the scheme of a URL: user-info, and secret
// parameters of query and fragment. The rest stays as it was written.
func maskURL(rest string, hide hide) string {
	end := strings.IndexAny(rest, `/\?#`)
	if end < 0 {
		end = len(rest)
	}
	host, path := rest[:end], rest[end:]
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		host = hide(host[:at]) + host[at:]
	}
	path, fragment, hasFragment := strings.Cut(path, "#")
	path, query, hasQuery := strings.Cut(path, "?")
	if hasQuery {
		path += "?" + maskForm(query, hide)
	}
	if hasFragment {
		path += "#" + maskForm(fragment, hide)
	}
	return host + path
}

// maskForm masks the secret ones among parameters separated by & or ;.
func maskForm(s string, hide hide) string {
	var out strings.Builder
	for s != "" {
		end := strings.IndexAny(s, "&;")
		pair, next := s, ""
		if end >= 0 {
			pair, next = s[:end+1], s[end+1:]
		}
		s = next
		name, value, ok := strings.Cut(pair, "=")
		plain, err := url.QueryUnescape(name)
		if err != nil {
			plain = name
		}
		if !ok || !secretName(plain) && !strings.EqualFold(plain, "key") {
			out.WriteString(pair)
			continue
		}
		mark := ""
		if end >= 0 {
			value, mark = value[:len(value)-1], value[len(value)-1:]
		}
		out.WriteString(name + "=" + hide(value) + mark)
	}
	return out.String()
}

// Names of secrets, in lower case and without separators: those that a name
// need only contain, and those that it must be.
var (
	secretParts = []string{
		"authorization", "authentication", "cookie", "password", "passwd", "passphrase", "secret", "token",
		"apikey", "accesskey", "privatekey", "signingkey", "encryptionkey", "subscriptionkey", "sharedkey",
		"accountkey", "authkey", "credential", "signature", "bearer", "sessionid", "connectionstring",
	}
	secretNames = map[string]bool{
		"auth": true, "pwd": true, "pass": true, "sig": true, "jwt": true, "otp": true, "session": true, "sid": true,
	}
	separators = strings.NewReplacer("-", "", "_", "", ".", "", " ", "")
)

// secretName reports whether a key or parameter of this name holds a secret.
func secretName(name string) bool {
	plain := separators.Replace(strings.ToLower(name))
	if secretNames[plain] {
		return true
	}
	for _, part := range secretParts {
		if strings.Contains(plain, part) {
			return true
		}
	}
	return false
}
