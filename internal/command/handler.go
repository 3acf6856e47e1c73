// Package command runs jobs of type command: programs that the operator of a worker has
// named in a file, in processes of their own, confined as far as the system allows.
//
// A worker trusts neither the server nor the job. A payload chooses a command by its name
// and may add arguments, variables and input that the file allows; everything else is the
// operator's. What remains of an attempt is killed when it ends, and when its worker does.
package command

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/secret"
	"github.com/belfry-sh/belfry/worker"
)

// The sandboxes.
const (
	sandboxNone   = "none"
	sandboxBasic  = "basic"
	sandboxStrict = "strict"
)

const (
	// grace is how long a command may take to end after SIGTERM. A worker abandons handlers
	// 5 seconds after the end of their context.
	grace = 3 * time.Second

	maxValue = 32 << 10 // bytes of an argument or variable
)

// ParsePayload reads and checks the payload of a command as far as that is possible
// without the file of a worker. Messages never repeat a value, since values may be secret.
func ParsePayload(raw json.RawMessage) (p belfry.CommandPayload, errors []belfry.FieldError) {
	errors, syntax := schema.Decode(raw, &p)
	if syntax != nil {
		return p, []belfry.FieldError{{Field: "payload", Message: `must be a JSON object; for example {"command": "backup", "args": ["--full"]}`}}
	}
	var more []belfry.FieldError
	fail := func(field, message string) { more = append(more, belfry.FieldError{Field: field, Message: message}) }
	checkValue := func(field, value string) {
		if strings.Contains(value, "\x00") || len(value) > maxValue {
			fail(field, fmt.Sprintf("must not contain zero bytes, nor be longer than %d bytes", maxValue))
		}
	}
	switch {
	case p.Command == "" && p.Shell == "":
		fail("command", `is required; for example "backup"`)
	case p.Shell != "" && (p.Command != "" || p.Args != nil || p.Env != nil || p.Stdin != ""):
		fail("shell", "is instead of a command with args, env and stdin; remove one of them")
	}
	checkValue("shell", p.Shell)
	for i, arg := range p.Args {
		checkValue(fmt.Sprintf("args[%d]", i), arg)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		if field := "env." + schema.Clip(name); variableName.MatchString(name) {
			checkValue(field, p.Env[name])
		} else {
			fail(field, "is not the name of an environment variable")
		}
	}
	errors = schema.MergeErrors(errors, more)
	for i := range errors {
		errors[i].Field = "payload." + errors[i].Field
	}
	return p, errors
}

// Register adds the commands of the file to a mux, each as a handler of its own.
func (f *File) Register(mux *worker.Mux) {
	for _, c := range f.Commands {
		mux.Handle(belfry.CommandPrefix+c.Name, c)
	}
}

// Shell is the handler that runs text of jobs in the shell.
func Shell() worker.Handler {
	c := &Command{Argv: []string{"/bin/sh", "-c"}, Sandbox: sandboxBasic}
	c.prepare(func(string, string, ...any) {})
	return c
}

