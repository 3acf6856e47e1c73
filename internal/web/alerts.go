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
)

type alertsPage struct {
	listing[belfry.Alert]
	Channels []belfry.Channel
}

func (s *server) alerts(r *request) (err error) {
	var p alertsPage
	if p.Channels, err = s.Control.Channels(r.ctx, r.namespace); err != nil {
		return err
	}
	p.listing, _, err = list(r, []string{"status", "channel"}, pageSize, s.Control.Alerts)
	return r.showSection("alerts", "Alerts", p, err)
}

func (s *server) acknowledge(r *request) error {
	id, err := r.id("alert")
	if err != nil {
		return err
	}
	_, err = s.Control.AcknowledgeAlert(r.ctx, r.namespace, id, r.keyName())
	return r.finish(err, "/alerts", "acknowledged")
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
	in := f.fields["alerts"]
	in.Value, in.Control, in.Placeholder = subscriptionLines(f.value.(*belfry.Channel).Alerts), "lines", "dead\nfailing count=3 job=payroll\nmonitor"
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
	e, ok := errors.AsType[*belfry.Error](err)
	if !ok || e.Code != belfry.Invalid {
		return err
	}
	f := newForm(&channel, r.PostForm, e.Fields)
	p.Error = f.rest("The channel is not valid.")
	return r.showChannel(http.StatusUnprocessableEntity, p, f)
}

func (s *server) actOnChannel(r *request) error {
	name := r.PathValue("channel")
	if r.PathValue("action") == "test" {
		return r.finish(s.Control.TestChannel(r.ctx, r.namespace, name), "/alerts", "tested")
	}
	if !r.confirmed() {
		return r.confirm("alerts", confirmation{Title: "Delete the channel " + name + "?", Text: "Its alerts are deleted with it.", Button: "Delete the channel", Danger: true, Back: r.link("/alerts")})
	}
	return r.finish(s.Control.DeleteChannel(r.ctx, r.namespace, name), "/alerts", "deleted")
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
	return r.showSection("settings", "Settings", struct {
		Settings   []Setting
		Namespaces []belfry.Namespace
	}{s.Settings, namespaces}, err)
}
