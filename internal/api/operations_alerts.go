package api

import (
	"context"
	"net/http"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/openapi"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	channelsPath = apiPath + "/channels"
	alertsPath   = apiPath + "/alerts"
)

// alertOperations are about alerts and where they are sent.
func (a *api) alertOperations() []operation {
	one := []openapi.Response{openapi.JSON[belfry.Channel](http.StatusOK, "The channel.")}
	return []operation{
		handle(a, openapi.Operation{
			ID: "listChannels", Method: "GET", Path: channelsPath, Group: groupAlerts, Permission: auth.Read, Summary: "List channels",
			Doc: "The channels of the namespace by name, at most 100.", Responses: []openapi.Response{openapi.JSON[[]belfry.Channel](http.StatusOK, "The channels.")},
		}, func(ctx context.Context, r *request, _, _ none) (response, error) {
			channels, err := a.Control.Channels(ctx, r.namespace)
			return response{body: append([]belfry.Channel{}, channels...)}, err
		}),
		handle(a, openapi.Operation{
			ID: "getChannel", Method: "GET", Path: channelsPath + "/{channel}", Group: groupAlerts, Permission: auth.Read, Summary: "Get a channel",
			Doc: "A channel, with how its last messages went. Secrets are shown as `***`.", Responses: one, Errors: []int{notFound},
		}, func(ctx context.Context, r *request, _, _ none) (response, error) {
			return shown(a.Control.Channel(ctx, r.namespace, r.ref))
		}),
		handle(a, openapi.Operation{
			ID: "createChannel", Method: "POST", Path: channelsPath, Group: groupAlerts, Permission: auth.Write, Summary: "Create a channel",
			Doc:      "Creates a channel. The secret that signs the requests of a `webhook` is shown in this answer only.",
			Examples: map[string]string{"Slack": `{"name": "oncall", "type": "slack", "url": "https://hooks.slack.com/services/T0/B0/secret", "alerts": [{"on": "dead"}, {"on": "not_finished", "job": "payroll", "within_seconds": 3600}]}`},
			Errors:   []int{conflict}, Responses: []openapi.Response{openapi.JSON[belfry.Channel](http.StatusCreated, "The channel.", "Location")},
		}, func(ctx context.Context, r *request, _ none, body belfry.Channel) (response, error) {
			if _, err := a.Control.Channel(ctx, r.namespace, body.Name); err == nil {
				return response{}, belfry.Errorf(belfry.Conflict, "there is a channel %q already; choose another name, or replace it", body.Name)
			}
			channel, _, err := a.Control.PutChannel(ctx, r.namespace, body)
			return response{status: http.StatusCreated, header: map[string]string{"Location": channelsPath + "/" + body.Name}, body: channel}, err
		}),
		handle(a, openapi.Operation{
			ID: "putChannel", Method: "PUT", Path: channelsPath + "/{channel}", Group: groupAlerts, Permission: auth.Write, Summary: "Create or replace a channel",
			Doc:       "Replaces a channel, or creates it. What is shown as `***` keeps what is stored, and so does a secret that is left out, as long as the address has the same scheme, host and port.",
			Responses: append([]openapi.Response{openapi.JSON[belfry.Channel](http.StatusCreated, "The channel was created.")}, one...), Errors: []int{conflict},
		}, func(ctx context.Context, r *request, _ none, body belfry.Channel) (response, error) {
			if body.Name != r.ref {
				return response{}, badParameters(belfry.FieldError{Field: "name", Message: "must be the name in the path"})
			}
			channel, created, err := a.Control.PutChannel(ctx, r.namespace, body)
			if created {
				return response{status: http.StatusCreated, body: channel}, err
			}
			return shown(channel, err)
		}),
		handle(a, openapi.Operation{
			ID: "deleteChannel", Method: "DELETE", Path: channelsPath + "/{channel}", Group: groupAlerts, Permission: auth.Write, Summary: "Delete a channel",
			Doc: "Deletes a channel with its alerts.", Responses: []openapi.Response{{Status: http.StatusNoContent, Doc: "It is deleted."}}, Errors: []int{notFound},
		}, func(ctx context.Context, r *request, _, _ none) (response, error) {
			return response{status: http.StatusNoContent}, a.Control.DeleteChannel(ctx, r.namespace, r.ref)
		}),
		handle(a, openapi.Operation{
			ID: "testChannel", Method: "POST", Path: channelsPath + "/{channel}/test", Group: groupAlerts, Permission: auth.Operate, Summary: "Test a channel",
			Doc:       "Sends a message now, and says whether it was accepted.",
			Responses: []openapi.Response{{Status: http.StatusNoContent, Doc: "The receiver accepted it."}}, Errors: errorsWith(notFound, conflict),
		}, func(ctx context.Context, r *request, _, _ none) (response, error) {
			return response{status: http.StatusNoContent}, a.Control.TestChannel(ctx, r.namespace, r.ref)
		}),
		list(a, openapi.Operation{
			ID: "listAlerts", Method: "GET", Path: alertsPath, Group: groupAlerts, Permission: auth.Read, Summary: "List alerts", Doc: "Alerts, the latest first.",
		}, func(ctx context.Context, r *request, f belfry.AlertFilter, p store.Page) ([]belfry.Alert, store.Position, error) {
			return a.Control.Alerts(ctx, r.namespace, f, p)
		}),
		handle(a, openapi.Operation{
			ID: "getAlert", Method: "GET", Path: alertsPath + "/{alert}", Group: groupAlerts, Permission: auth.Read, Summary: "Get an alert", Doc: "An alert.",
			Responses: []openapi.Response{openapi.JSON[belfry.Alert](http.StatusOK, "The alert.")}, Errors: []int{notFound},
		}, func(ctx context.Context, r *request, _, _ none) (response, error) {
			return shown(a.Control.Alert(ctx, r.namespace, r.id))
		}),
		handle(a, openapi.Operation{
			ID: "acknowledgeAlert", Method: "POST", Path: alertsPath + "/{alert}/acknowledge", Group: groupAlerts, Permission: auth.Operate, Summary: "Acknowledge an alert",
			Doc: "Says that somebody takes care: nothing more is sent about the alert until it is resolved.", Optional: true,
			Responses: []openapi.Response{openapi.JSON[belfry.Alert](http.StatusOK, "The alert.")}, Errors: errorsWith(notFound, conflict),
		}, func(ctx context.Context, r *request, _ none, body belfry.Acknowledgement) (response, error) {
			return shown(a.Control.AcknowledgeAlert(ctx, r.namespace, r.id, body.By))
		}),
	}
}
