// Package secret hides secrets in payloads before they are shown, and restores them when
// a hidden payload is sent back.
package secret

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"net/url"
	"slices"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/sanitize"
)

// Masked stands where a secret was.
const Masked = "***"

// maxNested bounds how deep texts that hold JSON themselves are looked into.
const maxNested = 3

// Mask returns the payload with everything that looks like a secret replaced by Masked:
// the values of keys that name secrets, at any depth; user names and secret parameters
// in URLs; the same in strings that are forms or JSON; and strings that have the form of
// credentials. Everything else keeps its order and form, except white space. A payload
// that is not JSON is masked as a whole.
func Mask(payload json.RawMessage) json.RawMessage {
	if len(payload) == 0 {
		return payload
	}
	if !json.Valid(payload) {
		return json.RawMessage(`"` + Masked + `"`)
	}
	return maskJSON(payload, 0, maskAll)
}

// hide returns what replaces a secret.
type hide func(secret string) string

func maskAll(string) string { return Masked }

// maskJSON rewrites valid JSON token by token, so that order and duplicate keys stay as
// they are.
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
	m.write(m.hide.of(text))
}

// write writes a scalar without the newline that the encoder ends it with.
func (m *masker) write(v any) {
	if m.text.Encode(v) == nil {
		m.out.Truncate(m.out.Len() - 1)
	}
}

// maskText masks inside a string: JSON, a URL, or the fields of a form.
func maskText(s string, nested int, hide hide) string {
	if trimmed := strings.TrimLeft(s, " \t\r\n"); nested < maxNested && trimmed != "" &&
		(trimmed[0] == '{' || trimmed[0] == '[') && json.Valid([]byte(s)) {
		if masked := string(maskJSON([]byte(s), nested+1, hide)); strings.Contains(masked, Masked) {
			return masked
		}
		return s
	}
	if kind, rest, _ := strings.Cut(s, " "); rest != "" && (strings.EqualFold(kind, "bearer") || strings.EqualFold(kind, "basic")) {
		return kind + " " + hide.of(rest)
	}
	if strings.HasPrefix(s, "eyJ") && strings.Count(s, ".") == 2 { // a signed token: {" in base64
		return hide.of(s)
	}
	if scheme, rest, ok := strings.Cut(s, "://"); ok && !strings.ContainsAny(scheme, " \t\r\n") {
		return scheme + "://" + maskURL(rest, hide)
	}
	if strings.Contains(s, "=") && !strings.ContainsAny(reference.ReplaceAllString(s, ""), " \t\r\n") {
		return maskForm(s, hide)
	}
	return s
}

// maskURL masks what follows the scheme of a URL: user information, and secret
// parameters of query and fragment. The rest stays as it is.
func maskURL(rest string, hide hide) string {
	end := strings.IndexAny(rest, `/\?#`)
	if end < 0 {
		end = len(rest)
	}
	host, path := rest[:end], rest[end:]
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		host = hide.of(host[:at]) + host[at:]
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

// maskForm masks the secrets among parameters separated by & or ;.
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
			pair = name + "=" + hide.of(value)
		}
		out.WriteString(pair + separator)
	}
	return out.String()
}

// Names of secrets, in lower case and without separators: parts of a name, and whole
// names.
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

// IsName reports whether a variable of this name holds a secret.
func IsName(name string) bool { return secretName(name) }

// secretName reports whether a key or parameter of this name holds a secret.
func secretName(name string) bool {
	plain := separators.Replace(strings.ToLower(name))
	return secretNames[plain] || slices.ContainsFunc(secretParts, func(part string) bool { return strings.Contains(plain, part) })
}

const stillMasked = "is masked; give the secret itself"

// Unmask restores the secrets of a stored payload in one that was edited after Mask: it
// replaces a masked value by the stored one where both have the same key or the same
// visible text in the same place. A value that is still masked after that is an error;
// if nothing is stored, every masked value is. Elements of an array are in the same
// place only as long as none is removed, inserted or moved. Everything else stays as it
// is, and so does a payload that is not JSON.
func Unmask(payload, stored json.RawMessage) (json.RawMessage, []belfry.FieldError) {
	// A star may be escaped.
	if !bytes.Contains(payload, []byte(Masked)) && !bytes.Contains(payload, []byte(`\u002`)) || !json.Valid(payload) {
		return payload, nil
	}
	var behind *node
	if json.Valid(stored) {
		behind = readNode(stored)
	}
	u := unmasker{payload: payload}
	u.value("payload", readNode(payload), behind, false)
	if u.from > 0 {
		u.out.Write(payload[u.from:])
		payload = u.out.Bytes()
	}
	return payload, u.errors
}

// unmasker copies a payload and replaces each masked secret on the way.
type unmasker struct {
	payload []byte
	from    int // the payload is copied up to here
	out     bytes.Buffer
	errors  []belfry.FieldError
}

func (u *unmasker) restore(n, behind *node) {
	u.out.Write(u.payload[u.from:n.start])
	u.out.Write(behind.raw)
	u.from = n.end
}

