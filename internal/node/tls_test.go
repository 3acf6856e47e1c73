package node

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/client"
)

// authority signs certificates for a test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
	last int64
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, last: 1}
	a.cert = &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Now().AddDate(50, 0, 0), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, key := a.sign(a.cert)
	a.key, a.file = key, filepath.Join(t.TempDir(), "ca.pem")
	a.cert, _ = x509.ParseCertificate(der)
	a.write(a.file, "CERTIFICATE", der)
	return a
}

func (a *authority) sign(template *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	signer := a.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	return der, key
}

// issue replaces a certificate for 127.0.0.1 and its key in a directory.
func (a *authority) issue(dir string, end time.Time) (cert, key string) {
	a.t.Helper()
	a.last++
	der, private := a.sign(&x509.Certificate{SerialNumber: big.NewInt(a.last), NotBefore: time.Unix(0, 0), NotAfter: end,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	a.write(cert, "CERTIFICATE", der)
	a.write(key, "PRIVATE KEY", text)
	return cert, key
}

func (a *authority) write(path, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(path+"~", pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	if err := os.Rename(path+"~", path); err != nil {
		a.t.Fatal(err)
	}
}

// browser trusts the authority and uses HTTP/2.
func (a *authority) browser(change func(*tls.Config)) *http.Client {
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AddCert(a.cert)
	if change != nil {
		change(config)
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	a.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

func inAnHour() time.Time { return time.Now().Add(time.Hour) }

func TestTLSRefusedAtTheStart(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue(t.TempDir(), inAnHour())
	expired, expiredKey := a.issue(t.TempDir(), time.Now().Add(-time.Minute))
	_, otherKey := a.issue(t.TempDir(), inAnHour())
	_, openKey := a.issue(t.TempDir(), inAnHour())
	if err := os.Chmod(openKey, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func(*Config)
		want   []string
	}{
		"plain HTTP beyond loopback": {func(c *Config) { c.Listen, c.APIKeyFile = ":0", keyFile(t) }, []string{"--tls-cert", "--trusted-proxy", "--insecure-plain-http"}},
		"a certificate alone":        {func(c *Config) { c.TLS.CertFile = cert }, []string{"--tls-key"}},
		"two certificates":           {func(c *Config) { c.TLS = TLS{CertFile: cert, KeyFile: key, Auto: true} }, []string{"--tls-auto"}},
		"client CA without TLS":      {func(c *Config) { c.TLS.ClientCA = a.file }, []string{"--tls-client-ca"}},
		"expired":                    {func(c *Config) { c.TLS = TLS{CertFile: expired, KeyFile: expiredKey} }, []string{"expired at"}},
		"the key of another":         {func(c *Config) { c.TLS = TLS{CertFile: cert, KeyFile: otherKey} }, []string{"private key does not match"}},
		"a key that all may read":    {func(c *Config) { c.TLS = TLS{CertFile: cert, KeyFile: openKey} }, []string{"mode 0644", "chmod 600"}},
		"no file":                    {func(c *Config) { c.TLS = TLS{CertFile: "/nowhere", KeyFile: key} }, []string{"--tls-cert"}},
		"a CA that is none":          {func(c *Config) { c.TLS = TLS{CertFile: cert, KeyFile: key, ClientCA: key} }, []string{"--tls-client-ca", "no certificate"}},
		"a proxy that is none":       {func(c *Config) { c.TrustedProxies = []string{"proxy"} }, []string{"--trusted-proxy"}},
	} {
		c := Defaults()
		c.Listen, c.Data = "127.0.0.1:0", t.TempDir()
		tt.change(&c)
		n, err := New(t.Context(), c, slog.New(slog.DiscardHandler))
		if err == nil {
			n.close()
			t.Errorf("%s: it starts", name)
			continue
		}
		text := err.Error()
		if invalid, ok := errors.AsType[*belfry.Error](err); ok {
			text += fmt.Sprint(invalid.Fields)
		}
		for _, want := range tt.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q does not say %q", name, text, want)
			}
		}
	}
}

func TestListeningBeyondLoopback(t *testing.T) {
	for _, change := range []func(*Config){
		func(c *Config) { c.TLS.Auto = true },
		func(c *Config) { c.TrustedProxies = []string{"10.0.0.0/8"} },
		func(c *Config) { c.InsecurePlainHTTP = true },
	} {
		c := Defaults()
		c.Listen, c.APIKeyFile = ":0", "keys"
		change(&c)
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
	}
}

// serveTLS starts a node with a certificate of the authority.
func serveTLS(t *testing.T, a *authority, change func(*Config)) (n *Node, base string) {
	c := Defaults()
	c.Listen, c.Data = "127.0.0.1:0", t.TempDir()
	c.TLS.CertFile, c.TLS.KeyFile = a.issue(t.TempDir(), inAnHour())
	if change != nil {
		change(&c)
	}
	n, stop := runNode(t, c)
	t.Cleanup(stop)
	return n, "https://" + n.Addr().String()
}

func ask(t *testing.T, c *http.Client, method, address, body string) (*http.Response, string) {
	t.Helper()
	r, _ := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

func TestTLSHandshakes(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	_, base := serveTLS(t, a, nil)
	resp, _ := ask(t, a.browser(nil), "GET", base+"/readyz", "")
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 || resp.TLS.Version != tls.VersionTLS13 {
		t.Errorf("got %s over %s, TLS %x", resp.Status, resp.Proto, resp.TLS.Version)
	}
	if resp, _ := ask(t, a.browser(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }), "GET", base+"/readyz", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("TLS 1.2 gets %s", resp.Status)
	}
	for name, c := range map[string]*http.Client{
		"TLS 1.1":      a.browser(func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }),
		"another host": a.browser(func(c *tls.Config) { c.ServerName = "belfry.example.com" }),
		"another CA":   newAuthority(t).browser(nil),
	} {
		if resp, err := c.Get(base + "/readyz"); err == nil {
			t.Errorf("%s gets %s", name, resp.Status)
		}
	}
	if status, text := get(t, "http"+strings.TrimPrefix(base, "https")+"/readyz"); status != http.StatusBadRequest {
		t.Errorf("plain HTTP gets %d %s", status, text)
	}
}

// Over HTTP/2 a worker waits for a run, a stream sends events as they happen, and other
// requests pass them on the same connection.
func TestLongPollsAndEventsOverHTTP2(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	_, base := serveTLS(t, a, nil)
	h := a.browser(nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var connections atomic.Int64
	dial := new(net.Dialer).DialContext
	h.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		connections.Add(1)
		return dial(ctx, network, address)
	}
	c, err := client.New(base, client.WithHTTPClient(h))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Job(ctx, "none"); belfry.CodeOf(err) != belfry.NotFound {
		t.Fatal(err)
	}
	died := make(chan error, 1)
	go func() {
		for event, err := range c.WatchEvents(ctx, belfry.EventFilter{Kind: belfry.EventRunDead}, belfry.ID{}) {
			if err != nil || event.Kind == belfry.EventRunDead {
				died <- err
				return
			}
		}
	}()
	worked := make(chan error, 1)
	id := belfry.NewID(time.Now())
	if _, err := c.Heartbeat(ctx, belfry.Heartbeat{WorkerID: id, Register: true, Slots: 1, Handlers: []string{"send"}}); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			runs, err := c.Claim(ctx, belfry.Claim{WorkerID: id, Handlers: []string{"send"}, Limit: 1})
			if err == nil && len(runs) == 0 {
				continue
			}
			if err == nil {
				run := runs[0]
				_, err = c.Finish(ctx, []belfry.Result{{RunID: run.ID, Attempt: run.Attempt, Token: run.Token, Outcome: belfry.OutcomeFailed, Permanent: true}})
			}
			worked <- err
			return
		}
	}()
	job, err := c.CreateJob(ctx, belfry.Manifest{Name: "once", Spec: belfry.Spec{Handler: "send", Schedule: "@yearly"}})
	if err == nil {
		_, err = c.TriggerJob(ctx, job.ID.String(), nil)
	}
	for what, done := range map[string]chan error{"the worker": worked, "the stream": died} {
		if err != nil {
			t.Fatal(err)
		}
		select {
		case err = <-done:
		case <-ctx.Done():
			t.Fatal(what + " waits in vain")
		}
	}
	if err != nil || connections.Load() != 1 {
		t.Errorf("%d connections, error %v", connections.Load(), err)
	}
}

