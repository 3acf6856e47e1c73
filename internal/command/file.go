package command

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/jsontext"
	"github.com/belfry-sh/belfry/internal/schema"
)

// Limits of a file.
const (
	maxFile     = 1 << 20
	maxCommands = 200 // a worker claims at most as many handlers
)

// File is what the operator of a worker lets jobs run.
type File struct {
	Namespaces []string
	Commands   []*Command // by name
}

// fileFields are the fields of the file itself.
type fileFields struct {
	Namespaces []string        `json:"namespaces" implicit:"[\"default\"]" minitems:"1" maxitems:"100" doc:"Namespaces whose jobs may use the commands."`
	Commands   json.RawMessage `json:"commands" required:"true" example:"{\"backup\": {\"argv\": [\"/usr/local/bin/backup\"]}}" doc:"The commands, by name."`
}

// Command is a program that jobs may run, and within which bounds.
type Command struct {
	Name           string            `json:"-"`
	Argv           []string          `json:"argv" required:"true" minitems:"1" maxitems:"100" example:"[\"/usr/local/bin/backup\", \"--verbose\"]" doc:"Program, by its absolute path, and its first arguments."`
	Directory      string            `json:"directory" doc:"Working directory. Default: a private temporary directory of the attempt."`
	User           string            `json:"user" maxlen:"100" doc:"User that runs it. Default: that of the worker."`
	Environment    map[string]string `json:"environment" maxitems:"100" doc:"Environment variables."`
	JobEnvironment []string          `json:"job_environment" maxitems:"100" doc:"Names of environment variables that a job may set."`
	Arguments      []string          `json:"arguments" maxitems:"100" doc:"Regular expressions. Every argument of a job must match one of them as a whole."`
	MaxArguments   int               `json:"max_arguments" min:"1" max:"100" implicit:"20" doc:"How many arguments a job may give."`
	Stdin          Stdin             `json:"stdin" doc:"Standard input: 'job' if jobs may give it, or a fixed text."`
	Limits         Limits            `json:"limits" doc:"Limits of each attempt."`
	Sandbox        string            `json:"sandbox" enum:"none,basic,strict" implicit:"basic" doc:"Isolation of the command."`
	Write          []string          `json:"write" maxitems:"100" doc:"Directories that it may change in a strict sandbox, beside its own."`
	Read           []string          `json:"read" maxitems:"100" doc:"What it may read in a strict sandbox, beside the programs and libraries of the system."`
	Network        bool              `json:"network" doc:"A strict sandbox leaves it the network."`
	Exit           Exit              `json:"exit" doc:"What its exit status means; 0 is success."`

	patterns []*regexp.Regexp
	account  *user.User
}

// Limits are limits of an attempt; zero is none.
type Limits struct {
	CPU       Duration `json:"cpu" doc:"Processor time of a process, such as 10m."`
	Memory    Size     `json:"memory" doc:"Memory of a process, and of all together where there are cgroups, such as 512MiB."`
	Processes int      `json:"processes" min:"8" max:"100000" doc:"Processes and threads."`
	Files     int      `json:"files" min:"8" max:"1000000" doc:"Open files of a process."`
	FileSize  Size     `json:"file_size" doc:"Size of a file that it writes."`
}

// Limits of a command that sets none, and the least that works.
const (
	defaultProcesses = 256
	defaultFiles     = 1024
	minMemory        = 32 << 20
)

// Exit says what exit statuses mean.
type Exit struct {
	Retry     Statuses `json:"retry" doc:"Failures that may pass by themselves. Default: 75."`
	Permanent Statuses `json:"permanent" doc:"Failures that retries cannot fix. Default: 65."`
}

// Statuses is a list of exit statuses.
type Statuses []int

// UnmarshalJSON reads a list of numbers from 1 to 255.
func (s *Statuses) UnmarshalJSON(text []byte) error {
	list := []int{}
	if json.Unmarshal(text, &list) != nil || slices.ContainsFunc(list, func(n int) bool { return n < 1 || n > 255 }) {
		return errors.New("must be a list of numbers from 1 to 255, such as [75]")
	}
	*s = list
	return nil
}

// Duration is a duration in the notation of Go.
type Duration time.Duration

