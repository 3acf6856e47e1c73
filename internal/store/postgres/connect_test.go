package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/plan"
)

func TestPoolerIsRecognised(t *testing.T) {
	direct := pgtest.Database(t, nil)
	for address, want := range map[string]bool{
		direct: false,
		withParam(t, direct, "default_query_exec_mode", "exec"): true,
		pgtest.Pooler(t, direct):                                true,
	} {
		c, err := inspect(t.Context(), address)
		if err != nil || c.behindPooler != want || usesPooler(c.config.ConnConfig) != want {
			t.Errorf("%s: got %+v (%v), want a pooler: %v", address, c, err, want)
		}
	}
	s := open(t, Options{URL: pgtest.Pooler(t, direct)})
	if job := createDue(t, s); planOf(t, s, job).JobID != job.ID {
		t.Error("a job that was created through the pooler is not there")
	}
}

// refusingServer is the address of a server that answers every client with an error.
func refusingServer(t *testing.T, code, message string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			server := pgproto3.NewBackend(conn, conn)
			if _, err := server.ReceiveStartupMessage(); err == nil {
				server.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: code, Message: message})
				server.Flush() // the client may be gone
			}
			conn.Close()
		}
	}()
	return listener.Addr().String()
}

// An error says what was tried and why it failed, in one line and without the password.
func TestConnectErrors(t *testing.T) {
	server, err := url.Parse(pgtest.Database(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	starting := refusingServer(t, "57P03", "the database system is starting up")
	password, _ := server.User.Password()
	for _, tt := range []struct {
		name, url string
		code      belfry.Code
		says      []string
	}{
		{"no server", "postgres://ann:secret@127.0.0.1:1/jobs", belfry.Unavailable, []string{`PostgreSQL at 127.0.0.1:1, database "jobs", user "ann"`, ": connection refused"}},
		{"two servers", "postgres://ann:secret@127.0.0.1:1,127.0.0.1:2/jobs?sslmode=disable", belfry.Unavailable, []string{"at 127.0.0.1:1, 127.0.0.1:2, database"}},
		{"a server that starts", "postgres://ann:secret@" + starting + "/jobs?sslmode=disable", belfry.Unavailable, []string{starting, "the database system is starting up"}},
		{"a wrong password", "postgres://postgres:secret@" + server.Host + "/postgres?sslmode=disable", belfry.Unavailable, []string{`password authentication failed for user "postgres"`}},
		{"no such database", "postgres://" + server.User.String() + "@" + server.Host + "/nothing?sslmode=disable", belfry.Unavailable, []string{`database "nothing" does not exist`}},
		{"a bad port", "postgres://ann:secret@127.0.0.1:port/jobs", belfry.Invalid, []string{"postgres://user:password@host:5432/database"}},
		{"a bad option", "postgres://ann:secret@127.0.0.1/jobs?sslmode=maybe", belfry.Invalid, []string{"sslmode"}},
	} {
		_, err := Open(t.Context(), Options{URL: tt.url})
		if belfry.CodeOf(err) != tt.code {
			t.Errorf("%s: got %v, want the code %s", tt.name, err, tt.code)
			continue
		}
		for _, want := range tt.says {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %q, want something with %q", tt.name, err, want)
			}
		}
		if text := err.Error(); strings.ContainsAny(text, "\n\t") || strings.Contains(text, "secret") || strings.Contains(text, password) {
			t.Errorf("%s: got %q", tt.name, text)
		}
	}
}

func TestConnectionsOfANode(t *testing.T) {
	address := pgtest.Database(t, Migrate)
	for _, tt := range []struct {
		options Options
		want    int
	}{
		{Options{URL: address}, DefaultConnections},
		{Options{URL: address, Connections: MinConnections}, MinConnections},
		{Options{URL: address, Connections: 50}, 50},
		{Options{URL: withParam(t, address, "pool_max_conns", "12")}, 12},
		{Options{URL: withParam(t, address, "pool_max_conns", "12"), Connections: 9}, 9},
	} {
		s := open(t, tt.options)
		total := listenConnections
		for name, p := range s.pools() {
			n := int(p.Config().MaxConns)
			if total += n; n < 2 {
				t.Errorf("of %d connections, the pool %q has %d", tt.want, name, n)
			}
		}
		if total != tt.want {
			t.Errorf("the node may open %d connections, want %d", total, tt.want)
		}
	}
	if _, err := Open(t.Context(), Options{URL: address, Connections: 5}); belfry.CodeOf(err) != belfry.Invalid || !strings.Contains(err.Error(), "allow it 8 or more") {
		t.Errorf("with 5 connections: %v", err)
	}
}

// acquireAll keeps all connections of a pool until the test ends.
func acquireAll(t *testing.T, p *pool) {
	t.Helper()
	for range p.Config().MaxConns {
		conn, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Release)
	}
}

