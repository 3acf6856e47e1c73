// Command servers runs a broker or a coordination service in one process, for tests that
// kill it: servers nats|etcd|kafka|kafka-sasl ADDRESS DIRECTORY. It keeps its data in the directory and
// prints nothing until it fails.
//
// It is a module of its own, so that the product does not depend on servers.
package main

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: servers nats|etcd|kafka|kafka-sasl ADDRESS DIRECTORY")
		os.Exit(2)
	}
	start, known := map[string]func(host string, port int, dir string) error{"nats": startNATS, "etcd": startEtcd, "kafka": startKafka, "kafka-sasl": startKafkaSASL}[os.Args[1]]
	if !known {
		fmt.Fprintf(os.Stderr, "%q is not one of nats, etcd, kafka, kafka-sasl\n", os.Args[1])
		os.Exit(2)
	}
	host, text, err := net.SplitHostPort(os.Args[2])
	if err == nil {
		var port int
		if port, err = strconv.Atoi(text); err == nil {
			err = start(host, port, os.Args[3])
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {} // until it is killed
}

func startNATS(host string, port int, dir string) error {
	s, err := server.NewServer(&server.Options{Host: host, Port: port, JetStream: true, StoreDir: dir, NoSigs: true})
	if err != nil {
		return err
	}
	go s.Start()
	if !s.ReadyForConnections(30 * time.Second) {
		return fmt.Errorf("the NATS server is not ready after 30 seconds")
	}
	return nil
}

func startEtcd(host string, port int, dir string) error {
	c := embed.NewConfig()
	c.Dir, c.LogLevel, c.UnsafeNoFsync = dir, "error", true
	scheme := "http"
	if ca := os.Getenv("SERVERS_CA"); ca != "" { // with TLS, for clients with a certificate
		scheme = "https"
		c.ClientTLSInfo = transport.TLSInfo{TrustedCAFile: ca, CertFile: os.Getenv("SERVERS_CERT"), KeyFile: os.Getenv("SERVERS_KEY"), ClientCertAuth: true}
	}
	client := url.URL{Scheme: scheme, Host: net.JoinHostPort(host, strconv.Itoa(port))}
	peer := url.URL{Scheme: "http", Host: net.JoinHostPort(host, "0")}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	_, err := embed.StartEtcd(c)
	return err
}

func startKafka(_ string, port int, dir string) error { return startCluster(port, dir) }

func startKafkaSASL(_ string, port int, dir string) error {
	return startCluster(port, dir, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "belfry", "secret"))
}

func startCluster(port int, dir string, options ...kfake.Opt) error {
	_, err := kfake.NewCluster(append(options, kfake.Ports(port), kfake.DataDir(dir), kfake.SyncWrites())...)
	return err
}
