package api

import (
	"context"
	"net/http"
	"reflect"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/openapi"
	"github.com/belfry-sh/belfry/internal/store"
)

const (
	channelsPath = apiPath + "/channels"
	alertsPath   = apiPath + "/alerts"
)

func (a *api) alertOperations() []operation {
	one := []openapi.Response{openapi.JSON[belfry.Channel](http.StatusOK, "The channel.")}
	return []operation{
		handle(a, openapi.Operation{
			ID: "listChannels", Method: "GET", Path: channelsPath, Group: groupAlerts, Permission: auth.Read, Summary: "List channels",
			Doc: "The channels of the namespace by name, at most 100.", Responses: []openapi.Response{openapi.JSON[[]belfry.Channel](http.StatusOK, "The channels.")},
		}, func(ctx context.Context, r *request, _, _ none) (response, error) {
			return shownAll(a.Control.Channels(ctx, r.namespace))
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
				return response{}, badParameters(nameInPath)
			}
			return putResponse(a.Control.PutChannel(ctx, r.namespace, body))
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
		}, inNamespace(a.Control.Alerts)),
		handle(a, openapi.Operation{
			ID: "getAlert", Method: "GET", Path: alertsPath + "/{alert}", Group: groupAlerts, Permission: auth.Read, Summary: "Get an alert", Doc: "An alert.",
			Responses: []openapi.Response{openapi.JSON[belfry.Alert](http.StatusOK, "The alert.")}, Errors: []int{notFound},
		}, byID(a.Control.Alert)),
		handle(a, openapi.Operation{
			ID: "acknowledgeAlert", Method: "POST", Path: alertsPath + "/{alert}/acknowledge", Group: groupAlerts, Permission: auth.Operate, Summary: "Acknowledge an alert",
			Doc: "Says that somebody takes care: nothing more is sent about the alert until it is resolved.", Optional: true,
			Responses: []openapi.Response{openapi.JSON[belfry.Alert](http.StatusOK, "The alert.")}, Errors: errorsWith(notFound, conflict),
		}, func(ctx context.Context, r *request, _ none, body belfry.Acknowledgement) (response, error) {
			return shown(a.Control.AcknowledgeAlert(ctx, r.namespace, r.id, body.By))
		}),
	}
}

const (
	monitorsPath = apiPath + "/monitors"
	pingPath     = "/ping/"
)

var (
	monitorType     = reflect.TypeFor[belfry.Monitor]()
	monitorResponse = openapi.JSON[belfry.Monitor](http.StatusOK, "The monitor.")
	monitorExamples = map[string]string{"Once a day": `{"name": "backup", "every_seconds": 86400, "grace_seconds": 7200}`,
		"By the clock": `{"name": "report", "cron": "0 3 * * MON-FRI", "timezone": "Europe/Berlin", "grace_seconds": 900, "tags": ["finance"]}`}
)

// monitorBody is the body of a request that declares a monitor, or changes one.
type monitorBody struct{ patchBody[belfry.Monitor] }

// patch sets the fields that the body has. Of every_seconds and cron the one that is given
// replaces the other.
func (b *monitorBody) patch(m *belfry.Monitor) []belfry.FieldError {
	fields, errors := b.set(m)
	switch every, cron := fields.Has("every_seconds"), fields.Has("cron"); {
	case every && !cron && m.EverySeconds != 0:
		m.Cron = ""
		if !fields.Has("timezone") {
			m.Timezone = ""
		}
	case cron && !every && m.Cron != "":
		m.EverySeconds = 0
	}
	return errors
}