// value compares a value with the stored one in its place, if any. A secret was masked
// as a whole.
func (u *unmasker) value(path string, n, behind *node, secret bool) {
	switch n.kind {
	case '{':
		u.object(path, n, behind, secret)
	case '[':
		opposite := n.opposites(behind)
		for i, item := range n.items {
			u.value(fmt.Sprintf("%s[%d]", path, i), item, opposite(i), secret)
		}
	case '"':
		stored := behind != nil && behind.kind == '"'
		switch {
		case stored && behind.text == n.text: // nothing is masked here
		case stored && behind.masked == n.text:
			u.restore(n, behind)
		case secret && n.text == Masked, hides(n.text):
			u.errors = append(u.errors, belfry.FieldError{Field: path, Message: stillMasked})
		}
	}
}

func (u *unmasker) object(path string, n, behind *node, secret bool) {
	members := map[string][]*node{} // of the stored object, by key
	if behind != nil && behind.kind == '{' {
		for i, key := range behind.keys {
			members[key] = append(members[key], behind.items[i])
		}
	}
	for i, key := range n.keys {
		item, path := n.items[i], path+"."+sanitize.Text(key, 100)
		var opposite *node
		if left := members[key]; len(left) > 0 { // duplicate keys in their order
			opposite, members[key] = left[0], left[1:]
		}
		switch {
		case secret || !secretName(key):
			u.value(path, item, opposite, secret)
		case opposite != nil && item.kind == '"' && item.text == Masked:
			u.restore(item, opposite)
		case opposite != nil && bytes.Equal(item.raw, opposite.raw): // it was stored like that
		default:
			u.value(path, item, nil, true)
		}
	}
}

// hides reports whether a string has Masked in place of a secret.
func hides(text string) (found bool) {
	maskText(text, 0, func(secret string) string {
		found = found || secret == Masked
		return Masked
	})
	return found
}

// node is a JSON value that knows where it was written.
type node struct {
	kind       byte // '{', '[', '"', or 0 for any other scalar
	raw        []byte
	start, end int      // of raw in the whole
	text       string   // of a string
	masked     string   // the text without its secrets
	keys       []string // of an object
	items      []*node  // their values, or the elements of an array
	form       uint64   // hash of the value without its secrets
}

var formSeed = maphash.MakeSeed()

func readNode(whole []byte) *node {
	r := nodeReader{whole: whole, in: json.NewDecoder(bytes.NewReader(whole))}
	r.in.UseNumber()
	return r.value()
}

type nodeReader struct {
	whole []byte
	in    *json.Decoder
}

func (r *nodeReader) value() *node {
	n := &node{start: int(r.in.InputOffset())}
	for bytes.IndexByte([]byte(" \t\r\n,:"), r.whole[n.start]) >= 0 {
		n.start++
	}
	var form maphash.Hash
	form.SetSeed(formSeed)
	token, _ := r.in.Token() // the input is valid
	switch v := token.(type) {
	case json.Delim:
		n.kind = byte(v)
		form.WriteByte(n.kind)
		for r.in.More() {
			r.item(n, &form)
		}
		r.in.Token()
	case string:
		n.kind, n.text, n.masked = '"', v, maskText(v, 0, maskAll)
		form.WriteByte('"')
		form.WriteString(n.masked)
	default:
		form.Write(bytes.TrimSpace(r.whole[n.start:r.in.InputOffset()]))
	}
	n.end = int(r.in.InputOffset())
	n.raw, n.form = r.whole[n.start:n.end], form.Sum64()
	return n
}

// item reads a member of an object or an element of an array.
func (r *nodeReader) item(n *node, form *maphash.Hash) {
	hidden := false
	if n.kind == '{' {
		token, _ := r.in.Token()
		key, _ := token.(string)
		n.keys, hidden = append(n.keys, key), secretName(key)
		form.WriteString(key)
		form.WriteByte(0)
	}
	item := r.value()
	n.items = append(n.items, item)
	if hidden {
		form.WriteByte('*')
	} else {
		maphash.WriteComparable(form, item.form)
	}
}

// opposites returns a function that finds the element of an earlier array in the place
// of an element of this one. It returns nil where elements seem to have moved: a masked
// value does not tell which element it belongs to.
func (n *node) opposites(earlier *node) func(i int) *node {
	none := func(int) *node { return nil }
	if earlier == nil || earlier.kind != '[' || len(n.items) < len(earlier.items) {
		return none
	}
	same := func(a, b *node) bool { return a.form == b.form }
	appended := len(n.items) > len(earlier.items)
	if appended && !slices.EqualFunc(n.items[:len(earlier.items)], earlier.items, same) {
		return none
	}
	forms := make(map[uint64]bool, len(earlier.items))
	for _, item := range earlier.items {
		forms[item.form] = true
	}
	return func(i int) *node {
		if i >= len(earlier.items) || !same(n.items[i], earlier.items[i]) && forms[n.items[i].form] {
			return nil
		}
		return earlier.items[i]
	}
}
