package command

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
)

// left lists the processes whose environment names the run, and directories and cgroups
// of attempts.
func left(run *belfry.Run) (list []string) {
	mark := []byte("BELFRY_RUN_ID=" + run.ID.String())
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		if environment, _ := os.ReadFile("/proc/" + e.Name() + "/environ"); bytes.Contains(environment, mark) {
			name, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
			list = append(list, e.Name()+" "+strings.ReplaceAll(string(name), "\x00", " "))
		}
	}
	return list
}

func mustBeGone(t *testing.T, a *attempt) {
	t.Helper()
	if list := left(a.run); len(list) > 0 {
		t.Errorf("processes are left: %q", list)
	}
}

// asNobody is for commands that need another user than root.
func asNobody(t *testing.T) {
	t.Helper()
	if _, err := user.Lookup("nobody"); err != nil || os.Geteuid() != 0 {
		t.Skip("this needs root and the user nobody")
	}
	// The directory of an attempt must be within reach of the user.
	dir, err := os.MkdirTemp("/tmp", "belfry-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
}

// withoutCgroups leaves rlimits alone.
func withoutCgroups(t *testing.T) {
	before := cgroupRoot
	cgroupRoot = t.TempDir()
	t.Cleanup(func() { cgroupRoot = before })
}

func TestExitStatus(t *testing.T) {
	for _, tt := range []struct {
		script, more string
		status       int
		want         string // part of the error
		permanent    bool
	}{
		{"exit 0", "", 0, "", false},
		{"exit 1", "", 1, "status 1", false},
		{"exit 75", "", 75, "asks for a retry", false},
		{"exit 65", "", 65, "retries cannot fix", true},
		{"exit 65", "exit: {permanent: [3]}", 65, "status 65", false},
		{"exit 3", "exit: {permanent: [3], retry: [65]}", 3, "retries cannot fix", true},
		{"kill -SEGV $$", "", -1, "signal: segmentation fault", false},
	} {
		a := newAttempt(test).do(t, t.Context(), script(t, tt.script, tt.more))
		var r belfry.Result
		r.ApplyError(a.err)
		if a.report.ExitStatus != tt.status || (a.err == nil) != (tt.want == "") || a.err != nil && !strings.Contains(a.err.Error(), tt.want) || r.Permanent != tt.permanent {
			t.Errorf("%s %s: status %d, error %v, permanent %v", tt.script, tt.more, a.report.ExitStatus, a.err, r.Permanent)
		}
	}
}

func TestAProgramThatCannotBeExecutedIsAPermanentFailure(t *testing.T) {
	path := filepath.Join(t.TempDir(), "no-program")
	if err := os.WriteFile(path, []byte("\x01\x02"), 0o755); err != nil {
		t.Fatal(err)
	}
	a := newAttempt(test).do(t, t.Context(), parse(t, "argv: ["+path+"]"))
	var r belfry.Result
	if r.ApplyError(a.err); !r.Permanent || !strings.Contains(a.err.Error(), path+": exec format error") {
		t.Errorf("got %v", a.err)
	}
}

func TestAnEndOfTheContextEndsTheWholeTree(t *testing.T) {
	for name, tt := range map[string]struct{ script, want string }{
		"polite":       {`trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done`, "bye"},
		"ignores TERM": {`trap '' TERM; (trap '' TERM; sleep 300) & echo ready; while :; do sleep 300; done`, ""},
		"detaches":     {`setsid -f sh -c "trap '' TERM HUP; sleep 300; true"; (setsid sh -c 'sleep 300 & sleep 300' &) ; echo ready; sleep 300`, ""},
		"floods":       {`echo ready; trap '' TERM; yes`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			a := newAttempt(test)
			ended := make(chan struct{})
			c := script(t, tt.script, "")
			go func() {
				defer close(ended)
				a.err = c.Handle(ctx, a.run)
			}()
			a.out.await(t, "ready")
			cancel(fmt.Errorf("it takes too long"))
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Fatal("it does not end")
			}
			mustBeGone(t, a)
			if a.err == nil || !strings.Contains(a.err.Error(), "it takes too long") || !strings.Contains(a.out.String(), tt.want) {
				t.Errorf("error %v, output %.200q", a.err, a.out)
			}
		})
	}
}

func TestNothingOutlivesACommandThatEnds(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	a := newAttempt(test).do(t, t.Context(), script(t, `setsid -f sleep 300; (setsid sh -c 'sleep 300 & sleep 300' &); nohup sleep 300 & mkdir a && touch a/b && chmod 0 a; exit 0`, ""))
	mustBeGone(t, a)
	if a.err != nil || a.report.ExitStatus != 0 {
		t.Error(a.err)
	}
	if dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), "belfry-command-*")); len(dirs) > 0 {
		t.Errorf("%q are left", dirs)
	}
}

func TestAFloodOfOutputTakesNoMemory(t *testing.T) {
	const total = 1 << 30
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	a := newAttempt(test).do(t, t.Context(), script(t, fmt.Sprintf("head -c %d /dev/zero", total), ""))
	runtime.ReadMemStats(&after)
	if a.err != nil || a.out.total != total {
		t.Errorf("%d bytes, error %v", a.out.total, a.err)
	}
	if grown := int64(after.Sys) - int64(before.Sys); grown > 16<<20 {
		t.Errorf("the worker has grown by %d bytes", grown)
	}
}

