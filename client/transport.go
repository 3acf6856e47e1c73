package client

import (
	"context"
	"net"
	"net/http"
	"time"
)

// newTransport makes the connections of one Client. It speaks HTTP/1.1: a call
// that is given up closes its connection, so that one that fell silent is not
// used again.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAliveConfig: keepAlive}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if tcp, ok := conn.(*net.TCPConn); ok {
				tcp.SetLinger(0) // what was given up must not arrive later
			}
			return conn, err
		},
		TLSHandshakeTimeout:    5 * time.Second,
		ResponseHeaderTimeout:  5 * time.Minute, // of the longest import; other calls have shorter limits
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        30 * time.Second,
		MaxIdleConns:           64,
		MaxIdleConnsPerHost:    16,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// keepAlive notices a peer that is gone for good within about ten seconds.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}
