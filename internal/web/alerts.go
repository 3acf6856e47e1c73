package web

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/store"
)

func asError(err error, to **belfry.Error) bool { return errors.As(err, to) }

func (s *server) events(r *request) error {
	l, _, err := list(r, []string{"kind", "job"}, pageSize, func(f belfry.EventFilter, p store.Page) ([]belfry.Event, store.Position, error) {
		return s.Control.ListEvents(r.ctx, r.namespace, f, p)
	})
	if err != nil {
		return err
	}
	return r.show("events.html", "events", "Events", l)
}

func (s *server) audit(r *request) error {
	l, _, err := list(r, []string{"job", "actor", "action", "since"}, pageSize, func(f belfry.AuditFilter, p store.Page) ([]belfry.AuditEntry, store.Position, error) {
		return s.Control.ListAudit(r.ctx, r.namespace, f, p)
	})
	if err != nil {
		return err
	}
	return r.show("audit.html", "audit", "Audit", l)
}

type alertsPage struct {
	listing[belfry.Alert]
	Channels []belfry.Channel
}

func (s *server) alerts(r *request) (err error) {
	var p alertsPage
	if p.Channels, err = s.Control.Channels(r.ctx, r.namespace); err != nil {
		return err
	}
	p.listing, _, err = list(r, []string{"status", "channel"}, pageSize, func(f belfry.AlertFilter, page store.Page) ([]belfry.Alert, store.Position, error) {
		return s.Control.Alerts(r.ctx, r.namespace, f, page)
	})
	if err != nil {
		return err
	}
	return r.show("alerts.html", "alerts", "Alerts", p)
}

func (s *server) acknowledge(r *request) error {
	id, err := r.id("alert")
	if err != nil {
		return err
	}
	if _, err := s.Control.AcknowledgeAlert(r.ctx, r.namespace, id, r.keyName()); err != nil {
		return err
	}
	return r.redirect("/alerts", "acknowledged")
}

// newChannel is the name in the address of the form for a channel that does not exist yet,
// which no channel can have.
const newChannel = "+new"

type channelPage struct {
	Name   string // empty: it is new
	Fields []*formField
	Kinds  []belfry.EnumValue
	Error  string
	Secret string // that the server made, shown once
}

// channelFields are the fields of the form, in order.
var channelFields = []string{"name", "type", "url", "secret", "from", "to", "alerts", "cooldown_seconds", "paused"}

func (s *server) channel(r *request) error {
	var channel belfry.Channel
	p := channelPage{}
	if name := r.PathValue("channel"); name != newChannel {
		var err error
		if channel, err = s.Control.Channel(r.ctx, r.namespace, name); err != nil {
			return err
		}
		p.Name = name
	}
	return r.showChannel(http.StatusOK, p, newForm(&channel, nil, nil))
}

func (r *request) showChannel(status int, p channelPage, f form) error {
	f.set("alerts", subscriptionLines(f.value.(*belfry.Channel).Alerts))
	f.fields["alerts"].Control, f.fields["alerts"].Placeholder = "lines", "dead\nfailing count=3 job=payroll\nmonitor"
	for _, name := range channelFields {
		if name != "name" || p.Name == "" {
			p.Fields = append(p.Fields, f.fields[name])
		}
	}
	p.Kinds = belfry.AlertKind("").EnumValues()
	title := "Channel " + p.Name
	if p.Name == "" {
		title = "New channel"
	}
	return r.showStatus(status, "channel.html", "alerts", title, p)
}

