package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/belfry-sh/belfry/internal/store/postgres"
)

// waitLog is a log that calls a function when a node begins to wait for its database.
type waitLog struct {
	mu      sync.Mutex // guards text
	text    bytes.Buffer
	waiting func()
}

func (l *waitLog) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("waiting for the database")) {
		l.waiting()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func TestStartWaitsForTheDatabase(t *testing.T) {
	server := pgtest.Database(t, postgres.Migrate)
	execute := func(sql string) {
		conn, err := pgx.Connect(context.Background(), server)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(context.Background(), sql); err != nil {
			t.Error(err)
		}
	}
	proxy := pgtest.NewProxy(t, server)
	proxy.Cut()
	later, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	name := "later_" + strings.ReplaceAll(belfry.NewID(time.Now()).String(), "-", "")
	later.Path = "/" + name
	t.Cleanup(func() { execute("DROP DATABASE IF EXISTS " + name + " WITH (FORCE)") })
	for _, tt := range []struct {
		name, url string
		cure      func()
	}{
		{"the server cannot be reached", proxy.URL(), proxy.Heal},
		{"the database does not exist", later.String(), func() { execute("CREATE DATABASE " + name) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			log := &waitLog{waiting: sync.OnceFunc(tt.cure)}
			c := Defaults()
			c.Listen, c.DatabaseURL = "127.0.0.1:0", tt.url
			n, err := New(t.Context(), c, slog.New(slog.NewTextHandler(log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			n.close()
			if got := log.text.String(); strings.Count(got, "waiting") != 1 {
				t.Errorf("the log is\n%s", got)
			}
		})
	}
}

func TestStartStopsWaitingWhenItIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := Defaults()
	c.Listen, c.DatabaseURL, c.DatabaseWait = "127.0.0.1:0", "postgres://127.0.0.1:1/x", time.Hour
	_, err := New(ctx, c, slog.New(slog.NewTextHandler(&waitLog{waiting: cancel}, nil)))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestWaitForTheDatabase(t *testing.T) {
	down := func(why string) error { return belfry.Errorf(belfry.Unavailable, "cannot connect: %s", why) }
	for _, tt := range []struct {
		name    string
		wait    time.Duration
		attempt func(n int) error
		took    time.Duration
		logged  int
		says    string
	}{
		{"it is there", time.Minute, func(int) error { return nil }, 0, 0, ""},
		{"it comes", time.Minute, func(n int) error {
			if n < 4 {
				return down("refused")
			}
			return nil
		}, 1750 * time.Millisecond, 1, ""},
		{"it never comes", 30 * time.Second, func(int) error { return down("refused") }, 30 * time.Second, 1, "cannot connect: refused; it was tried for 30s, see --database-wait"},
		{"it gets nearer", 30 * time.Second, func(n int) error { return down([]string{"refused", "starting up", "no such database"}[min(n-1, 5)/2]) }, 30 * time.Second, 3, "no such database"},
		{"without patience", 0, func(int) error { return down("refused") }, 0, 0, "--database-url: cannot connect: refused"},
		{"waiting is no cure", time.Minute, func(int) error { return belfry.Errorf(belfry.Invalid, "read the database URL") }, 0, 0, "--database-url: read the database URL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &waitLog{waiting: func() {}}
				node := &Node{config: Config{DatabaseWait: tt.wait}, log: slog.New(slog.NewTextHandler(log, nil))}
				start, attempts := time.Now(), 0
				err := node.waitForDatabase(t.Context(), func() error {
					attempts++
					return tt.attempt(attempts)
				})
				if got := fmt.Sprint(err); (err != nil) != (tt.says != "") || tt.says != "" && !strings.HasSuffix(got, tt.says) && !strings.Contains(got, tt.says+";") {
					t.Errorf("got %v, want %q", err, tt.says)
				}
				if took := time.Since(start); took != tt.took {
					t.Errorf("it took %s, want %s", took, tt.took)
				}
				if n := strings.Count(log.text.String(), "waiting"); n != tt.logged {
					t.Errorf("after %d attempts the log is\n%s", attempts, &log.text)
				}
			})
		})
	}
}
