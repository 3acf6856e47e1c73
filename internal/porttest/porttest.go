// Package porttest reserves ports on the loopback interface for servers that tests start and
// that cannot choose a port themselves.
package porttest

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Reserve returns a free TCP port below the range of ephemeral ports: in that range any client
// or server of another process may be given the port before the server starts or while it is
// stopped, and a client that keeps dialling a stopped server could end up connected to
// itself. Nobody else gets the port from this package until the reservation is closed.
func Reserve() (port int, reservation io.Closer, err error) {
	for range 100 {
		port = 20000 + rand.IntN(10000)
		if reservation, err = ReservePort(port); err == nil {
			return port, reservation, nil
		}
	}
	return 0, nil, fmt.Errorf("find a free port: %w", err)
}

// ReservePort reserves a port that nobody listens on. The reservation has the UDP port of the
// same number, which no server uses, so that tests in other processes see that the port of a
// stopped server is not free.
func ReservePort(port int) (reservation io.Closer, err error) {
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if reservation, err = net.ListenPacket("udp", addr); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		reservation.Close()
		return nil, err
	}
	return reservation, l.Close()
}

// Addr reserves a port until the test ends, and returns host:port.
func Addr(tb testing.TB) string {
	tb.Helper()
	port, reservation, err := Reserve()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { reservation.Close() })
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