// UnmarshalJSON reads a text such as "10m".
func (d *Duration) UnmarshalJSON(text []byte) error {
	parsed, err := time.ParseDuration(jsontext.Unquote(text))
	if text[0] != '"' || err != nil || parsed < time.Second {
		return errors.New("must be a duration of at least 1s, such as 90s or 10m")
	}
	*d = Duration(parsed)
	return nil
}

// Size is a number of bytes.
type Size int64

var sizeText = regexp.MustCompile(`^([0-9]{1,9})\s*(K|M|G|T)iB$`)

// UnmarshalJSON reads a text such as "512MiB".
func (s *Size) UnmarshalJSON(text []byte) error {
	parts := sizeText.FindStringSubmatch(jsontext.Unquote(text))
	if parts == nil {
		return errors.New("must be a size such as 64KiB, 512MiB or 1GiB")
	}
	n, _ := strconv.ParseInt(parts[1], 10, 64)
	shift := 10 * (1 + strings.Index("KMGT", parts[2]))
	if n == 0 || n > math.MaxInt64>>shift {
		return errors.New("must be a size such as 64KiB, 512MiB or 1GiB")
	}
	*s = Size(n << shift)
	return nil
}

// Stdin is the standard input of a command.
type Stdin struct {
	Job  bool   // a job may give it
	Text string // otherwise
}

// UnmarshalJSON reads "job", or an object with a text.
func (s *Stdin) UnmarshalJSON(text []byte) error {
	var fixed struct{ Text *string }
	switch {
	case string(text) == `"job"`:
		s.Job = true
	case text[0] == '{' && json.Unmarshal(text, &fixed) == nil && fixed.Text != nil && len(jsontext.Object(text)) == 1:
		s.Text = *fixed.Text
	default:
		return errors.New(`must be "job", or a text as in {text: "yes"}`)
	}
	return nil
}

// Load reads and checks a file. The error names every problem with its line.
func Load(path string) (*File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("--commands: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("--commands: other users may change %s (mode %04o), and with it what this worker runs; run: chmod go-w %[1]s", path, mode)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("--commands: %s has more than %d bytes", path, maxFile)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--commands: %w", err)
	}
	return Parse(path, content)
}

// Parse is Load for the content of a file.
func Parse(path string, content []byte) (*File, error) {
	r := reader{path: path}
	var document yaml.Node
	if err := yaml.Unmarshal(content, &document); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:1: must have the key commands", path)
	}
	root := document.Content[0]
	var fields fileFields
	r.decode(root, &fields)
	f := &File{Namespaces: fields.Namespaces}
	commands := member(root, "commands")
	if commands == nil || len(r.errors) > 0 {
		return nil, r.err()
	}
	if commands.Kind != yaml.MappingNode || len(commands.Content) == 0 || len(commands.Content) > 2*maxCommands {
		r.fail(commands.Line, "commands: must have from 1 to %d names, each with its command", maxCommands)
		return nil, r.err()
	}
	for i := 0; i+1 < len(commands.Content); i += 2 {
		f.Commands = append(f.Commands, r.command(commands.Content[i], commands.Content[i+1]))
	}
	return f, r.err()
}

// reader collects the errors of a file.
type reader struct {
	path   string
	errors []belfry.FieldError
}

func (r *reader) fail(line int, format string, args ...any) {
	r.errors = append(r.errors, belfry.FieldError{Field: fmt.Sprintf("%s:%d", r.path, line), Message: fmt.Sprintf(format, args...)})
}

func (r *reader) err() error {
	if len(r.errors) == 0 {
		return nil
	}
	return &belfry.Error{Code: belfry.Invalid, Message: "the file of commands is not valid", Fields: r.errors}
}

// decode decodes a mapping by the tags of the struct that v points to.
func (r *reader) decode(n *yaml.Node, v any) {
	var value any
	if err := n.Decode(&value); err != nil {
		r.fail(n.Line, "%s", strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n", " "))
		return
	}
	text, err := json.Marshal(value)
	if err != nil {
		r.fail(n.Line, "a key must be a string")
		return
	}
	fields, syntax := schema.Decode(bytes.TrimSpace(text), v)
	if syntax != nil {
		r.fail(n.Line, "%s", strings.Replace(syntax.Message, "a JSON object", "a mapping", 1))
	}
	for _, e := range fields {
		r.fail(lineOf(n, e.Field), "%s %s", e.Field, strings.Replace(e.Message, "must be a string, not a number", "must be a string, not a number; quote it", 1))
	}
}

// member is the value of a key, or nil.
func member(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content) && n.Kind == yaml.MappingNode; i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// lineOf is the line of a field such as limits.cpu or argv[1], or of what is around it.
func lineOf(n *yaml.Node, path string) int {
	for part := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		next := member(n, part)
		if i, err := strconv.Atoi(part); err == nil && n.Kind == yaml.SequenceNode && i < len(n.Content) {
			next = n.Content[i]
		}
		if next == nil {
			break
		}
		n = next
	}
	return n.Line
}

