package main

import (
	"cmp"
	"fmt"
	"iter"
	"os/user"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/notify"
	"github.com/belfry-sh/belfry/internal/schema"
)

func channelCommand(f *connectionFlags) *cobra.Command {
	return f.add(group(&cobra.Command{
		Use:     "channel",
		Aliases: []string{"channels"},
		Short:   "Say who is told what: webhooks, Slack, e-mail, PagerDuty",
		Long: `A channel is where alerts are sent, and which ones: a webhook, Slack, e-mail or
PagerDuty. Without --alert it is told of dead letters and of late monitors.`,
	}, channelListCommand(f), channelShowCommand(f), channelCreateCommand(f), channelApplyCommand(f), channelTestCommand(f), channelDeleteCommand(f)))
}

func channelListCommand(f *connectionFlags) *cobra.Command {
	return listing[belfry.Channel]{
		noun: "channels", none: "No channels. Create one with: belfry channel create",
		list: func(c *cli, _ []string, _ int) (iter.Seq2[belfry.Channel, error], error) {
			channels, err := c.Channels(c.ctx) // There is one page.
			return withoutErrors(channels), err
		},
		show: (*cli).channelTable,
	}.command(f, &cobra.Command{Short: "List channels"})
}

func (c *cli) channelTable(channels []belfry.Channel) {
	writeTable(&c.output, channels, []string{"NAME", "TYPE", "TO", "ALERTS", "SENT", "ERROR"}, []string{"COOLDOWN"}, func(ch belfry.Channel) []any {
		state := cell{c.clip(ch.Error), red}
		if ch.Paused {
			state = cell{"paused", yellow}
		}
		return []any{ch.Name, ch.Type, cmp.Or(strings.Join(ch.To, ", "), ch.URL), alertsText(ch.Alerts), c.tableTimeOrNone(ch.SentAt), state,
			time.Duration(cmp.Or(ch.CooldownSeconds, 300)) * time.Second}
	})
}

func alertsText(list []belfry.Subscription) string {
	if len(list) == 0 {
		return "dead, monitor"
	}
	return strings.Join(mapSlice(list, subscriptionText), ", ")
}

// subscriptionText is a subscription as --alert takes it.
func subscriptionText(s belfry.Subscription) string {
	text := string(s.On)
	for _, part := range []struct{ name, value string }{{"job", s.Job}, {"tag", s.Tag}} {
		if strings.ContainsAny(part.value, " \t\r\n\f\"") {
			part.value = strconv.Quote(part.value)
		}
		if part.value != "" {
			text += " " + part.name + "=" + part.value
		}
	}
	if s.Count > 0 {
		text += fmt.Sprintf(" count=%d", s.Count)
	}
	if s.WithinSeconds > 0 {
		text += " within=" + notify.Duration(time.Duration(s.WithinSeconds)*time.Second)
	}
	return text
}

// subscriptionWord is a word, in which quotes may enclose blanks.
var subscriptionWord = regexp.MustCompile(`([^\s"]|"([^"\\]|\\.)*")+|"`)

// parseSubscription reads what subscriptionText writes.
func parseSubscription(text string) (s belfry.Subscription, err error) {
	words := subscriptionWord.FindAllString(text, -1)
	if len(words) == 0 {
		return s, usagef("--alert: is empty; for example --alert 'failing job=payroll count=3'")
	}
	s.On = belfry.AlertKind(words[0])
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		var wrong error
		if strings.HasPrefix(value, `"`) {
			value, _ = strconv.Unquote(value) // otherwise it is empty
		}
		switch {
		case value == "":
			wrong = fmt.Errorf("%s must be NAME=VALUE, with quotes around a value that has blanks", word)
		case name == "job":
			s.Job = value
		case name == "tag":
			s.Tag = value
		case name == "count":
			if s.Count, err = strconv.Atoi(value); err != nil || s.Count < 1 {
				wrong = fmt.Errorf("%s must be a whole number, at least 1", word)
			}
		case name == "within":
			d, ok := parseAge(value)
			if s.WithinSeconds = int(d / time.Second); !ok || d < time.Second || d%time.Second != 0 {
				wrong = fmt.Errorf("%s must be a duration of whole seconds, such as 90s, 1h or 2d", word)
			}
		default:
			wrong = fmt.Errorf("%q is unknown; there are job, tag, count and within", name)
		}
		if wrong != nil {
			return s, usagef("--alert: %v; for example --alert 'not_finished job=\"my job\" within=1h'", wrong)
		}
	}
	return s, nil
}

func channelShowCommand(f *connectionFlags) *cobra.Command {
	return f.command(&cobra.Command{Use: "show NAME", Aliases: []string{"get"}, Short: "Show a channel", Args: cobra.ExactArgs(1)}, func(c *cli, args []string) error {
		channel, err := c.Channel(c.ctx, args[0])
		return c.printAnswer(channel, err, func() { c.showChannel(channel) })
	})
}

