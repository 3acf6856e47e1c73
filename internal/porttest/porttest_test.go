package porttest

import (
	"net"
	"os"
	"strconv"
	"strings"
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
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Skip(err)
	}
	lowest, err := strconv.Atoi(strings.Fields(string(text))[0])
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		_, text, _ := net.SplitHostPort(Addr(t))
		if port, _ := strconv.Atoi(text); port >= lowest {
			t.Errorf("port %d: ephemeral ports begin at %d", port, lowest)
		}
	}
}
