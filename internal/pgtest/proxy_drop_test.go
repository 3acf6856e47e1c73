package pgtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func migrateRows(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "CREATE TABLE rows (n int UNIQUE, note text)")
	return err
}

const (
	insert      = "INSERT INTO rows (n) VALUES ($1)"
	insertFired = "INSERT INTO rows (n) /* fire */ VALUES ($1)"
)

// modes are the ways in which pgx sends a statement.
var modes = []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"}

// proxyTest is a proxy to a database with a table of rows, and a direct connection to the database.
type proxyTest struct {
	*Proxy
	t      *testing.T
	direct *pgx.Conn
}

func newProxyTest(t *testing.T) *proxyTest {
	t.Helper()
	url := Database(t, migrateRows)
	return &proxyTest{NewProxy(t, url), t, connect(t, url)}
}

// connect returns a connection through the proxy.
func (s *proxyTest) connect(mode string) *pgx.Conn {
	s.t.Helper()
	return connect(s.t, s.URL(), "default_query_exec_mode="+mode)
}

// expect compares the table's rows and the number of dropped replies.
func (s *proxyTest) expect(when, rows string, dropped int) {
	s.t.Helper()
	got := queryValue[string](s.t, s.direct, "SELECT coalesce(string_agg(n::text, ' ' ORDER BY n), '') FROM rows")
	if got != rows || s.Eaten() != dropped {
		s.t.Fatalf("%s: rows %q and %d replies dropped, want %q and %d", when, got, s.Eaten(), rows, dropped)
	}
}

// wantLost checks that a call ended without a reply, and that the connection is closed.
func (s *proxyTest) wantLost(conn *pgx.Conn, err error) {
	s.t.Helper()
	var answer *pgconn.PgError
	if err == nil || errors.As(err, &answer) {
		s.t.Fatalf("the call ended with %v, want its reply lost", err)
	}
	if err := conn.Ping(s.t.Context()); err == nil {
		s.t.Fatal("the connection still works")
	}
}

func (s *proxyTest) do(conn *pgx.Conn, sql string, args ...any) {
	s.t.Helper()
	if _, err := conn.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

func TestProxyDropsReplyOfAStatement(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s, ctx := newProxyTest(t), t.Context()
			a, b := s.connect(mode), s.connect(mode)
			s.do(a, insertFired, 1) // prepares it, where the mode prepares
			s.EatReplies("/* FIRE */", 2)
			s.do(a, insert, 2)
			s.expect("nothing asked for", "1 2", 0)

			_, err := a.Exec(ctx, insertFired, 3)
			s.wantLost(a, err)
			s.expect("first reply", "1 2 3", 1)

			rows, err := b.Query(ctx, insertFired+" RETURNING n", 4) // not prepared yet
			if err == nil {
				_, err = pgx.CollectRows(rows, pgx.RowTo[int])
			}
			s.wantLost(b, err)
			s.expect("second reply", "1 2 3 4", 2)

			c := s.connect(mode)
			s.do(c, insertFired, 5)
			s.do(c, insertFired, 6)
			s.expect("the order is filled", "1 2 3 4 5 6", 2)
		})
	}
}

func TestProxyDropsReplyOfACommit(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s, ctx := newProxyTest(t), t.Context()
			s.EatReplies("commit", 1)
			conn := s.connect(mode)
			tx, err := conn.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(ctx, insert, 1); err != nil {
				t.Fatal(err)
			}
			s.expect("before the commit", "", 0)
			s.wantLost(conn, tx.Commit(ctx))
			s.expect("after the commit", "1", 1)
		})
	}
}

func TestProxyDropsReplyInsideATransaction(t *testing.T) {
	s, ctx := newProxyTest(t), t.Context()
	s.EatReplies("/* fire */", 1)
	conn := s.connect("exec")
	s.do(conn, "BEGIN")
	_, err := conn.Exec(ctx, insertFired, 1)
	s.wantLost(conn, err)
	s.expect("lost inside", "", 1)
}

