package command

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/belfry-sh/belfry"
)

// withoutBubblewrap leaves Landlock and seccomp alone.
func withoutBubblewrap(t *testing.T) {
	for _, uid := range []int{os.Geteuid(), 65534} {
		before, known := bubblewraps.Load(uid)
		bubblewraps.Store(uid, "")
		t.Cleanup(func() {
			if bubblewraps.Delete(uid); known {
				bubblewraps.Store(uid, before)
			}
		})
	}
}

func TestStrictSandbox(t *testing.T) {
	asNobody(t)
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("this needs Python")
	}
	outside, err := os.MkdirTemp("/var/tmp", "belfry-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(outside) })
	for _, dir := range []string{"open", "read", "write"} {
		if err := os.MkdirAll(filepath.Join(outside, dir), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(outside, dir, "file"), []byte("content\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		_ = os.Chmod(filepath.Join(outside, dir), 0o777)
	}
	_ = os.Chmod(outside, 0o755)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	probe := fmt.Sprintf(`
try() { if eval "$2" 2>>errors; then echo "$1 yes"; else echo "$1 no"; fi; }
try own-directory 'echo x > own && cat own && mkdir d && mv own d/'
try temporary 'echo x > $TMPDIR/t'
try write-outside 'echo x > %[1]s/open/new'
try change-outside 'echo x >> %[1]s/open/file'
try remove-outside 'rm %[1]s/open/file'
try link-outside 'ln -s x %[1]s/open/link'
try read-outside 'cat %[1]s/open/file'
try read-granted 'cat %[1]s/read/file'
try change-granted-to-read 'echo x >> %[1]s/read/file'
try write-granted 'echo x > %[1]s/write/new.$(id -u)'
try passwords 'cat /etc/shadow'
try device 'echo x > /dev/null'
try signal 'kill -0 %[2]d'
try mount 'mount -t tmpfs none .'
try python-tcp 'python3 -c "import socket; socket.create_connection((\"127.0.0.1\", %[3]d), 2)"'
try python-udp 'python3 -c "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b\"x\", (\"127.0.0.1\", 9))"'
`, outside, os.Getpid(), listener.Addr().(*net.TCPAddr).Port)
	want := map[string]bool{"own-directory": true, "temporary": true, "read-granted": true, "write-granted": true, "device": true}
	for _, tt := range []struct {
		name, more string
		plain      bool // without bubblewrap
		network    bool
	}{
		{"with bubblewrap", "", false, false},
		{"with bubblewrap as another user", "user: nobody", false, false},
		{"without bubblewrap", "", true, false},
		{"without bubblewrap as another user", "user: nobody", true, false},
		{"with a network", "network: true", true, true},
		{"with bubblewrap and a network", "network: true", false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.plain {
				withoutBubblewrap(t)
			}
			path := filepath.Join(outside, "probe")
			if err := os.WriteFile(path, []byte(probe), 0o755); err != nil {
				t.Fatal(err)
			}
			a := newAttempt(test).do(t, t.Context(), parse(t, fmt.Sprintf("argv: [/bin/sh, %s]\nsandbox: strict\nread: [%[1]s, %s/read]\nwrite: [%[2]s/write]\n%s", path, outside, tt.more)))
			if a.err != nil {
				t.Fatal(a.err, a.out)
			}
			mustBeGone(t, a)
			if found := slices.Contains(a.report.Layers, "bubblewrap"); found == tt.plain {
				if !tt.plain {
					t.Skip("bubblewrap does not work here")
				}
				t.Error("bubblewrap was used")
			}
			if !slices.ContainsFunc(a.report.Layers, func(l string) bool { return strings.HasPrefix(l, "landlock") }) {
				t.Errorf("layers %q", a.report.Layers)
			}
			seen := 0
			for line := range strings.Lines(a.out.String()) {
				what, answer, _ := strings.Cut(strings.TrimSpace(line), " ")
				if answer != "yes" && answer != "no" {
					continue
				}
				seen++
				allowed := want[what] || tt.network && strings.HasPrefix(what, "python")
				if (answer == "yes") != allowed {
					t.Errorf("%s: %s", what, answer)
				}
			}
			if content, _ := os.ReadFile(filepath.Join(outside, "open", "file")); seen != 16 || string(content) != "content\n" {
				t.Errorf("%d answers, file %q, output:\n%s", seen, content, a.out)
			}
		})
	}
}

// TestRefusesStrict is a worker on a machine without Landlock, made by refusing its system
// call.
func TestRefusesStrict(t *testing.T) {
	const environment = "BELFRY_TEST_NO_LANDLOCK"
	if os.Getenv(environment) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestRefusesStrict$", "-test.v")
		cmd.Env = append(os.Environ(), environment+"=1", "PATH=/nonexistent")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "refused as it should") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	done := make(chan struct{})
	go func() { // its thread is not used again
		defer close(done)
		runtime.LockOSThread()
		refusedCalls = []uint32{unix.SYS_LANDLOCK_CREATE_RULESET}
		if err := (&launch{Network: true}).seccomp(); err != nil && unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == nil {
			if err := (&launch{Network: true}).seccomp(); err != nil {
				t.Error(err)
			}
		}
		path := filepath.Join(t.TempDir(), "written")
		a := newAttempt(test).do(t, t.Context(), script(t, "echo x > "+path, "sandbox: strict"))
		var r belfry.Result
		r.ApplyError(a.err)
		if _, err := os.Stat(path); err == nil || !r.Permanent || !strings.Contains(a.err.Error(), "neither Landlock") {
			t.Errorf("got %v, %s", a.err, a.out)
			return
		}
		if a := newAttempt(test).do(t, t.Context(), script(t, "exit 0", "sandbox: basic")); a.err != nil {
			t.Errorf("basic: %v", a.err)
			return
		}
		t.Log("refused as it should")
	}()
	<-done
}

func TestTheWorkersEnvironmentIsHidden(t *testing.T) {
	const environment = "BELFRY_TEST_HIDDEN"
	if os.Getenv(environment) == "" {
		asNobody(t)
		cmd := exec.Command(os.Args[0], "-test.run=^TestTheWorkersEnvironmentIsHidden$", "-test.v")
		cmd.Env = append(os.Environ(), environment+"=secret-of-the-worker")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "hidden as it should") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := unix.Setuid(65534); err != nil {
		t.Fatal(err)
	}
	// An exec makes the process one that its own user may look into.
	if os.Getenv(environment+"_AGAIN") == "" {
		t.Fatal(unix.Exec(os.Args[0], append([]string{os.Args[0]}, os.Args[1:]...), append(os.Environ(), environment+"_AGAIN=1")))
	}
	HideEnvironment()
	for sandbox, want := range map[string]string{"basic": "Permission denied", "strict": ""} {
		a := newAttempt(test).do(t, t.Context(), script(t, fmt.Sprintf("id -u; cat /proc/%d/environ; exit 0", os.Getpid()), "user: nobody\nsandbox: "+sandbox))
		if text := a.out.String(); a.err != nil || strings.Contains(text, "secret-of-the-worker") || !strings.HasPrefix(text, "65534\n") || !strings.Contains(text, want) {
			t.Errorf("%s: error %v, output %s", sandbox, a.err, a.out)
		}
		mustBeGone(t, a)
	}
	if !t.Failed() {
		t.Log("hidden as it should")
	}
}
