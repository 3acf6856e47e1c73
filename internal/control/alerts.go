package control

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/notify"
	"github.com/belfry-sh/belfry/internal/schema"
	"github.com/belfry-sh/belfry/internal/secret"
	"github.com/belfry-sh/belfry/internal/store"
	"github.com/belfry-sh/belfry/internal/validate"
	"github.com/belfry-sh/belfry/internal/webhook"
)

// Sender sends an alert through a channel.
type Sender interface {
	Send(ctx context.Context, c belfry.Channel, a belfry.Alert) error
}

const maxChannels = 100

// Channels lists the channels of a namespace by name.
func (c *Control) Channels(ctx context.Context, namespace string) ([]belfry.Channel, error) {
	channels, err := c.channels(ctx, namespace)
	for i := range channels {
		channels[i] = maskChannel(channels[i])
	}
	return channels, err
}

func (c *Control) channels(ctx context.Context, namespace string) ([]belfry.Channel, error) {
	return retryRead(ctx, "list channels", func() ([]belfry.Channel, error) { return c.store.Channels(ctx, namespace) })
}

// Channel finds a channel.
func (c *Control) Channel(ctx context.Context, namespace, name string) (belfry.Channel, error) {
	channel, err := c.channel(ctx, namespace, name)
	return maskChannel(channel), err
}

func (c *Control) channel(ctx context.Context, namespace, name string) (belfry.Channel, error) {
	channels, err := c.channels(ctx, namespace)
	if i := slices.IndexFunc(channels, func(c belfry.Channel) bool { return c.Name == name }); i >= 0 || err != nil {
		return at(channels, i), err
	}
	return belfry.Channel{}, store.NoSuchChannel(name)
}

func at[T any](list []T, i int) (v T) {
	if i >= 0 {
		v = list[i]
	}
	return v
}

// PutChannel creates a channel or replaces it, and reports whether it was created. The
// result shows a secret that the server made, once.
func (c *Control) PutChannel(ctx context.Context, namespace string, channel belfry.Channel) (saved belfry.Channel, created bool, err error) {
	channels, err := c.channels(ctx, namespace)
	if err != nil {
		return saved, false, err
	}
	i := slices.IndexFunc(channels, func(o belfry.Channel) bool { return o.Name == channel.Name })
	if i < 0 && len(channels) >= maxChannels {
		return saved, false, belfry.Errorf(belfry.Conflict, "the namespace has %d channels, which is the most: delete one first", maxChannels)
	}
	channel.Namespace = namespace
	masked := unmaskChannel(&channel, at(channels, i))
	if err := invalid("the channel is not valid", schema.MergeErrors(masked, notify.Validate(channel))); err != nil {
		return saved, false, err
	}
	made := channel.Type == belfry.ChannelWebhook && channel.Secret == ""
	if made {
		channel.Secret = webhook.NewKey()
	}
	before, action := (*belfry.Channel)(nil), belfry.AuditCreate
	if i >= 0 {
		before, action = &channels[i], belfry.AuditEdit
	}
	ctx, audit := c.audited(ctx, objectEntry(action, belfry.AuditChannel, namespace, "", channel.Name))
	if changes := auditFields(before, &channel, store.ChannelSpec, maskChannel); len(changes) > 0 {
		audit.SetChange(auditChange(changes))
	} else {
		audit.Set()
	}
	err = retryUnknown(ctx, "save a channel", func() (err error) {
		saved, err = c.store.PutChannel(ctx, channel)
		return err
	})
	shown := maskChannel(saved)
	if made {
		shown.Secret = saved.Secret
	}
	return shown, i < 0, err
}

// DeleteChannel deletes a channel with its alerts.
func (c *Control) DeleteChannel(ctx context.Context, namespace, name string) error {
	channel, err := c.channel(ctx, namespace, name)
	if err != nil {
		return err
	}
	ctx, audit := c.audited(ctx, objectEntry(belfry.AuditDelete, belfry.AuditChannel, namespace, "", name))
	audit.SetChange(auditChange(auditFields(&channel, nil, store.ChannelSpec, maskChannel)))
	return retryUnknown(ctx, "delete a channel", func() error { return c.store.DeleteChannel(ctx, namespace, name) })
}

// TestChannel sends a message through a channel now, and returns how that went.
func (c *Control) TestChannel(ctx context.Context, namespace, name string) error {
	channel, err := c.channel(ctx, namespace, name)
	if err != nil {
		return err
	}
	if auth.Of(ctx) != nil {
		if err := c.Audit(ctx, objectEntry(belfry.AuditTest, belfry.AuditChannel, namespace, "", name)); err != nil {
			return err
		}
	}
	now := c.now()
	test := belfry.Alert{
		ID: belfry.NewID(now), Namespace: namespace, Channel: name, Subscription: belfry.Subscription{On: belfry.AlertTest}, Status: belfry.AlertFiring,
		StartedAt: now, LatestAt: now, Count: 1, Message: "this is a test of the channel " + name,
	}
	if err := c.sender.Send(ctx, channel, test); err != nil {
		return belfry.Errorf(belfry.Conflict, "the test of the channel %q failed: %v", name, err)
	}
	return nil
}

