package pgtest

import (
	"bufio"
	"bytes"
	"testing"
)

func TestVerb(t *testing.T) {
	for sql, want := range map[string]string{
		"commit":                          "commit",
		"  commit;":                       "commit",
		"-- over\n/* and */ ; out\n":      "out",
		"/* fire */ with x as (select 1)": "with",
		"rollback to savepoint a":         "rollback",
		"committed":                       "committed",
		"":                                "",
		"/* never closed":                 "",
		"-- only a comment":               "",
		"(select 1)":                      "",
	} {
		if got := verb(sql); got != want {
			t.Errorf("the verb of %q is %q, want %q", sql, got, want)
		}
	}
}

func FuzzSession(f *testing.F) {
	f.Add([]byte("Q\x00\x00\x00\x0bcommit\x00"), []byte("Z\x00\x00\x00\x05I"))
	f.Add([]byte("P\x00\x00\x00\x08a\x00b\x00B\x00\x00\x00\x06\x00aE\x00\x00\x00\x05\x00S\x00\x00\x00\x04"), []byte("E\x00\x00\x00\x04"))
	f.Add([]byte("C\x00\x00\x00\x04c\x00\x00\x00\x04"), []byte("Z\x00\x00\x00\x04Z\x00\x00\x00\x04"))
	f.Fuzz(func(t *testing.T, questions, answers []byte) {
		p := &Proxy{rules: []*dropRule{{match: "b", left: 1}, {match: "c", left: 1, onCommit: true}}}
		s := newSession(p)
		var m message
		for in := bufio.NewReader(bytes.NewReader(questions)); m.read(in) == nil; {
			s.request(m)
		}
		for in := bufio.NewReader(bytes.NewReader(answers)); m.read(in) == nil; {
			waiting := len(s.waiting)
			if _, last := s.response(m); last && m.kind() != 'Z' {
				t.Fatal("a response was dropped before its end")
			}
			if m.kind() == 'Z' && waiting > 0 && len(s.waiting) != waiting-1 {
				t.Fatal("the end of an answer did not end one round")
			}
		}
		readStartup(bufio.NewReader(bytes.NewReader(questions)))
	})
}