// check returns what the operator does not allow.
func (c *Command) check(p belfry.CommandPayload) (errors []belfry.FieldError) {
	fail := func(field, format string, args ...any) {
		errors = append(errors, belfry.FieldError{Field: "payload." + field, Message: fmt.Sprintf(format, args...)})
	}
	switch {
	case p.Command != c.Name && c.Name == "":
		fail("command", "is not known to this worker")
	case p.Command != c.Name:
		fail("command", "must be %q, as in the job", c.Name)
	}
	if len(p.Args) > c.MaxArguments {
		fail("args", "has %d items, and the worker allows %d; see max_arguments of the command", len(p.Args), c.MaxArguments)
	}
	for i, arg := range p.Args {
		if !slices.ContainsFunc(c.patterns, func(p *regexp.Regexp) bool { return p.MatchString(arg) }) {
			fail(fmt.Sprintf("args[%d]", i), "matches none of the patterns that the worker allows; see arguments of the command")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		if !slices.Contains(c.JobEnvironment, name) {
			fail("env."+schema.Clip(name), "cannot be set by jobs; see job_environment of the command")
		}
	}
	if p.Stdin != "" && !c.Stdin.Job {
		fail("stdin", "cannot be set by jobs; see stdin of the command")
	}
	return errors
}

// Handle runs the command of a run and waits until nothing of it is left. Its output is
// the log of the attempt.
func (c *Command) Handle(ctx context.Context, run *belfry.Run) error {
	p, errors := ParsePayload(run.Payload)
	if len(errors) == 0 {
		errors = c.check(p)
	}
	if len(errors) > 0 {
		return belfry.Permanent(&belfry.Error{Code: belfry.Invalid, Message: "the worker refuses the command", Fields: errors})
	}
	l := launch{Argv: slices.Concat(c.Argv, p.Args), Stdin: c.Stdin.Text, Dir: c.Directory, Sandbox: c.Sandbox,
		CPU: int64(math.Ceil(time.Duration(c.Limits.CPU).Seconds())), Memory: int64(c.Limits.Memory), FileSize: int64(c.Limits.FileSize),
		Processes: int64(c.Limits.Processes), Files: int64(c.Limits.Files),
		Read: c.Read, Write: c.Write, Network: c.Network || c.Sandbox != sandboxStrict}
	if p.Shell != "" {
		l.Argv = append(l.Argv, p.Shell)
	}
	if c.Stdin.Job {
		l.Stdin = p.Stdin
	}
	for name, value := range c.Environment {
		if secret.IsName(name) {
			run.Report.Secrets = append(run.Report.Secrets, value)
		}
	}
	report, err := c.execute(ctx, &l, func(private string) []string { return c.environment(run, p, private) }, run.LogWriter())
	if report != nil {
		run.Report.Output = belfry.MustJSON(report)
	}
	if err != nil {
		return err
	}
	return c.result(report)
}

// result is the error that an ended command means.
func (c *Command) result(r *belfry.CommandReport) error {
	switch {
	case r.Signal != "":
		return fmt.Errorf("the command was ended by signal: %s", r.Signal)
	case r.ExitStatus == 0:
		return nil
	case slices.Contains(c.Exit.Permanent, r.ExitStatus):
		return belfry.Permanent(fmt.Errorf("the command exited with status %d, which retries cannot fix", r.ExitStatus))
	case slices.Contains(c.Exit.Retry, r.ExitStatus):
		return fmt.Errorf("the command exited with status %d, which asks for a retry", r.ExitStatus)
	}
	return fmt.Errorf("the command exited with status %d", r.ExitStatus)
}

// environment is all variables of a command; none is inherited.
func (c *Command) environment(run *belfry.Run, p belfry.CommandPayload, private string) (list []string) {
	all := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": c.account.HomeDir, "TMPDIR": private,
		"USER": c.account.Username, "LOGNAME": c.account.Username,
	}
	if c.Sandbox == sandboxStrict {
		all["HOME"] = private
	}
	maps.Copy(all, c.Environment)
	maps.Copy(all, p.Env)
	maps.Copy(all, map[string]string{
		"BELFRY_JOB_ID": run.JobID.String(), "BELFRY_RUN_ID": run.ID.String(), "BELFRY_NAMESPACE": run.Namespace,
		"BELFRY_ATTEMPT": strconv.Itoa(run.Attempt), "BELFRY_SCHEDULED_AT": run.ScheduledAt.UTC().Format(time.RFC3339Nano), "BELFRY_IDEMPOTENCY_KEY": run.Key(),
	})
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, name+"="+all[name])
	}
	return list
}

// launch is an attempt as the processes that run it are told of it.
type launch struct {
	Argv, Env   []string
	Stdin       string `json:"-"`
	Dir         string // working directory
	Private     string // directory of the attempt, which is removed
	User        *credentials
	CPU         int64 // seconds; this and the next four are limits, and zero is none
	Memory      int64
	FileSize    int64
	Processes   int64
	Files       int64
	Sandbox     string
	Read, Write []string
	Network     bool
	Cgroups     []string // directories of cgroups, which are removed
	Bubblewrap  string   // the program; empty: it cannot be used
}

// credentials are the ids of a user.
type credentials struct {
	UID, GID int
	Groups   []int
}
