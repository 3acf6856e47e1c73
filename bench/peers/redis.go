package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// startRedis starts an empty Redis server that appends every write to a file and syncs it once a second, the usual
// setting of a Redis that must survive. It may lose the last second; PostgreSQL loses nothing.
func startRedis(ctx context.Context) (address string, pid int, stop func() error, err error) {
	dir, err := os.MkdirTemp("", "belfry-redis-")
	if err != nil {
		return "", 0, nil, err
	}
	port, err := freePort()
	if err != nil {
		return "", 0, nil, errors.Join(err, os.RemoveAll(dir))
	}
	server := exec.CommandContext(ctx, "redis-server", "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", dir,
		"--appendonly", "yes", "--appendfsync", "everysec", "--save", "")
	if err := server.Start(); err != nil {
		return "", 0, nil, errors.Join(fmt.Errorf("Redis is not installed (Debian: apt-get install redis-server): %w", err), os.RemoveAll(dir))
	}
	stop = func() error {
		server.Process.Kill()
		server.Wait()
		return os.RemoveAll(dir)
	}
	host := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if err := waitForPort(ctx, host); err != nil {
		return "", 0, nil, errors.Join(err, stop())
	}
	return "redis://" + host, server.Process.Pid, stop, nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// waitForPort waits until somebody accepts connections.
func waitForPort(ctx context.Context, host string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		conn, err := net.Dial("tcp", host)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("Redis does not accept connections: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