func (c *cli) showChannel(ch belfry.Channel) {
	var d details
	d.add("Name", ch.Name)
	d.add("Type", ch.Type)
	d.addIf(ch.URL != "", "URL", ch.URL)
	d.addIf(ch.Secret != "", "Secret", ch.Secret)
	d.addIf(ch.From != "", "From", ch.From)
	d.addIf(len(ch.To) > 0, "To", strings.Join(ch.To, ", "))
	d.add("Alerts", alertsText(ch.Alerts))
	d.addIf(ch.Paused, "Paused", cell{"yes", yellow})
	d.addIf(ch.SentAt != nil, "Sent", c.absoluteTimeIn("UTC", ch.SentAt))
	d.addIf(ch.Failures > 0, "Failures", cell{fmt.Sprintf("%d since then", ch.Failures), red})
	d.addIf(ch.Error != "", "Error", cell{ch.Error, red})
	d.addIf(ch.NextTryAt != nil, "Next try", c.absoluteTimeIn("UTC", ch.NextTryAt))
	c.writeRows(d)
}

func channelCreateCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create NAME --type TYPE",
		Short: "Create a channel",
		Long:  "Create a channel. To replace one, use belfry channel apply.",
		Example: `  belfry channel create oncall --type slack --url https://hooks.slack.com/services/T0/B0/secret
  belfry channel create ops --type webhook --url https://example.com/hook --alert dead --alert 'failing count=5'
  belfry channel create mail --type email --url smtp://user:password@mail.example.com:587 \
      --from belfry@example.com --to oncall@example.com --alert 'not_finished job=payroll within=1h'`,
		Args: cobra.ExactArgs(1),
	}
	flags := addFieldFlags[belfry.Channel](cmd, "name", "alerts")
	alerts := cmd.Flags().StringArray("alert", nil, "what to tell, as `KIND [job=NAME] [tag=TAG] [count=N] [within=DURATION]`; may be repeated")
	return f.command(cmd, func(c *cli, args []string) error {
		channel := belfry.Channel{Name: args[0]}
		if err := flags.decode(&channel); err != nil {
			return err
		}
		for _, text := range *alerts {
			s, err := parseSubscription(text)
			if err != nil {
				return err
			}
			channel.Alerts = append(channel.Alerts, s)
		}
		created, err := c.CreateChannel(c.ctx, channel)
		return c.printAnswer(created, err, func() {
			c.showChannel(created)
			c.message("Test it with: belfry channel test %s", created.Name)
		})
	})
}

func channelApplyCommand(f *connectionFlags) *cobra.Command {
	var paths []string
	var v variables
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create and replace channels from files",
		Long: `Create the channels of files, or replace those of the same names. A file is YAML or
JSON: a channel, several documents, a list of channels, or the key channels with a
list. With --env, ${NAME} in a value is the value of an environment variable.`,
		Example: `  SLACK_URL=... belfry channel apply -f channels.yaml --env`,
		Args:    cobra.NoArgs,
	}
	cmd.Flags().StringArrayVarP(&paths, "file", "f", nil, "`FILE` or directory with channels; - is standard input; may be repeated")
	cmd.Flags().BoolVar(&v.substitute, "env", false, "substitute environment variables: ${NAME} in a value is the value of NAME")
	return f.command(cmd, func(c *cli, _ []string) error {
		if len(paths) == 0 {
			return usagef("-f: is missing; give a file with channels")
		}
		found, _, err := readManifests(channelManifests, paths, cmd.InOrStdin(), &v)
		if err != nil {
			return err
		}
		var refused fileErrors
		for _, m := range found {
			saved, created, err := c.PutChannel(c.ctx, cmp.Or(m.name, "_"), m.fields)
			if errs, ok := m.errorsOf(err); ok && err != nil {
				refused = append(refused, errs...)
				continue
			}
			if err != nil {
				return err
			}
			c.message("%s %s", map[bool]string{true: "created", false: "saved"}[created], saved.Name)
		}
		return refused.orNil()
	})
}

var channelManifests = manifestKind{one: "channel", many: "channels", fields: schema.For[belfry.Channel]()}

func channelTestCommand(f *connectionFlags) *cobra.Command {
	return f.command(&cobra.Command{Use: "test NAME", Short: "Send a test message through a channel", Args: cobra.ExactArgs(1)}, func(c *cli, args []string) error {
		if err := c.TestChannel(c.ctx, args[0]); err != nil {
			return err
		}
		c.message("The channel %s accepted the message.", args[0])
		return nil
	})
}

