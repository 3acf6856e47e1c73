package api

import (
	"net/http"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
)

// permit is the handler of an operation, for those who have its permission. A namespace that the
// caller may not see is answered as if it had nothing in it.
func (a *api) permit(op operation, next http.Handler) http.Handler {
	if op.Permission == auth.Public {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := contextOf(r)
		p := auth.Local()
		if v.principal != nil {
			known := *v.principal
			p = &known
		}
		p.Address, p.RequestID = addressOfClient(r), v.id
		err := a.mayCall(p, op, r)
		if err == nil {
			err = a.limitNamespace(op, r)
		}
		if err != nil {
			a.fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(auth.With(r.Context(), p)))
	})
}

func (a *api) mayCall(p *auth.Principal, op operation, r *http.Request) error {
	namespace, err := readNamespace(r)
	switch {
	case err != nil:
		return err
	case a.WorkerCertificates && op.Group == groupWorkers && (r.TLS == nil || len(r.TLS.VerifiedChains) == 0):
		return &httpError{code: belfry.Forbidden, detail: "workers need a client certificate here, such as of belfry worker --tls-client-cert"}
	case op.Scoped && p.Has(op.Permission):
		return nil
	case op.Global:
		namespace = ""
	}
	return p.Check(op.Permission, namespace)
}

// identify finds who sends a request, if that must be known, and limits how many they send. The page
// asks for a login itself.
func (a *api) identify(r *http.Request) error {
	probed := r.URL.Path == livePath || r.URL.Path == readyPath
	if !a.Access.Required() || probed {
		return nil
	}
	open := a.isPage(r) || a.open[r.URL.Path] || strings.HasPrefix(r.URL.Path, pingPath)
	if open || len(r.Header.Values("Authorization")) == 0 {
		if wait := a.without.Take(addressOfClient(r), time.Now()); wait > 0 {
			return tooMany(wait, "too many requests without an API key from this address; try again later")
		}
	}
	if open {
		return nil
	}
	principal, err := a.Access.check(r)
	if err != nil {
		return err
	}
	contextOf(r).principal = principal
	return a.limiter.allow(principal.ID, time.Now())
}

// refuseKeyInQuery refuses a request whose address has a key in it: proxies and browsers write
// addresses down.
func refuseKeyInQuery(r *http.Request) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	for name, values := range r.URL.Query() {
		switch strings.ToLower(name) {
		case "key", "api_key", "apikey", "access_token":
			return badRequest("the query has the parameter %.20s: an API key must not be in an address, which is written to logs; send it as Authorization: Bearer <key>, and revoke one that was sent like this", name)
		}
		if auth.KeyPattern.MatchString(name) || auth.KeyPattern.MatchString(strings.Join(values, " ")) {
			return badRequest("the query has an API key in it, and an address is written to logs: send it as Authorization: Bearer <key>, and revoke this one")
		}
	}
	return nil
}
