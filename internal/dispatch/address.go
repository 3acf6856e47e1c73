package dispatch

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// dialTimeout is for a connection to a broker.
const dialTimeout = 3 * time.Second

// address is where a broker is and how to talk to it.
type address struct {
	scheme, path   string
	hosts          []string // host:port
	user, password string
	prefix         string      // of the names of streams, topics and queues
	tls            *tls.Config // nil: none
	options        url.Values
}

// kind is a broker.
type kind struct {
	open    func(a address) (Queue, error)
	port    string
	options []string // beside those that all have
}

var kinds = map[string]kind{
	"nats":  {openNATS, "4222", nil},
	"kafka": {openKafka, "9092", []string{"sasl"}},
	"amqp":  {openAMQP, "5672", nil},
	"amqps": {openAMQP, "5671", nil},
	"sqs":   {openSQS, "", []string{"endpoint"}},
}

// Open makes the queue of an address. It reads files of certificates and secrets, and does not
// connect: a broker that is away may be there later.
func Open(text string) (Queue, error) {
	a, err := parse(text)
	if err != nil {
		return nil, err
	}
	return kinds[a.scheme].open(a)
}

var validPrefix = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

// parse reads an address. Its errors do not repeat it: there may be a password in it.
func parse(text string) (address, error) {
	a := address{prefix: "belfry"}
	if len(text) > 2000 {
		return a, errors.New("is longer than 2000 characters")
	}
	// A URL has one host; brokers have several.
	before, rest, _ := strings.Cut(text, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, user := rest[:end], ""
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		authority, user = authority[at+1:], authority[:at+1]
	}
	u, err := url.Parse(before + "://" + user + "host" + rest[end:])
	if err != nil {
		var detail *url.Error
		if errors.As(err, &detail) {
			err = detail.Err
		}
		return a, fmt.Errorf("is not a URL, such as nats://host:4222 (%w); write special characters of a password as %%XX, or use password_file", err)
	}
	k, known := kinds[u.Scheme]
	if !known {
		return a, fmt.Errorf(`%q is not one of database, %s`, u.Scheme, strings.Join(slices.Sorted(maps.Keys(kinds)), "://, ")+"://")
	}
	a.scheme, a.path, a.options = u.Scheme, u.Path, u.Query()
	for host := range strings.SplitSeq(authority, ",") {
		if host == "" {
			return a, fmt.Errorf("needs a host, such as %s://host", u.Scheme)
		}
		if k.port != "" && !regexp.MustCompile(`:\d+$`).MatchString(host) {
			host += ":" + k.port
		}
		a.hosts = append(a.hosts, host)
	}
	if u.User != nil {
		a.user = u.User.Username()
		a.password, _ = u.User.Password()
	}
	return a, a.readOptions(k)
}

// readOptions reads what is after the question mark.
func (a *address) readOptions(k kind) error {
	common := []string{"prefix", "tls", "ca_file", "cert_file", "key_file", "password_file"}
	for name, values := range a.options {
		if known := append(common, k.options...); !slices.Contains(known, name) || len(values) != 1 || values[0] == "" {
			return fmt.Errorf("option %q: the options are %s, each once and with a value", name, strings.Join(known, ", "))
		}
	}
	if a.options.Has("prefix") {
		if a.prefix = a.options.Get("prefix"); !validPrefix.MatchString(a.prefix) {
			return errors.New("option prefix: must be up to 40 small letters, digits and hyphens")
		}
	}
	if file := a.options.Get("password_file"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("option password_file: %w", err)
		}
		a.password = strings.TrimRight(string(text), "\r\n")
	}
	if on := a.options.Get("tls"); on != "" && on != "true" && on != "false" {
		return errors.New("option tls: must be true or false")
	}
	if a.scheme == "amqps" || a.options.Get("tls") == "true" || a.options.Has("ca_file") || a.options.Has("cert_file") {
		return a.readTLS()
	}
	return nil
}

func (a *address) readTLS() error {
	a.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	if file := a.options.Get("ca_file"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("option ca_file: %w", err)
		}
		a.tls.RootCAs = x509.NewCertPool()
		if !a.tls.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("option ca_file: %s has no certificate in PEM", file)
		}
	}
	if file := a.options.Get("cert_file"); file != "" {
		cert, err := tls.LoadX509KeyPair(file, a.options.Get("key_file"))
		if err != nil {
			return fmt.Errorf("options cert_file and key_file: %w", err)
		}
		a.tls.Certificates = []tls.Certificate{cert}
	}
	return nil
}
