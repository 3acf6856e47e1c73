package target

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"

	"github.com/belfry-sh/belfry/internal/jsontext"
)

// Guard decides which addresses a job may reach. It checks the address that is about to
// be dialled, for every connection, so that DNS rebinding gains nothing.
type Guard struct {
	Log *slog.Logger // gets the addresses that were refused, which errors do not tell; nil: nobody does

	open  bool // private addresses are allowed
	allow []netip.Prefix
	table *ssrf.Guardian
}

// NewGuard makes a Guard that allows public addresses and those that the operator
// allows: all private and special ones, or some networks. Cloud metadata services are
// always blocked, unless the list has exactly their address.
func NewGuard(allowPrivate bool, allow []netip.Prefix) *Guard {
	g := &Guard{open: allowPrivate, table: ssrf.New(ssrf.WithAnyPort())}
	for _, p := range allow {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		g.allow = append(g.allow, p)
	}
	return g
}

// BlockedAddrError is the error for an address that may not be reached. Its text does not
// tell the address: who may create a job would learn what names mean inside the network.
type BlockedAddrError struct{ Addr netip.Addr }

func (*BlockedAddrError) Error() string {
	return "the address of the target is not allowed; an operator finds it in the log of the server, and can allow it with --allow-target"
}

// metadataServices serve the credentials of a machine in clouds. Not all of them are in
// special ranges.
var metadataServices = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), // most clouds
	netip.MustParseAddr("169.254.170.2"),   // Amazon, containers
	netip.MustParseAddr("169.254.170.23"),  // Amazon, pods
	netip.MustParseAddr("fd00:ec2::254"),   // Amazon
	netip.MustParseAddr("fd00:ec2::23"),    // Amazon, pods
	netip.MustParseAddr("fd20:ce::254"),    // Google
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("192.0.0.192"),     // Oracle
}

// Check returns a *BlockedAddrError if addr may not be reached.
func (g *Guard) Check(addr netip.Addr) error {
	addr = addr.WithZone("").Unmap()
	inside := func(p netip.Prefix) bool { return p.Contains(addr) }
	blocked := func(a netip.Addr) bool { return g.Check(a) != nil }
	switch {
	case !addr.IsValid():
	case slices.Contains(g.allow, netip.PrefixFrom(addr, addr.BitLen())):
		return nil
	case slices.Contains(metadataServices, addr) || slices.ContainsFunc(embeddedIPv4(addr), blocked):
	case g.open || slices.ContainsFunc(g.allow, inside) || g.table.SafeAddr(addr) == nil:
		return nil
	}
	return &BlockedAddrError{addr}
}

// Blocked returns the addresses of a host if none of them may be reached. Only an address
// and localhost are judged: another name is not looked up, which may take long, and what it
// means is known only when it is called.
func (g *Guard) Blocked(host string) []netip.Addr {
	var addrs []netip.Addr
	if strings.EqualFold(host, "localhost") {
		addrs = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	} else if addr, err := netip.ParseAddr(host); err == nil {
		addrs = []netip.Addr{addr.WithZone("").Unmap()}
	}
	if slices.ContainsFunc(addrs, func(a netip.Addr) bool { return g.Check(a) == nil }) {
		return nil
	}
	return addrs
}

// Warning says that the runs of an HTTP job will fail on nodes with this guard; empty if
// that is not known. The payload is valid JSON.
func (g *Guard) Warning(payload json.RawMessage) string {
	value := jsontext.Member(payload, "url")
	if len(value) == 0 || value[0] != '"' || !mayNameAddress(value) {
		return ""
	}
	u, err := url.Parse(jsontext.Unquote(value))
	if err != nil {
		return ""
	}
	var flag []string
	for _, addr := range g.Blocked(u.Hostname()) {
		flag = append(flag, addr.String())
	}
	if flag == nil {
		return ""
	}
	return fmt.Sprintf("payload.url: the settings of this node do not allow %s as a target; runs fail on nodes with the same settings. To allow it, start the nodes with --allow-target %s",
		u.Hostname(), strings.Join(flag, ","))
}

// mayNameAddress reports whether the host of a URL may be an address or localhost. It spares
// most URLs of a large import to be parsed.
func mayNameAddress(url []byte) bool {
	_, host, found := bytes.Cut(url, []byte("//"))
	return !found || len(host) == 0 || host[0] < 'A' || host[0]|0x20 == 'l' || host[0] == '['
}

var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	nat64Local = netip.MustParsePrefix("64:ff9b:1::/48")
	translated = netip.MustParsePrefix("::ffff:0:0:0/96") // RFC 2765
	sixToFour  = netip.MustParsePrefix("2002::/16")
	teredo     = netip.MustParsePrefix("2001::/32")
)

// embeddedIPv4 are the IPv4 addresses that a gateway could translate addr to. To allow the
// network of the gateway is not to allow what is behind it.
func embeddedIPv4(addr netip.Addr) []netip.Addr {
	raw := addr.As16()
	at := func(a, b, c, d int) netip.Addr { return netip.AddrFrom4([4]byte{raw[a], raw[b], raw[c], raw[d]}) }
	last := at(12, 13, 14, 15)
	switch {
	case nat64.Contains(addr), translated.Contains(addr):
		return []netip.Addr{last}
	case nat64Local.Contains(addr): // RFC 6052: where the address is depends on the length of the prefix, which only the gateway knows
		switch {
		case [5]byte(raw[11:]) == [5]byte{}:
			return []netip.Addr{at(6, 7, 9, 10)}
		case [4]byte(raw[12:]) == [4]byte{}:
			return []netip.Addr{at(7, 9, 10, 11)}
		case [3]byte(raw[13:]) == [3]byte{}:
			return []netip.Addr{at(9, 10, 11, 12), last}
		}
		return []netip.Addr{last}
	case sixToFour.Contains(addr):
		return []netip.Addr{at(2, 3, 4, 5)}
	case teredo.Contains(addr): // its server, and its client with inverted bits
		return []netip.Addr{at(4, 5, 6, 7), netip.AddrFrom4([4]byte{^raw[12], ^raw[13], ^raw[14], ^raw[15]})}
	}
	return nil
}

// Dialer returns a dialer that reaches only what the guard allows. Without a resolver it
// looks up names as the system does.
func (g *Guard) Dialer(resolver *net.Resolver) *net.Dialer {
	return &net.Dialer{Timeout: connectTimeout, KeepAlive: 30 * time.Second, Resolver: resolver, ControlContext: g.control}
}

// control is called by the dialer with the resolved address of each connection.
func (g *Guard) control(_ context.Context, network, address string, _ syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return fmt.Errorf("network %s is not allowed", network)
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("read the target address: %w", err)
	}
	err = g.Check(to.Addr())
	if err != nil && g.Log != nil {
		g.Log.Warn("a connection to an address that is not allowed was refused; see --allow-target", "address", to)
	}
	return err
}
