package pgtest

import (
	"net"
	"os"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry/internal/porttest"
)

func TestDurableServerKeepsDataAndPort(t *testing.T) {
	s := Durable(t, "work_mem=5MB")
	url := s.URL()
	conn := connect(t, url)
	for name, want := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "work_mem": "5MB",
	} {
		if got := queryValue[string](t, conn, "SHOW "+name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	do(t, conn, "CREATE TABLE kept (n int)", "INSERT INTO kept VALUES (0)")

	for i, end := range []struct {
		name string
		stop func() error
	}{
		{"stop in good order", func() error { return s.Stop(false) }},
		{"immediate stop", func() error { return s.Stop(true) }},
		{"crash", s.Crash},
	} {
		if err := end.stop(); err != nil {
			t.Fatalf("%s: %v", end.name, err)
		}
		if err := conn.Ping(t.Context()); err == nil {
			t.Fatalf("%s: the old connection still answers", end.name)
		}
		if err := s.Start(); err != nil {
			t.Fatalf("start after %s: %v", end.name, err)
		}
		if s.URL() != url {
			t.Fatalf("after %s the URL is %s, want %s", end.name, s.URL(), url)
		}
		conn = connect(t, url)
		if n := queryValue[int](t, conn, "SELECT count(*) FROM kept"); n != i+1 {
			t.Fatalf("after %s there are %d rows, want %d", end.name, n, i+1)
		}
		do(t, conn, "INSERT INTO kept VALUES (1)")
	}
}

func TestServerStartError(t *testing.T) {
	s := Durable(t)
	if err := s.Start(); err == nil || !strings.Contains(err.Error(), "running already") {
		t.Errorf("a second start: %v, want it refused", err)
	}
	if err := s.Stop(false); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(false); err != nil {
		t.Errorf("a second stop: %v, want nothing", err)
	}
	if reservation, err := porttest.ReservePort(s.port); err == nil {
		reservation.Close()
		t.Error("another server may take the port of a stopped one")
	}
	s.settings = append(s.settings, "no_such_setting=1")
	if err := s.Start(); err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("start with a bad setting: %v, want the server's own words", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("start after close: %v, want it refused", err)
	}
	if reservation, err := porttest.ReservePort(s.port); err != nil {
		t.Errorf("the port of a closed server: %v, want it free", err)
	} else {
		reservation.Close()
	}
	if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
		t.Errorf("the folder of a closed server: %v, want it gone", err)
	}
}

func TestServerTakesAnotherPort(t *testing.T) {
	s := Durable(t)
	if err := s.Stop(true); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0") // and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s.port = taken.Addr().(*net.TCPAddr).Port
	url := s.URL()
	if err := s.Start(); err == nil || !strings.Contains(err.Error(), "could not bind") {
		t.Fatalf("start on a port in use: %v, want it refused", err)
	}
	if err := s.startOnFreePort(); err != nil {
		t.Fatal(err)
	}
	if s.URL() == url {
		t.Error("the port is still the one in use")
	}
	do(t, connect(t, s.URL()), "SELECT 1")
}