func TestLimits(t *testing.T) {
	for name, tt := range map[string]struct {
		script, limits string
		want           string
	}{
		"file size": {"head -c 2000000 /dev/zero > x; stat -c %s x", "file_size: 1MiB", "1048576"},
		"files":     {"ulimit -n", "files: 64", "64"},
		"cpu":       {"while :; do :; done", "cpu: 1s", ""},
		"memory":    {"head -c 300000000 /dev/zero | tail | wc -c; echo alive", "memory: 64MiB", "alive"},
		"core":      {"ulimit -c", "files: 64", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAttempt(test).do(t, t.Context(), script(t, tt.script, "limits: {"+tt.limits+"}"))
			text := a.out.String()
			_, unlimited := os.Stat(filepath.Join(cgroupRoot, "memory", ownCgroup("memory"), "memory.limit_in_bytes"))
			if name == "memory" && unlimited == nil && os.Geteuid() == 0 && !slices.Contains(a.report.Layers, "cgroup memory") {
				t.Errorf("layers %q", a.report.Layers)
			}
			if !strings.Contains(text, tt.want) || strings.Contains(text, "300000000") || name == "cpu" && a.err == nil {
				t.Errorf("output %q, error %v, layers %q", text, a.err, a.report.Layers)
			}
		})
	}
}

// A fork bomb takes what its limit leaves, and is gone at its end.
func TestForkBomb(t *testing.T) {
	asNobody(t)
	if _, err := os.Stat("/usr/bin/perl"); err != nil {
		t.Skip("this needs Perl")
	}
	const limits = "user: nobody\nlimits: {processes: 30}"
	for _, cgroups := range []bool{true, false} {
		t.Run(fmt.Sprint("cgroups ", cgroups), func(t *testing.T) {
			if !cgroups {
				withoutCgroups(t)
			}
			mild := newAttempt(test).do(t, t.Context(), script(t, `for i in $(seq 60); do sleep 60 & done; echo reached`, limits))
			mustBeGone(t, mild)
			if applied := slices.Contains(mild.report.Layers, "cgroup pids"); applied != cgroups || strings.Contains(mild.out.String(), "reached") {
				t.Skipf("processes are not limited here: layers %q, output %s", mild.report.Layers, mild.out)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(time.Second, cancel)
			bomb := newAttempt(test).do(t, ctx, parse(t, "argv: [/usr/bin/perl, -e, '$SIG{TERM} = q(IGNORE); open F, q(/proc/self/cgroup); print <F>; close STDOUT; fork while 1']\n"+limits))
			mustBeGone(t, bomb)
			if bomb.report.Signal != "killed" {
				t.Errorf("the bomb ended by itself: %v, output %s", bomb.err, bomb.out)
			}
			in := regexp.MustCompile(`(?:pids|0:):(/\S*belfry-command-\d+)`).FindStringSubmatch(bomb.out.String())
			if cgroups && in == nil {
				t.Errorf("the bomb was in no cgroup: %s", bomb.out)
			} else if cgroups {
				for _, hierarchy := range []string{"pids", ""} {
					if _, err := os.Stat(filepath.Join(cgroupRoot, hierarchy, in[1])); err == nil {
						t.Errorf("cgroup %s is left", in[1])
					}
				}
			}
		})
	}
}

const envKilled = "BELFRY_TEST_KILLED_WORKER"

// TestKilledWorker is a worker process that another test kills.
func TestKilledWorker(t *testing.T) {
	if os.Getenv(envKilled) == "" {
		t.Skip("this is run by another test")
	}
	a := newAttempt(test)
	a.run.LogTo = os.Stdout
	t.Log(script(t, `trap '' TERM HUP; setsid -f sh -c "trap '' TERM; sleep 300; true"; pwd; echo "run $BELFRY_RUN_ID"; while :; do sleep 300; done`, "sandbox: "+os.Getenv(envKilled)).Handle(t.Context(), a.run))
}

func TestNothingOutlivesAKilledWorker(t *testing.T) {
	for _, sandbox := range []string{sandboxNone, sandboxBasic, sandboxStrict} {
		t.Run(sandbox, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestKilledWorker$", "-test.v")
			cmd.Env = append(os.Environ(), envKilled+"="+sandbox)
			out := &output{wrote: make(chan struct{}, 1)}
			cmd.Stdout = out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			out.await(t, "\nrun ")
			text := out.String()
			id, err := belfry.ParseID(text[strings.Index(text, "\nrun ")+5:][:36])
			if err != nil {
				t.Fatal(err, text)
			}
			a := &attempt{run: &belfry.Run{ID: id}}
			// While a process replaces its program it has no environment, by which it is found.
			for deadline := time.Now().Add(time.Minute); len(left(a.run)) < 2; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("the command does not run: %q", left(a.run))
				}
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			lines := strings.Split(text[:strings.Index(text, "\nrun ")], "\n")
			private := lines[len(lines)-1]
			for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
				if _, err := os.Stat(private); os.IsNotExist(err) && len(left(a.run)) == 0 {
					return
				}
			}
			_, err = os.Stat(private)
			t.Errorf("left: %q, %s: %v", left(a.run), private, err)
		})
	}
}