// Alerts lists alerts, latest first.
func (c *Control) Alerts(ctx context.Context, namespace string, f belfry.AlertFilter, p store.Page) ([]belfry.Alert, store.Position, error) {
	return readPage(ctx, "list alerts", p, func(p store.Page) ([]belfry.Alert, error) { return c.store.ListAlerts(ctx, namespace, f, p) },
		func(a belfry.Alert) store.Position { return store.Position{ID: a.ID} })
}

// Alert finds an alert.
func (c *Control) Alert(ctx context.Context, namespace string, id belfry.ID) (belfry.Alert, error) {
	a, err := retryRead(ctx, "look up an alert", func() (store.AlertRecord, error) { return c.store.Alert(ctx, namespace, id) })
	return a.Alert, err
}

// AcknowledgeAlert records that somebody takes care: nothing more is sent until the alert
// is resolved.
func (c *Control) AcknowledgeAlert(ctx context.Context, namespace string, id belfry.ID, by string) (acknowledged belfry.Alert, err error) {
	ctx, audit := c.audited(ctx, objectEntry(belfry.AuditAcknowledge, belfry.AuditAlert, namespace, id.String(), ""))
	err = retryUnknown(ctx, "acknowledge an alert", func() error {
		for {
			record, err := c.store.Alert(ctx, namespace, id)
			acknowledged = record.Alert
			if err != nil || record.Status == belfry.AlertAcknowledged {
				return err
			}
			if record.Status == belfry.AlertResolved {
				return belfry.Errorf(belfry.Conflict, "the alert %s is resolved", id)
			}
			audit.SetWhenDone(func([]belfry.ID) []belfry.AuditEntry {
				e := audit.Entry
				e.Object.Name = record.Message
				return []belfry.AuditEntry{e}
			})
			now := c.now()
			record.Status, record.AcknowledgedAt, record.AcknowledgedBy, record.SendAt = belfry.AlertAcknowledged, &now, by, time.Time{}
			if record.SentCount > 0 {
				record.SendAt = now // so that the others know
			}
			acknowledged = record.Alert
			if saved, err := c.store.SaveAlerts(ctx, []store.AlertRecord{record}); err != nil || saved > 0 {
				return err
			}
		}
	})
	return acknowledged, err
}

// maskChannel is a channel that is safe to show.
func maskChannel(c belfry.Channel) belfry.Channel {
	c.URL = maskURL(c.Type, c.URL)
	if c.Secret != "" {
		c.Secret = secret.Masked
	}
	return c
}

// maskURL hides the password of an address and, where they are secrets as well, its path
// and query.
func maskURL(t belfry.ChannelType, text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return text
	}
	masked := u.Scheme + "://"
	if u.User != nil {
		masked += secret.Masked + "@"
	}
	masked += u.Host
	switch {
	case (t == belfry.ChannelSlack || t == belfry.ChannelWebhook) && strings.Trim(u.Path, "/")+u.RawQuery != "":
		return masked + "/" + secret.Masked
	case u.RawQuery != "":
		return masked + u.EscapedPath() + "?" + secret.Masked
	}
	return masked + u.EscapedPath()
}

// unmaskChannel keeps the secrets that a request repeats as they were shown, and a secret
// that it leaves out. It says what is still masked. A secret is not kept for another origin:
// an editor who cannot read it must not be able to use it with another server.
func unmaskChannel(c *belfry.Channel, stored belfry.Channel) (errors []belfry.FieldError) {
	known := stored.Name != "" && stored.Type == c.Type
	if known && c.URL == maskURL(stored.Type, stored.URL) {
		c.URL = stored.URL
	}
	if strings.Contains(c.URL, secret.Masked) {
		errors = append(errors, belfry.FieldError{Field: "url", Message: "is masked; give the whole address (if it contains *** itself, write %2A%2A%2A)"})
	}
	from, _ := validate.Origin(notify.Address(stored))
	to, _ := validate.Origin(notify.Address(*c))
	switch kept := known && (c.Secret == secret.Masked || c.Secret == ""); {
	case kept && stored.Secret != "" && from != to:
		errors = append(errors, belfry.FieldError{Field: "secret", Message: "is not kept, because the url has another origin now; give the secret again, or a new one"})
	case kept:
		c.Secret = stored.Secret
	case c.Secret == secret.Masked:
		errors = append(errors, belfry.FieldError{Field: "secret", Message: "is masked; give the secret itself"})
	}
	return errors
}
