package main

import (
	"cmp"
	"context"
	"fmt"
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
	return f.group("channel", "channels", "Say who is told what: webhooks, Slack, e-mail, PagerDuty",
		`A channel is where alerts are sent, and which ones: a webhook, Slack, e-mail or
PagerDuty. Without --alert it is told of dead letters and of late monitors.`,
		listing[belfry.Channel, struct{}]{
			noun: "channels", none: "No channels. Create one with: belfry channel create", find: onePage((*cli).Channels),
			show: table([]string{"NAME", "TYPE", "TO", "ALERTS", "SENT", "ERROR"}, []string{"COOLDOWN"}, channelRow),
		}.command(f, &cobra.Command{Short: "List channels"}),
		request[belfry.Channel]((*cli).Channel).command(f, &cobra.Command{Use: "show NAME", Short: "Show a channel"}, (*cli).showChannel),
		channelCreateCommand(f), channelApplyCommand(f),
		f.actCommand(&cobra.Command{Use: "test NAME", Short: "Send a test message through a channel"}, (*cli).TestChannel,
			func(c *cli, name string) { c.message("The channel %s accepted the message.", name) }),
		f.actCommand(&cobra.Command{Use: "delete NAME", Short: "Delete a channel with its alerts"}, (*cli).DeleteChannel,
			func(c *cli, name string) { c.message("Deleted %s.", name) }))
}

func channelRow(c *cli, ch belfry.Channel) []any {
	state := cell{c.clip(ch.Error), red}
	if ch.Paused {
		state = cell{"paused", yellow}
	}
	cooldown := time.Duration(cmp.Or(ch.CooldownSeconds, 300)) * time.Second
	return []any{ch.Name, ch.Type, cmp.Or(strings.Join(ch.To, ", "), ch.URL), alertsText(ch.Alerts), ch.SentAt, state, cooldown}
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

func (c *cli) showChannel(ch belfry.Channel) {
	d := details{
		"Name", ch.Name, "Type", ch.Type, "URL", ch.URL, "Secret", ch.Secret, "From", ch.From, "To", ch.To, "Alerts", alertsText(ch.Alerts),
	}
	d.addIf(ch.Paused, "Paused", cell{"yes", yellow})
	d.add("Sent", ch.SentAt)
	d.addIf(ch.Failures > 0, "Failures", cell{fmt.Sprintf("%d since then", ch.Failures), red})
	d.add("Error", cell{ch.Error, red}, "Next try", ch.NextTryAt)
	c.writeDetails(d)
}

func channelCreateCommand(f *connectionFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use: "create NAME --type TYPE", Short: "Create a channel",
		Long: "Create a channel. To replace one, use belfry channel apply.",
		Example: `  belfry channel create oncall --type slack --url https://hooks.slack.com/services/T0/B0/secret
  belfry channel create ops --type webhook --url https://example.com/hook --alert dead --alert 'failing count=5'
  belfry channel create mail --type email --url smtp://user:password@mail.example.com:587 \
      --from belfry@example.com --to oncall@example.com --alert 'not_finished job=payroll within=1h'`,
	}
	alerts := cmd.Flags().StringArray("alert", nil, "what to tell, as `KIND [job=NAME] [tag=TAG] [count=N] [within=DURATION]`; may be repeated")
	return createCommand(f, cmd, func(c *cli, ctx context.Context, channel belfry.Channel) (_ belfry.Channel, err error) {
		channel.Alerts = make([]belfry.Subscription, len(*alerts))
		for i, text := range *alerts {
			if channel.Alerts[i], err = parseSubscription(text); err != nil {
				return channel, err
			}
		}
		return c.CreateChannel(ctx, channel)
	}, func(c *cli, created belfry.Channel) {
		c.showChannel(created)
		c.message("Test it with: belfry channel test %s", created.Name)
	}, "alerts")
}

func channelApplyCommand(f *connectionFlags) *cobra.Command {
	var paths []string
	var v variables
	cmd := &cobra.Command{
		Use: "apply -f FILE", Short: "Create and replace channels from files",
		Long: `Create the channels of files, or replace those of the same names. A file is YAML or
JSON: a channel, several documents, a list of channels, or the key channels with a
list. With --env, ${NAME} in a value is the value of an environment variable.`,
		Example: `  SLACK_URL=... belfry channel apply -f channels.yaml --env`,
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
		return c.forManifests(found, func(m manifest) error {
			saved, created, err := c.PutChannel(c.ctx, cmp.Or(m.name, "_"), m.fields)
			if err == nil {
				c.message("%s %s", map[bool]string{true: "created", false: "saved"}[created], saved.Name)
			}
			return err
		})
	})
}

