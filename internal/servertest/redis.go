package servertest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
)

// Redis starts Debian's Redis, which writes every command to disk before it answers. Args are
// more options of redis-server.
func Redis(tb testing.TB, args ...string) *Server {
	tb.Helper()
	path := program(tb, "redis-server", "redis-server")
	return start(tb, redisAnswers, nil, append([]string{path, "--bind", "{host}", "--port", "{port}", "--dir", "{dir}",
		"--save", "", "--appendonly", "yes", "--appendfsync", "always"}, args...)...)
}

// redisAnswers reports that Redis has read its data: before, it answers -LOADING.
func redisAnswers(ctx context.Context, addr string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	if _, err := fmt.Fprint(conn, "PING\r\n"); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.HasPrefix(answer, "+PONG") && !strings.HasPrefix(answer, "-NOAUTH") {
		err = fmt.Errorf("redis answers %q", answer)
	}
	return err
}
