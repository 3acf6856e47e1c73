package client

import (
	"context"
	"net/http"

	"github.com/belfry-sh/belfry"
)

// Forecast returns how many runs are planned for the next day and week.
func (c *Client) Forecast(ctx context.Context, q belfry.ForecastQuery) (belfry.Forecast, error) {
	return fetch[belfry.Forecast](ctx, c, "forecast", http.MethodGet, apiPath+"/forecast", nil, func(call *call) { call.query = query(q, 0) })
}

// Fleet returns the nodes and workers of the cluster and the state of its database.
func (c *Client) Fleet(ctx context.Context) (belfry.Fleet, error) {
	return fetch[belfry.Fleet](ctx, c, "get fleet", http.MethodGet, apiPath+"/fleet", nil)
}

// Login says how people log in to the server with OpenID Connect. It needs no key.
func (c *Client) Login(ctx context.Context) (belfry.Login, error) {
	return fetch[belfry.Login](ctx, c, "get login", http.MethodGet, apiPath+"/login", nil)
}
