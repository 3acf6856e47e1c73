package pgtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"
)

// sessions counts the server's sessions that came through the proxy.
func (s *proxyTest) sessions() int {
	s.t.Helper()
	return queryValue[int](s.t, s.direct, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid()`)
}

func TestProxyCut(t *testing.T) {
	s, ctx := newProxyTest(t), t.Context()
	idle, busy := s.connect("exec"), s.connect("exec")
	ended := make(chan error, 1)
	go func() {
		_, err := busy.Exec(ctx, "SELECT pg_sleep(600)")
		ended <- err
	}()
	eventually(t, "the statement runs", func() bool {
		return queryValue[bool](t, s.direct, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database())")
	})
	s.Cut()
	s.wantLost(busy, <-ended)
	s.wantLost(idle, idle.Ping(ctx))
	if conn, err := pgx.Connect(ctx, s.URL()); err == nil {
		conn.Close(ctx)
		t.Fatal("a new connection was let in")
	}
	s.Heal()
	s.do(s.connect("exec"), insert, 1)
	s.expect("healed", "1", 0)
}

func TestProxyStall(t *testing.T) {
	s, ctx := newProxyTest(t), t.Context()
	conn := s.connect("exec")
	s.Stall()
	s.Stall() // is no different
	ended := make(chan error, 2)
	go func() {
		_, err := conn.Exec(ctx, insert, 1)
		ended <- err
	}()
	go func() {
		late, err := pgx.Connect(ctx, s.URL())
		if err == nil {
			_, err = late.Exec(ctx, insert, 2)
			late.Close(ctx)
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("a call ended with %v during the stall", err)
	case <-time.After(100 * time.Millisecond):
	}
	s.expect("stalled", "", 0)
	if n := s.sessions(); n != 1 {
		t.Fatalf("the server has %d sessions, want the old one only", n)
	}
	s.Heal()
	for range 2 {
		if err := <-ended; err != nil {
			t.Fatalf("after the stall: %v", err)
		}
	}
	s.expect("healed", "1 2", 0)
}

func TestProxyStallHidesAHangUp(t *testing.T) {
	for _, c := range []struct {
		name   string
		hangUp func(*pgx.Conn) error
	}{
		{"without a word", func(conn *pgx.Conn) error {
			return conn.PgConn().Conn().Close()
		}},
		{"out of patience with a statement", func(conn *pgx.Conn) error {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := conn.Exec(ctx, insert, 2); !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("a statement into the stall: %w, want it out of time", err)
			}
			return conn.Close(t.Context())
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newProxyTest(t)
			conn := s.connect("exec")
			s.do(conn, "BEGIN")
			s.do(conn, insert, 1)
			s.Stall()
			if err := c.hangUp(conn); err != nil {
				t.Fatal(err)
			}
			var answer *pgconn.PgError
			s.do(s.direct, "SET lock_timeout = '100ms'")
			if _, err := s.direct.Exec(t.Context(), insert, 1); !errors.As(err, &answer) || answer.Code != "55P03" {
				t.Fatalf("the same row from elsewhere: %v, want the lost client's lock to hold", err)
			}
			s.Heal()
			eventually(t, "the server hears of the hang-up", func() bool { return s.sessions() == 0 })
			s.expect("healed", "", 0)
		})
	}
}

func TestProxyCutEndsAStalledConnection(t *testing.T) {
	s, ctx := newProxyTest(t), t.Context()
	conn := s.connect("exec")
	s.Stall()
	ended := make(chan error, 1)
	go func() {
		_, err := conn.Exec(ctx, insert, 1)
		ended <- err
	}()
	s.Cut()
	s.wantLost(conn, <-ended)
	s.Heal()
	s.do(s.connect("exec"), insert, 2)
	eventually(t, "the old session goes", func() bool { return s.sessions() == 1 })
}

func TestProxyPassesTheProtocol(t *testing.T) {
	s, ctx := newProxyTest(t), t.Context()
	t.Run("a large answer", func(t *testing.T) {
		text := queryValue[string](t, s.connect("exec"), "SELECT repeat('0123456789', 2000000)")
		if text != strings.Repeat("0123456789", 2_000_000) {
			t.Errorf("the answer has %d bytes, or is not the same", len(text))
		}
	})
	t.Run("a large question", func(t *testing.T) {
		if n := queryValue[int](t, s.connect("exec"), "SELECT length($1::text)", strings.Repeat("x", 20_000_000)); n != 20_000_000 {
			t.Errorf("the server received %d bytes", n)
		}
	})
	t.Run("a notification", func(t *testing.T) {
		conn := s.connect("exec")
		do(t, conn, "LISTEN bell")
		do(t, s.direct, "NOTIFY bell, 'rung'")
		n, err := conn.WaitForNotification(ctx)
		if err != nil || n.Payload != "rung" {
			t.Errorf("notified of %v, %v", n, err)
		}
	})
	t.Run("a cancel request", func(t *testing.T) {
		conn := s.connect("exec")
		ended := make(chan error, 1)
		go func() {
			_, err := conn.Exec(ctx, "SELECT pg_sleep(600)")
			ended <- err
		}()
		eventually(t, "the statement runs", func() bool {
			return queryValue[bool](t, s.direct, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database())")
		})
		if err := conn.PgConn().CancelRequest(ctx); err != nil {
			t.Fatal(err)
		}
		var answer *pgconn.PgError
		if err := <-ended; !errors.As(err, &answer) || answer.Code != "57014" {
			t.Errorf("the statement ended with %v, want it cancelled", err)
		}
	})
	t.Run("a wish for encryption is declined", func(t *testing.T) {
		url := strings.Replace(s.URL(), "sslmode=disable", "sslmode=prefer", 1)
		do(t, connect(t, url), "SELECT 1")
	})
	t.Run("a refusal", func(t *testing.T) {
		config, err := pgx.ParseConfig(s.URL())
		if err != nil {
			t.Fatal(err)
		}
		config.Database = "nowhere"
		var answer *pgconn.PgError
		if _, err := pgx.ConnectConfig(ctx, config); !errors.As(err, &answer) || answer.Code != "3D000" {
			t.Errorf("connecting to no database: %v, want the server's refusal", err)
		}
	})
}

func TestProxyCloseLeaksNothing(t *testing.T) {
	url := Database(t, migrateRows)
	before := goleak.IgnoreCurrent()
	p := NewProxy(t, url)
	conn, stalled := connect(t, p.URL()), connect(t, p.URL())
	do(t, conn, "SELECT 1")
	p.Stall()
	ended := make(chan error, 1)
	go func() { ended <- stalled.Ping(t.Context()) }()
	p.Close()
	p.Close() // is no different
	if err := <-ended; err == nil {
		t.Error("a call through a closed proxy succeeded")
	}
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("a connection outlived the proxy")
	}
	goleak.VerifyNone(t, before)
}

func TestProxySurvivesACrashOfTheServer(t *testing.T) {
	server := Durable(t)
	p := NewProxy(t, server.URL())
	conn := connect(t, p.URL())
	if err := server.Crash(); err != nil {
		t.Fatal(err)
	}
	if err := conn.Ping(t.Context()); err == nil {
		t.Fatal("the connection outlived the server")
	}
	if conn, err := pgx.Connect(t.Context(), p.URL()); err == nil {
		conn.Close(t.Context())
		t.Fatal("connected to a server that is not there")
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	do(t, connect(t, p.URL()), "SELECT 1")
}