var channelManifests = manifestKind{one: "channel", many: "channels", fields: schema.For[belfry.Channel]()}

func alertCommand(f *connectionFlags) *cobra.Command {
	ack := &cobra.Command{Use: "ack ID", Aliases: []string{"acknowledge"}, Short: "Say that you take care of an alert"}
	by := ack.Flags().String("by", "", "your `NAME` (default the user of this computer)")
	return f.group("alert", "alerts", "List, show and acknowledge alerts",
		"An alert is something that a channel was told, from when it began until it is resolved.",
		listing[belfry.Alert, belfry.AlertFilter]{
			noun: "alerts", none: "No alerts.", find: (*cli).Alerts,
			show: table([]string{"ID", "STATUS", "SINCE", "CHANNEL", "COUNT", "MESSAGE"}, []string{"SENT", "ACKNOWLEDGED BY"}, func(c *cli, a belfry.Alert) []any {
				return []any{a.ID, statusCell(a.Status), a.StartedAt, a.Channel, a.Count, c.clip(a.Message), a.SentCount, a.AcknowledgedBy}
			}),
		}.command(f, &cobra.Command{Short: "List alerts, latest first", Example: "  belfry alert list --status firing"}),
		alertRequest((*cli).Alert).command(f, &cobra.Command{Use: "show ID", Short: "Show an alert"}, (*cli).showAlert),
		alertRequest(func(c *cli, ctx context.Context, id belfry.ID) (belfry.Alert, error) {
			if u, err := user.Current(); err == nil && *by == "" {
				*by = u.Username
			}
			return c.AcknowledgeAlert(ctx, id, *by)
		}).command(f, ack, (*cli).showAlert))
}

func alertRequest(ask func(c *cli, ctx context.Context, id belfry.ID) (belfry.Alert, error)) request[belfry.Alert] {
	return func(c *cli, ctx context.Context, text string) (belfry.Alert, error) {
		id, err := belfry.ParseID(text)
		if err != nil {
			return belfry.Alert{}, usagef("%q is not the id of an alert; see belfry alert list", text)
		}
		return ask(c, ctx, id)
	}
}

func (c *cli) showAlert(a belfry.Alert) {
	d := details{
		"Alert", a.ID, "Status", statusCell(a.Status), "Message", a.Message, "Channel", a.Channel,
		"Subscription", subscriptionText(a.Subscription), "Since", a.StartedAt, "Latest", a.LatestAt,
	}
	d.addIf(a.AcknowledgedAt != nil, "Acknowledged", c.absoluteTimeIn("UTC", a.AcknowledgedAt)+" by "+a.AcknowledgedBy)
	d.add("Resolved", a.ResolvedAt, "Sent", fmt.Sprintf("%d messages", a.SentCount))
	c.writeDetails(d)
	writeTable(&c.output, a.Items, []string{"JOB", "RUN", "SCHEDULED", "ERROR"}, nil, func(i belfry.AlertItem) []any {
		return []any{cmp.Or(i.Name, i.JobID.String()), i.RunID, i.ScheduledAt, c.clip(i.Error)}
	})
}

