package broker

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/secret"
)

const (
	connectTimeout = 5 * time.Second
	maxFile        = 1 << 20 // bytes of a file with connections, certificates or a password
)

// Connection is how a broker is reached, as the operator of a node declares it. The guard of
// HTTP targets does not apply: whoever declares a connection decides where it leads.
type Connection struct {
	URL            string `json:"url" required:"true" maxlen:"2000" example:"kafka://a.example.com:9092,b.example.com:9092" doc:"Address of the broker, without a user name or password."`
	Username       string `json:"username,omitempty" maxlen:"1000" example:"belfry" doc:"User name; for SQS the id of an access key."`
	PasswordFile   string `json:"password_file,omitempty" maxlen:"4000" example:"/run/secrets/kafka" doc:"File with the password, or for SQS the secret access key. It is read again for every connect."`
	PasswordEnv    string `json:"password_env,omitempty" maxlen:"1000" example:"KAFKA_PASSWORD" doc:"Environment variable with the password, instead of a file."`
	PasswordSecret string `json:"password_secret,omitempty" maxlen:"127" pattern:"^[a-z0-9-]{1,63}/[a-z0-9][a-z0-9._-]{0,62}$" patterndoc:"must be a namespace, a slash and the name of a secret" example:"default/kafka-password" doc:"Named secret with the password, with its namespace, instead of a file."`
	SASL           string `json:"sasl,omitempty" enum:"plain,scram-sha-256,scram-sha-512" implicit:"plain" example:"scram-sha-512" doc:"How Kafka checks the password."`
	TLS            bool   `json:"tls,omitempty" doc:"Connect with TLS. 'amqps' and 'rediss' addresses and the next four fields imply it."`
	CAFile         string `json:"ca_file,omitempty" maxlen:"4000" example:"/etc/belfry/ca.pem" doc:"Certificates to trust, instead of those of the system."`
	CertFile       string `json:"cert_file,omitempty" maxlen:"4000" example:"/etc/belfry/client.pem" doc:"Certificate that the broker asks for, with 'key_file'."`
	KeyFile        string `json:"key_file,omitempty" maxlen:"4000" example:"/etc/belfry/client.key" doc:"Private key of the certificate."`
	Insecure       bool   `json:"insecure_skip_verify,omitempty" doc:"Accept any certificate of the broker: only for tests."`

	address address
	secrets secret.Source // nil: there are none
}

// address is a URL in parts.
type address struct {
	scheme string
	hosts  []string // with their ports; for SQS the region
	path   string
	query  url.Values
}

// kind is what is different between brokers.
type kind struct {
	port   string                              // the default; an SQS region has none
	option string                              // that a URL may have behind a question mark
	open   func(Connection) (Publisher, error) // connects to nothing
}

// kinds are the brokers by the schemes of their URLs.
var kinds = map[string]kind{
	"kafka": {"9092", "version", newKafka}, "nats": {"4222", "", newNATS}, "sqs": {"", "endpoint", newSQS},
	"amqp": {"5672", "", newRabbitMQ}, "amqps": {"5671", "", newRabbitMQ}, "redis": {"6379", "", newRedis}, "rediss": {"6379", "", newRedis},
}

const urlForms = "kafka://host:9092,host:9092, nats://host:4222, amqp://host:5672/vhost, redis://host:6379/0 or sqs://eu-west-1"

