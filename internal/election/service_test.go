package election

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/servertest"
	"github.com/belfry-sh/belfry/internal/store"
)

// call repeats a call to a service, as an elector does, until it succeeds.
func call[T any](t *testing.T, do func(ctx context.Context) (T, error)) T {
	t.Helper()
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), recovery)
		value, err := do(ctx)
		cancel()
		if err == nil {
			return value
		}
		if time.Since(start) > recovery {
			t.Fatal(err)
		}
	}
}

func holdNames(t *testing.T, s Service, owner belfry.ID, names ...string) []string {
	t.Helper()
	return call(t, func(ctx context.Context) ([]string, error) {
		held, lasts, err := s.Hold(ctx, owner, names)
		if err == nil && len(names) > 0 && (lasts < 2*margin || lasts > ttl) {
			t.Errorf("they last %s", lasts)
		}
		slices.Sort(held)
		return held, err
	})
}

func TestServicesHoldNames(t *testing.T) {
	t.Parallel()
	atOnce(t, map[string]func(t *testing.T){
		"etcd": func(t *testing.T) { testService(t, backend{kind: belfry.ElectionEtcd, server: servertest.Etcd(t)}) },
		"zookeeper": func(t *testing.T) {
			testService(t, backend{kind: belfry.ElectionZooKeeper, server: servertest.ZooKeeper(t)})
		},
	})
}

