package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"github.com/belfry-sh/belfry"
)

const (
	channelsPath = apiPath + "/channels"
	alertsPath   = apiPath + "/alerts"
)

// Channels lists the channels by name.
func (c *Client) Channels(ctx context.Context) ([]belfry.Channel, error) {
	return fetch[[]belfry.Channel](ctx, c, "list channels", http.MethodGet, channelsPath, nil)
}

// Channel returns a channel.
func (c *Client) Channel(ctx context.Context, name string) (belfry.Channel, error) {
	return fetch[belfry.Channel](ctx, c, "get channel", http.MethodGet, channelsPath+"/"+url.PathEscape(name), nil)
}

// CreateChannel creates a channel. A name that is taken is a belfry.Conflict. The secret of
// a webhook is in the result, and in no other.
func (c *Client) CreateChannel(ctx context.Context, channel belfry.Channel) (belfry.Channel, error) {
	return fetch[belfry.Channel](ctx, c, "create channel", http.MethodPost, channelsPath, channel)
}

// PutChannel creates the channel of a name, or replaces it. The channel may be anything
// that is written as the JSON of one. It reports whether the channel was created, unless
// the answer to an earlier try was lost.
func (c *Client) PutChannel(ctx context.Context, name string, channel any) (saved belfry.Channel, created bool, err error) {
	a, err := c.json(ctx, newCall("put channel", http.MethodPut, channelsPath+"/"+url.PathEscape(name)), channel, &saved)
	return saved, err == nil && a.status == http.StatusCreated, err
}

// DeleteChannel deletes a channel with its alerts.
func (c *Client) DeleteChannel(ctx context.Context, name string) error {
	_, err := c.do(ctx, newCall("delete channel", http.MethodDelete, channelsPath+"/"+url.PathEscape(name)))
	return err
}

// TestChannel sends a message through a channel. The error says why the receiver did not
// take it.
func (c *Client) TestChannel(ctx context.Context, name string) error {
	_, err := c.do(ctx, newCall("test channel", http.MethodPost, channelsPath+"/"+url.PathEscape(name)+"/test"))
	return err
}

// Alerts lists alerts, latest first, like Jobs.
func (c *Client) Alerts(ctx context.Context, filter belfry.AlertFilter) iter.Seq2[belfry.Alert, error] {
	return pages[belfry.Alert](ctx, c, "list alerts", alertsPath, query(filter, 0))
}

// Alert returns an alert.
func (c *Client) Alert(ctx context.Context, id belfry.ID) (belfry.Alert, error) {
	return fetch[belfry.Alert](ctx, c, "get alert", http.MethodGet, alertsPath+"/"+id.String(), nil)
}

// AcknowledgeAlert says that somebody takes care of an alert.
func (c *Client) AcknowledgeAlert(ctx context.Context, id belfry.ID, by string) (belfry.Alert, error) {
	return fetch[belfry.Alert](ctx, c, "acknowledge alert", http.MethodPost, alertsPath+"/"+id.String()+"/acknowledge", belfry.Acknowledgement{By: by})
}

const monitorsPath = apiPath + "/monitors"

func monitorPath(ref string) string { return monitorsPath + "/" + url.PathEscape(ref) }

// CreateMonitor creates a monitor. Its PingURL is the address to ping. A name that is taken is
// a belfry.Conflict.
func (c *Client) CreateMonitor(ctx context.Context, m belfry.Monitor) (belfry.Monitor, error) {
	once := func(q *call) { q.once = true } // a second try would find the name taken
	return fetch[belfry.Monitor](ctx, c, "create monitor", http.MethodPost, monitorsPath, m, once)
}

// PutMonitor creates the monitor of a name, or gives it the settings of m.
func (c *Client) PutMonitor(ctx context.Context, name string, m belfry.Monitor) (belfry.Monitor, error) {
	return fetch[belfry.Monitor](ctx, c, "put monitor", http.MethodPut, monitorPath(name), m)
}

// EditMonitor changes the settings that changes has when it is written as JSON: a map, a
// json.RawMessage, or a belfry.Monitor, of which the settings that are set count.
func (c *Client) EditMonitor(ctx context.Context, ref string, changes any) (belfry.Monitor, error) {
	return fetch[belfry.Monitor](ctx, c, "edit monitor", http.MethodPatch, monitorPath(ref), changes)
}

// Monitor returns a monitor.
func (c *Client) Monitor(ctx context.Context, ref string) (belfry.Monitor, error) {
	return fetch[belfry.Monitor](ctx, c, "get monitor", http.MethodGet, monitorPath(ref), nil)
}

// Monitors lists monitors, newest first, like Jobs.
func (c *Client) Monitors(ctx context.Context) iter.Seq2[belfry.Monitor, error] {
	return pages[belfry.Monitor](ctx, c, "list monitors", monitorsPath, nil)
}

// DeleteMonitor deletes a monitor. One that does not exist is a belfry.NotFound.
func (c *Client) DeleteMonitor(ctx context.Context, ref string) error {
	_, err := c.do(ctx, newCall("delete monitor", http.MethodDelete, monitorPath(ref)))
	return err
}