// New checks a connection. It reads the files that it names, and connects to nothing.
func New(c Connection) (Connection, []belfry.FieldError) {
	var errors []belfry.FieldError
	fail := func(field, format string, args ...any) {
		errors = append(errors, belfry.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	var problem string
	if c.address, problem = parseAddress(c.URL); problem != "" {
		fail("url", "%s", problem)
	}
	if c.PasswordFile != "" && c.PasswordEnv != "" {
		fail("password_env", "cannot be combined with password_file; leave one of them out")
	} else if c.PasswordSecret != "" {
		if c.PasswordFile+c.PasswordEnv != "" {
			fail("password_secret", "cannot be combined with password_file or password_env; leave one of them out")
		}
	} else if _, err := c.password(); err != nil {
		fail("password_"+map[bool]string{true: "file", false: "env"}[c.PasswordFile != ""], "%s", err)
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		fail("key_file", "and cert_file belong together; set both or none")
	} else if _, err := c.tlsConfig(); err != nil {
		fail("tls", "%s", err)
	}
	return c, errors
}

// parseAddress reads a URL, which may have several hosts, or says what is wrong.
func parseAddress(text string) (a address, problem string) {
	scheme, rest, found := strings.Cut(text, "://")
	a.scheme = strings.ToLower(scheme)
	kind, known := kinds[a.scheme]
	port := kind.port
	if !found || !known {
		return a, "must begin with one of kafka, nats, amqp, amqps, redis, rediss and sqs, such as " + urlForms
	}
	rest, query, _ := strings.Cut(rest, "?")
	hosts, path, _ := strings.Cut(rest, "/")
	if strings.Contains(hosts, "@") {
		return a, "must not contain a user name or password; use username, and password_file or password_env"
	}
	var err error
	if a.query, err = url.ParseQuery(query); err != nil {
		return a, "has options that cannot be read"
	}
	for name := range a.query {
		if name != kind.option {
			return a, fmt.Sprintf("has an unknown option %q", name)
		}
	}
	if a.path, err = url.PathUnescape(path); err != nil {
		return a, "has a path that cannot be read"
	}
	for host := range strings.SplitSeq(hosts, ",") {
		host = strings.TrimSpace(host)
		if _, _, err := net.SplitHostPort(host); err != nil && port != "" {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		if name, _, _ := net.SplitHostPort(host); name == "" && (port != "" || host == "") {
			return a, "has no host; such as " + urlForms
		}
		a.hosts = append(a.hosts, host)
	}
	version := a.query.Get("version")
	switch _, err := strconv.Atoi(cmp.Or(a.path, "0")); {
	case len(a.hosts) > 1 && a.scheme != "kafka" && a.scheme != "nats":
		return a, "has several hosts, which only kafka and nats may have"
	case err != nil && strings.HasPrefix(a.scheme, "redis"):
		return a, "has a path that is not the number of a database, such as redis://host/0"
	case version != "" && kversion.FromString(version) == nil:
		return a, "has a version that is not one of Kafka, such as 0.9.0 or 2.8"
	}
	return a, ""
}

// password is what the broker expects; empty if the connection names none.
func (c Connection) password() (string, error) {
	switch {
	case c.PasswordSecret != "":
		return c.secretPassword()
	case c.PasswordEnv != "":
		value, found := os.LookupEnv(c.PasswordEnv)
		if !found {
			return "", fmt.Errorf("the environment variable %s is not set", c.PasswordEnv)
		}
		return value, nil
	case c.PasswordFile != "":
		text, err := readFile(c.PasswordFile)
		return strings.TrimRight(string(text), "\r\n"), err
	}
	return "", nil
}

// secretValues are what must not be shown of an error of the broker.
func (c Connection) secretValues() []string {
	if password, err := c.password(); err == nil && password != "" {
		return []string{password}
	}
	return nil
}

// secretPassword is the value of a named secret.
func (c Connection) secretPassword() (string, error) {
	if c.secrets == nil {
		return "", fmt.Errorf("the secret %s cannot be used here", c.PasswordSecret)
	}
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	namespace, name, _ := strings.Cut(c.PasswordSecret, "/")
	values, err := c.secrets.Secret(ctx, namespace, name)
	if err != nil {
		return "", fmt.Errorf("the secret %s cannot be read: %w", c.PasswordSecret, err)
	}
	return values[0], nil
}

func readFile(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("it has %d bytes, the most is %d", len(text), maxFile)
	}
	if err != nil {
		return nil, fmt.Errorf("the file cannot be read: %w", err)
	}
	return text, nil
}

// credentials are what is read anew for every connect: TLS, nil without it, and the password.
func (c Connection) credentials() (config *tls.Config, password string, err error) {
	if config, err = c.tlsConfig(); err == nil {
		password, err = c.password()
	}
	return config, password, err
}

// tlsConfig is nil without TLS.
func (c Connection) tlsConfig() (*tls.Config, error) {
	if !c.TLS && c.CAFile == "" && c.CertFile == "" && !c.Insecure && !slices.Contains([]string{"amqps", "rediss"}, c.address.scheme) {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.Insecure}
	if c.CAFile != "" {
		text, err := readFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("ca_file: %s has no certificate in PEM form", c.CAFile)
		}
	}
	if c.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("cert_file and key_file: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
