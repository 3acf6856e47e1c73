package secret

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
)

// Seal replaces the values of a payload that have secrets by what seal makes of their JSON: the
// values that Mask hides, and texts that it hides parts of. Texts that begin with the prefix of
// sealed ones are sealed as well. Open restores every byte. Everything else stays as it is, and
// so does a payload that is not JSON.
func Seal(payload json.RawMessage, prefix string, seal func(raw []byte) string) json.RawMessage {
	if !mayHaveSecrets(payload) && !bytes.Contains(payload, []byte(prefix)) || !json.Valid(payload) {
		return payload
	}
	s := sealer{payload: payload, prefix: prefix, seal: seal}
	s.value(readNode(payload), false)
	return append(s.out, payload[s.from:]...)
}

type sealer struct {
	payload []byte
	prefix  string
	seal    func([]byte) string
	from    int // the payload is copied up to here
	out     []byte
}

func (s *sealer) value(n *node, secret bool) {
	switch {
	case secret && n.raw[0] != 'n' && !onlyReferences(n.text), n.kind == '"' && (n.masked != n.text || strings.Contains(n.text, s.prefix)):
		s.out = append(append(s.out, s.payload[s.from:n.start]...), `"`+s.seal(n.raw)...)
		names, _ := References(string(n.raw))
		for _, name := range names { // so that they can be found
			s.out = append(s.out, " {{secret "+name+"}}"...)
		}
		s.out, s.from = append(s.out, '"'), n.end
	default:
		for i, item := range n.items {
			s.value(item, n.kind == '{' && secretName(n.keys[i]))
		}
	}
}

// Open restores what Seal has replaced. Opened returns the JSON of a sealed text.
func Open(payload json.RawMessage, prefix string, opened func(text string) ([]byte, error)) (json.RawMessage, error) {
	if !bytes.Contains(payload, []byte(prefix)) {
		return payload, nil
	}
	out, from := make([]byte, 0, len(payload)), 0
	for {
		at := bytes.Index(payload[from:], []byte(`"`+prefix))
		if at < 0 {
			return append(out, payload[from:]...), nil
		}
		at += from
		length := bytes.IndexByte(payload[at+1:], '"')
		if length < 0 {
			return append(out, payload[from:]...), nil
		}
		text, _, _ := strings.Cut(string(payload[at+1:at+1+length]), " ")
		raw, err := opened(text)
		if err != nil {
			return nil, err
		}
		out, from = append(append(out, payload[from:at]...), raw...), at+length+2
	}
}

// mayHaveSecrets reports whether Mask could change a payload. It costs little for those that it
// does not.
func mayHaveSecrets(payload []byte) bool {
	for rest := payload; ; {
		start := bytes.IndexByte(rest, '"')
		if start < 0 {
			return len(payload) > 0 && !json.Valid(payload)
		}
		rest = rest[start+1:]
		end := bytes.IndexByte(rest, '"')
		if end < 0 {
			return true
		}
		text := rest[:end]
		rest = rest[end+1:]
		if suspect(text) {
			return true
		}
		if after := bytes.TrimLeft(rest, " \t\r\n"); len(after) > 0 && after[0] == ':' && isSecretName(text) {
			return true
		}
	}
}

// suspect reports whether a text in quotes may have a secret. One with an escape is not looked
// into.
func suspect(text []byte) bool {
	if len(text) == 0 {
		return false
	}
	switch text[0] {
	case '{', '[', ' ':
		return true
	case 'b', 'B':
		if len(text) > 5 && bytes.IndexByte(text, ' ') >= 0 { // Bearer or Basic
			return true
		}
	}
	return bytes.HasPrefix(text, []byte("eyJ")) || bytes.IndexByte(text, '=') >= 0 || bytes.IndexByte(text, '@') >= 0 || bytes.IndexByte(text, '\\') >= 0
}

// names remembers what secretName said, for so many names.
var names struct {
	sync.Map
	count atomic.Int32
}

const maxNames = 10_000

func isSecretName(name []byte) bool {
	if known, ok := names.Load(string(name)); ok {
		return known.(bool)
	}
	hidden := secretName(string(name))
	if len(name) <= 50 && names.count.Add(1) <= maxNames {
		names.Store(string(name), hidden)
	}
	return hidden
}