func TestProxyDropsCommitOfMatchingTransactionsOnly(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s, ctx := newProxyTest(t), t.Context()
			s.EatCommits("/* fire */", 2)
			conn := s.connect(mode)
			for i, test := range []struct {
				name       string
				statements []string
			}{
				{"outside a transaction", []string{insertFired}},
				{"no mark", []string{"begin", insert, "commit"}},
				{"rolled back before", []string{"begin", insertFired, "rollback", "begin", insert, "commit"}},
				{"outside before", []string{insertFired, "start transaction", insert, "end"}},
			} {
				for j, sql := range test.statements {
					if sql == insert || sql == insertFired {
						s.do(conn, sql, 100+10*i+j)
					} else {
						s.do(conn, sql)
					}
				}
				if s.Eaten() != 0 {
					t.Fatalf("%s: a reply was dropped", test.name)
				}
			}
			s.do(s.direct, "TRUNCATE rows")

			s.do(conn, "BEGIN")
			s.do(conn, insertFired, 1)
			s.do(conn, "SAVEPOINT here")
			s.do(conn, insert, 2)
			s.do(conn, "ROLLBACK TO here")
			_, err := conn.Exec(ctx, "/* the end */ COMMIT")
			s.wantLost(conn, err)
			s.expect("marked, in spite of a savepoint", "1", 1)

			conn = s.connect(mode)
			s.do(conn, "BEGIN")
			s.do(conn, insertFired, 3)
			_, err = conn.Exec(ctx, "END")
			s.wantLost(conn, err)
			s.expect("marked again", "1 3", 2)

			conn = s.connect(mode)
			s.do(conn, "BEGIN")
			s.do(conn, insertFired, 4)
			s.do(conn, "COMMIT")
			s.expect("the order is filled", "1 3 4", 2)
		})
	}
}

func TestProxyDropsReplyOfABatch(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s, ctx := newProxyTest(t), t.Context()
			conn := s.connect(mode)
			batch := func(from int) error {
				b := &pgx.Batch{}
				b.Queue(insert, from)
				b.Queue(insertFired, from+1)
				b.Queue(insert, from+2)
				return conn.SendBatch(ctx, b).Close()
			}
			if err := batch(1); err != nil {
				t.Fatal(err)
			}
			s.EatReplies("/* fire */", 1)
			s.wantLost(conn, batch(4))
			s.expect("batch", "1 2 3 4 5 6", 1)
		})
	}
}

func TestProxyDropsCommitOfABatch(t *testing.T) {
	s, ctx := newProxyTest(t), t.Context()
	s.EatCommits("/* fire */", 1)
	conn := s.connect("exec")
	b := &pgx.Batch{}
	b.Queue("begin")
	b.Queue(insertFired, 1)
	b.Queue("commit")
	s.wantLost(conn, conn.SendBatch(ctx, b).Close())
	s.expect("batch", "1", 1)
}

func TestProxyDropsReplyInAPipeline(t *testing.T) {
	s, ctx := newProxyTest(t), t.Context()
	s.EatReplies("/* fire */", 1)
	conn := s.connect("exec")
	pipeline := conn.PgConn().StartPipeline(ctx)
	for i, sql := range []string{insert, insertFired, insert} {
		pipeline.SendQueryParams(sql, [][]byte{fmt.Append(nil, i)}, nil, nil, nil)
		if err := pipeline.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	result, err := pipeline.GetResults()
	if err != nil {
		t.Fatalf("the first answer: %v", err)
	}
	if _, err := result.(*pgconn.ResultReader).Close(); err != nil {
		t.Fatalf("the first answer: %v", err)
	}
	if _, err := pipeline.GetResults(); err != nil { // its Sync
		t.Fatalf("the first answer's end: %v", err)
	}
	_, err = pipeline.GetResults()
	s.wantLost(conn, err)
	eventually(t, "the server is done with whatever it was sent", func() bool { return s.sessions() == 0 })
	s.expect("pipeline", "0 1", 1)
}

func TestProxyDropsErrors(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s, ctx := newProxyTest(t), t.Context()
			conn := s.connect(mode)
			s.do(conn, insertFired, 1)
			var answer *pgconn.PgError
			if _, err := conn.Exec(ctx, insertFired, 1); !errors.As(err, &answer) || answer.Code != "23505" {
				t.Fatalf("a duplicate: %v, want the server's error", err)
			}
			s.EatReplies("fire", 1)
			_, err := conn.Exec(ctx, insertFired, 1)
			s.wantLost(conn, err)
			s.expect("duplicate", "1", 1)
		})
	}
}
