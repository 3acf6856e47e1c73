package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/belfry-sh/belfry/internal/api"
	"github.com/belfry-sh/belfry/internal/control"
	"github.com/belfry-sh/belfry/internal/web"
)

// startServing serves HTTP, and what that needs, until ctx ends. A node without its port stops.
func (n *Node) startServing(ctx context.Context, stop func(), offers control.Offers) *errgroup.Group {
	server := &errgroup.Group{}
	server.Go(func() error {
		defer stop()
		return n.serve(ctx, offers)
	})
	background(ctx, server, n.access.Run)
	if n.oidc != nil {
		background(ctx, server, n.oidc.Check)
	}
	if n.certificates != nil {
		background(ctx, server, func(ctx context.Context) { n.certificates.watch(ctx, n.log) })
	}
	if n.metricsListener != nil {
		server.Go(func() error {
			defer stop()
			return n.serveHTTP(ctx, n.metricsListener, nil, n.metricsHandler())
		})
	}
	return server
}

// serve serves HTTP until ctx ends: the API, or only the health checks. The scheduler of
// this node, if there is one, fills the claims of workers.
func (n *Node) serve(ctx context.Context, offers control.Offers) error {
	public, _ := url.Parse(n.config.PublicURL) // which is valid; links in alerts must work
	o := api.Options{
		Ready: n.ready, Draining: n.draining, Access: n.access, Login: n.oidc.Login(), Targets: n.targets, RateLimit: n.config.RateLimit,
		Hosts: append(slices.Clone(n.config.Hosts), public.Host), Version: n.config.Version, Metrics: n.metrics, Log: n.log,
	}
	o.Proxies, _ = parsePrefixes(n.config.TrustedProxies) // which are valid
	if n.tracing != nil {
		o.Span = n.tracing.ServerSpan
	}
	if n.config.has(RoleAPI) {
		o.Control = control.New(n.store, n.config.planDefaults())
		o.Control.RunsIn(n.id, n.ownsAll(), n.election())
		o.Control.FillClaims(offers)
		o.Control.LimitRunning(&n.quotas)
		o.Control.SendThrough(n.sender())
		o.Control.KeysChanged(n.access.Stored.Refresh)
		o.Control.EncryptWith(n.encryption)
		o.Control.CheckPayloads(n.connections.Check, n.config.AllowShell)
		page := web.Options{Control: o.Control, Access: n.access, OIDC: n.oidc, Draining: n.draining, Settings: n.config.Settings, Version: n.config.Version, Log: n.log}
		o.Page = web.New(page)
	}
	o.WorkerCertificates = n.config.TLS.ClientCA != ""
	return n.serveHTTP(ctx, n.listener, n.certificates, api.New(o))
}

// serveHTTP serves a handler until ctx ends, over TLS if there are certificates.
func (n *Node) serveHTTP(ctx context.Context, listener net.Listener, certificates *certificates, handler http.Handler) error {
	server := api.NewServer(handler)
	server.ErrorLog = slog.NewLogLogger(n.log.Handler(), slog.LevelDebug)
	failed := make(chan error, 1)
	listener = api.LimitConnections(listener)
	go func() {
		if certificates == nil {
			failed <- server.Serve(listener)
			return
		}
		server.TLSConfig = certificates.serverConfig()
		failed <- server.ServeTLS(listener, "", "")
	}()
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := server.Shutdown(stop)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
