package client

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
)

// TLS says which server to trust, and how to be known to it.
type TLS struct {
	CAFile      string // certificates to trust instead of those of the machine
	Fingerprint string // SHA-256 of the server's certificate, in hex; without CAFile nothing else is checked

	CertFile, KeyFile string // of this client; they are read for every connection
}

// WithTLS sets certificates. It cannot be used with an HTTP client that has a Transport.
func WithTLS(t TLS) Option {
	return func(c *Client) { c.tls = t }
}

// WithInsecurePlainHTTP allows the key to be sent without TLS to a server that is not on this
// machine.
func WithInsecurePlainHTTP() Option {
	return func(c *Client) { c.plain = true }
}

// checkPlain refuses to send a key over plain HTTP to another machine.
func (c *Client) checkPlain() error {
	u, err := url.Parse(c.base)
	if err != nil || c.key == nil || c.plain || u.Scheme == "https" {
		return nil
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if addr, err := netip.ParseAddr(host); err == nil && addr.Unmap().IsLoopback() || host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return nil
	}
	return fmt.Errorf("the API key is not sent to %s without TLS, since whoever is between could read it: use https://, or allow it with --insecure-plain-http, BELFRY_INSECURE_PLAIN_HTTP=1 or WithInsecurePlainHTTP", c.base)
}

// useTLS makes the transport of an HTTP client that has none.
func (c *Client) useTLS(h *http.Client) error {
	if c.tls == (TLS{}) {
		return nil
	}
	config, err := c.tls.config()
	if err != nil {
		return err
	}
	transport := newTransport()
	transport.TLSClientConfig = config
	h.Transport = transport
	return nil
}

func (t TLS) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CAFile != "" {
		text, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the CA file: %w", err)
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("the CA file %s has no certificate in PEM", t.CAFile)
		}
	}
	if t.Fingerprint != "" {
		text := strings.TrimPrefix(strings.ToLower(t.Fingerprint), "sha256:")
		want, err := hex.DecodeString(strings.ReplaceAll(text, ":", ""))
		if err != nil || len(want) != sha256.Size {
			return nil, fmt.Errorf("%.120q is not a fingerprint: it is SHA256: and 64 hexadecimal digits, as a server prints it", t.Fingerprint)
		}
		config.InsecureSkipVerify = t.CAFile == "" // the fingerprint is checked instead
		config.VerifyConnection = func(s tls.ConnectionState) error {
			if sum := sha256.Sum256(s.PeerCertificates[0].Raw); !bytes.Equal(sum[:], want) {
				return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: fmt.Errorf("its fingerprint is SHA256:%X, which is not the expected one", sum)}
			}
			return nil
		}
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return nil, errors.New("a client certificate needs a file with the certificate and one with its key")
	}
	if t.CertFile != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("read the client certificate: %w", err)
			}
			return &pair, nil
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return config, nil
}
