package pgtest

import (
	"bytes"
	"strings"
)

// session follows what one client asks of the server, far enough to know which answer belongs to which statement.
//
// The server ends every answer with one "ready for query": to the introduction, to each simple query, and to
// each Sync, which closes a round of the extended protocol. So it is enough to keep the rounds in order.
type session struct {
	proxy      *Proxy
	statements map[string]string // SQL in lower case, by the statement's name
	portals    map[string]string // the same, by the portal's name
	current    round             // not yet closed by a Sync
	waiting    []round           // sent whole, not yet answered
	marks      []*order          // those that want the reply of the present transaction's commit
}

// round is what the server answers with one "ready for query".
type round struct {
	eat  bool
	sync bool // closed by a Sync
}

func newSession(p *Proxy) session {
	return session{
		proxy:      p,
		statements: map[string]string{},
		portals:    map[string]string{},
		waiting:    []round{{}}, // the introduction
	}
}

// question takes note of a message of the client and reports whether the server may have it.
func (s *session) question(m message) bool {
	copying := strings.IndexByte("dcf", m.kind()) >= 0
	if s.doomed() && !copying {
		return false // the client will never learn what became of it, so it had better not happen
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
		s.forget(m.body())
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

// answer takes note of a message of the server. It reports whether the client may have it, and whether it was the
// end of an answer that had to be eaten.
func (s *session) answer(m message) (deliver, last bool) {
	r := s.current
	if len(s.waiting) > 0 {
		r = s.waiting[0]
	}
	if m.kind() != 'Z' {
		return !r.eat || m.kind() == 'G', false // a client that copies waits for this before it sends its data
	}
	if len(s.waiting) > 0 {
		s.waiting = s.waiting[1:]
	}
	return !r.eat, r.eat
}

// doomed reports whether a round under way is the last of this client.
func (s *session) doomed() bool {
	for _, r := range s.waiting {
		if r.eat {
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

// reopen is for the end of copied data in the extended protocol: a Sync that came before it went unheard, and there
// will be another one.
func (s *session) reopen() {
	for n := len(s.waiting); n > 0 && s.waiting[n-1].sync; n = len(s.waiting) {
		s.current.eat = s.current.eat || s.waiting[n-1].eat
		s.waiting = s.waiting[:n-1]
	}
}

// execute decides whether the present round's answer is to be eaten because of sql.
func (s *session) execute(sql string) {
	if s.proxy.take(s.proxy.matching(sql, false)) {
		s.current.eat = true
	}
	first := verb(sql)
	if first == "begin" || first == "start" {
		s.marks = nil
	}
	s.marks = append(s.marks, s.proxy.matching(sql, true)...)
	switch first {
	case "commit", "end":
		if s.proxy.take(s.marks) {
			s.current.eat = true
		}
		s.marks = nil
	case "rollback", "abort":
		if !strings.Contains(sql, " to ") { // a savepoint
			s.marks = nil
		}
	}
}

// forget drops a statement or portal that the client closes.
func (s *session) forget(body []byte) {
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
