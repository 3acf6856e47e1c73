package pgtest

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// envVictim makes the test binary start a server and come to a bad end, as a child of the real one.
const envVictim = "BELFRY_PGTEST_VICTIM"

func TestMain(m *testing.M) {
	if end := os.Getenv(envVictim); end != "" {
		runVictim(end)
	}
	os.Exit(Main(m))
}

// runVictim starts a server in a child of the test binary, prints its address, and ends in the given way.
func runVictim(end string) {
	if err := shared.start(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(shared.base)
	switch end {
	case "exit":
		os.Exit(3)
	case "panic":
		go panic("an uncaught panic, as at the end of a test's time")
	}
	select {}
}

// connect returns a connection for the test, with what the query adds to the URL.
func connect(tb testing.TB, url string, query ...string) *pgx.Conn {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), strings.Join(append([]string{url}, query...), "&"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// do runs statements that must succeed.
func do(tb testing.TB, conn *pgx.Conn, statements ...string) {
	tb.Helper()
	for _, sql := range statements {
		if _, err := conn.Exec(tb.Context(), sql); err != nil {
			tb.Fatalf("%s: %v", sql, err)
		}
	}
}

// queryValue returns the value of a query.
func queryValue[T any](tb testing.TB, conn *pgx.Conn, sql string, args ...any) T {
	tb.Helper()
	var answer T
	if err := conn.QueryRow(tb.Context(), sql, args...).Scan(&answer); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	return answer
}

// eventually waits for something that happens in another process.
func eventually(tb testing.TB, what string, happened func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(time.Minute); !happened(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("still waiting after a minute: %s", what)
		}
	}
}

// recorder is a test that notes its own end.
type recorder struct {
	testing.TB
	failed, skipped string
}

// record runs f as a test would run.
func record(tb testing.TB, f func(testing.TB)) *recorder {
	r := &recorder{TB: tb}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r
}

func (r *recorder) Fatal(args ...any) {
	r.failed = fmt.Sprint(args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
