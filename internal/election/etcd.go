package election

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/belfry-sh/belfry"
)

const (
	// etcdTTL is shorter than that of leases in the database, since etcd looks for expired
	// leases only every half second.
	etcdTTL = 3 * time.Second

	etcdBatch = 50 // keys in a transaction; etcd allows 128 operations
)

// EtcdOptions says how to reach etcd.
type EtcdOptions struct {
	Endpoints                 []string // host:port, or with http:// or https://
	CAFile, CertFile, KeyFile string   // TLS; the certificate is that of the client
	Username, PasswordFile    string
}

// etcd holds all names of a node by one lease of etcd.
type etcd struct {
	config clientv3.Config
	prefix string
	client *clientv3.Client // nil: not yet connected
	lease  clientv3.LeaseID // 0: none
}

// NewEtcd is the service of a cluster. It reads the files, and connects when it is first used.
func NewEtcd(o EtcdOptions, cluster string) (Service, error) {
	e := &etcd{prefix: "/belfry/" + cluster + "/", config: clientv3.Config{
		Endpoints: o.Endpoints, Username: o.Username, DialTimeout: callTimeout, Logger: zap.NewNop(),
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 2 * time.Second,
		// A server that comes back is used within a second, however long it was away.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}, MinConnectTimeout: callTimeout,
		})},
	}}
	secure := slices.ContainsFunc(o.Endpoints, func(endpoint string) bool { return strings.HasPrefix(endpoint, "https://") })
	if secure || o.CAFile != "" || o.CertFile != "" {
		e.config.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--etcd-ca-file: %w", err)
		}
		e.config.TLS.RootCAs = x509.NewCertPool()
		if !e.config.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--etcd-ca-file: %s has no certificate in PEM format", o.CAFile)
		}
	}
	if o.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("--etcd-cert-file, --etcd-key-file: %w", err)
		}
		e.config.TLS.Certificates = []tls.Certificate{pair}
	}
	if o.PasswordFile != "" {
		var err error
		if e.config.Password, err = readSecret(o.PasswordFile); err != nil {
			return nil, fmt.Errorf("--etcd-password-file: %w", err)
		}
	}
	return e, nil
}

func (e *etcd) Kind() belfry.Election { return belfry.ElectionEtcd }

func (e *etcd) Hold(ctx context.Context, owner belfry.ID, names []string) (held []string, lasts time.Duration, err error) {
	if err := e.connect(); err != nil {
		return nil, 0, err
	}
	if len(names) == 0 {
		return nil, 0, e.revoke(ctx)
	}
	// What others hold, and what this node holds without knowing, is read first: a renewal
	// repeats itself without a pause while etcd cannot be reached.
	found, err := e.client.Get(ctx, e.prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, 0, err
	}
	seconds, err := e.renew(ctx)
	if err != nil {
		return nil, 0, err
	}
	missing := map[string]bool{}
	for _, name := range names {
		missing[e.prefix+name] = true
	}
	var extra []string
	for _, kv := range found.Kvs {
		key := string(kv.Key)
		switch mine := clientv3.LeaseID(kv.Lease) == e.lease; {
		case mine && missing[key]:
			held = append(held, strings.TrimPrefix(key, e.prefix))
		case mine:
			extra = append(extra, key)
		}
		delete(missing, key)
	}
	if _, err := e.change(ctx, extra, func(key string) (clientv3.Cmp, clientv3.Op) { // if they are still of the lease
		return clientv3.Compare(clientv3.LeaseValue(key), "=", e.lease), clientv3.OpDelete(key)
	}); err != nil {
		return nil, 0, err
	}
	taken, err := e.change(ctx, slices.Sorted(maps.Keys(missing)), func(key string) (clientv3.Cmp, clientv3.Op) { // if nobody has them
		return clientv3.Compare(clientv3.CreateRevision(key), "=", 0), clientv3.OpPut(key, owner.String(), clientv3.WithLease(e.lease))
	})
	return append(held, taken...), time.Duration(seconds) * time.Second, err
}

// connect makes the client. With a password, that asks the server.
func (e *etcd) connect() (err error) {
	if e.client == nil {
		e.client, err = clientv3.New(e.config)
	}
	return err
}

// renew extends the lease, or takes a new one, and returns for how many seconds.
func (e *etcd) renew(ctx context.Context) (int64, error) {
	if e.lease != 0 {
		renewed, err := e.client.KeepAliveOnce(ctx, e.lease)
		if err == nil {
			return renewed.TTL, nil
		}
		if !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return 0, err
		}
		e.lease = 0
	}
	granted, err := e.client.Grant(ctx, int64(etcdTTL.Seconds()))
	if err != nil {
		return 0, err
	}
	e.lease = granted.ID
	return granted.TTL, nil
}

// change does an operation for each key whose condition holds, and returns the names of these.
func (e *etcd) change(ctx context.Context, keys []string, what func(key string) (clientv3.Cmp, clientv3.Op)) (names []string, err error) {
	for batch := range slices.Chunk(keys, etcdBatch) {
		var each []clientv3.Op
		for _, key := range batch {
			condition, op := what(key)
			each = append(each, clientv3.OpTxn([]clientv3.Cmp{condition}, []clientv3.Op{op}, nil))
		}
		done, err := e.client.Txn(ctx).Then(each...).Commit()
		if err != nil {
			return nil, err
		}
		for i, response := range done.Responses {
			if response.GetResponseTxn().Succeeded {
				names = append(names, strings.TrimPrefix(batch[i], e.prefix))
			}
		}
	}
	return names, nil
}

// revoke ends the lease, and with it all that the node holds.
func (e *etcd) revoke(ctx context.Context) error {
	if e.lease == 0 {
		return nil
	}
	_, err := e.client.Revoke(ctx, e.lease)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		err = nil
	}
	if err == nil {
		e.lease = 0
	}
	return err
}

func (e *etcd) Held(ctx context.Context, prefix string) (names []string, err error) {
	if err := e.connect(); err != nil {
		return nil, err
	}
	found, err := e.client.Get(ctx, e.prefix+prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	for _, kv := range found.Kvs {
		names = append(names, strings.TrimPrefix(string(kv.Key), e.prefix))
	}
	return names, nil
}

func (e *etcd) Close() {
	if e.client != nil {
		_ = e.client.Close() // There is nothing left to be told.
	}
}

// readSecret reads a file without the line break at its end.
func readSecret(path string) (string, error) {
	raw, err := os.ReadFile(path)
	secret := strings.TrimRight(string(raw), "\r\n")
	if err == nil && secret == "" {
		err = fmt.Errorf("%s is empty", path)
	}
	return secret, err
}
