package target

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
)

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// special holds an address of every range that is not the public internet.
var special = []string{
	"0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.254", "127.0.0.1", "127.255.255.254",
	"169.254.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.1.1",
	"198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
	"::", "::1", "::2", "::7f00:1", "::127.0.0.1", // unspecified, loopback, IPv4-compatible
	"::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:0:127.0.0.1", // mapped, translated
	"64:ff9b::7f00:1", "64:ff9b::8.8.8.8", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", // NAT64
	"100::1", "2001::1", "2001:0:7f00:1::", "2001:0:4136:e378:8000:63bf:80ff:fffe", // discard, Teredo
	"2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1", "3fff::1", // benchmarking, ORCHID, documentation
	"2002::1", "2002:7f00:1::1", "2002:a9fe:a9fe::", "2002:808:808::1", // 6to4
	"fc00::1", "fd00::1", "fdff:ffff::1", "fd00:ec2::254", "fd20:ce::254", "fe80::1", "fe80::1%eth0", "febf::1", "fec0::1",
	"ff02::1", "ff0e::1", "5f00::1", "4000::1",
	"100.100.100.200", "168.63.129.16", "192.0.0.192", "169.254.170.2", // metadata of several clouds
}

var public = []string{"8.8.8.8", "1.1.1.1", "93.184.216.34", "172.15.255.255", "172.32.0.1", "100.63.255.255", "100.128.0.1",
	"11.0.0.1", "192.167.1.1", "223.255.255.255", "2606:4700:4700::1111", "2a00:1450:4001:81b::200e", "::ffff:8.8.8.8"}

