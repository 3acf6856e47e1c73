// Package importer converts the schedules of other systems to jobs: crontabs, CronJobs of
// Kubernetes, and schedules of Amazon EventBridge. It is pure: it reads no file, runs
// nothing and asks nobody. Its input is not trusted. What has no meaning in Belfry, or a
// different one, gets a warning.
package importer

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// Limits of a file.
const (
	MaxSize      = 1 << 20
	maxEntries   = 1000
	maxLine      = 1 << 17 // of a crontab; that of cronie
	maxVariables = 100
	maxName      = 50 // of a job without its prefix and its number
)

// Document is one document of a YAML or JSON file.
type Document struct {
	Line int // where it begins
	JSON []byte
}

// Options say what a file does not.
type Options struct {
	Now    time.Time
	Prefix string // of the names of jobs and commands

	// The rest is about crontabs.
	Timezone string                   // of the machine; empty is UTC
	System   bool                     // lines have a column with the user
	User     string                   // owner of a crontab without that column; empty is unknown
	Home     func(user string) string // home directory; empty if it is unknown
}

// Result is the content of a file.
type Result struct {
	Entries  []Entry
	Warnings []Warning // about more than one entry
}

// Entry is a line or document of a file and the job that it becomes.
type Entry struct {
	Line     int
	Job      belfry.Manifest
	Command  *Command // that the job runs, under the name of the job; nil if it runs none
	LeftOut  string   // why there is no job; empty if there is one
	Warnings []string
}

// Warning is a difference between the other system and Belfry.
type Warning struct {
	Line int
	Text string
}

// Command is an entry of the file that tells a worker what it may run.
type Command struct {
	Argv        []string          `json:"argv"`
	Directory   string            `json:"directory,omitempty"`
	User        string            `json:"user,omitempty"`
	Environment map[string]string `json:"environment,omitempty"`
	Stdin       map[string]string `json:"stdin,omitempty"` // text: what it is
}

const typeCommand = "command"

func (e *Entry) warn(format string, args ...any) {
	e.Warnings = append(e.Warnings, fmt.Sprintf(format, args...))
}

// builder collects the entries of a file.
type builder struct {
	Options
	Result
	line  int
	names map[string]bool
}

// Prefix is what Options.Prefix may be. With it a name has at most 80 characters, as that of
// a command may.
var Prefix = regexp.MustCompile(`^[a-z0-9._-]{0,25}$`)

func newBuilder(o Options) builder { return builder{Options: o, names: make(map[string]bool)} }

func (b *builder) warn(format string, args ...any) {
	b.Warnings = append(b.Warnings, Warning{b.line, fmt.Sprintf(format, args...)})
}

var errTooMany = fmt.Errorf("has more than %d entries; split the file", maxEntries)

// leaveOut adds an entry that becomes no job.
func (b *builder) leaveOut(format string, args ...any) {
	b.Entries = append(b.Entries, Entry{Line: b.line, LeftOut: fmt.Sprintf(format, args...)})
}

// add adds an entry under a name that no other one has, unless its schedule is invalid.
func (b *builder) add(e Entry, name string) {
	e.Line = b.line
	if err := b.check(e.Job.Spec); err != nil {
		b.leaveOut("%s: %s", cmp.Or(name, "the entry"), err)
		return
	}
	e.Job.Name = b.uniqueName(name)
	if e.Command != nil {
		e.Job.Type, e.Job.Payload = typeCommand, belfry.MustJSON(map[string]string{"command": e.Job.Name})
	}
	if e.Job.Timezone == "UTC" {
		e.Job.Timezone = ""
	}
	b.Entries = append(b.Entries, e)
}

