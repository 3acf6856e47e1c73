package importer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
)

// eventBridgeSchedule is a schedule or rule, as the command line of AWS prints it.
type eventBridgeSchedule struct {
	Name        string
	Description string
	State       string
	Expression  string `json:"ScheduleExpression"`
	Timezone    string `json:"ScheduleExpressionTimezone"`
	Pattern     string `json:"EventPattern"`
	StartDate   awsTime
	EndDate     awsTime
	Window      struct {
		Mode    string
		Minutes int `json:"MaximumWindowInMinutes"`
	} `json:"FlexibleTimeWindow"`
	Target struct {
		Arn         string
		Input       string
		RetryPolicy struct{ MaximumRetryAttempts *int }
		SQS         struct{ MessageGroupId string } `json:"SqsParameters"`
	}
}

// awsTime is an instant as text or as seconds, depending on the version of the command line.
type awsTime struct{ time.Time }

// UnmarshalJSON reads both forms.
func (t *awsTime) UnmarshalJSON(text []byte) (err error) {
	if seconds, failed := strconv.ParseFloat(string(text), 64); failed == nil {
		t.Time = time.Unix(int64(min(max(seconds, 0), 1e10)), 0).UTC()
		return nil
	}
	var s string
	if err := json.Unmarshal(text, &s); err != nil || s == "" {
		return err
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05-0700"} {
		if t.Time, err = time.Parse(layout, s); err == nil {
			t.Time = t.UTC().Truncate(time.Second)
			return nil
		}
	}
	return fmt.Errorf("%q is not an instant", cutText(s))
}

// EventBridge converts what "aws scheduler get-schedule" and "aws events list-rules"
// print: JSON objects, one after the other or in lists.
func EventBridge(text []byte, o Options) (Result, error) {
	b := newBuilder(o)
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		rest := text[d.InputOffset():]
		begin := len(text) - len(bytes.TrimLeft(rest, " \t\r\n"))
		b.line = 1 + bytes.Count(text[:begin], []byte("\n"))
		var document json.RawMessage
		switch err := d.Decode(&document); {
		case errors.Is(err, io.EOF):
			return b.Result, nil
		case err != nil:
			return Result{}, fmt.Errorf("is not the JSON that the command line of AWS prints: %w", err)
		}
		var list struct{ Schedules, Rules []json.RawMessage }
		items := []json.RawMessage{document}
		if json.Unmarshal(document, &list) == nil && len(list.Schedules)+len(list.Rules) > 0 {
			items = append(list.Schedules, list.Rules...)
		} else if document[0] == '[' {
			_ = json.Unmarshal(document, &items) // It is a list.
		}
		for _, item := range items {
			if len(b.Entries) == maxEntries {
				return Result{}, errTooMany
			}
			b.addSchedule(item)
		}
	}
}

func (b *builder) addSchedule(text []byte) {
	var s eventBridgeSchedule
	err := json.Unmarshal(text, &s)
	name := cutText(cmp.Or(s.Name, "schedule"))
	switch {
	case err != nil:
		b.leaveOut("%s: %s", name, cutText(err.Error()))
		return
	case s.Expression == "" && s.Pattern != "":
		b.leaveOut("%s: a rule for events has no times", name)
		return
	case s.Expression == "":
		b.leaveOut("%s: ScheduleExpression is missing; lists do not have it, so export it with: aws scheduler get-schedule --name NAME", name)
		return
	}
	e := Entry{Job: belfry.Manifest{Spec: belfry.Spec{
		Description: s.Description, Timezone: s.Timezone, StartsAt: s.StartDate.Time, EndsAt: s.EndDate.Time, Overlap: belfry.OverlapParallel,
	}}}
	if e.Job.Schedule, err = e.awsExpression(s.Expression); err != nil {
		b.leaveOut("%s: %s", name, err)
		return
	}
	if s.Timezone != "" && s.Timezone != "UTC" && strings.HasPrefix(s.Expression, "cron") {
		e.Job.DSTGap, e.Job.DSTOverlap = belfry.GapSkip, belfry.DSTFirst
	}
	if s.Window.Mode == "FLEXIBLE" {
		e.Job.JitterSeconds = min(max(s.Window.Minutes, 0)*60, maxTimeout)
	}
	if n := s.Target.RetryPolicy.MaximumRetryAttempts; n != nil {
		e.Job.MaxRetries = belfry.Some(min(max(*n, 0), maxRetries))
		if *n > maxRetries {
			e.warn("MaximumRetryAttempts is %d, at most %d are possible", *n, maxRetries)
		}
	}
	if s.State == "DISABLED" {
		e.Job.Status = belfry.StatusPaused
	}
	e.setTarget(s)
	b.add(e, s.Name)
}

