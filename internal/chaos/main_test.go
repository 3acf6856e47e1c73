//go:build unix

package chaos

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belfry-sh/belfry/internal/pgtest"
)

// longRun makes the tests run for minutes.
var longRun = os.Getenv("BELFRY_TEST_CHAOS") == "1"

func TestMain(m *testing.M) {
	if os.Getenv(envVictim) != "" {
		runVictim()
	}
	if os.Getenv(envWorker) != "" {
		runWorker()
	}
	// The tests wait more than they compute; what the command line says counts more.
	if err := flag.Set("test.parallel", strconv.Itoa(max(runtime.GOMAXPROCS(0), 4))); err != nil {
		panic(err)
	}
	code := pgtest.Main(m)
	code = max(code, cleanUp())
	os.Exit(code)
}

// binDir is the directory of the binary, created on first use.
var binDir string

// envBinary names a program to test instead of building it.
const envBinary = "BELFRY_TEST_CHAOS_BINARY"

// belfryBinary builds the program once for all tests, with the race detector if
// the tests have it.
var belfryBinary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(envBinary); path != "" {
		return path, nil
	}
	var err error
	if binDir, err = os.MkdirTemp("", "belfry-chaos-"); err != nil {
		return "", err
	}
	path := filepath.Join(binDir, "belfry")
	args := []string{"build", "-buildvcs=false", "-o", path}
	if raceDetector {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "../../cmd/belfry")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build belfry: %w\n%s", err, out)
	}
	return path, nil
})

// guardian leads the process group that every node and worker belongs to. It holds the end
// of a pipe whose other end only the test binary has: when that is gone, however
// it went, the guardian kills the whole group.
type guardian struct {
	cmd  *exec.Cmd
	pipe interface{ Close() error }
}

var theGuardian = sync.OnceValues(func() (*guardian, error) {
	cmd := exec.Command("/bin/sh", "-c", "while read -r line; do :; done; kill -KILL 0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the guardian of the nodes: %w", err)
	}
	guarded = true
	return &guardian{cmd, pipe}, nil
})

var guarded bool // a guardian was started

// cleanUp ends the guardian, and with it whatever a test left behind, and removes
// the binary.
func cleanUp() int {
	if guarded {
		if g, err := theGuardian(); err == nil {
			g.pipe.Close()
			g.cmd.Wait()
		}
	}
	if binDir == "" {
		return 0
	}
	if err := os.RemoveAll(binDir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// environment is that of the tests without what would configure a node.
func environment(more ...string) []string {
	var env []string
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "BELFRY_") {
			env = append(env, pair)
		}
	}
	return append(env, more...)
}

// eventually waits until something is so. The limit only ends a test that would
// otherwise hang.
func eventually(tb testing.TB, what string, limit time.Duration, so func() bool) {
	tb.Helper()
	start := time.Now()
	for !so() {
		if time.Since(start) > limit {
			tb.Fatalf("still waiting after %v: %s", limit, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
