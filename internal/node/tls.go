package node

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belfry-sh/belfry/internal/store/sqlite"
)

// TLS is how the API is served over TLS. The zero value is plain HTTP.
type TLS struct {
	CertFile, KeyFile string
	ClientCA          string // file; workers must show a certificate that it signed; empty: they need not
	Auto              bool   // makes a certificate in the data directory, unless there is one
}

// The files of a certificate that Belfry makes.
const (
	autoCertFile = "tls-cert.pem"
	autoKeyFile  = "tls-key.pem"
)

func (t TLS) on() bool { return t.Auto || t.CertFile != "" }

// checkTLS checks the flags that say who may listen to requests.
func (c Config) checkTLS(invalid func(field, format string, args ...any)) {
	switch t := c.TLS; {
	case (t.CertFile == "") != (t.KeyFile == ""):
		invalid("--tls-cert", "is used together with --tls-key")
	case t.Auto && t.CertFile != "":
		invalid("--tls-auto", "makes a certificate, so --tls-cert is not used with it")
	case t.ClientCA != "" && !t.on():
		invalid("--tls-client-ca", "needs TLS: set --tls-cert and --tls-key, or --tls-auto")
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err == nil && !isLoopback(host) && !c.TLS.on() && len(c.TrustedProxies) == 0 && !c.InsecurePlainHTTP {
		invalid("--listen", "%s can be reached from other machines, and without TLS whoever is between reads the API keys: set --tls-cert and --tls-key (or --tls-auto), "+
			"name a proxy that ends TLS with --trusted-proxy, or accept it with --insecure-plain-http", c.Listen)
	}
}

// certificates is what the listener shows and whom it trusts. While watch runs, it follows
// its files.
type certificates struct {
	TLS
	config atomic.Pointer[tls.Config]

	mu   sync.Mutex        // held while the files are read
	seen [sha256.Size]byte // of the files that were used last
}

// openTLS reads the certificate, or makes one.
func (n *Node) openTLS(context.Context) error {
	t := n.config.TLS
	if !t.on() {
		return nil
	}
	if t.Auto {
		t.CertFile, t.KeyFile = filepath.Join(n.config.Data, autoCertFile), filepath.Join(n.config.Data, autoKeyFile)
		if err := n.makeCertificate(t); err != nil {
			return fmt.Errorf("--tls-auto: %w", err)
		}
	}
	n.certificates = &certificates{TLS: t}
	_, err := n.certificates.load()
	return err
}

// load reads the files, if they have changed. What cannot be used changes nothing.
func (c *certificates) load() (changed bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cert, err := os.ReadFile(c.CertFile)
	if err != nil {
		return false, fmt.Errorf("--tls-cert: %w", err)
	}
	key, err := readPrivate(c.KeyFile)
	if err != nil {
		return false, fmt.Errorf("--tls-key: %w", err)
	}
	var ca []byte
	if c.ClientCA != "" {
		if ca, err = os.ReadFile(c.ClientCA); err != nil {
			return false, fmt.Errorf("--tls-client-ca: %w", err)
		}
	}
	sum := sha256.Sum256([]byte(fmt.Sprintf("%q %q %q", cert, key, ca)))
	if sum == c.seen {
		return false, nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return false, fmt.Errorf("--tls-cert: %s and %s: %w", c.CertFile, c.KeyFile, err)
	}
	if end := pair.Leaf.NotAfter; time.Now().After(end) {
		return false, fmt.Errorf("--tls-cert: the certificate in %s expired at %s", c.CertFile, end.Format(time.RFC3339))
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}
	if c.ClientCA != "" {
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.VerifyClientCertIfGiven
		if !config.ClientCAs.AppendCertsFromPEM(ca) {
			return false, fmt.Errorf("--tls-client-ca: %s has no certificate in PEM", c.ClientCA)
		}
	}
	c.config.Store(config)
	c.seen = sum
	return true, nil
}

// readPrivate reads the file of a key, which not everybody may read.
func readPrivate(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o026 != 0 {
		return nil, fmt.Errorf("%s has mode %04o: everybody may read it, or others than its owner may write it; use chmod 600, or 640 for a group", path, mode)
	}
	return os.ReadFile(path)
}

// rereadCertificates is how often the files are read.
const rereadCertificates = 3 * time.Second

// watch follows the files until ctx ends. A failure is logged when it is seen for the second
// time, since certificate and key cannot be replaced at once.
func (c *certificates) watch(ctx context.Context, log *slog.Logger) {
	before, failed := "", "" // why the files could not be used: when they were last read, and as logged
	late := false            // it was logged that the certificate has expired
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(rereadCertificates):
		}
		changed, err := c.load()
		now := ""
		if err != nil {
			now = err.Error()
		}
		switch {
		case changed:
			log.Info("the TLS certificate was read again", "fingerprint", c.fingerprint(), "expires", c.leaf().NotAfter)
			failed, late = "", false
		case now != "" && now == before && now != failed:
			log.Error("the new TLS certificate cannot be used, the old one stays", "error", now)
			failed = now
		}
		before = now
		if end := c.leaf().NotAfter; !late && time.Now().After(end) {
			log.Error("the TLS certificate has expired; clients refuse it until its files are replaced", "expired", end)
			late = true
		}
	}
}