func (s *server) saveChannel(r *request) error {
	p, given := channelPage{}, objectOf(schema.For[belfry.Channel](), r.PostForm, "")
	if name := r.PathValue("channel"); name != newChannel {
		p.Name = name
		given["name"] = belfry.MustJSON(name)
	}
	given["alerts"] = belfry.MustJSON(parseSubscriptions(r.PostFormValue("alerts")))
	var channel belfry.Channel
	fields, syntax := schema.Decode(belfry.MustJSON(given), &channel)
	if syntax != nil {
		return belfry.Errorf(belfry.Invalid, "the form %s", syntax.Message)
	}
	var saved belfry.Channel
	err := error(&belfry.Error{Code: belfry.Invalid, Message: "the channel is not valid", Fields: fields})
	if len(fields) == 0 {
		saved, _, err = s.Control.PutChannel(r.ctx, r.namespace, channel)
	}
	if err == nil && saved.Secret != "" && saved.Secret != "***" {
		p.Name, p.Secret = saved.Name, saved.Secret
		return r.showChannel(http.StatusOK, p, newForm(&saved, nil, nil))
	}
	if err == nil {
		return r.redirect("/alerts", "saved")
	}
	e := (*belfry.Error)(nil)
	if !asError(err, &e) || e.Code != belfry.Invalid {
		return err
	}
	f := newForm(&channel, r.PostForm, e.Fields)
	p.Error = f.rest("The channel is not valid.")
	return r.showChannel(http.StatusUnprocessableEntity, p, f)
}

func (s *server) actOnChannel(r *request) error {
	name, action := r.PathValue("channel"), r.PathValue("action")
	done := map[string]string{"test": "tested", "delete": "deleted"}[action]
	var err error
	switch action {
	case "test":
		err = s.Control.TestChannel(r.ctx, r.namespace, name)
	case "delete":
		if !r.confirmed() {
			return r.confirm("alerts", confirmation{Title: "Delete the channel " + name + "?", Text: "Its alerts are deleted with it.", Button: "Delete the channel", Danger: true, Back: r.link("/alerts")})
		}
		err = s.Control.DeleteChannel(r.ctx, r.namespace, name)
	default:
		err = belfry.Errorf(belfry.NotFound, "there is no action %.40q", action)
	}
	if err != nil {
		return err
	}
	return r.redirect("/alerts", done)
}

// subscriptionLines writes subscriptions, one a line: what, then what limits it.
func subscriptionLines(list []belfry.Subscription) string {
	var lines []string
	for _, s := range list {
		line := string(s.On)
		for _, part := range []struct {
			name  string
			value any
			set   bool
		}{{"job", s.Job, s.Job != ""}, {"tag", s.Tag, s.Tag != ""}, {"count", s.Count, s.Count != 0}, {"within_seconds", s.WithinSeconds, s.WithinSeconds != 0}} {
			if part.set {
				value := fmt.Sprint(part.value)
				if strings.ContainsAny(value, " \"") {
					value = strconv.Quote(value)
				}
				line += " " + part.name + "=" + value
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// subscriptionWords finds words, and values in quotes.
var subscriptionWords = regexp.MustCompile(`[a-z_]+="(?:[^"\\]|\\.)*"|\S+`)

// parseSubscriptions reads what subscriptionLines writes, as JSON that is checked later.
func parseSubscriptions(text string) []map[string]any {
	list := []map[string]any{}
	for line := range strings.Lines(text) {
		words := subscriptionWords.FindAllString(line, -1)
		if len(words) == 0 {
			continue
		}
		entry := map[string]any{"on": words[0]}
		for _, word := range words[1:] {
			name, value, _ := strings.Cut(word, "=")
			if quoted, err := strconv.Unquote(value); err == nil {
				value = quoted
			}
			if entry[name] = value; name == "count" || name == "within_seconds" {
				entry[name] = jsonOrText(value)
			}
		}
		list = append(list, entry)
	}
	return list
}

func (s *server) settings(r *request) error {
	namespaces, err := s.Control.Namespaces(r.ctx)
	if err != nil {
		return err
	}
	return r.show("settings.html", "settings", "Settings", struct {
		Settings   []Setting
		Namespaces []belfry.Namespace
	}{s.Settings, namespaces})
}
