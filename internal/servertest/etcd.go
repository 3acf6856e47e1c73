package servertest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/porttest"
)

// Etcd starts the current etcd, with one member.
func Etcd(tb testing.TB) *Server { tb.Helper(); return embedded(tb, etcdReady, "etcd") }

// etcdReady waits for a leader. A member that is killed before it has founded its cluster never
// gets one.
func etcdReady(ctx context.Context, addr string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/health", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("its health is %s", response.Status)
	}
	return nil
}

// DebianEtcd starts the etcd that Debian packages.
func DebianEtcd(tb testing.TB) *Server {
	tb.Helper()
	path := program(tb, "etcd", "etcd-server")
	peer := "http://" + porttest.Addr(tb)
	return start(tb, etcdReady, nil, path, "--name", "t1", "--data-dir", "{dir}", "--listen-client-urls", "http://{addr}", "--advertise-client-urls", "http://{addr}",
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "t1="+peer, "--log-level", "error")
}

// Certificates are files in PEM format: an authority, and a pair that it has signed, for a
// server on the loopback interface and its clients.
type Certificates struct{ CA, Cert, Key string }

// EtcdTLS starts the current etcd with TLS. It accepts clients with a certificate only.
func EtcdTLS(tb testing.TB) (*Server, Certificates) {
	tb.Helper()
	files := NewCertificates(tb)
	return embedded(tb, accepts, "etcd", "SERVERS_CA="+files.CA, "SERVERS_CERT="+files.Cert, "SERVERS_KEY="+files.Key), files
}

// NewCertificates makes certificates that are valid for an hour.
func NewCertificates(tb testing.TB) Certificates {
	tb.Helper()
	must := func(err error) {
		if err != nil {
			tb.Helper()
			tb.Fatal(err)
		}
	}
	dir := tb.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		must(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	template := func(name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
			BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		}
	}
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	authority := template("authority")
	authority.IsCA, authority.KeyUsage = true, x509.KeyUsageCertSign
	ca, err := x509.CreateCertificate(rand.Reader, authority, authority, &authorityKey.PublicKey, authorityKey)
	must(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	leaf := template("belfry")
	leaf.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	cert, err := x509.CreateCertificate(rand.Reader, leaf, authority, &key.PublicKey, authorityKey)
	must(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	return Certificates{CA: write("ca.pem", "CERTIFICATE", ca), Cert: write("cert.pem", "CERTIFICATE", cert), Key: write("key.pem", "PRIVATE KEY", private)}
}