func testService(t *testing.T, b backend) {
	c := &cluster{fleet: newFleet(t, 0), backend: b, id: "one"}
	connect := func() (Service, belfry.ID, string) {
		s, owner := c.connect(b.server.Addr), belfry.NewID(time.Now())
		t.Cleanup(s.Close)
		return s, owner, store.NodeLease + owner.String()
	}
	x, owner, self := connect()
	y, other, otherSelf := connect()
	want := func(what string, got []string, want ...string) {
		t.Helper()
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	want("the first", holdNames(t, x, owner, self, "shard/1", "shard/2"), self, "shard/1", "shard/2")
	want("the second", holdNames(t, y, other, otherSelf, "shard/2", "shard/3"), otherSelf, "shard/3")
	want("a renewal", holdNames(t, x, owner, self, "shard/1", "shard/2"), self, "shard/1", "shard/2")
	held := func(prefix string) []string {
		names := call(t, func(ctx context.Context) ([]string, error) { return y.Held(ctx, prefix) })
		slices.Sort(names)
		return names
	}
	want("shards", held(store.ShardLease), "shard/1", "shard/2", "shard/3")
	want("nodes", held(store.NodeLease), self, otherSelf)
	want("fewer", holdNames(t, x, owner, self, "shard/1"), self, "shard/1")
	want("what was released", holdNames(t, y, other, otherSelf, "shard/2", "shard/3"), otherSelf, "shard/2", "shard/3")
	want("nothing", holdNames(t, x, owner))
	want("what is left", held(store.NodeLease), otherSelf)
	c.id = "two"
	z, third, thirdSelf := connect()
	want("another cluster", holdNames(t, z, third, thirdSelf, "shard/2"), thirdSelf, "shard/2")

	var mu sync.Mutex
	var racing sync.WaitGroup
	owners := map[string]int{}
	names := make([]string, 200)
	for i := range names {
		names[i] = fmt.Sprint(store.ShardLease, 1000+i)
	}
	for range 3 {
		s, owner, self := connect()
		racing.Go(func() {
			for _, name := range holdNames(t, s, owner, append(names, self)...) {
				mu.Lock()
				owners[name]++
				mu.Unlock()
			}
		})
	}
	racing.Wait()
	for _, name := range names {
		if owners[name] != 1 {
			t.Errorf("%s has %d owners", name, owners[name])
		}
	}
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// refused waits until a service that may not be used is refused with a text.
func refused(t *testing.T, s Service, text string) {
	t.Helper()
	defer s.Close()
	last := call(t, func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		_, _, err := s.Hold(ctx, belfry.NewID(time.Now()), []string{"shard/1"})
		if err == nil {
			t.Fatal("it was not refused")
		}
		if !strings.Contains(err.Error(), text) {
			return "", err
		}
		return err.Error(), nil
	})
	if strings.Contains(last, "wrong") {
		t.Errorf("the error has the password: %q", last)
	}
}

func TestEtcdWithTLSAndPassword(t *testing.T) {
	t.Parallel()
	server, files := servertest.EtcdTLS(t)
	o := EtcdOptions{Endpoints: []string{"https://" + server.Addr}, CAFile: files.CA, CertFile: files.Cert, KeyFile: files.Key}
	s, err := NewEtcd(o, "one")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	owner := belfry.NewID(time.Now())
	self := store.NodeLease + owner.String()
	if held := holdNames(t, s, owner, self); len(held) != 1 {
		t.Errorf("with a certificate %q are held", held)
	}
	without := o
	without.CertFile, without.KeyFile = "", ""
	refused(t, must(NewEtcd(without, "one")), "")
	without.CAFile = servertest.NewCertificates(t).CA
	refused(t, must(NewEtcd(without, "one")), "")

	admin := s.(*etcd).client
	for _, step := range []func(context.Context) (any, error){
		func(ctx context.Context) (any, error) { return admin.UserAdd(ctx, "root", "r") },
		func(ctx context.Context) (any, error) { return admin.UserGrantRole(ctx, "root", "root") },
		func(ctx context.Context) (any, error) { return admin.RoleAdd(ctx, "belfry") },
		func(ctx context.Context) (any, error) {
			return admin.RoleGrantPermission(ctx, "belfry", "/belfry/", clientv3.GetPrefixRangeEnd("/belfry/"), clientv3.PermissionType(clientv3.PermReadWrite))
		},
		func(ctx context.Context) (any, error) { return admin.UserAdd(ctx, "belfry", "correct") },
		func(ctx context.Context) (any, error) { return admin.UserGrantRole(ctx, "belfry", "belfry") },
		func(ctx context.Context) (any, error) { return admin.AuthEnable(ctx) },
	} {
		call(t, step)
	}
	o.Username, o.PasswordFile = "belfry", writeFile(t, "correct\n")
	user := must(NewEtcd(o, "one"))
	defer user.Close()
	owner = belfry.NewID(time.Now())
	self = store.NodeLease + owner.String()
	for range 3 {
		if held := holdNames(t, user, owner, self, "shard/1"); len(held) != 2 {
			t.Errorf("with a password %q are held", held)
		}
	}
	o.PasswordFile = writeFile(t, "wrong")
	refused(t, must(NewEtcd(o, "one")), "authentication failed")
	holdNames(t, user, owner)
}

func must(s Service, err error) Service {
	if err != nil {
		panic(err)
	}
	return s
}

func TestZooKeeperWithDigest(t *testing.T) {
	t.Parallel()
	server := servertest.ZooKeeper(t)
	o := ZooKeeperOptions{Servers: []string{server.Addr}, Root: "/teams/belfry", AuthFile: writeFile(t, "belfry:correct\n")}
	s := must(NewZooKeeper(o, "one"))
	defer s.Close()
	owner := belfry.NewID(time.Now())
	if held := holdNames(t, s, owner, store.NodeLease+owner.String(), "shard/1"); len(held) != 2 {
		t.Errorf("%q are held", held)
	}
	o.AuthFile = writeFile(t, "belfry:wrong")
	refused(t, must(NewZooKeeper(o, "one")), "not authenticated")
	o.AuthFile = ""
	refused(t, must(NewZooKeeper(o, "one")), "not authenticated")
}

func TestFilesOfServicesAreChecked(t *testing.T) {
	empty, text := writeFile(t, "\n"), writeFile(t, "text")
	for name, o := range map[string]EtcdOptions{
		"--etcd-ca-file":       {CAFile: text},
		"--etcd-cert-file":     {CertFile: text, KeyFile: text},
		"--etcd-password-file": {Username: "u", PasswordFile: empty},
	} {
		if _, err := NewEtcd(o, "one"); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for _, file := range []string{text, empty, filepath.Join(t.TempDir(), "none")} {
		if _, err := NewZooKeeper(ZooKeeperOptions{AuthFile: file}, "one"); err == nil || !strings.Contains(err.Error(), "--zookeeper-auth-file") {
			t.Errorf("%s: got %v", file, err)
		}
	}
}
