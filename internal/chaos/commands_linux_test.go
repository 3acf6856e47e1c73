package chaos

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belfry-sh/belfry"
	remote "github.com/belfry-sh/belfry/client"
)

const commandsFile = `
commands:
  hello:
    argv: [/bin/sh, -c, 'echo "hello $1"; cat; exit 0', sh]
    arguments: ['[a-z]+']
    stdin: job
  long:   # only its second attempt ends
    argv: [/bin/sh, -c, 'trap "" TERM; setsid -f sleep 300; echo "working $$"; [ $BELFRY_ATTEMPT -ge 2 ] || while :; do sleep 300; done']
  flood:
    argv: [/usr/bin/head, -c, "1073741824", /dev/zero]
`

// commandWorker starts a worker that runs commands.
func commandWorker(tb testing.TB, server string) *process {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "commands.yaml")
	if err := os.WriteFile(path, []byte(commandsFile), 0o600); err != nil {
		tb.Fatal(err)
	}
	p := &process{tb: tb, what: "a command worker", program: belfryBinary, ready: regexp.MustCompile(`Serves +(.+)`),
		args: []string{"worker", "--commands", path, "--server", server}, env: environment("SECRET_OF_THE_WORKER=x")}
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
	trigger := func(name, payload string) belfry.ID {
		t.Helper()
		_, err := c.CreateJob(t.Context(), belfry.Manifest{Name: name, Payload: []byte(payload), Spec: belfry.Spec{
			Type: belfry.TypeCommand, Schedule: "@yearly", TimeoutSeconds: 600, RetryBackoff: belfry.BackoffImmediate}})
		if err != nil {
			t.Fatal(err)
		}
		id, err := c.TriggerJob(t.Context(), name, nil)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	await := func(id belfry.ID, status belfry.RunStatus) (run belfry.Run) {
		t.Helper()
		eventually(t, "a run is "+string(status), 2*time.Minute, func() bool {
			run, err = c.Run(t.Context(), id)
			return err == nil && run.Status == status
		})
		return run
	}
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
	long, flood := trigger("long", `{"command": "long"}`), trigger("flood", `{"command": "flood"}`)
	eventually(t, "the log is live", time.Minute, func() bool {
		log, err := c.RunLog(t.Context(), long, belfry.LogQuery{})
		return err == nil && strings.HasPrefix(log.Text, "working")
	})
	await(flood, belfry.RunSucceeded)
	if log, err := c.RunLog(t.Context(), flood, belfry.LogQuery{}); err != nil || log.Offset != 1<<30-belfry.MaxLog {
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