func TestWorkersNeedACertificate(t *testing.T) {
	t.Parallel()
	a, others := newAuthority(t), newAuthority(t)
	_, base := serveTLS(t, a, func(c *Config) { c.TLS.ClientCA = a.file })
	heartbeat := base + "/api/v1/workers/" + belfry.NewID(time.Now()).String() + "/heartbeat"
	with := func(by *authority) *http.Client {
		cert, key := by.issue(t.TempDir(), inAnHour())
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return a.browser(func(c *tls.Config) {
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		})
	}
	for name, tt := range map[string]struct {
		client          *http.Client
		method, address string
		want            int
	}{
		"a worker without one": {a.browser(nil), "POST", heartbeat, http.StatusForbidden},
		"a worker with one":    {with(a), "POST", heartbeat, http.StatusOK},
		"a health check":       {a.browser(nil), "GET", base + "/readyz", http.StatusOK},
		"a person":             {a.browser(nil), "GET", base + "/api/v1/jobs", http.StatusOK},
	} {
		if resp, text := ask(t, tt.client, tt.method, tt.address, `{}`); resp.StatusCode != tt.want || tt.want == http.StatusForbidden && !strings.Contains(text, "--tls-client-cert") {
			t.Errorf("%s gets %s: %s", name, resp.Status, text)
		}
	}
	if resp, err := with(others).Post(heartbeat, "application/json", strings.NewReader("{}")); err == nil {
		t.Errorf("a certificate of another authority gets %s", resp.Status)
	}
	cert, key := a.issue(t.TempDir(), inAnHour())
	c, err := client.New(base, client.WithTLS(client.TLS{CAFile: a.file, CertFile: cert, KeyFile: key}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Claim(t.Context(), belfry.Claim{WorkerID: belfry.NewID(time.Now()), Handlers: []string{"http"}, Limit: 1}); belfry.CodeOf(err) == belfry.Forbidden || belfry.CodeOf(err) == belfry.Unavailable {
		t.Error(err)
	}
}

// A certificate is replaced while every request makes a connection, and none fails. A pair
// that cannot be used changes nothing.
func TestReloadUnderLoad(t *testing.T) {
	a := newAuthority(t)
	n, base := serveTLS(t, a, nil)
	c := a.browser(nil)
	c.Transport.(*http.Transport).DisableKeepAlives = true
	l := startLoad(t, 4, func(ctx context.Context, _ int64) error {
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, base+"/livez", nil)
		resp, err := c.Do(r)
		if err == nil {
			resp.Body.Close()
		}
		return err
	})
	dir := filepath.Dir(n.config.TLS.CertFile)
	for i := range 10 {
		before := n.certificates.fingerprint()
		a.issue(dir, inAnHour())
		if _, err := n.certificates.load(); err != nil || n.certificates.fingerprint() == before { // The node may have loaded it already.
			t.Fatalf("the new certificate is not used: %v", err)
		}
		resp, _ := ask(t, a.browser(nil), "GET", base+"/livez", "")
		if serial := resp.TLS.PeerCertificates[0].SerialNumber.Int64(); serial != a.last {
			t.Errorf("round %d shows the certificate %d, not %d", i, serial, a.last)
		}
		before = n.certificates.fingerprint()
		if err := os.WriteFile(n.config.TLS.KeyFile, []byte("half a ke"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := n.certificates.load(); err == nil || n.certificates.fingerprint() != before {
			t.Errorf("half a key is used: %v", err)
		}
		l.during(2, func() {})
	}
	t.Logf("%d requests, %d failed", l.end(), l.failed.Load())
}

func TestCertificatesFollowTheirFiles(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		cert, key := a.issue(dir, time.Now().Add(time.Hour))
		c := &certificates{TLS: TLS{CertFile: cert, KeyFile: key}}
		if _, err := c.load(); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		ctx, stop := context.WithCancel(t.Context())
		go c.watch(ctx, slog.New(slog.NewTextHandler(&out, nil)))
		said := func(want string, times int, after time.Duration) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if text := out.String(); strings.Count(text, want) != times {
				t.Errorf("the log does not say %q %d times:\n%s", want, times, text)
			}
		}
		said("TLS", 0, time.Minute)
		a.issue(dir, time.Now().Add(time.Hour))
		said("was read again", 1, 4*time.Second)
		if err := os.WriteFile(key, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		said("cannot be used, the old one stays", 0, 3*time.Second) // the other file may be on its way
		said("cannot be used, the old one stays", 1, 3*time.Second)
		said("cannot be used, the old one stays", 1, time.Minute)
		said("has expired", 0, 0)
		said("has expired", 1, 2*time.Hour)
		a.issue(dir, time.Now().Add(-time.Second))
		said("was read again", 1, time.Minute)
		a.issue(dir, time.Now().Add(time.Hour))
		said("was read again", 2, time.Minute)
		stop()
	})
}

func TestAutoCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := func(hosts ...string) (*Node, string, func()) {
		c := Defaults()
		c.Listen, c.Data, c.TLS.Auto, c.Hosts = "127.0.0.1:0", dir, true, hosts
		n, stop := runNode(t, c)
		t.Cleanup(stop)
		return n, "https://" + n.Addr().String(), stop
	}
	n, base, stop := start()
	print := n.certificates.fingerprint()
	for _, file := range []string{autoCertFile, autoKeyFile} {
		if info, err := os.Stat(filepath.Join(dir, file)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
	for name, tt := range map[string]struct {
		tls  client.TLS
		fine bool
	}{
		"the fingerprint":        {client.TLS{Fingerprint: print}, true},
		"without colons":         {client.TLS{Fingerprint: strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(print, "SHA256:"), ":", ""))}, true},
		"the file":               {client.TLS{CAFile: n.certificates.CertFile}, true},
		"both":                   {client.TLS{CAFile: n.certificates.CertFile, Fingerprint: print}, true},
		"nothing":                {client.TLS{}, false},
		"another fingerprint":    {client.TLS{Fingerprint: strings.Repeat("ab", 32)}, false},
		"the file, and another":  {client.TLS{CAFile: n.certificates.CertFile, Fingerprint: strings.Repeat("ab", 32)}, false},
		"the fingerprint, no CA": {client.TLS{CAFile: newAuthority(t).file, Fingerprint: print}, false},
	} {
		c, err := client.New(base, client.WithTLS(tt.tls), client.WithRetries(0))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Job(t.Context(), "missing"); (belfry.CodeOf(err) == belfry.NotFound) != tt.fine {
			t.Errorf("%s: got %v", name, err)
		}
		c.Close()
	}
	stop()
	n, _, stop = start()
	if n.certificates.fingerprint() != print {
		t.Error("the next start has another certificate")
	}
	stop()
	n, base, _ = start("belfry.example.com:443")
	if n.certificates.fingerprint() == print {
		t.Error("a name that the certificate lacks makes no new one")
	}
	pool := x509.NewCertPool()
	pool.AddCert(n.certificates.leaf())
	conn, err := tls.Dial("tcp", strings.TrimPrefix(base, "https://"), &tls.Config{RootCAs: pool, ServerName: "belfry.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}