func (c *certificates) leaf() *x509.Certificate { return c.config.Load().Certificates[0].Leaf }

// fingerprint is what openssl x509 -fingerprint -sha256 prints.
func (c *certificates) fingerprint() string {
	sum := sha256.Sum256(c.leaf().Raw)
	return "SHA256:" + strings.ReplaceAll(fmt.Sprintf("% X", sum), " ", ":")
}

// serverConfig has the latest certificate for every handshake.
func (c *certificates) serverConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.config.Load(), nil }}
}

// Certificate is the fingerprint of the certificate, and the file of one that Belfry made;
// empty: there is none.
func (n *Node) Certificate() (fingerprint, file string) {
	switch c := n.certificates; {
	case c == nil:
		return "", ""
	case !c.Auto:
		return c.fingerprint(), ""
	default:
		return c.fingerprint(), c.CertFile
	}
}

// makeCertificate makes a certificate that is its own authority, for the names and addresses
// of this machine. One that is there is kept while it is valid for the names of the
// configuration: clients may know its fingerprint.
func (n *Node) makeCertificate(t TLS) error {
	if err := sqlite.PrivateDir(n.config.Data, n.log); err != nil {
		return err
	}
	public, _ := url.Parse(n.config.PublicURL) // which is valid
	listen, _, _ := net.SplitHostPort(n.config.Listen)
	var names []string
	for _, name := range append([]string{public.Hostname(), listen}, n.config.Hosts...) {
		if host, _, err := net.SplitHostPort(name); err == nil {
			name = host
		}
		if ip := net.ParseIP(name); name != "" && (ip == nil || !ip.IsUnspecified()) {
			names = append(names, name)
		}
	}
	switch pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile); {
	case err == nil && covers(pair.Leaf, names):
		return nil
	case err == nil:
		n.log.Warn("the certificate that Belfry made has expired or lacks a name, so there is a new one", "names", names)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "belfry"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	hostname, _ := os.Hostname()
	for _, name := range append(names, "localhost", hostname) {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if name != "" {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses {
		if network, ok := a.(*net.IPNet); ok && !network.IP.IsLinkLocalUnicast() {
			template.IPAddresses = append(template.IPAddresses, network.IP)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(writePrivate(t.KeyFile, "PRIVATE KEY", private), writePrivate(t.CertFile, "CERTIFICATE", der))
}

// covers reports whether a certificate is valid now for all names.
func covers(leaf *x509.Certificate, names []string) bool {
	return time.Now().Before(leaf.NotAfter) && !slices.ContainsFunc(names, func(name string) bool { return leaf.VerifyHostname(name) != nil })
}

// writePrivate replaces a file as a whole.
func writePrivate(path, kind string, content []byte) error {
	if err := os.WriteFile(path+".new", pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
