package chaos

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	remote "github.com/belfry-sh/belfry/client"
)

// flood is how many bytes a command writes at once.
func flood() int64 {
	if longRun {
		return 1 << 30
	}
	return 64 << 20
}

const commandsFile = `
commands:
  hello:
    argv: [/bin/sh, -c, 'echo "hello $1"; cat; exit 0', sh]
    arguments: ['[a-z]+']
    stdin: job
  long:   # only its second attempt ends
    argv: [/bin/sh, -c, 'trap "" TERM; setsid -f sleep 300; echo "working $$"; [ $BELFRY_ATTEMPT -ge 2 ] || while :; do sleep 300; done']
  flood:
    argv: [/usr/bin/head, -c, "FLOOD", /dev/zero]
`

// writeCommands writes the file and returns its path.
func writeCommands(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "commands.yaml")
	if err := os.WriteFile(path, []byte(strings.Replace(commandsFile, "FLOOD", fmt.Sprint(flood()), 1)), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// commandWorker starts a worker that runs commands.
func commandWorker(tb testing.TB, server string) *process {
	tb.Helper()
	p := &process{tb: tb, what: "a command worker", program: belfryBinary, ready: regexp.MustCompile(`Serves +(.+)`),
		args: []string{"worker", "--commands", writeCommands(tb), "--server", server}, env: environment("SECRET_OF_THE_WORKER=x")}
	p.begin()
	return p
}

// processesOf counts the processes of a run.
func processesOf(run belfry.ID) (n int) {
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range paths {
		if content, _ := os.ReadFile(path); bytes.Contains(content, []byte("BELFRY_RUN_ID="+run.String())) {
			n++
		}
	}
	return n
}

// Commands run on workers that name them alone; a worker that is killed leaves no process,
// and its run is attempted again.
func TestCommands(t *testing.T) {
	t.Parallel()
	node := onSQLite(t, t.TempDir())
	c, err := remote.New(node.address())
	if err != nil {
		t.Fatal(err)
	}
	d := commandDriver{t, c}
	trigger, await := d.trigger, d.await
	hello := trigger("hello", `{"command": "hello", "args": ["world"], "stdin": "and all"}`)
	eventually(t, "the reason is known", time.Minute, func() bool {
		why, err := c.ExplainJob(t.Context(), "hello", "")
		return err == nil && strings.Contains(why.Sentence, "no worker serves handler command.hello")
	})
	worker := commandWorker(t, node.address())
	if run := await(hello, belfry.RunSucceeded); run.Attempt != 1 || !strings.Contains(run.Output, `"no_new_privs"`) {
		t.Errorf("got %+v", run)
	}
	if log, err := c.RunLog(t.Context(), hello, belfry.LogQuery{}); err != nil || log.Text != "hello world\nand all" {
		t.Errorf("the log is %q, %v", log.Text, err)
	}
	refused := await(trigger("refused", `{"command": "hello", "args": ["; id"]}`), belfry.RunDead)
	if refused.Attempt != 1 || !strings.Contains(refused.Error, "payload.args[0]: matches none of the patterns") {
		t.Errorf("got %+v", refused)
	}
	long, flooding := trigger("long", `{"command": "long"}`), trigger("flood", `{"command": "flood"}`)
	eventually(t, "the log is live", time.Minute, func() bool {
		log, err := c.RunLog(t.Context(), long, belfry.LogQuery{})
		return err == nil && strings.HasPrefix(log.Text, "working")
	})
	await(flooding, belfry.RunSucceeded)
	if log, err := c.RunLog(t.Context(), flooding, belfry.LogQuery{}); err != nil || log.Offset != flood()-belfry.MaxLog {
		t.Errorf("the log of a flood begins at %d, %v", log.Offset, err)
	}
	if processesOf(long) < 3 {
		t.Fatalf("%d processes", processesOf(long))
	}
	worker.kill()
	eventually(t, "nothing is left of a killed worker", time.Minute, func() bool { return processesOf(long) == 0 })
	worker.start()
	if run := await(long, belfry.RunSucceeded); run.Attempt != 2 || len(run.Attempts) != 1 || run.Attempts[0].Outcome != belfry.OutcomeLost {
		t.Errorf("got %+v", run)
	}
	worker.drain(time.Minute)
}

// commandDriver creates jobs of type command and waits for their runs.
type commandDriver struct {
	t *testing.T
	c *remote.Client
}

func (d commandDriver) trigger(name, payload string) belfry.ID {
	d.t.Helper()
	_, err := d.c.CreateJob(d.t.Context(), belfry.Manifest{Name: name, Payload: []byte(payload), Spec: belfry.Spec{
		Type: belfry.TypeCommand, Schedule: "@yearly", TimeoutSeconds: 600, RetryBackoff: belfry.BackoffImmediate}})
	if err != nil {
		d.t.Fatal(err)
	}
	id, err := d.c.TriggerJob(d.t.Context(), name, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	return id
}

func (d commandDriver) await(id belfry.ID, status belfry.RunStatus) (run belfry.Run) {
	d.t.Helper()
	eventually(d.t, "a run is "+string(status), 2*time.Minute, func() bool {
		var err error
		run, err = d.c.Run(d.t.Context(), id)
		return err == nil && run.Status == status
	})
	return run
}

// A node runs the commands of its own file, and text for its shell if it may.
func TestCommandsOfANode(t *testing.T) {
	t.Parallel()
	node := onSQLite(t, t.TempDir(), "--commands", writeCommands(t), "--allow-shell")
	c, err := remote.New(node.address())
	if err != nil {
		t.Fatal(err)
	}
	other, err := remote.New(node.address(), remote.WithNamespace("other"))
	if err != nil {
		t.Fatal(err)
	}
	d, elsewhere := commandDriver{t, c}, commandDriver{t, other}
	foreign := elsewhere.trigger("hello", `{"command": "hello"}`)
	hello, shell := d.trigger("hello", `{"command": "hello", "args": ["node"]}`), elsewhere.trigger("shell", `{"shell": "echo $((6 * 7)) | cat"}`)
	d.await(hello, belfry.RunSucceeded)
	elsewhere.await(shell, belfry.RunSucceeded)
	if log, err := other.RunLog(t.Context(), shell, belfry.LogQuery{}); err != nil || log.Text != "42\n" {
		t.Errorf("the log is %q, %v", log.Text, err)
	}
	if run, err := other.Run(t.Context(), foreign); err != nil || run.Status != belfry.RunReady {
		t.Errorf("the run of a namespace that the file does not name is %s, %v", run.Status, err)
	}
	long := d.trigger("long", `{"command": "long"}`)
	eventually(t, "the command runs", time.Minute, func() bool { return processesOf(long) >= 3 })
	if _, err := c.CancelRun(t.Context(), long); err != nil {
		t.Fatal(err)
	}
	d.await(long, belfry.RunCancelled)
	eventually(t, "nothing is left of a cancelled run", time.Minute, func() bool { return processesOf(long) == 0 })
	node.drain(time.Minute)
}
