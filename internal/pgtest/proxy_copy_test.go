package pgtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// copier is a connection or a transaction.
type copier interface {
	CopyFrom(context.Context, pgx.Identifier, []string, pgx.CopyFromSource) (int64, error)
}

// copyRows copies rows from..to-1, with enough beside to fill the buffers on the way many times.
func copyRows(t *testing.T, to copier, from, before int) error {
	t.Helper()
	note := strings.Repeat("x", 200)
	n, err := to.CopyFrom(t.Context(), pgx.Identifier{"rows"}, []string{"n", "note"},
		pgx.CopyFromSlice(before-from, func(i int) ([]any, error) { return []any{from + i, note}, nil }))
	if err == nil && n != int64(before-from) {
		return fmt.Errorf("copied %d rows, want %d", n, before-from)
	}
	return err
}

// expectCount compares the number of rows and of dropped replies.
func (s *proxyTest) expectCount(when string, rows, dropped int) {
	s.t.Helper()
	if got := queryValue[int](s.t, s.direct, "SELECT count(*) FROM rows"); got != rows || s.Eaten() != dropped {
		s.t.Fatalf("%s: %d rows and %d replies dropped, want %d and %d", when, got, s.Eaten(), rows, dropped)
	}
}

func TestProxyDropsReplyOfACopy(t *testing.T) {
	s, ctx := newProxyTest(t), t.Context()
	conn := s.connect("cache_statement")
	s.EatReplies("/* fire */", 1)
	if err := copyRows(t, conn, 0, 10_000); err != nil {
		t.Fatal(err)
	}
	s.expectCount("nothing asked for", 10_000, 0)

	var answer *pgconn.PgError
	if err := copyRows(t, conn, 9_000, 30_000); !errors.As(err, &answer) || answer.Code != "23505" {
		t.Fatalf("copy of duplicates: %v, want the server's error", err)
	}
	s.expectCount("a failed copy", 10_000, 0)

	s.EatReplies("copy", 1)
	s.do(conn, insert, 10_000) // the failed copy has not upset which answer is whose
	s.wantLost(conn, copyRows(t, conn, 10_001, 20_001))
	s.expectCount("dropped copy", 20_001, 1)

	conn = s.connect("cache_statement")
	_, err := conn.Exec(ctx, insertFired, 20_001)
	s.wantLost(conn, err)
	s.expectCount("dropped insert", 20_002, 2)
}

func TestProxyDropsCommitOfATransactionWithACopy(t *testing.T) {
	for _, mark := range []string{"copy", "/* fire */"} {
		s, ctx := newProxyTest(t), t.Context()
		s.EatCommits(mark, 1)
		conn := s.connect("exec")
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := copyRows(t, tx, 1, 1_000); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, insertFired, 1_000); err != nil {
			t.Fatal(err)
		}
		s.expectCount("before the commit", 0, 0)
		s.wantLost(conn, tx.Commit(ctx))
		s.expectCount("marked by "+mark, 1_000, 1)
	}
}

func TestProxyPassesCopyOut(t *testing.T) {
	s := newProxyTest(t)
	s.do(s.direct, "INSERT INTO rows SELECT i, repeat('y', 100) FROM generate_series(1, 50000) i")
	var out strings.Builder
	tag, err := s.connect("exec").PgConn().CopyTo(t.Context(), &out, "COPY rows TO STDOUT")
	if err != nil || tag.RowsAffected() != 50_000 || strings.Count(out.String(), "\n") != 50_000 {
		t.Fatalf("copied %v with %d lines: %v, want 50000", tag, strings.Count(out.String(), "\n"), err)
	}
}

// A Sync sent along with a COPY of the extended protocol is not heard by the server, which has data in mind by then.
func TestProxyCopyInTheExtendedProtocol(t *testing.T) {
	for _, early := range []bool{true, false} {
		s := newProxyTest(t)
		conn, err := pgconn.Connect(t.Context(), s.URL())
		if err != nil {
			t.Fatal(err)
		}
		hijacked, err := conn.Hijack()
		if err != nil {
			t.Fatal(err)
		}
		defer hijacked.Conn.Close()
		front := hijacked.Frontend

		copyIn := func(row string) {
			t.Helper()
			front.Send(&pgproto3.Parse{Query: "COPY rows FROM STDIN"})
			front.Send(&pgproto3.Bind{})
			front.Send(&pgproto3.Execute{})
			if early {
				front.Send(&pgproto3.Sync{})
			} else {
				front.Send(&pgproto3.Flush{})
			}
			flush(t, front)
			receiveUntil[*pgproto3.CopyInResponse](t, front)
			front.Send(&pgproto3.CopyData{Data: []byte(row)})
			front.Send(&pgproto3.CopyDone{})
			front.Send(&pgproto3.Sync{})
			flush(t, front)
		}
		copyIn("1\t\\N\n")
		receiveUntil[*pgproto3.ReadyForQuery](t, front)
		s.expect("passed", "1", 0)

		s.EatReplies("copy", 1)
		front.Send(&pgproto3.Query{String: "INSERT INTO rows VALUES (2)"})
		flush(t, front)
		receiveUntil[*pgproto3.ReadyForQuery](t, front)
		copyIn("3\t\\N\n")
		if m, err := front.Receive(); err == nil {
			t.Fatalf("received %T, want a closed connection", m)
		}
		s.expect("dropped", "1 2 3", 1)
	}
}

func flush(t *testing.T, front *pgproto3.Frontend) {
	t.Helper()
	if err := front.Flush(); err != nil {
		t.Fatal(err)
	}
}

// receiveUntil reads answers up to one of a kind, which must come without an error before it.
func receiveUntil[T pgproto3.BackendMessage](t *testing.T, front *pgproto3.Frontend) {
	t.Helper()
	for {
		m, err := front.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := m.(*pgproto3.ErrorResponse); ok {
			t.Fatalf("the server says %s", e.Message)
		}
		if _, ok := m.(T); ok {
			return
		}
	}
}
