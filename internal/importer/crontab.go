package importer

import (
	"cmp"
	"errors"
	"maps"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// What cron gives a command that sets nothing else.
const (
	defaultShell = "/bin/sh"
	defaultPath  = "/usr/bin:/bin"
)

const maxTimeout = 86400 // seconds; cron has no limit

// crontab reads a file line by line. Variables apply to the lines below them.
type crontab struct {
	builder
	environment map[string]string
	zone        string
	jitter      int // seconds
}

// Crontab converts a crontab as Vixie cron (that of Debian), cronie and the cron of the
// BSDs read it. Each line becomes a command and a job that runs it.
func Crontab(text string, o Options) (Result, error) {
	c := crontab{builder: newBuilder(o), environment: make(map[string]string), zone: cmp.Or(o.Timezone, "UTC")}
	if !utf8.ValidString(text) || strings.Contains(text, "\x00") {
		return Result{}, errors.New("is not a text in UTF-8; convert it, for example with iconv")
	}
	carriageReturns := false
	for line := range strings.SplitSeq(text, "\n") {
		c.line++
		line, isDOS := strings.CutSuffix(line, "\r")
		if isDOS && !carriageReturns {
			carriageReturns = true
			c.warn("lines end with a carriage return, which cron takes for a part of the command; it is removed")
		}
		line = strings.TrimLeft(line, " \t")
		if line == "" || line[0] == '#' {
			continue
		}
		if name, value, ok := parseVariable(line); ok {
			c.setVariable(name, value)
			continue
		}
		if len(c.Entries) == maxEntries {
			return Result{}, errTooMany
		}
		if len(line) > maxLine {
			c.leaveOut("the line is longer than %d bytes", maxLine)
			continue
		}
		c.addLine(line)
	}
	return c.Result, nil
}

// parseVariable parses NAME = value. Both may be in quotes, which keep blanks.
func parseVariable(line string) (name, value string, ok bool) {
	switch quote := line[0]; quote {
	case '"', '\'':
		name, line, ok = strings.Cut(line[1:], string(quote))
		ok = ok && !strings.Contains(name, "=")
	default:
		end := strings.IndexAny(line, "= \t")
		if end < 0 {
			return "", "", false
		}
		name, line, ok = line[:end], line[end:], true
	}
	line = strings.TrimLeft(line, " \t")
	if !ok || name == "" || line == "" || line[0] != '=' {
		return "", "", false
	}
	value = strings.Trim(line[1:], " \t")
	if value != "" && (value[0] == '"' || value[0] == '\'') {
		inner, rest, closed := strings.Cut(value[1:], value[:1])
		return name, inner, closed && rest == ""
	}
	return name, value, true
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (c *crontab) setVariable(name, value string) {
	switch name {
	case "MAILTO":
		if value != "" {
			c.warn("MAILTO: cron mails what the commands print; Belfry keeps it with each run. To get mail about failures, use: belfry channel create")
		}
		return
	case "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING", "LOGNAME", "USER":
		return // of the mail, or always set by cron itself
	case "CRON_TZ":
		c.setZone(value)
		return
	case "RANDOM_DELAY":
		minutes, err := strconv.Atoi(value)
		if err != nil || minutes < 0 || minutes > 24*60 {
			c.warn("RANDOM_DELAY: cron ignores %q, since it is not a number from 0 to 1440", cutText(value))
			return
		}
		c.jitter = minutes * 60
		c.warn("RANDOM_DELAY: cron delays all runs by the same time, chosen when it starts; Belfry delays each run by its own (jitter_seconds)")
		return
	case "TZ":
		c.warn("TZ is the time zone of the commands, as in cron; for that of the schedules use CRON_TZ, or: belfry import crontab --timezone")
	}
	switch {
	case !variableName.MatchString(name):
		c.warn("the variable %q is left out: its name is not made of letters, digits and underscores", cutText(name))
	case len(c.environment) >= maxVariables && c.environment[name] == "":
		c.warn("the variable %q is left out: there are more than %d", cutText(name), maxVariables)
	default:
		c.environment[name] = value
	}
}

func (c *crontab) setZone(name string) {
	c.zone = cmp.Or(name, c.Timezone, "UTC") // add leaves out the lines of a zone that does not exist
	if name != "" {
		c.warn("CRON_TZ: Debian's cron ignores it. Others lose the times that a clock change in this zone skips, and run repeated ones twice; Belfry runs them once")
	}
}

// addLine adds the job of a line that is neither a variable nor a comment.
func (c *crontab) addLine(line string) {
	e := Entry{Job: belfry.Manifest{Spec: belfry.Spec{
		Timezone: c.zone, JitterSeconds: c.jitter, Overlap: belfry.OverlapParallel,
		MissedWindow: belfry.MissedSkip, MaxRetries: belfry.Some(0), TimeoutSeconds: maxTimeout,
	}}}
	line, isHidden := strings.CutPrefix(line, "-")
	if isHidden {
		e.warn("cronie does not log a line that begins with a hyphen, and Debian's cron refuses it; Belfry keeps a record of every run")
	}
	rest, problem := c.parseTimes(line, &e)
	user := c.User
	if c.System && problem == "" {
		user, rest = cutWord(rest)
		user, _, _ = strings.Cut(user, ":") // FreeBSD has the group after it
	}
	rest = e.cutFlags(rest)
	if problem == "" && (rest == "" || rest[0] == '*') {
		problem = "cron refuses the line: it has no command"
	}
	if problem != "" {
		c.leaveOut("%s", problem)
		return
	}
	if first, _ := cutWord(rest); !c.System && first == "root" {
		e.warn("the command begins with %q: if the lines have a column with the user, use --system", first)
	}
	e.Command = c.command(rest, user)
	if sudo.MatchString(rest) {
		e.warn("sudo does not work in a command of a worker; set user in the file of commands instead")
	}
	if e.Command.Directory == "" {
		e.warn("cron runs the command in the home directory of its user, which is not known here; set directory in the file of commands")
	}
	if shell := e.Command.Argv[0]; !path.IsAbs(shell) {
		e.Command.Argv[0] = path.Join("/bin", shell)
		e.warn("SHELL is %q, not an absolute path: %s is used", cutText(shell), cutText(e.Command.Argv[0]))
	}
	c.add(e, commandName(e.Command.Argv[2]))
}

var sudo = regexp.MustCompile(`(^|[\s/;&|(])sudo\s`)

// cutFlags removes the options that some crons accept before a command.
func (e *Entry) cutFlags(rest string) string {
	for {
		flag, after := cutWord(rest)
		if after == "" || len(flag) < 2 || flag[0] != '-' || strings.Trim(flag[1:], "nqs") != "" {
			return rest
		}
		if strings.Contains(flag, "s") {
			e.Job.Overlap = belfry.OverlapSkip // one instance at a time
		}
		rest = after
	}
}

func (c *crontab) command(line, user string) *Command {
	command, input, hasInput := splitInput(line)
	out := &Command{User: user, Environment: maps.Clone(c.environment)}
	shell := cmp.Or(out.Environment["SHELL"], defaultShell)
	out.Argv, out.Environment["SHELL"] = []string{shell, "-c", command}, shell
	out.Environment["PATH"] = cmp.Or(out.Environment["PATH"], defaultPath)
	if user != "" {
		out.Environment["LOGNAME"] = user
	}
	if home := out.Environment["HOME"]; home == "" && c.Home != nil {
		if home = c.Home(user); home != "" {
			out.Environment["HOME"] = home
		}
	}
	out.Directory = out.Environment["HOME"]
	if hasInput {
		out.Stdin = map[string]string{"text": input}
	}
	return out
}

// splitInput splits a line at the first % that has no backslash before it. What follows is
// standard input, in which other such % are ends of lines, and its last line has an end.
func splitInput(line string) (command, input string, hasInput bool) {
	var out []byte
	isEscaped := false
	for i := range len(line) {
		switch ch := line[i]; {
		case ch == '%' && isEscaped:
			out[len(out)-1] = '%' // in place of the backslash
			isEscaped = false
		case ch == '%':
			input = inputText.Replace(line[i+1:])
			if input != "" && !strings.HasSuffix(input, "\n") {
				input += "\n"
			}
			return string(out), input, input != ""
		default:
			out = append(out, ch)
			isEscaped = ch == '\\' && !isEscaped
		}
	}
	return string(out), "", false
}

var inputText = strings.NewReplacer(`\%`, "%", "%", "\n")

func cutWord(s string) (word, rest string) {
	end := strings.IndexAny(s+" ", " \t")
	return s[:end], strings.TrimLeft(s[end:], " \t")
}

// warnOfGaps warns if cron would run a line several times when a clock change skips some of
// its times: cron runs it once for each of them, one after the other.
func (c *crontab) warnOfGaps(e *Entry) {
	o := c.scheduleOptions(e.Job.Spec)
	text, _, _ := schedule.Resolve(e.Job.Schedule, [16]byte{})
	run, err := schedule.Parse(text, o)
	o.SkipGap = true
	skip, failed := schedule.Parse(text, o)
	if err != nil || failed != nil {
		return // add says why
	}
	for _, gap := range schedule.SkippedGaps(skip, c.Now, c.Now.AddDate(1, 0, 0)) {
		times := gap.Count
		if skip.Next(gap.At.Add(-time.Second)).Equal(gap.At) {
			times++
		}
		if times > 1 && run.Next(gap.At.Add(-time.Second)).Equal(gap.At) {
			e.warn("when the clock skips %s on %s, cron runs it %d times in a row, Belfry once",
				gap.First.Time().Format("15:04"), gap.First.Time().Format("2 January 2006"), times)
			return
		}
	}
}
