package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/importer"
	"github.com/belfry-sh/belfry/internal/schedule"
)

// importFile is a file of another scheduler and what is made of it.
type importFile struct {
	output
	path     string
	name     string // in messages
	options  importer.Options
	jobs     string // files to write; empty is standard output for jobs, and none for commands
	commands string
}

func importCommand() *cobra.Command {
	crontab, kubernetes, eventBridge := &importFile{}, &importFile{}, &importFile{}
	cmd := crontab.command(&cobra.Command{
		Use: "crontab FILE", Short: "Convert a crontab",
		Long: `Convert a crontab; - is standard input. Every line becomes a command, with its
environment, and a job that runs it at the times at which cron does, also when the
clock changes. As with cron, runs may overlap, are not retried, and are skipped if
no scheduler is running.

/etc/crontab and the files in /etc/cron.d have a column with the user; --system says
that another file has one, too.`,
		Example: `  crontab -l | belfry import crontab - --jobs jobs.yaml --commands commands.yaml
  belfry import crontab /etc/crontab --prefix web1- --timezone Europe/Paris
  belfry job apply -f jobs.yaml --dry-run`,
	}, true, crontab.importCrontab)
	p := cmd.Flags()
	p.BoolVar(&crontab.options.System, "system", false, "the lines have a column with the user")
	p.StringVar(&crontab.options.Timezone, "timezone", "", "time `ZONE` of the machine of the crontab (default: that of this machine)")
	return group(&cobra.Command{
		Use: "import", Short: "Convert crontabs, CronJobs and schedules of EventBridge to files of jobs",
		Long: `Convert the schedules of other systems to YAML for "belfry job apply", without a
server. What has no meaning in Belfry, or a different one, gets a warning, which is
also a comment in the YAML. Nothing is created: read the files, then apply them.

What runs commands becomes jobs of type command and a file for "belfry worker
--commands", which --commands names. Existing files are not overwritten.`,
	}, cmd, kubernetes.command(&cobra.Command{
		Use: "kubernetes FILE", Short: "Convert CronJobs of Kubernetes",
		Long: `Convert the CronJobs of a file, YAML or JSON with one or more documents or lists; - is
standard input. The command of the container becomes a command of a worker; the image
is not run.`,
		Example: `  kubectl get cronjobs -o yaml | belfry import kubernetes - --jobs jobs.yaml --commands commands.yaml`,
	}, true, kubernetes.importKubernetes), eventBridge.command(&cobra.Command{
		Use: "eventbridge FILE", Short: "Convert schedules of Amazon EventBridge",
		Long: `Convert schedules and scheduled rules, as JSON that the command line of AWS prints; -
is standard input. Targets that have no counterpart become jobs that are paused until
you fill them in.`,
		Example: `  aws scheduler get-schedule --name nightly | belfry import eventbridge - --jobs jobs.yaml
  aws events list-rules | belfry import eventbridge -`,
	}, false, func(content []byte) (importer.Result, error) {
		return importer.EventBridge(content, eventBridge.options)
	}))
}

func (f *importFile) command(cmd *cobra.Command, hasCommands bool, convert func(content []byte) (importer.Result, error)) *cobra.Command {
	if hasCommands {
		cmd.Flags().StringVar(&f.commands, "commands", "", "`FILE` to write the commands to")
	}
	cmd.ValidArgsFunction = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	cmd.Flags().StringVar(&f.jobs, "jobs", "", "`FILE` to write the jobs to (default: standard output)")
	cmd.Flags().StringVar(&f.options.Prefix, "prefix", "", "`TEXT` before the names of jobs and commands, such as the name of the machine")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.output = newOutput(cmd, "table", true)
		f.path, f.name, f.options.Now = args[0], args[0], time.Now()
		if f.path == "-" {
			f.name = "stdin"
		}
		if !importer.Prefix.MatchString(f.options.Prefix) {
			return usagef("--prefix: must have at most 25 lower-case letters, digits, dots, underscores and hyphens")
		}
		content, err := f.read(cmd.InOrStdin())
		if err != nil {
			return err
		}
		result, err := convert(content)
		if err != nil {
			if _, hasLines := err.(fileErrors); hasLines || isUsage(err) {
				return err
			}
			return fileErrors{{f.name, 1, err.Error()}}
		}
		return f.write(result)
	}
	return cmd
}

func (f *importFile) read(stdin io.Reader) ([]byte, error) {
	in := stdin
	if f.path != "-" {
		file, err := os.Open(f.path)
		if err != nil {
			return nil, fmt.Errorf("read %w", pathError(err))
		}
		defer file.Close()
		in = file
	}
	content, err := io.ReadAll(io.LimitReader(in, importer.MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.name, err)
	}
	if len(content) > importer.MaxSize {
		return nil, fileErrors{{f.name, 1, fmt.Sprintf("is larger than %d bytes; split it", importer.MaxSize)}}
	}
	return bytes.TrimPrefix(content, []byte("\ufeff")), nil
}

