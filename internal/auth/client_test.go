package auth

import (
	"crypto/tls"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

func TestOnlyTrustedProxiesNameTheirClients(t *testing.T) {
	proxies := Proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for name, tt := range map[string]struct {
		peer    string
		tls     bool
		headers string // separated by |
		want    Client
		host    string
	}{
		"nobody forwards":           {peer: "192.0.2.1:99", want: Client{"192.0.2.1", false}},
		"TLS":                       {peer: "192.0.2.1:99", tls: true, want: Client{"192.0.2.1", true}},
		"everything from a liar":    {peer: "192.0.2.1:99", headers: "X-Forwarded-For: 1.1.1.1|X-Forwarded-Proto: https|X-Forwarded-Host: evil.test|Forwarded: for=1.1.1.1;proto=https;host=evil.test", want: Client{"192.0.2.1", false}},
		"a liar before a proxy":     {peer: "10.0.0.1:99", headers: "X-Forwarded-For: 1.1.1.1, 192.0.2.7", want: Client{"192.0.2.7", false}},
		"a liar in its own line":    {peer: "10.0.0.1:99", headers: "X-Forwarded-For: 1.1.1.1|X-Forwarded-For: 192.0.2.7", want: Client{"192.0.2.7", false}},
		"two proxies":               {peer: "10.0.0.1:99", headers: "X-Forwarded-For: 1.1.1.1, 192.0.2.7, 10.3.0.4", want: Client{"192.0.2.7", false}},
		"only proxies":              {peer: "10.0.0.1:99", headers: "X-Forwarded-For: 10.9.9.9, 10.3.0.4", want: Client{"10.9.9.9", false}},
		"not an address":            {peer: "10.0.0.1:99", headers: "X-Forwarded-For: 1.1.1.1, unknown, 10.3.0.4", want: Client{"10.3.0.4", false}},
		"empty":                     {peer: "10.0.0.1:99", headers: "X-Forwarded-For: ", want: Client{"10.0.0.1", false}},
		"with ports":                {peer: "[fd00::1]:99", headers: "X-Forwarded-For: [2001:db8::7]:4711", want: Client{"2001:db8::7", false}},
		"a mapped peer":             {peer: "[::ffff:10.0.0.1]:99", headers: "X-Forwarded-For: ::ffff:192.0.2.7", want: Client{"192.0.2.7", false}},
		"a proxy that ends TLS":     {peer: "10.0.0.1:99", headers: "X-Forwarded-For: 192.0.2.7|X-Forwarded-Proto: HTTPS|X-Forwarded-Host: belfry.example.com", want: Client{"192.0.2.7", true}, host: "belfry.example.com"},
		"a client that lies of TLS": {peer: "10.0.0.1:99", headers: "X-Forwarded-Proto: https, http", want: Client{"10.0.0.1", false}},
		"plain HTTP to a proxy":     {peer: "10.0.0.1:99", tls: true, headers: "X-Forwarded-Proto: http", want: Client{"10.0.0.1", false}},
		"Forwarded":                 {peer: "10.0.0.1:99", headers: `Forwarded: for=1.1.1.1;host=evil.test, For="[2001:db8::7]:4711";Proto=https;Host="belfry.example.com"; by=x, for=10.3.0.4;proto=http`, want: Client{"2001:db8::7", true}, host: "belfry.example.com"},
		"Forwarded without for":     {peer: "10.0.0.1:99", headers: "Forwarded: for=1.1.1.1, proto=https", want: Client{"10.0.0.1", false}},
		"Forwarded of a client":     {peer: "10.0.0.1:99", headers: "Forwarded: for=1.1.1.1|X-Forwarded-For: 192.0.2.7", want: Client{"192.0.2.7", false}},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr, r.Host = tt.peer, "here.test"
		if tt.tls {
			r.TLS = new(tls.ConnectionState)
		}
		for header := range strings.SplitSeq(tt.headers, "|") {
			if name, value, found := strings.Cut(header, ": "); found {
				r.Header.Add(name, value)
			}
		}
		if tt.host == "" {
			tt.host = "here.test"
		}
		r = proxies.Receive(r)
		if got := ClientOf(r); got != tt.want || r.Host != tt.host {
			t.Errorf("%s: %+v asked for %s, want %+v and %s", name, got, r.Host, tt.want, tt.host)
		}
	}
}
