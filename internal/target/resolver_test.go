package target

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
)

// resolver asks a name server of the test's own, which answers every question
// for an address with what answer says at that moment.
func resolver(t *testing.T, answer func(name string) []netip.Addr) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply := respond(buf[:n], answer); reply != nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		<-done
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// respond answers one DNS question (RFC 1035, section 4).
func respond(query []byte, answer func(name string) []netip.Addr) []byte {
	if len(query) < 12 {
		return nil
	}
	name, end := "", 12
	for end < len(query) && query[end] != 0 {
		size := int(query[end])
		if end+1+size >= len(query) {
			return nil
		}
		name += string(query[end+1:end+1+size]) + "."
		end += 1 + size
	}
	end += 5 // the root label, type and class
	if end > len(query) {
		return nil
	}
	kind := binary.BigEndian.Uint16(query[end-4:])
	reply := append([]byte{}, query[:end]...)
	reply[2], reply[3] = 0x81, 0x80 // an answer, recursion available, no error
	binary.BigEndian.PutUint32(reply[8:], 0)
	count := uint16(0)
	for _, addr := range answer(name) {
		if addr.Is4() != (kind == 1) || kind != 1 && kind != 28 {
			continue
		}
		count++
		reply = append(reply, 0xc0, 12) // the name asked for
		reply = binary.BigEndian.AppendUint16(reply, kind)
		reply = binary.BigEndian.AppendUint16(reply, 1)
		reply = binary.BigEndian.AppendUint32(reply, 0) // not to be remembered
		reply = binary.BigEndian.AppendUint16(reply, uint16(addr.BitLen()/8))
		reply = append(reply, addr.AsSlice()...)
	}
	binary.BigEndian.PutUint16(reply[6:], count)
	return reply
}
