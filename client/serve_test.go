package client_test

import (
	"context"
	"log/slog"
	"net"
	"os"

	"github.com/belfry-sh/belfry/internal/node"
)

// server is a Belfry server in this process, on SQLite.
type server struct {
	url  string
	stop func() error
}

// serve starts a server on the data in a folder. An empty address is any free one.
func serve(dir, address string) (*server, error) {
	c := node.Defaults()
	c.Listen, c.Data, c.RateLimit = address, dir, 0
	if address == "" {
		c.Listen = "127.0.0.1:0"
	}
	n, err := node.New(context.Background(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	return &server{"http://" + n.Addr().(*net.TCPAddr).String(), func() error { cancel(); return <-done }}, nil
}

// exampleServer starts a server for an example, and gives its address.
func exampleServer() (url string, stop func()) {
	dir, err := os.MkdirTemp("", "belfry-example-")
	if err != nil {
		panic(err)
	}
	s, err := serve(dir, "")
	if err != nil {
		panic(err)
	}
	return s.url, func() {
		s.stop()
		os.RemoveAll(dir)
	}
}
