package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/metrics"
)

// Access lets in who has a token of one of its sources. The API and the page share it, and with it
// the limit on guesses.
type Access struct {
	File   *Keys                // nil: there is no file of keys
	Stored *StoredKeys          // nil: there are no keys in the database
	Others []auth.Authenticator // that accept other tokens
	Always bool                 // keys are required even if there are none

	Metrics *metrics.Metrics // nil: nothing is counted
	Log     *slog.Logger

	guesses *auth.Guesses
	report  failureReport
}

// NewAccess returns the access with these keys.
func NewAccess(file *Keys, stored *StoredKeys, log *slog.Logger) *Access {
	return &Access{File: file, Stored: stored, Log: log, guesses: auth.NewGuesses()}
}

// Required reports whether nobody gets in without a token. On loopback that begins with the first
// key.
func (a *Access) Required() bool {
	return a != nil && (a.Always || a.File != nil || len(a.Others) > 0 || a.Stored != nil && a.Stored.Exist())
}

// Run keeps the keys up to date until ctx ends.
func (a *Access) Run(ctx context.Context) {
	var running sync.WaitGroup
	if a.File != nil {
		running.Go(func() { a.File.Watch(ctx, a.Log) })
	}
	if a.Stored != nil {
		running.Go(func() { a.Stored.Run(ctx) })
	}
	for tick := time.NewTicker(reportFailures); ; {
		select {
		case <-tick.C:
			a.report.flush(a.Log, time.Now())
		case <-ctx.Done():
			tick.Stop()
			running.Wait()
			return
		}
	}
}

// Authenticate returns who sends a token. Of an address with many wrong ones it checks few.
func (a *Access) Authenticate(r *http.Request, token string) (*auth.Principal, error) {
	address, now := addressOfClient(r), time.Now()
	if wait := a.guesses.Wait(address, token, now); wait > 0 {
		return nil, a.refuse(address, wait, now)
	}
	p, err := a.find(r.Context(), token)
	switch {
	case err == nil:
		a.guesses.Right(address, token, now)
	case errors.Is(err, auth.ErrUnknown):
		if wait := a.guesses.Wrong(address, now); wait > 0 {
			return nil, a.refuse(address, wait, now)
		}
		a.Metrics.KeyRefused(metrics.KeyWrong)
		a.report.add(a.Log, address, now)
	}
	return p, err
}

// find asks every source.
func (a *Access) find(ctx context.Context, token string) (*auth.Principal, error) {
	unknown := error(auth.ErrUnknown)
	sources := a.Others
	if a.Stored != nil {
		sources = append([]auth.Authenticator{a.Stored}, sources...)
	}
	if a.File != nil {
		sources = append([]auth.Authenticator{a.File}, sources...)
	}
	for _, source := range sources {
		p, err := source.Authenticate(ctx, token)
		if err == nil {
			return p, nil
		}
		if !errors.Is(err, auth.ErrUnknown) {
			unknown = err
		}
	}
	return nil, unavailableKeys(unknown)
}

// unavailableKeys shows an Unavailable error as it is.
func unavailableKeys(err error) error {
	if e, ok := errors.AsType[*belfry.Error](err); ok && e.Code == belfry.Unavailable {
		return &httpError{code: belfry.Unavailable, detail: e.Message, header: map[string]string{"Retry-After": "2"}}
	}
	return err
}

// Hash is what stands for a token in a session.
func (a *Access) Hash(token string) [sha256.Size]byte {
	if _, hash, ok := auth.ParseKey(token); ok {
		return hash
	}
	return sha256.Sum256([]byte(token))
}

// Holder is who has the key with a hash; ErrUnknown: the key has ended.
func (a *Access) Holder(hash [sha256.Size]byte) (p *auth.Principal, err error) {
	err = auth.ErrUnknown
	if a.File != nil {
		p, err = a.File.Holder(hash)
	}
	if err != nil && a.Stored != nil {
		p, err = a.Stored.Holder(hash)
	}
	return p, err
}