func (a *api) monitorOperations() []operation {
	return append([]operation{
		handle(a, openapi.Operation{
			ID: "createMonitor", Method: "POST", Path: monitorsPath, Group: groupMonitors, Permission: auth.Write, Summary: "Create a monitor",
			Doc:  "The answer has the address to ping. Nothing is expected before the first ping.",
			Body: monitorType, Examples: monitorExamples,
			Responses: []openapi.Response{openapi.JSON[belfry.Monitor](http.StatusCreated, "The monitor.", "Location")}, Errors: errorsWith(conflict),
		}, func(ctx context.Context, r *request, _ none, body monitorBody) (response, error) {
			m, err := a.Control.CreateMonitor(ctx, r.namespace, body.patch)
			return r.putMonitor(m, true, err)
		}),
		list(a, openapi.Operation{
			ID: "listMonitors", Method: "GET", Path: monitorsPath, Group: groupMonitors, Permission: auth.Read, Summary: "List monitors", Doc: "The monitors of the namespace, newest first.",
		}, func(ctx context.Context, r *request, _ none, p store.Page) ([]belfry.Monitor, store.Position, error) {
			monitors, next, err := a.Control.ListMonitors(ctx, r.namespace, p)
			for i := range monitors {
				monitors[i].PingURL = r.pingURL(monitors[i])
			}
			return monitors, next, err
		}),
		handle(a, openapi.Operation{
			ID: "getMonitor", Method: "GET", Path: monitorsPath + "/{monitor}", Group: groupMonitors, Permission: auth.Read, Summary: "Get a monitor",
			Doc: "The monitor with its status now.", Responses: []openapi.Response{monitorResponse}, Errors: []int{notFound},
		}, func(ctx context.Context, r *request, _, _ none) (response, error) {
			return r.shownMonitor(a.Control.Monitor(ctx, r.namespace, r.ref))
		}),
		handle(a, openapi.Operation{
			ID: "putMonitor", Method: "PUT", Path: monitorsPath + "/{monitor}", Group: groupMonitors, Permission: auth.Write, Summary: "Create or replace a monitor",
			Doc: "With a name, creates the monitor or gives it the settings of the body; with an id, it must exist. Settings that are left out have their defaults. " +
				"Its address and its pings stay.",
			Body: monitorType, Patch: true, Examples: map[string]string{"Once a day": `{"every_seconds": 86400, "grace_seconds": 7200}`},
			Responses: []openapi.Response{monitorResponse, openapi.JSON[belfry.Monitor](http.StatusCreated, "The monitor was created.", "Location")}, Errors: errorsWith(notFound, conflict),
		}, func(ctx context.Context, r *request, _ none, body monitorBody) (response, error) {
			return r.putMonitor(a.Control.PutMonitor(ctx, r.namespace, r.ref, body.patch))
		}),
		handle(a, openapi.Operation{
			ID: "editMonitor", Method: "PATCH", Path: monitorsPath + "/{monitor}", Group: groupMonitors, Permission: auth.Write, Summary: "Edit a monitor",
			Doc: "Changes the settings that are given; null sets one back to its default. `every_seconds` replaces `cron`, and the other way round. If the schedule changes, or " +
				"the monitor is resumed with `\"paused\": false`, the next ping is expected from now on.",
			Body: monitorType, Patch: true, Examples: map[string]string{"Pause": `{"paused": true}`, "More time": `{"grace_seconds": 14400}`},
			Responses: []openapi.Response{monitorResponse}, Errors: errorsWith(notFound, conflict),
		}, func(ctx context.Context, r *request, _ none, body monitorBody) (response, error) {
			return r.shownMonitor(a.Control.EditMonitor(ctx, r.namespace, r.ref, body.patch))
		}),
		handle(a, openapi.Operation{
			ID: "deleteMonitor", Method: "DELETE", Path: monitorsPath + "/{monitor}", Group: groupMonitors, Permission: auth.Write, Summary: "Delete a monitor",
			Doc: "Its address no longer accepts pings.", Responses: []openapi.Response{{Status: http.StatusNoContent, Doc: "The monitor is deleted."}}, Errors: []int{notFound},
		}, func(ctx context.Context, r *request, _, _ none) (response, error) {
			return response{status: http.StatusNoContent}, a.Control.DeleteMonitor(ctx, r.namespace, r.ref)
		}),
	}, a.pingOperations()...)
}

func (in *request) shownMonitor(m belfry.Monitor, err error) (response, error) {
	m.PingURL = in.pingURL(m)
	return response{body: m}, err
}

func (in *request) putMonitor(m belfry.Monitor, created bool, err error) (response, error) {
	out, err := in.shownMonitor(m, err)
	if created {
		out.status, out.header = http.StatusCreated, map[string]string{"Location": monitorsPath + "/" + m.ID.String()}
	}
	return out, err
}

// pingURL is the address of a monitor under which the server received the request.
func (in *request) pingURL(m belfry.Monitor) string { return in.address + pingPath + m.Token.String() }

// pingOperations take pings. The token in the path is all that they need.
func (a *api) pingOperations() (list []operation) {
	for _, p := range []struct {
		id, path, says string
		kind           belfry.PingKind
	}{
		{"Success", "", "the work has succeeded", belfry.PingSuccess},
		{"Start", "/start", "the work begins; the next ping must come within the grace time", belfry.PingStart},
		{"Fail", "/fail", "the work has failed", belfry.PingFail},
	} {
		for _, method := range []string{"GET", "POST"} {
			list = append(list, operation{openapi.Operation{
				ID: map[string]string{"GET": "ping", "POST": "postPing"}[method] + p.id, Method: method, Path: pingPath + "{token}" + p.path, Group: groupMonitors, Permission: auth.Public,
				Summary: "Ping: " + p.says, Doc: "Needs no key: the token is in the address. `HEAD` works as well, and a body is ignored. Pings that say the same within a second are recorded once.",
				Global: true, Responses: []openapi.Response{{Status: http.StatusOK, Doc: "The ping is recorded.", Media: "text/plain"}}, Errors: []int{notFound},
			}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
				defer cancel()
				if err := a.Control.Ping(ctx, r.PathValue("token"), p.kind); err != nil {
					a.fail(w, r, err)
					return
				}
				write(w, http.StatusOK, "text/plain; charset=utf-8", []byte("ok\n"))
			})})
		}
	}
	return list
}