var (
	awsExpression = regexp.MustCompile(`^\s*(cron|rate|at)\s*\(\s*(.*?)\s*\)\s*$`)
	awsRate       = regexp.MustCompile(`^([0-9]{1,7})\s+(minute|hour|day)s?$`)
	awsWeekday    = regexp.MustCompile(`(^|[,-])([1-7])`)
)

var weekdayNames = strings.Fields("SUN MON TUE WED THU FRI SAT")

// awsExpression converts cron(), rate() and at().
func (e *Entry) awsExpression(text string) (string, error) {
	parts := awsExpression.FindStringSubmatch(text)
	if parts == nil {
		return "", fmt.Errorf("%q is neither cron(), rate() nor at()", cutText(text))
	}
	switch parts[1] {
	case "rate":
		rate := awsRate.FindStringSubmatch(parts[2])
		if rate == nil {
			return "", fmt.Errorf("%q is not a rate such as rate(5 minutes)", cutText(text))
		}
		n, _ := strconv.Atoi(rate[1]) // It has digits.
		if e.Job.StartsAt.IsZero() {
			e.warn("a rate counts from the creation of the schedule, here from that of the job; set starts_at for another beginning")
		}
		return map[string]string{"minute": fmt.Sprintf("PT%dM", n), "hour": fmt.Sprintf("PT%dH", n), "day": fmt.Sprintf("PT%dH", 24*n)}[rate[2]], nil
	case "at":
		if e.Job.Timezone == "" || e.Job.Timezone == "UTC" {
			return parts[2] + "Z", nil
		}
		return parts[2], nil
	}
	fields := strings.Fields(strings.ToUpper(parts[2]))
	if len(fields) != 6 {
		return "", fmt.Errorf("%q has %d fields instead of 6", cutText(text), len(fields))
	}
	if fields[4] == "L" {
		fields[4] = "SAT"
	}
	fields[4] = awsWeekday.ReplaceAllStringFunc(fields[4], func(s string) string {
		return s[:len(s)-1] + weekdayNames[s[len(s)-1]-'1'] // Amazon counts from Sunday, which is 1.
	})
	expression := strings.ReplaceAll(strings.Join(fields[:5], " "), "?", "*")
	if fields[5] != "*" {
		return "0 " + expression + " " + fields[5], nil
	}
	return expression, nil
}

// setTarget sets what the job does: a message to a queue, or a handler that does what the
// target did. A job without a meaning of its own is paused.
func (e *Entry) setTarget(s eventBridgeSchedule) {
	input := json.RawMessage(s.Target.Input)
	if s.Target.Input != "" && !json.Valid(input) {
		input = belfry.MustJSON(s.Target.Input)
	}
	if strings.Contains(s.Target.Input, "<aws.") {
		e.warn("variables of Amazon in the input, such as <aws.scheduler.scheduled-time>, are not replaced")
	}
	arn := strings.SplitN(s.Target.Arn, ":", 6) // arn:aws:service:region:account:resource
	for len(arn) < 6 {
		arn = append(arn, "")
	}
	resource := arn[5][strings.LastIndexAny(arn[5], ":/")+1:]
	switch arn[2] {
	case "sqs":
		payload := map[string]any{"connection": "sqs", "topic": fmt.Sprintf("https://sqs.%s.amazonaws.com/%s/%s", arn[3], arn[4], arn[5])}
		if s.Target.SQS.MessageGroupId != "" {
			payload["key"] = s.Target.SQS.MessageGroupId
		}
		if len(input) > 0 {
			payload["body"] = input
		}
		e.Job.Type, e.Job.Payload = "message", belfry.MustJSON(payload)
		e.warn("the server needs a connection to Amazon SQS with the name sqs")
	case "lambda":
		e.Job.Type, e.Job.Handler, e.Job.Payload = belfry.TypeWorker, strings.SplitN(strings.TrimPrefix(arn[5], "function:"), ":", 2)[0], input
		e.warn("the function is not called: a worker of yours needs a handler with its name")
	default:
		e.Job.Type, e.Job.Handler, e.Job.Payload = belfry.TypeWorker, cmp.Or(resource, s.Name, "target"), input
		e.Job.Status = belfry.StatusPaused
		e.warn("the target %q has no counterpart: fill in type, handler and payload, then resume the job", cutText(s.Target.Arn))
	}
}