func channelDeleteCommand(f *connectionFlags) *cobra.Command {
	return f.command(&cobra.Command{Use: "delete NAME", Aliases: []string{"rm"}, Short: "Delete a channel with its alerts", Args: cobra.ExactArgs(1)}, func(c *cli, args []string) error {
		if err := c.DeleteChannel(c.ctx, args[0]); err != nil {
			return err
		}
		c.message("Deleted %s.", args[0])
		return nil
	})
}

func alertCommand(f *connectionFlags) *cobra.Command {
	list := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List alerts, latest first", Example: "  belfry alert list --status firing", Args: cobra.NoArgs}
	flags := addFilterFlags[belfry.AlertFilter](f, list)
	limit := addLimitFlag(list)
	f.command(list, func(c *cli, args []string) error {
		var filter belfry.AlertFilter
		if err := flags.decode(&filter); err != nil {
			return err
		}
		return listing[belfry.Alert]{
			noun: "alerts", none: "No alerts.", filter: flags,
			list: func(c *cli, _ []string, _ int) (iter.Seq2[belfry.Alert, error], error) {
				return c.Alerts(c.ctx, filter), nil
			},
			show: (*cli).alertTable,
		}.run(c, args, *limit)
	})
	show := f.command(&cobra.Command{Use: "show ID", Aliases: []string{"get"}, Short: "Show an alert", Args: cobra.ExactArgs(1)}, func(c *cli, args []string) error {
		return c.withAlert(args[0], func(id belfry.ID) (belfry.Alert, error) { return c.Alert(c.ctx, id) })
	})
	ack := &cobra.Command{Use: "ack ID", Aliases: []string{"acknowledge"}, Short: "Say that you take care of an alert", Args: cobra.ExactArgs(1)}
	by := ack.Flags().String("by", "", "your `NAME` (default the user of this computer)")
	f.command(ack, func(c *cli, args []string) error {
		if u, err := user.Current(); err == nil && *by == "" {
			*by = u.Username
		}
		return c.withAlert(args[0], func(id belfry.ID) (belfry.Alert, error) { return c.AcknowledgeAlert(c.ctx, id, *by) })
	})
	return f.add(group(&cobra.Command{
		Use: "alert", Aliases: []string{"alerts"}, Short: "List, show and acknowledge alerts",
		Long: "An alert is something that a channel was told, from when it began until it is resolved.",
	}, list, show, ack))
}

func (c *cli) withAlert(text string, do func(belfry.ID) (belfry.Alert, error)) error {
	id, err := belfry.ParseID(text)
	if err != nil {
		return usagef("%q is not the id of an alert; see belfry alert list", text)
	}
	alert, err := do(id)
	return c.printAnswer(alert, err, func() { c.showAlert(alert) })
}

func (c *cli) alertTable(alerts []belfry.Alert) {
	writeTable(&c.output, alerts, []string{"ID", "STATUS", "SINCE", "CHANNEL", "COUNT", "MESSAGE"}, []string{"SENT", "ACKNOWLEDGED BY"}, func(a belfry.Alert) []any {
		return []any{a.ID, cell{string(a.Status), alertColour(a.Status)}, c.tableTime(a.StartedAt), a.Channel, a.Count, c.clip(a.Message), a.SentCount, a.AcknowledgedBy}
	})
}

func alertColour(s belfry.AlertStatus) string {
	return map[belfry.AlertStatus]string{belfry.AlertFiring: red, belfry.AlertAcknowledged: yellow, belfry.AlertResolved: green}[s]
}

func (c *cli) showAlert(a belfry.Alert) {
	var d details
	d.add("Alert", a.ID)
	d.add("Status", cell{string(a.Status), alertColour(a.Status)})
	d.add("Message", a.Message)
	d.add("Channel", a.Channel)
	d.add("Subscription", subscriptionText(a.Subscription))
	d.add("Since", c.absoluteTime(a.StartedAt))
	d.add("Latest", c.absoluteTime(a.LatestAt))
	d.addIf(a.AcknowledgedAt != nil, "Acknowledged", c.absoluteTimeIn("UTC", a.AcknowledgedAt)+" by "+a.AcknowledgedBy)
	d.addIf(a.ResolvedAt != nil, "Resolved", c.absoluteTimeIn("UTC", a.ResolvedAt))
	d.add("Sent", fmt.Sprintf("%d messages", a.SentCount))
	c.writeRows(d)
	writeTable(&c.output, a.Items, []string{"JOB", "RUN", "SCHEDULED", "ERROR"}, nil, func(i belfry.AlertItem) []any {
		return []any{cmp.Or(i.Name, i.JobID.String()), i.RunID, c.tableTime(i.ScheduledAt), c.clip(i.Error)}
	})
}