// check says why a server would refuse a schedule.
func (b *builder) check(s belfry.Spec) error {
	var rule schedule.Rule
	text, _, err := schedule.Resolve(s.Schedule, [16]byte{})
	if err == nil {
		rule, err = schedule.Parse(text, b.scheduleOptions(s))
	}
	if e := (*schedule.Error)(nil); errors.As(err, &e) {
		return fmt.Errorf("%s %q: %s", e.Field, cutText(cmp.Or(map[string]string{"timezone": s.Timezone}[e.Field], s.Schedule)), e.Message)
	}
	if err != nil {
		return err
	}
	if next := rule.Next(b.Now); next.IsZero() || !s.EndsAt.IsZero() && next.After(s.EndsAt) {
		return errors.New("its last time has passed")
	}
	return nil
}

func (b *builder) scheduleOptions(s belfry.Spec) schedule.Options {
	start := s.StartsAt
	if start.IsZero() {
		start = schedule.DefaultStart(s.Schedule, b.Now)
	}
	return schedule.Options{Timezone: s.Timezone, SkipGap: s.SkipsGap(), Start: start, Now: b.Now}
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// uniqueName turns a text into a name of letters, digits and hyphens. If it is taken, it
// gets a number, so that the same file always has the same names.
func (b *builder) uniqueName(text string) string {
	base := strings.Trim(notInName.ReplaceAllString(strings.ToLower(text), "-"), "-")
	base = b.Prefix + strings.TrimRight(cmp.Or(base[:min(len(base), maxName)], "job"), "-")
	name := base
	for n := 2; b.names[name]; n++ {
		name = base + "-" + strconv.Itoa(n)
	}
	b.names[name] = true
	return name
}

var (
	substitution = regexp.MustCompile("\\$\\([^()]*\\)|`[^`]*`")
	redirection  = regexp.MustCompile(`[0-9&]?[<>]+(&[0-9]|\s*\S+)`)
	commandEnd   = regexp.MustCompile(`&&|\|\||[;|&(){}\n]`)
	assignment   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
	number       = regexp.MustCompile(`^[0-9.]+[smhd]?$`)
	plainWord    = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_:-]{0,30}$`)
	plainPath    = regexp.MustCompile(`^(\$[A-Z_]+/|~?[./]?)[A-Za-z0-9_./+-]*[A-Za-z0-9_]$`)
	extension    = regexp.MustCompile(`\.(sh|bash|py|pl|php|rb|js|jar)$`)
)

// Words of a command line that do not say what it does.
var (
	preludes = set("cd test [ [[ : true export set source . umask sleep exit then do done fi if else while for ! trap ulimit mkdir")
	wrappers = set("sudo nice ionice nohup time timeout env exec chronic cronic flock setsid chrt taskset command sh bash dash zsh ksh python python2 python3 perl php ruby node java")
)

func set(words string) map[string]bool {
	out := make(map[string]bool)
	for word := range strings.FieldsSeq(words) {
		out[word] = true
	}
	return out
}

// commandName makes a name from the program of a command line, and from what follows it
// if that is a plain word or a path: other words may be secrets.
func commandName(line string) (name string) {
	line = redirection.ReplaceAllString(substitution.ReplaceAllString(line, " "), " ")
	for _, part := range commandEnd.Split(line, -1) {
		words := strings.Fields(part)
		for len(words) > 0 && isNoProgram(words[0]) {
			words = words[1:]
		}
		if len(words) == 0 || preludes[words[0]] {
			continue
		}
		name = extension.ReplaceAllString(path.Base(words[0]), "")
		for i, word := range words[1:] {
			if isPath := strings.HasPrefix(word, "/") && plainPath.MatchString(word); isPath || i == 0 && plainWord.MatchString(word) {
				return name + "-" + extension.ReplaceAllString(path.Base(word), "")
			}
		}
		return name
	}
	return name
}

// isNoProgram is true for what may stand before the program that a line is about.
func isNoProgram(word string) bool {
	return wrappers[path.Base(word)] || assignment.MatchString(word) || number.MatchString(word) || !plainPath.MatchString(word) ||
		strings.HasSuffix(word, ".lock") || strings.HasPrefix(word, "-")
}

// cutText shortens a text of the file for a message.
func cutText(s string) string {
	const most = 60
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