// Jobs are fired and results are stored while other writes keep all connections of theirs, and
// while more of them are under way than have connections of their own.
func TestFiringAndResultsHaveTheirOwnConnections(t *testing.T) {
	for _, tt := range []struct {
		name        string
		connections int
		busy        func(s *Store) *pool
	}{
		{"writes", DefaultConnections, func(s *Store) *pool { return s.pool }},
		{"firing", DefaultConnections, func(s *Store) *pool { return s.firePool }},
		{"results", DefaultConnections, func(s *Store) *pool { return s.finishPool }},
		{"few connections", MinConnections, func(s *Store) *pool { return s.readPool }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := open(t, Options{URL: pgtest.Database(t, Migrate), Connections: tt.connections})
			var results []belfry.Result
			for _, outcome := range []belfry.Outcome{belfry.OutcomeSucceeded, belfry.OutcomeFailed} {
				fireNext(t, s, createDue(t, s))
				results = append(results, resultOf(claimOne(t, s), outcome))
			}
			next := createDue(t, s)
			step := plan.Decide(subjectOf(t, next), planOf(t, s, next), time.Time{}, s.Now())
			acquireAll(t, tt.busy(s))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			verdicts, err := s.Finish(ctx, results)
			if err != nil || verdicts[0] != belfry.VerdictAccepted || verdicts[1] != belfry.VerdictAccepted {
				t.Errorf("finish: %v, %v", verdicts, err)
			}
			var archived int
			if err := s.priorityPool.QueryRow(ctx, `SELECT count(*) FROM belfry.ended`).Scan(&archived); err != nil || archived != 1 {
				t.Errorf("%d finished one-offs are archived, want 1: %v", archived, err)
			}
			if fired, err := s.Fire(ctx, belfry.NewID(s.Now()), []plan.Step{step}); err != nil || !fired.Applied[0] {
				t.Errorf("fire: %v, %v", fired.Applied, err)
			}
		})
	}
}

// Reads of the API that keep all their connections delay nothing else.
func TestReadsHaveTheirOwnConnections(t *testing.T) {
	s := openEmpty(t)
	job := createDue(t, s)
	acquireAll(t, s.readPool)
	fireNext(t, s, job)
	finishNext(t, s, belfry.OutcomeSucceeded)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Job(ctx, job.Namespace, job.ID); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a read without a connection: %v", err)
	}
}

// A call waits while the server has no connection left.
func TestCallsWaitForAConnection(t *testing.T) {
	s := openEmpty(t)
	const role = "belfry_limited"
	execSQL(t, s, `DO $$ BEGIN CREATE ROLE `+role+` LOGIN PASSWORD 'secret'; EXCEPTION WHEN duplicate_object THEN NULL; END $$`)
	execSQL(t, s, `ALTER ROLE `+role+` CONNECTION LIMIT 10`)
	address, err := url.Parse(s.pool.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	address.User = url.UserPassword(role, "secret")
	c, err := inspect(t.Context(), address.String())
	if err != nil {
		t.Fatal(err)
	}
	limited := &Store{log: s.log}
	if err := limited.connect(t.Context(), c, 0); err != nil {
		t.Fatal(err)
	}
	defer limited.closePools()
	var taken []*pgx.Conn
	for {
		conn, err := pgx.Connect(t.Context(), address.String())
		if err != nil {
			if !noConnectionLeft(err) {
				t.Fatal(err)
			}
			break
		}
		taken = append(taken, conn)
	}
	for _, idle := range limited.pool.AcquireAllIdle(t.Context()) {
		defer idle.Release()
	}
	release := time.AfterFunc(300*time.Millisecond, func() { taken[0].Close(context.Background()) })
	defer release.Stop()
	started := time.Now()
	var n int
	if err := limited.pool.QueryRow(t.Context(), `SELECT 1`).Scan(&n); err != nil || n != 1 || time.Since(started) < 200*time.Millisecond {
		t.Errorf("got %d after %v: %v", n, time.Since(started), err)
	}
	for _, conn := range taken[1:] {
		conn.Close(t.Context())
	}
}

// A statement_timeout of the role or the database does not cancel a migration, also where
// no startup parameter can be sent.
func TestStatementTimeoutDoesNotCancelMigrations(t *testing.T) {
	direct := pgtest.Database(t, Migrate)
	s := open(t, Options{URL: direct})
	execSQL(t, s, fmt.Sprintf(`ALTER DATABASE %s SET statement_timeout = '50ms'`, s.pool.Config().ConnConfig.Database))
	c, err := inspect(t.Context(), pgtest.Pooler(t, direct))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.ConnectConfig(t.Context(), c.config.ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var timeout string
	if err := conn.QueryRow(t.Context(), `SHOW statement_timeout`).Scan(&timeout); err != nil || timeout != "50ms" {
		t.Fatalf("the timeout of the session is %s (%v)", timeout, err)
	}
	files := fstest.MapFS{}
	for n := range queryInt(t, s, `SELECT max(version) FROM belfry.migrations`) {
		files[fmt.Sprintf("migrations/%04d_known.sql", n+1)] = &fstest.MapFile{}
	}
	files[fmt.Sprintf("migrations/%04d_slow.sql", len(files)+1)] = &fstest.MapFile{Data: []byte(`SELECT pg_sleep(0.2)`)}
	if err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return migrate(t.Context(), tx, files) }); err != nil {
		t.Error(err)
	}
}

func TestOldServersAreRefused(t *testing.T) {
	if err := checkVersion(150000); err != nil {
		t.Error(err)
	}
	if err := checkVersion(140009); belfry.CodeOf(err) != belfry.Invalid || !strings.Contains(err.Error(), "PostgreSQL 14.9, and Belfry needs 15 or newer") {
		t.Errorf("got %v", err)
	}
}
