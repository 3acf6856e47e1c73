// Package secret hides secrets in payloads before they are shown, and restores them when
// a hidden payload is sent back.
package secret

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
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
	return maskJSON(payload, 0, maskAll)
}

// hide gives what stands in the place of a secret.
type hide func(secret string) string

func maskAll(string) string { return Masked }

// maskJSON rewrites valid JSON token by token, so that order and doubled keys
// stay as they are.
func maskJSON(payload []byte, nested int, hide hide) []byte {
	m := masker{in: json.NewDecoder(bytes.NewReader(payload)), nested: nested, hide: hide}
	m.in.UseNumber()
	m.out.Grow(len(payload))
	m.text = json.NewEncoder(&m.out)
	m.text.SetEscapeHTML(false)
	m.value()
	return m.out.Bytes()
}

// masker copies valid JSON while it masks.
type masker struct {
	in     *json.Decoder
	out    bytes.Buffer
	text   *json.Encoder
	nested int
	hide   hide
}

func (m *masker) value() {
	token, _ := m.in.Token()
	switch v := token.(type) {
	case json.Delim:
		m.out.WriteByte(byte(v))
		for first := true; m.in.More(); first = false {
			if !first {
				m.out.WriteByte(',')
			}
			if v == '{' {
				m.member()
			} else {
				m.value()
			}
		}
		end, _ := m.in.Token()
		fmt.Fprint(&m.out, end)
	case string:
		m.write(maskText(v, m.nested, m.hide))
	default:
		m.write(v)
	}
}

// member copies a key and its value, or hides the value if the key names a secret.
func (m *masker) member() {
	token, _ := m.in.Token()
	key, _ := token.(string)
	m.write(key)
	m.out.WriteByte(':')
	if !secretName(key) {
		m.value()
		return
	}
	var value json.RawMessage
	_ = m.in.Decode(&value)
	var text string
	if json.Unmarshal(value, &text) != nil {
		text = string(value)
	}
	m.write(m.hide(text))
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
		pair, separator := s, ""
		if end := strings.IndexAny(s, "&;"); end >= 0 {
			pair, separator = s[:end], s[end:end+1]
		}
		s = s[len(pair)+len(separator):]
		name, value, ok := strings.Cut(pair, "=")
		plain, err := url.QueryUnescape(name)
		if err != nil {
			plain = name
		}
		if ok && (secretName(plain) || strings.EqualFold(plain, "key")) {
			pair = name + "=" + hide(value)
		}
		out.WriteString(pair + separator)
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
	return secretNames[plain] || slices.ContainsFunc(secretParts, func(part string) bool { return strings.Contains(plain, part) })
}
