package auth

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Client is where a request comes from.
type Client struct {
	Address string // without a port
	Secure  bool   // it used TLS, to this server or to a proxy that is trusted
}

// Proxies are the networks of the proxies whose headers about their clients count. From
// anybody else these headers are ignored.
type Proxies []netip.Prefix

type clientKey struct{}

// ClientOf is where a request comes from. Without Proxies.Receive it is the other end of the
// connection.
func ClientOf(r *http.Request) Client {
	if c, ok := r.Context().Value(clientKey{}).(Client); ok {
		return c
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return Client{Address: host, Secure: r.TLS != nil}
}

// Receive is the request as the first proxy that is trusted got it: with the host that its
// client asked for, and with what ClientOf returns.
//
// X-Forwarded-For, -Proto and -Host count before Forwarded, which many proxies pass on as
// they get it.
func (p Proxies) Receive(r *http.Request) *http.Request {
	c, host := ClientOf(r), r.Host
	peer, err := netip.ParseAddr(c.Address)
	if err == nil && p.trust(peer) {
		hops := forwardedFor(r.Header)
		if len(hops) == 0 {
			hops = forwarded(r.Header)
		}
		var seen hop
		for i := len(hops) - 1; i >= 0; i-- {
			addr, ok := parseNode(hops[i].node)
			if !ok { // a name that means nothing here, or none: what sent it is as far as we see
				break
			}
			c.Address, seen = addr.String(), hops[i]
			if !p.trust(addr) {
				break
			}
		}
		switch strings.ToLower(cmp.Or(last(r.Header, "X-Forwarded-Proto"), seen.proto)) {
		case "https":
			c.Secure = true
		case "http":
			c.Secure = false
		}
		host = cmp.Or(last(r.Header, "X-Forwarded-Host"), seen.host, host)
	}
	r = r.WithContext(context.WithValue(r.Context(), clientKey{}, c))
	r.Host = host
	return r
}

func (p Proxies) trust(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	return slices.ContainsFunc(p, func(prefix netip.Prefix) bool { return prefix.Contains(addr) })
}

// hop is what a proxy says of the request that it got.
type hop struct{ node, proto, host string }

func forwardedFor(h http.Header) (hops []hop) {
	for _, line := range h.Values("X-Forwarded-For") {
		for node := range strings.SplitSeq(line, ",") {
			hops = append(hops, hop{node: strings.TrimSpace(node)})
		}
	}
	return hops
}

// forwarded reads the header of RFC 7239. No value that counts has a comma or a semicolon in
// quotes.
func forwarded(h http.Header) (hops []hop) {
	for _, line := range h.Values("Forwarded") {
		for element := range strings.SplitSeq(line, ",") {
			var one hop
			for pair := range strings.SplitSeq(element, ";") {
				name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
				value = strings.Trim(value, `"`)
				switch strings.ToLower(name) {
				case "for":
					one.node = value
				case "proto":
					one.proto = value
				case "host":
					one.host = value
				}
			}
			hops = append(hops, one)
		}
	}
	return hops
}

// parseNode reads an address, with or without a port.
func parseNode(text string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil {
		var with netip.AddrPort
		with, err = netip.ParseAddrPort(text)
		addr = with.Addr()
	}
	return addr.Unmap().WithZone(""), err == nil
}

// last is the value that the nearest proxy added.
func last(h http.Header, name string) string {
	values := h.Values(name)
	if len(values) == 0 {
		return ""
	}
	line := values[len(values)-1]
	return strings.TrimSpace(line[strings.LastIndex(line, ",")+1:])
}