var (
	commandField = schema.For[belfry.CommandPayload]().Field("command")
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

func (r *reader) command(key, n *yaml.Node) *Command {
	c := &Command{Name: key.Value}
	if !commandField.Pattern.MatchString(c.Name) {
		r.fail(key.Line, "the name %q %s", schema.Clip(c.Name), commandField.PatternDoc)
	}
	before := len(r.errors)
	if r.decode(n, c); len(r.errors) == before {
		c.prepare(func(field, format string, args ...any) {
			r.fail(lineOf(n, field), "%s %s", field, fmt.Sprintf(format, args...))
		})
	}
	for i := before; i < len(r.errors); i++ { // say which command
		r.errors[i].Message = "command " + c.Name + ": " + r.errors[i].Message
	}
	return c
}

// prepare sets defaults and checks what tags cannot say.
func (c *Command) prepare(fail func(field, format string, args ...any)) {
	if info, err := os.Stat(c.Argv[0]); !filepath.IsAbs(c.Argv[0]) {
		fail("argv[0]", "must be the absolute path of a program, such as /usr/bin/rsync")
	} else if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		fail("argv[0]", "%s is not a program on this machine", c.Argv[0])
	}
	for name, list := range map[string][]string{"directory": {c.Directory}, "write": c.Write, "read": c.Read} {
		for i, path := range list {
			field := name
			if name != "directory" {
				field = fmt.Sprintf("%s[%d]", name, i)
			}
			if info, err := os.Stat(path); path != "" && (!filepath.IsAbs(path) || err != nil || !info.IsDir() && name != "read") {
				fail(field, "must be the absolute path of something that exists")
			}
		}
	}
	for i, text := range c.Arguments {
		pattern, err := regexp.Compile(`\A(?:` + text + `)\z`)
		if err != nil {
			fail(fmt.Sprintf("arguments[%d]", i), "is not a regular expression: %s", err)
		}
		c.patterns = append(c.patterns, pattern)
	}
	for name := range c.Environment {
		if !variableName.MatchString(name) {
			fail("environment."+name, "is not the name of a variable")
		}
	}
	for i, name := range c.JobEnvironment {
		if !variableName.MatchString(name) || strings.HasPrefix(name, "BELFRY_") {
			fail(fmt.Sprintf("job_environment[%d]", i), "must be the name of a variable that does not begin with BELFRY_")
		}
	}
	if c.Exit.Retry == nil {
		c.Exit.Retry = Statuses{75}
	}
	if c.Exit.Permanent == nil {
		c.Exit.Permanent = Statuses{65}
	}
	if i := slices.IndexFunc(c.Exit.Retry, func(n int) bool { return slices.Contains(c.Exit.Permanent, n) }); i >= 0 {
		fail("exit", "has %d in both lists", c.Exit.Retry[i])
	}
	if c.Limits.Memory > 0 && c.Limits.Memory < minMemory {
		fail("limits.memory", "must be at least 32MiB, which it takes to start a command")
	}
	c.Limits.Processes, c.Limits.Files = cmp.Or(c.Limits.Processes, defaultProcesses), cmp.Or(c.Limits.Files, defaultFiles)
	if err := c.setAccount(); err != nil {
		fail("user", "%s", err)
	}
	if runtime.GOOS != "linux" && c.Sandbox != sandboxNone {
		fail("sandbox", "is only available on Linux; set it to none")
	}
}

// setAccount finds the user that runs the command.
func (c *Command) setAccount() (err error) {
	own, err := user.Current()
	if err != nil {
		return fmt.Errorf("cannot be found: %w", err)
	}
	if c.account = own; c.User == "" || c.User == own.Username || c.User == own.Uid {
		return nil
	}
	if c.account, err = user.Lookup(c.User); err != nil {
		return fmt.Errorf("%q does not exist on this machine", c.User)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("%q needs a worker that runs as root; this one runs as %s", c.User, own.Username)
	}
	return nil
}
