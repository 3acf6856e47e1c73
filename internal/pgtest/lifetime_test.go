//go:build unix

package pgtest

import (
	"bufio"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// startChild prepares a run of the test binary with its own directory for temporary files.
func startChild(t *testing.T, env string, args ...string) (cmd *exec.Cmd, dir string) {
	t.Helper()
	requireServer(t, checkInstalled())
	dir, err := os.MkdirTemp("", "belfry-pgtest-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil { // like the system's own: the server's account uses it
		t.Fatal(err)
	}
	cmd = exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), envURL+"=", "TMPDIR="+dir, env)
	return cmd, dir
}

func TestServerDoesNotOutliveTheTestBinary(t *testing.T) {
	for _, end := range []string{"kill", "exit", "panic"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			cmd, dir := startChild(t, envVictim+"="+end)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			u, err := url.Parse(strings.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			if end == "kill" {
				if !listens(u.Host) {
					t.Errorf("nothing listens on %s before the kill", u.Host)
				}
				cmd.Process.Kill()
			}
			if err := cmd.Wait(); err == nil {
				t.Error("the child ended well")
			}
			wantNothingLeft(t, dir)
			if listens(u.Host) {
				t.Errorf("a process still listens on %s", u.Host)
			}
		})
	}
}

func TestUninitialisedServerDoesNotOutliveTheTestBinary(t *testing.T) {
	t.Parallel()
	cmd, dir := startChild(t, envVictim+"=hang")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "initdb has begun to write", func() bool {
		found, _ := filepath.Glob(filepath.Join(dir, "belfry-postgres-*", "data", "*"))
		return len(found) > 0
	})
	cmd.Process.Kill()
	cmd.Wait()
	wantNothingLeft(t, dir)
}

func TestMainLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	cmd, dir := startChild(t, "", "-test.run=^TestDatabasePerTest$", "-test.v")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestDatabasePerTest") {
		t.Fatalf("the child: %v\n%s", err, out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("after Main there is %v (%v), want nothing", left, err)
	}
	wantNothingLeft(t, dir)
}

func TestExternalServerIsUsedAndCleanedUp(t *testing.T) {
	t.Parallel()
	admin := connect(t, Database(t, nil))
	const databases = "SELECT coalesce(string_agg(datname, ' '), '') FROM pg_database WHERE NOT starts_with(datname, $1)"
	before := queryValue[string](t, admin, databases, shared.prefix)

	cmd, dir := startChild(t, envURL+"="+shared.base.String(), "-test.run=^TestDatabasePerTest$", "-test.v")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestDatabasePerTest") {
		t.Fatalf("the child: %v\n%s", err, out)
	}
	if after := queryValue[string](t, admin, databases, shared.prefix); after != before {
		t.Errorf("the server has the databases %q, want %q as before", after, before)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("the child left %v (%v), want no server of its own", left, err)
	}
}

// wantNothingLeft waits until the directory is empty and no process has it in its command line.
func wantNothingLeft(t *testing.T, dir string) {
	t.Helper()
	eventually(t, "the server's folder goes", func() bool {
		left, err := os.ReadDir(dir)
		return err == nil && len(left) == 0
	})
	eventually(t, "the server and its watcher go", func() bool {
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, file := range lines {
			if line, _ := os.ReadFile(file); strings.Contains(string(line), dir) {
				return false
			}
		}
		return true
	})
}

func listens(host string) bool {
	conn, err := net.Dial("tcp", host)
	if err == nil {
		conn.Close()
	}
	return err == nil
}
