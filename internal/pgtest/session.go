package pgtest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
)

// session follows the requests of one client, far enough to know which response belongs to which statement.
//
// The server ends every response with one "ready for query": to the startup message, to each simple query, and to each
// Sync, which closes a round of the extended protocol. So it is enough to keep the rounds in order.
type session struct {
	proxy       *Proxy
	statements  map[string]string // SQL in lower case, by the statement's name
	portals     map[string]string // the same, by the portal's name
	current     round             // not yet closed by a Sync
	waiting     []round           // sent completely, without a response
	commitRules []*dropRule       // those that match the current transaction, for its commit
}

// round is what the server ends with one "ready for query".
type round struct {
	drop bool
	sync bool // closed by a Sync
}

func newSession(p *Proxy) session {
	return session{
		proxy:      p,
		statements: map[string]string{},
		portals:    map[string]string{},
		waiting:    []round{{}}, // the startup message
	}
}

// request records a message of the client and reports whether to forward it.
func (s *session) request(m message) bool {
	copying := strings.IndexByte("dcf", m.kind()) >= 0
	if s.disconnecting() && !copying {
		return false // the client would never learn its outcome, so it must not happen
	}
	switch m.kind() {
	case 'P':
		name, rest := cutString(m.body())
		sql, _ := cutString(rest)
		s.statements[name] = strings.ToLower(sql)
	case 'B':
		portal, rest := cutString(m.body())
		name, _ := cutString(rest)
		s.portals[portal] = s.statements[name]
	case 'E':
		portal, _ := cutString(m.body())
		s.execute(s.portals[portal])
	case 'C':
		s.closeNamed(m.body())
	case 'Q':
		sql, _ := cutString(m.body())
		s.execute(strings.ToLower(sql))
		s.closeRound(false)
	case 'F':
		s.closeRound(false)
	case 'S':
		s.closeRound(true)
	case 'c', 'f':
		s.reopen()
	}
	return true
}

// response records a message of the server. It reports whether to forward it, and whether it was the end of a response
// that is dropped.
func (s *session) response(m message) (deliver, last bool) {
	r := s.current
	if len(s.waiting) > 0 {
		r = s.waiting[0]
	}
	if m.kind() != 'Z' {
		return !r.drop || m.kind() == 'G', false // a client that copies waits for this before it sends its data
	}
	if len(s.waiting) > 0 {
		s.waiting = s.waiting[1:]
	}
	return !r.drop, r.drop
}

// disconnecting reports whether a round without a response is the last of this client.
func (s *session) disconnecting() bool {
	for _, r := range s.waiting {
		if r.drop {
			return true
		}
	}
	return false
}

func (s *session) closeRound(sync bool) {
	s.current.sync = sync
	s.waiting = append(s.waiting, s.current)
	s.current = round{}
}

// reopen is for the end of copied data in the extended protocol: the server ignores a Sync before it, and there will be
// another one.
func (s *session) reopen() {
	for n := len(s.waiting); n > 0 && s.waiting[n-1].sync; n = len(s.waiting) {
		s.current.drop = s.current.drop || s.waiting[n-1].drop
		s.waiting = s.waiting[:n-1]
	}
}

// execute decides whether the response of the current round is dropped because of sql.
func (s *session) execute(sql string) {
	if s.proxy.useRule(s.proxy.matching(sql, false)) {
		s.current.drop = true
	}
	first := verb(sql)
	if first == "begin" || first == "start" {
		s.commitRules = nil
	}
	s.commitRules = append(s.commitRules, s.proxy.matching(sql, true)...)
	switch first {
	case "commit", "end":
		if s.proxy.useRule(s.commitRules) {
			s.current.drop = true
		}
		s.commitRules = nil
	case "rollback", "abort":
		if !strings.Contains(sql, " to ") { // a savepoint
			s.commitRules = nil
		}
	}
}

// closeNamed removes a statement or portal that the client closes.
func (s *session) closeNamed(body []byte) {
	if len(body) == 0 {
		return
	}
	name, _ := cutString(body[1:])
	if body[0] == 'S' {
		delete(s.statements, name)
	} else {
		delete(s.portals, name)
	}
}

// verb returns the first word of sql, which is in lower case, after any comments.
func verb(sql string) string {
	for {
		sql = strings.TrimLeft(sql, " \t\r\n;")
		switch {
		case strings.HasPrefix(sql, "--"):
			_, sql, _ = strings.Cut(sql, "\n")
		case strings.HasPrefix(sql, "/*"):
			_, sql, _ = strings.Cut(sql, "*/")
		default:
			end := strings.IndexFunc(sql, func(r rune) bool { return r < 'a' || r > 'z' })
			if end < 0 {
				return sql
			}
			return sql[:end]
		}
	}
}

// cutString splits body after its first zero-terminated string.
func cutString(body []byte) (string, []byte) {
	text, rest, _ := bytes.Cut(body, []byte{0})
	return string(text), rest
}

// What a client's first message, which has no kind, can be besides a startup message.
const (
	cancelRequest = 80877102
	sslRequest    = 80877103
	gssRequest    = 80877104
)

// Limits of the lengths of messages of the protocol (version 3).
const (
	maxStartup = 10_000
	maxMessage = 1 << 30
)

// message is one message of either side: a byte for its kind, four for the length of the rest, which includes
// themselves, and a body.
type message struct{ raw []byte }

func (m message) kind() byte   { return m.raw[0] }
func (m message) body() []byte { return m.raw[5:] }

// read replaces m with the next message. The memory is reused.
func (m *message) read(in *bufio.Reader) error {
	header, err := in.Peek(5)
	if err != nil {
		return err
	}
	size := int(binary.BigEndian.Uint32(header[1:]))
	if size < 4 || size > maxMessage {
		return fmt.Errorf("read a message of kind %q: its length is %d", header[0], size)
	}
	m.raw = m.raw[:0]
	for left := size + 1; left > 0 && err == nil; { // in pieces, so that a wrong length costs no memory
		have, piece := len(m.raw), min(left, 1<<20)
		m.raw = slices.Grow(m.raw, piece)[:have+piece]
		_, err = io.ReadFull(in, m.raw[have:])
		left -= piece
	}
	return err
}

// readStartup reads the first message of a client.
func readStartup(in *bufio.Reader) (code uint32, raw []byte, err error) {
	header, err := in.Peek(8)
	if err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(header)
	if size < 8 || size > maxStartup {
		return 0, nil, fmt.Errorf("read a startup message: its length is %d", size)
	}
	code = binary.BigEndian.Uint32(header[4:])
	raw = make([]byte, size)
	_, err = io.ReadFull(in, raw)
	return code, raw, err
}
