package importer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/belfry-sh/belfry"
)

// kubernetesObject is what a manifest of any kind has, and what a CronJob or a list does.
type kubernetesObject struct {
	Kind     string                `json:"kind"`
	Metadata struct{ Name string } `json:"metadata"`
	Items    []json.RawMessage     `json:"items"`
	Spec     cronJob               `json:"spec"`
}

type cronJob struct {
	Schedule                string `json:"schedule"`
	TimeZone                string `json:"timeZone"`
	ConcurrencyPolicy       string `json:"concurrencyPolicy"`
	StartingDeadlineSeconds *int   `json:"startingDeadlineSeconds"`
	Suspend                 bool   `json:"suspend"`
	JobTemplate             struct {
		Spec struct {
			ActiveDeadlineSeconds int  `json:"activeDeadlineSeconds"`
			BackoffLimit          *int `json:"backoffLimit"`
			Completions           int  `json:"completions"`
			Parallelism           int  `json:"parallelism"`
			Template              struct {
				Spec struct {
					InitContainers []json.RawMessage `json:"initContainers"`
					Containers     []container       `json:"containers"`
				} `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	} `json:"jobTemplate"`
}

type container struct {
	Image      string            `json:"image"`
	Command    []string          `json:"command"`
	Args       []string          `json:"args"`
	WorkingDir string            `json:"workingDir"`
	EnvFrom    []json.RawMessage `json:"envFrom"`
	Env        []struct {
		Name      string          `json:"name"`
		Value     string          `json:"value"`
		ValueFrom json.RawMessage `json:"valueFrom"`
	} `json:"env"`
}

// Limits and defaults of Kubernetes and of Belfry.
const (
	defaultBackoffLimit = 6
	maxRetries          = 100
	maxCatchUp          = 316224000
)

// Kubernetes converts the CronJobs among manifests.
func Kubernetes(documents []Document, o Options) (Result, error) {
	b := newBuilder(o)
	for _, d := range documents {
		b.line = d.Line
		if err := b.addObject(d.JSON, true); err != nil {
			return Result{}, err
		}
	}
	return b.Result, nil
}

func (b *builder) addObject(text []byte, mayBeList bool) error {
	var kind struct{ Kind string }
	var object kubernetesObject
	if err := json.Unmarshal(text, &kind); err != nil || kind.Kind == "" {
		b.leaveOut("the document is not a manifest of Kubernetes: it has no kind")
		return nil
	}
	if kind.Kind != "CronJob" && !(mayBeList && strings.HasSuffix(kind.Kind, "List")) {
		b.leaveOut("kind %q is not imported, only CronJob is", cutText(kind.Kind))
		return nil
	}
	if err := json.Unmarshal(text, &object); err != nil {
		b.leaveOut("%s: %s", kind.Kind, cutText(err.Error()))
		return nil
	}
	if kind.Kind == "CronJob" {
		b.addCronJob(object.Metadata.Name, object.Spec)
	}
	for _, item := range object.Items {
		if err := b.addObject(item, false); err != nil {
			return err
		}
	}
	if len(b.Entries) > maxEntries {
		return errTooMany
	}
	return nil
}

func (b *builder) addCronJob(name string, c cronJob) {
	job := c.JobTemplate.Spec
	e := Entry{Job: belfry.Manifest{Spec: belfry.Spec{
		Overlap: belfry.OverlapParallel, TimeoutSeconds: maxTimeout, Timezone: c.TimeZone,
		MaxRetries: belfry.Some(defaultBackoffLimit), RetryBaseSeconds: belfry.Some(10.0), RetryCapSeconds: belfry.Some(360.0),
	}}}
	e.Job.Schedule = e.kubernetesSchedule(c.Schedule)
	switch c.ConcurrencyPolicy {
	case "Forbid":
		e.Job.Overlap = belfry.OverlapSkip
	case "Replace":
		e.Job.Overlap = belfry.OverlapSkip
		e.warn("concurrencyPolicy Replace ends the earlier run; Belfry lets it finish and skips the new one")
	}
	if seconds := c.StartingDeadlineSeconds; seconds != nil && *seconds > 0 {
		e.Job.CatchUpSeconds = min(*seconds, maxCatchUp)
	}
	if c.Suspend {
		e.Job.Status = belfry.StatusPaused
	}
	if seconds := job.ActiveDeadlineSeconds; seconds > 0 {
		e.Job.TimeoutSeconds = min(seconds, maxTimeout)
		e.warn("activeDeadlineSeconds limits all attempts together; here each of them may take %d seconds", e.Job.TimeoutSeconds)
	}
	if limit := job.BackoffLimit; limit != nil {
		e.Job.MaxRetries = belfry.Some(min(max(*limit, 0), maxRetries))
	}
	if max(job.Completions, job.Parallelism) > 1 {
		e.warn("it has several pods (completions, parallelism); here a run is one process")
	}
	pod := job.Template.Spec
	if len(pod.Containers) == 0 {
		b.leaveOut("CronJob %q has no container", cutText(name))
		return
	}
	if n := len(pod.Containers) + len(pod.InitContainers); n > 1 {
		e.warn("of its %d containers only the first is imported", n)
	}
	e.Command = e.containerCommand(pod.Containers[0])
	b.add(e, cmp.Or(name, "cronjob"))
}

// kubernetesSchedule converts an expression. Kubernetes combines the day fields by OR if
// both are restricted, also by a step of *; here a field that begins with * is not.
func (e *Entry) kubernetesSchedule(text string) string {
	text = strings.TrimSpace(text)
	if zone, rest, found := strings.Cut(text, " "); found && (strings.HasPrefix(zone, "TZ=") || strings.HasPrefix(zone, "CRON_TZ=")) {
		_, e.Job.Timezone, _ = strings.Cut(zone, "=")
		text = strings.TrimSpace(rest)
	}
	fields := strings.Fields(text)
	if len(fields) != 5 {
		return text
	}
	days, weekdays := strings.Split(fields[2], ","), strings.Split(fields[4], ",")
	switch anyDay, anyWeekday := replaceStars(days, "1-31"), replaceStars(weekdays, "0-6"); {
	case anyDay && anyWeekday:
		fields[2], fields[4] = "*", "*"
	case anyDay:
		fields[2] = "*"
	case anyWeekday:
		fields[4] = "*"
	default:
		fields[2], fields[4] = strings.Join(days, ","), strings.Join(weekdays, ",")
	}
	return strings.Join(fields, " ")
}

// replaceStars writes steps of * as steps of the range, and reports whether there is a *
// without a step.
func replaceStars(items []string, all string) (isStar bool) {
	for i, item := range items {
		step, found := strings.CutPrefix(item, "*/")
		switch {
		case item == "*" || item == "?" || item == "*/1":
			isStar = true
		case found:
			items[i] = all + "/" + step
		}
	}
	return isStar
}

func (e *Entry) containerCommand(c container) *Command {
	out := &Command{Argv: append(append([]string{}, c.Command...), c.Args...), Directory: c.WorkingDir, Environment: make(map[string]string)}
	e.warn("the image %q is not run: the worker runs the program of its own machine", cutText(c.Image))
	switch {
	case len(c.Command) == 0:
		out.Argv = append([]string{"/path/to/program"}, out.Argv...)
		e.Job.Status = belfry.StatusPaused
		e.warn("the program is that of the image: write its path into the file of commands, then resume the job")
	case !path.IsAbs(out.Argv[0]):
		out.Argv = append([]string{"/usr/bin/env"}, out.Argv...)
	}
	if strings.Contains(fmt.Sprint(out.Argv), "$(") {
		e.warn("$(NAME) in the command is not replaced by the variable")
	}
	var fromElsewhere []string
	for i, v := range c.Env {
		switch {
		case len(v.ValueFrom) > 0:
			fromElsewhere = append(fromElsewhere, cutText(v.Name))
		case i < maxVariables && variableName.MatchString(v.Name):
			out.Environment[v.Name] = v.Value
		default:
			e.warn("the variable %q is left out", cutText(v.Name))
		}
	}
	if len(fromElsewhere) > 0 {
		e.warn("write these variables into the file of commands, since their values are not in the manifest: %q", fromElsewhere)
	}
	if len(c.EnvFrom) > 0 {
		e.warn("envFrom is not imported: write the variables into the file of commands")
	}
	return out
}
