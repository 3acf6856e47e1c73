package broker

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/servertest"
)

// certificate writes a certificate for 127.0.0.1 that is its own authority, and its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", must(x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private))),
		write("key.pem", "EC PRIVATE KEY", must(x509.MarshalECPrivateKey(private)))
}

// A broker with TLS is reached by who trusts its certificate and has one of its own, and by
// nobody else.
func TestTLS(t *testing.T) {
	cert, key := certificate(t)
	for name, start := range map[string]func(t *testing.T, c Connection) fixture{
		"nats": func(t *testing.T, c Connection) fixture {
			s := servertest.DebianNATS(t, "--tlscert", cert, "--tlskey", key, "--tlscacert", cert, "--tlsverify")
			c.URL = "nats://" + s.Addr
			return natsFixture(t, s, checked(t, c))
		},
		"redis": func(t *testing.T, c Connection) fixture {
			l := must(net.Listen("tcp", "127.0.0.1:0"))
			_, port, _ := net.SplitHostPort(l.Addr().String())
			l.Close()
			s := servertest.Redis(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert)
			c.URL = "rediss://127.0.0.1:" + port
			return redisFixture(s, checked(t, c))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, Connection{CAFile: cert, CertFile: cert, KeyFile: key})
			if err := connections(t, f.connection).Handle(waitContext(t), run(1, f.payload(`{}`))); err != nil {
				t.Fatal(err)
			}
			if list := f.receive(t); len(list) != 1 || list[0].body != "{}" {
				t.Errorf("received %v", list)
			}
			stranger := checked(t, Connection{URL: f.connection.URL, TLS: true})
			err := connections(t, stranger).Handle(waitContext(t), run(2, f.payload(`{}`)))
			if err == nil || !strings.Contains(err.Error(), "certificate signed by unknown authority") {
				t.Errorf("without the authority: %v", err)
			}
			if err := connections(t, checked(t, Connection{URL: f.connection.URL, CAFile: cert})).Handle(waitContext(t), run(3, f.payload(`{}`))); err == nil {
				t.Error("without a certificate of its own it published")
			}
		})
	}
}
