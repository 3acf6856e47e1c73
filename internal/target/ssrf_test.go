package target

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/belfry-sh/belfry"
)

// blockedServer listens on the loopback interface and counts connections.
type blockedServer struct {
	port string
	seen atomic.Int32
}

func newBlockedServer(t *testing.T) *blockedServer {
	t.Helper()
	c := &blockedServer{}
	first, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	_, c.port, _ = net.SplitHostPort(first.Addr().String())
	listeners := []net.Listener{first}
	if second, err := net.Listen("tcp6", "[::1]:"+c.port); err == nil {
		listeners = append(listeners, second)
	}
	var wg sync.WaitGroup
	for _, l := range listeners {
		wg.Go(func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				c.seen.Add(1)
				conn.Close()
			}
		})
	}
	t.Cleanup(func() {
		for _, l := range listeners {
			l.Close()
		}
		wg.Wait()
	})
	return c
}

func (c *blockedServer) wantUntouched(t *testing.T) {
	t.Helper()
	if n := c.seen.Load(); n != 0 {
		t.Errorf("the server saw %d connections", n)
	}
}

// call runs one attempt with the given payload.
func call(t *testing.T, h *HTTP, payload any) (*belfry.Run, error) {
	t.Helper()
	raw, err := json.Marshal(payload)
	if err != nil {
		t.Fatal(err)
	}
	run := &belfry.Run{Attempt: 1, Kind: belfry.KindScheduled, Payload: raw}
	return run, h.Handle(t.Context(), run)
}

func handler(t *testing.T, o HTTPOptions) *HTTP {
	t.Helper()
	h := NewHTTP(o)
	t.Cleanup(h.Close)
	return h
}

// loopback is where names lead in these tests.
func loopback(string) []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}
}

func TestPrivateAddressesAreBlocked(t *testing.T) {
	c := newBlockedServer(t)
	h := handler(t, HTTPOptions{Resolver: resolver(t, loopback)})
	hosts := []string{
		"localhost", "LOCALHOST", "localhost.", "localtest.me", "metadata.google.internal", "127.0.0.1.nip.io",
		"2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001", "127.1", "127.0.1", "0", "0x0",
		"127.0.0.1.", "%31%32%37.0.0.1", "①②⑦.⓪.⓪.①", "127。0。0。1", "[fe80::1%25lo]", "[::ffff:7f00:1]",
	}
	for _, addr := range special {
		if strings.Contains(addr, "%") {
			continue
		}
		if strings.Contains(addr, ":") {
			addr = "[" + addr + "]"
		}
		hosts = append(hosts, addr)
	}
	for _, host := range hosts {
		for _, scheme := range []string{"http", "https"} {
			target := fmt.Sprintf("%s://%s:%s/", scheme, host, c.port)
			run, err := call(t, h, map[string]any{"url": target})
			if err == nil || run.Report.HTTPStatus != 0 {
				t.Errorf("%s was reached", target)
			}
		}
	}
	if len(hosts) < 60 {
		t.Errorf("only %d hosts", len(hosts))
	}
	c.wantUntouched(t)
}

func TestPrivateAddressesOfNamesAreBlocked(t *testing.T) {
	c := newBlockedServer(t)
	h := handler(t, HTTPOptions{Resolver: resolver(t, loopback)})
	_, err := call(t, h, map[string]any{"url": "http://harmless.example:" + c.port})
	var refused *BlockedAddrError
	if !errors.As(err, &refused) || !refused.Addr.IsLoopback() {
		t.Errorf("got %v, want a refusal of the loopback address", err)
	}
	c.wantUntouched(t)
}

// A name that led to an allowed address leads elsewhere the next time.
func TestDNSRebindingIsBlocked(t *testing.T) {
	var served atomic.Int32
	listener, err := net.Listen("tcp4", "127.0.0.2:0")
	if err != nil {
		t.Skip("no second loopback address here:", err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		served.Add(1)
		w.Header().Set("Connection", "close")
	}))
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	defer server.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())

	var trap atomic.Bool
	names := resolver(t, func(string) []netip.Addr {
		if trap.Load() {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.2")}
	})
	h := handler(t, HTTPOptions{Resolver: names, Guard: NewGuard(false, prefixes("127.0.0.2/32"))})
	payload := map[string]any{"url": "http://rebind.example:" + port}
	if _, err := call(t, h, payload); err != nil {
		t.Fatal(err)
	}
	trap.Store(true)
	var refused *BlockedAddrError
	if _, err := call(t, h, payload); !errors.As(err, &refused) || refused.Addr.String() != "127.0.0.1" {
		t.Errorf("the second call gave %v, want a refusal of 127.0.0.1", err)
	}
	if n := served.Load(); n != 1 {
		t.Errorf("the server was called %d times", n)
	}
}

// One bad address among several is passed over, not fatal.
func TestOtherAddressesOfANameAreTried(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	names := resolver(t, func(string) []netip.Addr {
		return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("127.0.0.1")}
	})
	h := handler(t, HTTPOptions{Resolver: names, Guard: NewGuard(false, prefixes("127.0.0.1/32"))})
	if _, err := call(t, h, map[string]any{"url": "http://two.example:" + port}); err != nil {
		t.Error(err)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	c := newBlockedServer(t)
	for _, status := range []int{300, 301, 302, 303, 307, 308} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://user:s3cret@127.0.0.1:"+c.port+"/place?token=s3cret#s3cret")
			w.WriteHeader(status)
			fmt.Fprint(w, "moved")
		}))
		h := handler(t, HTTPOptions{Guard: NewGuard(true, nil)})
		run, err := call(t, h, map[string]any{"url": server.URL})
		want := fmt.Sprintf("the target answered %d %s to http://127.0.0.1:%s/place; redirects are not followed", status, http.StatusText(status), c.port)
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if run.Report.HTTPStatus != status || string(run.Report.Output) != "moved" {
			t.Errorf("report %+v", run.Report)
		}
		server.Close()
	}
	c.wantUntouched(t)
}

// The environment is read once in a process, so this needs one of its own.
func TestProxyEnvironmentIsIgnored(t *testing.T) {
	const inside = "BELFRY_TEST_PROXY"
	if os.Getenv(inside) == "" {
		c := newBlockedServer(t)
		child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		child.Env = append(os.Environ(), inside+"=1", "NO_PROXY=")
		for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
			child.Env = append(child.Env, name+"=http://127.0.0.1:"+c.port)
		}
		if out, err := child.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		c.wantUntouched(t)
		return
	}
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	h := handler(t, HTTPOptions{Guard: NewGuard(true, nil), Resolver: resolver(t, loopback)})
	// A name, since addresses of this machine are never sent to a proxy.
	if _, err := call(t, h, map[string]any{"url": "http://target.example:" + port}); err != nil {
		t.Error(err)
	}
}
