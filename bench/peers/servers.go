package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/belfry-sh/belfry/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

// runLimit is for one run of one system; it only ends one that hangs.
const runLimit = 3 * time.Minute

// servers has the one PostgreSQL server that all runs share. Redis is started for each run that needs it.
type servers struct {
	postgres *pgtest.Server
	admin    *pgx.Conn
	pid      int // of the main process of PostgreSQL; 0 if it cannot be told
	version  string
}

func startServers(ctx context.Context) (*servers, error) {
	s := &servers{}
	var err error
	if s.postgres, err = pgtest.StartDurable(); err != nil {
		return nil, err
	}
	if s.admin, err = pgx.Connect(ctx, s.postgres.URL()); err == nil {
		err = s.admin.QueryRow(ctx, "SELECT current_setting('server_version'), pg_backend_pid()").Scan(&s.version, &s.pid)
	}
	if err != nil {
		return nil, errors.Join(err, s.postgres.Close())
	}
	s.pid = parentOf(s.pid)
	return s, nil
}

func (s *servers) close() {
	s.admin.Close(context.Background())
	if err := s.postgres.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
	}
}

// versions are those of what the systems have in common.
func (s *servers) versions() []string {
	versions := []string{"Go " + strings.TrimPrefix(runtime.Version(), "go"), "PostgreSQL " + s.version}
	for _, tool := range []string{"node", "redis-server"} {
		if out, err := exec.Command(tool, "--version").Output(); err == nil {
			versions = append(versions, tool+" "+firstVersion.FindString(string(out)))
		}
	}
	return versions
}

var firstVersion = regexp.MustCompile(`\d+(\.\d+)+`)

// measurement is one run with the processor time that it took.
type measurement struct {
	result
	clientCPU, serverCPU time.Duration // from the first insert to the end; 0 if unknown
}

// measure runs a system once on an empty database after a checkpoint, so that no run pays for the writes of another.
func (s *servers) measure(ctx context.Context, of system, jobs int) (m measurement, err error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	address, server, drop, err := s.prepare(ctx, of)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	command, err := of.command(ctx, address, jobs)
	if err != nil {
		return m, err
	}
	var stderr bytes.Buffer
	command.Stderr = &stderr
	before := cpuTime(server)
	out, err := command.Output()
	if err != nil {
		return m, fmt.Errorf("%w %s", err, lastLine(stderr.String()))
	}
	m.serverCPU = cpuTime(server) - before
	m.clientCPU = command.ProcessState.UserTime() + command.ProcessState.SystemTime()
	m.result, err = of.decode(out)
	return m, err
}

// prepare makes an empty database and returns its address, the process of its server and how to remove it.
func (s *servers) prepare(ctx context.Context, of system) (address string, server int, drop func() error, err error) {
	if of.redis {
		return startRedis(ctx)
	}
	const name = "peer"
	for _, sql := range []string{"CREATE DATABASE " + name, "CHECKPOINT"} {
		if _, err := s.admin.Exec(ctx, sql); err != nil {
			return "", 0, nil, err
		}
	}
	u, err := url.Parse(s.postgres.URL())
	if err != nil {
		return "", 0, nil, err
	}
	u.Path = "/" + name
	return u.String(), s.pid, func() error {
		_, err := s.admin.Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)")
		return err
	}, nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}