func (f *importFile) importCrontab(content []byte) (importer.Result, error) {
	o := &f.options
	if o.Timezone == "" {
		o.Timezone = localTimezone()
		f.message("Note: the schedules are in the time zone %s; --timezone sets another", o.Timezone)
	} else if _, err := schedule.LoadZone(o.Timezone); err != nil {
		return importer.Result{}, usagef("--%w", err)
	}
	path, err := filepath.Abs(f.path)
	if err == nil && f.path != "-" {
		o.System = o.System || path == "/etc/crontab" || filepath.Dir(path) == "/etc/cron.d"
		if !o.System && strings.HasPrefix(path, "/var/spool/cron/") {
			o.User = filepath.Base(path)
		}
	}
	o.Home = homeOf
	return importer.Crontab(string(content), *o)
}

// localTimezone is the time zone of this machine; UTC if its name is not known.
func localTimezone() string {
	target, _ := filepath.EvalSymlinks("/etc/localtime")
	_, linked, _ := strings.Cut(target, "zoneinfo/")
	for _, name := range []string{strings.TrimPrefix(os.Getenv("TZ"), ":"), linked} {
		if _, err := schedule.LoadZone(name); err == nil {
			return strings.Replace(name, "Etc/UTC", "UTC", 1)
		}
	}
	return "UTC"
}

// homeOf is the home directory of a user of this machine, or of the current one.
func homeOf(name string) string {
	u, err := user.Current()
	if name != "" {
		u, err = user.Lookup(name)
	}
	if err != nil {
		return ""
	}
	return u.HomeDir
}

func (f *importFile) importKubernetes(content []byte) (importer.Result, error) {
	nodes, errs := parseDocuments(f.name, content)
	var documents []importer.Document
	for _, n := range nodes {
		y := &yamlToJSON{file: f.name, lines: make(map[string]int)}
		text, err := y.convert(n, "")
		errs = append(errs, err...)
		documents = append(documents, importer.Document{Line: n.Line, JSON: []byte(text)})
	}
	if len(errs) > 0 {
		return importer.Result{}, errs
	}
	return importer.Kubernetes(documents, f.options)
}

// write writes the files, and then the warnings.
func (f *importFile) write(result importer.Result) error {
	jobs, commands := &yaml.Node{Kind: yaml.SequenceNode}, &yaml.Node{Kind: yaml.MappingNode}
	var warnings, pending []string // pending: comments on what precedes the next job
	warn := func(line int, text string) string {
		warnings = append(warnings, fileError{f.name, line, text}.text())
		return fmt.Sprintf("# line %d: %s", line, escape(text))
	}
	head := []string{"# Imported from " + escape(filepath.Base(f.name)) + ". Apply it with: belfry job apply -f FILE"}
	for _, w := range result.Warnings {
		head = append(head, warn(w.Line, w.Text))
	}
	leftOut := 0
	for _, e := range result.Entries {
		if e.LeftOut != "" {
			leftOut++
			pending = append(pending, warn(e.Line, "left out: "+e.LeftOut))
			continue
		}
		for _, text := range e.Warnings {
			pending = append(pending, warn(e.Line, text))
		}
		job := jsonToNode(belfry.MustJSON(e.Job))
		job.HeadComment = strings.Join(pending, "\n")
		jobs.Content, pending = append(jobs.Content, job), nil
		if e.Command != nil {
			commands.Content = append(commands.Content, textNode(e.Job.Name, 0), jsonToNode(belfry.MustJSON(e.Command)))
		}
	}
	jobs.FootComment = strings.Join(pending, "\n")
	if err := f.writeFile(f.jobs, "jobs", jobs, head); err != nil {
		return err
	}
	if f.commands != "" {
		head = []string{"# Imported from " + escape(filepath.Base(f.name)) + ". Use it with: belfry worker --commands FILE"}
		if err := f.writeFile(f.commands, "commands", commands, head); err != nil {
			return err
		}
	}
	for _, text := range warnings {
		f.message("Warning: %s", text)
	}
	n := len(commands.Content) / 2
	if n > 0 && f.commands == "" {
		f.message("Note: the commands are not written; use --commands FILE")
	}
	if n > maxCommands {
		f.message("Note: a worker runs at most %d commands; split the file of commands between workers", maxCommands)
	}
	f.message("%s, %s, %d left out.", plural(len(jobs.Content), "job"), plural(n, "command"), leftOut)
	return f.out.err
}

const maxCommands = 200 // in a file of a worker

// writeFile writes a value under a key. Commands may have secrets, so that only the user
// may read the file.
func (f *importFile) writeFile(path, key string, value *yaml.Node, head []string) error {
	if len(value.Content) == 0 {
		value.Style = yaml.FlowStyle
		head, value.FootComment = append(head, cmp.Or(value.FootComment, "# There is nothing to import.")), ""
	}
	text, err := encodeYAML(&yaml.Node{Kind: yaml.MappingNode, HeadComment: strings.Join(head, "\n"), Content: []*yaml.Node{textNode(key, 0), value}})
	if err != nil {
		return err
	}
	if path == "" {
		_, err = f.out.Write(text)
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return exitError{fmt.Errorf("%s exists; remove it or name another file", path), exitRefused}
	} else if err != nil {
		return fmt.Errorf("write %w", pathError(err))
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}
