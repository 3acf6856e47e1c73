package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/store"
)

// Errors about the server are told from those about what it was asked, and from those
// after which something may have been written.
func TestErrorsAboutTheServer(t *testing.T) {
	for _, tt := range []struct {
		code           string
		trouble, known bool
	}{
		{"55P03", true, true},  // lock not available
		{"53100", true, true},  // disk full
		{"53300", true, true},  // too many connections
		{"40P01", true, true},  // deadlock
		{"40001", true, true},  // serialization failure
		{"25006", true, true},  // read-only
		{"57014", true, true},  // statement timeout
		{"57P01", true, false}, // shutdown
		{"08006", true, false}, // connection failure
		{"58030", true, false}, // input or output error
		{"22021", false, false},
		{"23514", false, false},
		{"42P01", false, false},
	} {
		err := wrapError("fire", fmt.Errorf("query: %w", &pgconn.PgError{Code: tt.code, Message: "x"}))
		_, known := errors.AsType[*belfry.Error](err)
		if store.IsTrouble(err) != tt.trouble || known != tt.known {
			t.Errorf("%s: trouble %v, known %v: %v", tt.code, store.IsTrouble(err), known, err)
		}
	}
}

// After one statement without an answer all connections are replaced, so that the next
// one works.
func TestSilentConnectionsAreReplaced(t *testing.T) {
	proxy := pgtest.NewProxy(t, pgtest.Database(t, Migrate))
	s := open(t, Options{URL: proxy.URL()})
	for range 8 { // Several connections are idle.
		conns := make(chan error, 6)
		for range cap(conns) {
			go func() { conns <- s.Ping(context.Background()) }()
			go func() {
				_, err := s.CountReady(context.Background(), 1)
				conns <- err
			}()
		}
		for range 2 * cap(conns) {
			if err := <-conns; err != nil {
				t.Fatal(err)
			}
		}
	}
	proxy.Silence()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := s.CountReady(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a statement on a silent connection: %v", err)
	}
	for name, call := range map[string]func(context.Context) error{
		"work":     func(ctx context.Context) error { _, err := s.CountReady(ctx, 1); return err },
		"priority": func(ctx context.Context) error { _, err := s.Held(ctx, "node/"); return err },
		"reads": func(ctx context.Context) error {
			_, err := s.ListEvents(ctx, "default", belfry.EventFilter{}, store.Page{Limit: 1})
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if err := call(ctx); err != nil {
			t.Errorf("%s: the next statement: %v", name, err)
		}
		cancel()
	}
}

// Somebody who reads the history in a long transaction does not stop the cluster: neither
// when a node starts that has partitions to make, nor when one is to be dropped.
func TestLongReaderStopsNobody(t *testing.T) {
	s := openEmpty(t)
	job := createDue(t, s, withSchedule("0 0 1 1 *"))
	insertSettled(t, s, belfry.NewID(s.Now()), 40, 0)
	last := s.Now().UTC().AddDate(0, 0, daysAhead).Format(partitionName)
	execSQL(t, s, `DROP TABLE belfry.`+last)
	conn, err := pgx.ConnectConfig(t.Context(), s.pool.Config().ConnConfig.Copy())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, sql := range []string{`SET idle_in_transaction_session_timeout = 0`, `BEGIN`, `SELECT count(*) FROM belfry.history`} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 2)
	go func() {
		other, err := Open(context.Background(), Options{URL: s.pool.Config().ConnString()})
		if err == nil {
			err = other.Close()
		}
		done <- err
	}()
	go func() {
		_, err := s.Prune(context.Background(), 30*24*time.Hour)
		done <- err
	}()
	left := 2
	for left > 0 {
		select {
		case err := <-done:
			if left--; err != nil {
				t.Error(err)
			}
		default:
		}
		start := time.Now()
		fireTrigger(t, s, job)
		finishNext(t, s, belfry.OutcomeSucceeded)
		if took := time.Since(start); took > time.Second { // 300 ms, and what a slow machine needs
			t.Errorf("firing and finishing took %s", took)
		}
	}
	if _, err := conn.Exec(t.Context(), `COMMIT`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Prune(t.Context(), 30*24*time.Hour); err != nil {
		t.Fatal(err)
	}
	if n := countRows(t, s, `history WHERE settled_at < clock_timestamp() - interval '30 days'`); n != 0 {
		t.Errorf("%d old rows are left after the reader has gone", n)
	}
	if names, err := partitionNames(t.Context(), s.pool); err != nil || !slices.Contains(names, last) {
		t.Errorf("the partitions are %v (%v), want %s too", names, err, last)
	}
}

// A server that takes no writes is not ready, and says why, until it takes one.
func TestPingOfAServerThatTakesNoWrites(t *testing.T) {
	s := openEmpty(t)
	ping := func(want string) {
		t.Helper()
		err := s.Ping(t.Context())
		if want == "" && err != nil || want != "" && (belfry.CodeOf(err) != belfry.Unavailable || !strings.Contains(err.Error(), want)) {
			t.Errorf("the server is %v, want %q", err, want)
		}
	}
	ping("")
	tracer := &healthTracer{log: s.log, writeFailure: &s.writeFailure}
	tracer.TraceQueryEnd(t.Context(), nil, pgx.TraceQueryEndData{Err: fmt.Errorf("fire: %w", &pgconn.PgError{Code: "53100"})})
	ping("its disk is full")
	if _, err := s.Hold(t.Context(), belfry.NewID(s.Now()), []string{"x"}, time.Second); err != nil {
		t.Fatal(err)
	}
	ping("")
	conn, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), `SET default_transaction_read_only = on`); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `UPDATE belfry.settings SET value = value`); sqlState(err) != "25006" {
		t.Fatalf("a write while all is read-only: %v", err)
	}
	ping("it is read-only")
}