func monitorCommand(f *connectionFlags) *cobra.Command {
	cmd := f.group("monitor", "monitors", "Watch work that is done elsewhere",
		`Watch work that Belfry does not run, such as a cron job on another machine: it pings
an address each time, and channels that subscribe to it are alerted when a ping is
missing. See docs/monitors.md. REF is the name or the id of a monitor.`,
		createCommand(f, &cobra.Command{
			Use: "create NAME", Short: "Create a monitor, and print the address to ping",
			Long: `Create a monitor, and print the address to ping. Nothing is expected before the first
ping. Whoever knows the address can ping: treat it like a password.`,
			Example: `  belfry monitor create backup --every 1d --grace 2h
  belfry monitor create report --cron '0 3 * * MON-FRI' --timezone Europe/Berlin --grace 15m`,
		}, (*cli).CreateMonitor, func(c *cli, m belfry.Monitor) {
			c.result("created", m.Name, expectedText(m))
			c.line("\nPing it at the end of the work; add /start at its beginning, or /fail if it failed:\n\n  curl -fsS -m 10 --retry 3 %s", escape(m.PingURL))
		}, "paused"),
		listing[belfry.Monitor, struct{}]{
			noun: "monitors", none: "No monitors. Create one with: belfry monitor create backup --every 1d --grace 2h", find: unfiltered((*cli).Monitors),
			show: table([]string{"NAME", "STATUS", "EXPECTED", "LAST PING", "DUE"}, []string{"ID", "CREATED", "TAGS", "PING URL", "DESCRIPTION"}, monitorRow),
		}.command(f, &cobra.Command{Short: "List monitors, newest first"}),
		request[belfry.Monitor]((*cli).Monitor).command(f, &cobra.Command{Use: "show REF", Short: "Show a monitor"}, (*cli).showMonitor),
		editCommand(f, &cobra.Command{
			Use: "edit REF", Short: "Change the settings of a monitor",
			Long: `Change the settings of a monitor. --every replaces --cron, and the other way round. If the
schedule changes, the next ping is expected from now on.`,
			Example: `  belfry monitor edit backup --every 12h
  belfry monitor edit backup --name nightly-backup --tag storage`,
		}, "--every 12h", (*cli).EditMonitor, func(c *cli, m belfry.Monitor) { c.result("updated", m.Name, expectedText(m)) }, "paused"),
		monitorPauseCommand(f, "pause REF...", "paused", "Pause monitors: no pings are expected", true),
		monitorPauseCommand(f, "resume REF...", "resumed", "Resume paused monitors: the next ping is expected from now on", false),
		f.actCommand(&cobra.Command{Use: "delete REF...", Short: "Delete monitors: their addresses no longer accept pings"}, (*cli).DeleteMonitor, did("deleted")),
	)
	return f.completeArguments(cmd, "REF", func(ctx context.Context, c *cli, _ string) []cobra.Completion {
		found, _, _ := collect(c.Monitors(ctx), maxPageSize) // An error completes nothing.
		return mapSlice(found, func(m belfry.Monitor) cobra.Completion {
			return cobra.CompletionWithDesc(escape(m.Name), expectedText(m))
		})
	})
}

func monitorPauseCommand(f *connectionFlags, use, verb, short string, paused bool) *cobra.Command {
	return f.actCommand(&cobra.Command{Use: use, Short: short}, func(c *cli, ctx context.Context, ref string) error {
		m, err := c.EditMonitor(ctx, ref, map[string]bool{"paused": paused})
		return c.printAnswer(m, err, func() { c.result(verb, m.Name, "") })
	}, func(*cli, string) {})
}

// expectedText is when pings are expected.
func expectedText(m belfry.Monitor) string {
	text := "every " + durationText(time.Duration(m.EverySeconds)*time.Second)
	if m.Cron != "" {
		text = strings.TrimSpace(m.Cron + " " + m.Timezone)
	}
	return escape(text + ", grace " + durationText(m.Grace()))
}

func monitorRow(c *cli, m belfry.Monitor) []any {
	return []any{m.Name, monitorStatusCell(m.Status), expectedText(m), m.LastPingAt, m.DueAt,
		m.ID, m.CreatedAt, strings.Join(m.Tags, ","), m.PingURL, c.clip(m.Description)}
}

func monitorStatusCell(status belfry.MonitorStatus) cell {
	colours := map[belfry.MonitorStatus]string{belfry.MonitorUp: green, belfry.MonitorLate: red, belfry.MonitorFailed: red, belfry.MonitorPaused: grey}
	return cell{string(status), colours[status]}
}

func (c *cli) showMonitor(m belfry.Monitor) {
	c.writeDetails(details{
		"Name", m.Name, "Id", m.ID, "Status", monitorStatusCell(m.Status), "Expected", expectedText(m),
		"Due", m.DueAt, "Last ping", m.LastPingAt, "Started", m.StartedAt, "Failed", m.FailedAt,
		"Tags", m.Tags, "Description", m.Description, "Created", m.CreatedAt, "Ping URL", m.PingURL,
	})
}