func TestGuardAllowsPublicAddressesOnly(t *testing.T) {
	g := NewGuard(false, nil)
	for _, text := range special {
		var refused *BlockedAddrError
		if err := g.Check(netip.MustParseAddr(text)); !errors.As(err, &refused) {
			t.Errorf("%s was allowed", text)
		}
	}
	for _, text := range public {
		if err := g.Check(netip.MustParseAddr(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	if g.Check(netip.Addr{}) == nil {
		t.Error("no address at all was allowed")
	}
}

func TestGuardAllowLists(t *testing.T) {
	for _, tt := range []struct {
		name    string
		open    bool
		allow   []netip.Prefix
		addr    string
		refused bool
	}{
		{"a listed network passes", false, prefixes("10.0.0.0/8"), "10.1.2.3", false},
		{"a listed network passes when mapped", false, prefixes("10.0.0.0/8"), "::ffff:10.1.2.3", false},
		{"a network listed as mapped passes", false, prefixes("::ffff:10.0.0.0/104"), "10.1.2.3", false},
		{"a network listed by one of its hosts passes", false, prefixes("10.9.9.9/8"), "10.1.2.3", false},
		{"another network does not", false, prefixes("10.0.0.0/8"), "192.168.0.1", true},
		{"public addresses still pass", false, prefixes("10.0.0.0/8"), "8.8.8.8", false},
		{"a listed zone passes whatever its interface", false, prefixes("fe80::/10"), "fe80::1%eth0", false},
		{"everything listed passes", false, prefixes("0.0.0.0/0", "::/0"), "127.0.0.1", false},
		{"private addresses pass if all may", true, nil, "192.168.0.1", false},
		{"loopback passes if all may", true, nil, "::1", false},
		{"metadata does not pass though all may", true, nil, "169.254.169.254", true},
		{"metadata does not pass when mapped", true, nil, "::ffff:169.254.169.254", true},
		{"metadata does not pass through NAT64", true, nil, "64:ff9b::a9fe:a9fe", true},
		{"metadata does not pass through 6to4", true, nil, "2002:a9fe:a9fe::1", true},
		{"metadata does not pass in a listed network", false, prefixes("169.254.0.0/16"), "169.254.169.254", true},
		{"metadata does not pass though everything is listed", true, prefixes("0.0.0.0/0", "::/0"), "fd00:ec2::254", true},
		{"metadata in a carrier's range does not pass", false, prefixes("100.64.0.0/10"), "100.100.100.200", true},
		{"its neighbours do", false, prefixes("169.254.0.0/16"), "169.254.169.253", false},
		{"metadata passes if it is named", false, prefixes("169.254.169.254/32"), "169.254.169.254", false},
		{"metadata passes if it is named as mapped", false, prefixes("::ffff:169.254.169.254/128"), "169.254.169.254", false},
		{"metadata of IPv6 passes if it is named", false, prefixes("fd00:ec2::254/128"), "fd00:ec2::254", false},
		{"a listed NAT64 leads to public addresses", false, prefixes("64:ff9b::/96"), "64:ff9b::8.8.8.8", false},
		{"a listed NAT64 does not lead to private ones", false, prefixes("64:ff9b::/96"), "64:ff9b::10.0.0.1", true},
		{"metadata in the NAT64 of a site, /96", true, nil, "64:ff9b:1::a9fe:a9fe", true},
		{"metadata in the NAT64 of a site, /96 with a subnet", true, nil, "64:ff9b:1:fffe::a9fe:a9fe", true},
		{"metadata in the NAT64 of a site, /64", true, nil, "64:ff9b:1:7:a9:fea9:fe00:0", true},
		{"metadata in the NAT64 of a site, /56", true, nil, "64:ff9b:1:07a9:fe:a9fe::", true},
		{"metadata in the NAT64 of a site, /48", true, nil, "64:ff9b:1:a9fe:a9:fe00::", true},
		{"metadata in a translated address", true, nil, "::ffff:0:a9fe:a9fe", true},
		{"metadata as a client of Teredo", true, nil, "2001:0:808:808::5601:5601", true},
		{"metadata as a server of Teredo", true, nil, "2001:0:a9fe:a9fe::f7f7:f7f7", true},
		{"private in the NAT64 of a site, /96", false, prefixes("64:ff9b:1::/48"), "64:ff9b:1::10.0.0.1", true},
		{"private in the NAT64 of a site, /64", false, prefixes("64:ff9b:1::/48"), "64:ff9b:1:7:a:0:100:0", true},
		{"private in the NAT64 of a site, /56", false, prefixes("64:ff9b:1::/48"), "64:ff9b:1:070a:0:1::", true},
		{"private in the NAT64 of a site, /48", false, prefixes("64:ff9b:1::/48"), "64:ff9b:1:a00:0:100::", true},
		{"public in the NAT64 of a site", false, prefixes("64:ff9b:1::/48"), "64:ff9b:1:fffe::8.8.8.8", false},
		{"private in a translated address", false, prefixes("::ffff:0:0:0/96"), "::ffff:0:10.0.0.1", true},
		{"public in a translated address", false, prefixes("::ffff:0:0:0/96"), "::ffff:0:8.8.8.8", false},
		{"private in 6to4", false, prefixes("2002::/16"), "2002:a00:1::1", true},
		{"public in 6to4", false, prefixes("2002::/16"), "2002:808:808::1", false},
		{"a private client of Teredo", false, prefixes("2001::/32"), "2001:0:808:808::f5ff:fffe", true},
		{"a public client of Teredo", false, prefixes("2001::/32"), "2001:0:808:808::f7f7:f7f7", false},
		{"unless these are listed too", false, prefixes("64:ff9b::/96", "10.0.0.0/8"), "64:ff9b::10.0.0.1", false},
	} {
		err := NewGuard(tt.open, tt.allow).Check(netip.MustParseAddr(tt.addr))
		if (err != nil) != tt.refused {
			t.Errorf("%s: %s gave %v", tt.name, tt.addr, err)
		}
	}
}

func TestBlockedAddrErrorText(t *testing.T) {
	g := NewGuard(false, nil)
	var log bytes.Buffer
	g.Log = slog.New(slog.NewTextHandler(&log, nil))
	for _, addr := range []string{"127.0.0.1", "169.254.169.254", "10.11.12.13", "fd00::7"} {
		err := g.control(t.Context(), "tcp", net.JoinHostPort(addr, "80"), nil)
		if err == nil || strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), "--allow-target") {
			t.Errorf("%s: got %v", addr, err)
		}
		if !strings.Contains(log.String(), addr) {
			t.Errorf("%s is not in the log: %s", addr, log.String())
		}
	}
	if g.control(t.Context(), "udp4", "8.8.8.8:53", nil) == nil {
		t.Error("UDP was allowed")
	}
	if g.control(t.Context(), "tcp4", "example.com:80", nil) == nil {
		t.Error("a name was allowed where an address must be")
	}
}