func (a *Access) refuse(address string, wait time.Duration, now time.Time) error {
	a.Metrics.KeyRefused(metrics.KeyLimited)
	a.report.add(a.Log, address, now)
	return tooMany(wait, "there were too many wrong API keys from this address; it is not checked whether this one is right")
}

func tooMany(wait time.Duration, detail string) *httpError {
	seconds := max(1, int64(math.Ceil(wait.Seconds())))
	return &httpError{code: belfry.RateLimited, detail: detail, header: map[string]string{"Retry-After": strconv.FormatInt(seconds, 10)}}
}

// check finds who sends a request by its Authorization header.
func (a *Access) check(r *http.Request) (*auth.Principal, error) {
	headers := r.Header.Values("Authorization")
	unusable := a.File != nil && a.File.Err() != nil
	if len(headers) == 0 {
		return nil, noKey("", unusable, "an API key is required: send the header Authorization: Bearer <key>")
	}
	detail := "the Authorization header does not hold a valid API key"
	scheme, token, _ := strings.Cut(headers[0], " ")
	if len(headers) == 1 && strings.EqualFold(scheme, "Bearer") {
		p, err := a.Authenticate(r, strings.TrimSpace(token))
		e, ok := errors.AsType[*belfry.Error](err)
		if !ok || e.Code != belfry.Unauthorized {
			return p, err
		}
		if e != auth.ErrUnknown { // such as a login that has expired
			detail = e.Message
		}
	}
	return nil, noKey(`, error="invalid_token"`, unusable, detail)
}

func noKey(challenge string, unusable bool, detail string) *httpError {
	if unusable {
		detail = unusableKeys + "; its log says why"
	}
	return &httpError{code: belfry.Unauthorized, detail: detail, header: map[string]string{"WWW-Authenticate": `Bearer realm="belfry"` + challenge}}
}

// reportFailures is how often wrong keys are summed up in the log.
const reportFailures = time.Minute

// failureReport logs the first wrong key, and then how many there were in a minute.
type failureReport struct {
	mu      sync.Mutex
	since   time.Time // of the count; zero: none is logged
	count   int
	address string // of the last one
}

func (f *failureReport) add(log *slog.Logger, address string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.since.IsZero() {
		f.since = now
		log.Warn("a wrong API key", "address", address)
		return
	}
	f.count++
	f.address = address
}

func (f *failureReport) flush(log *slog.Logger, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count > 0 {
		log.Warn("wrong API keys", "count", f.count, "in", fmt.Sprint(now.Sub(f.since).Round(time.Second)), "last_address", f.address)
		f.since, f.count = now, 0
	} else if now.Sub(f.since) >= reportFailures {
		f.since = time.Time{}
	}
}

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
	if wait := a.keys.take(principal.ID, a.RateLimit); wait > 0 {
		return tooMany(wait, "too many requests with this API key; try again later")
	}
	return nil
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

// rateLimits bound requests a second: each who has a limit may make twice as many at once. There is a
// limiter for each limit, which knows who came last.
type rateLimits struct {
	bySecond sync.Map // float64 to *auth.Limiter
}

// take counts a request, unless who makes it must wait. A limit of 0 is none.
func (l *rateLimits) take(who string, perSecond float64) (wait time.Duration) {
	if perSecond <= 0 || math.IsNaN(perSecond) || math.IsInf(perSecond, 1) {
		return 0
	}
	known, ok := l.bySecond.Load(perSecond)
	if !ok {
		every := time.Duration(min(float64(time.Second)/perSecond, math.MaxInt64/2))
		known, _ = l.bySecond.LoadOrStore(perSecond, &auth.Limiter{Every: every, Burst: max(1, int(min(2*perSecond, math.MaxInt32)))})
	}
	return known.(*auth.Limiter).Take(who, time.Now())
}
