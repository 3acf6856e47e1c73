package porttest

import (
	"net"
	"strconv"
	"testing"
)

func TestAPortIsReservedOnce(t *testing.T) {
	port, reservation, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	if second, err := ReservePort(port); err == nil {
		second.Close()
		t.Error("the port was reserved twice")
	}
	server, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatalf("the server that the port is reserved for: %v", err)
	}
	reservation.Close()
	if second, err := ReservePort(port); err == nil {
		second.Close()
		t.Error("a port with a server was reserved")
	}
	server.Close()
	if again, err := ReservePort(port); err != nil {
		t.Errorf("the port is not free again: %v", err)
	} else {
		again.Close()
	}
}

func TestPortsAreNotEphemeral(t *testing.T) {
	const lowest = 32768 // of Linux, unless it was set; elsewhere they begin at 49152
	for range 20 {
		_, text, _ := net.SplitHostPort(Addr(t))
		if port, err := strconv.Atoi(text); err != nil || port >= lowest {
			t.Errorf("port %d: ephemeral ports begin at %d (%v)", port, lowest, err)
		}
	}
}
