package api

import (
	"net/http"
	"time"
)

// NewServer returns a server with limits on what a slow or large client may cost:
// each costs its connection and what it has sent so far, for half a minute at most.
// Operations that take longer by their nature extend that for themselves.
func NewServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      60 * time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    64 << 10,

		DisableGeneralOptionsHandler: true, // OPTIONS gets a problem document as well.
	}
}
