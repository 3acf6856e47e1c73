package api

import (
	"context"
	"net/http"

	"github.com/belfry-sh/belfry"
	"github.com/belfry-sh/belfry/internal/auth"
	"github.com/belfry-sh/belfry/internal/openapi"
)

// fleetOperations are about all jobs and all nodes.
func (a *api) fleetOperations() []operation {
	return []operation{
		handle(a, openapi.Operation{
			ID: "getForecast", Method: "GET", Path: apiPath + "/forecast", Group: groupSchedules, Permission: auth.Read, Summary: "Forecast the runs",
			Doc: "How many runs the schedules of the namespace plan for each minute of the next 24 hours and each hour of the next 7 days, and which schedules make the highest minutes. " +
				"With `jitter_seconds` it says also what the minutes would be if every recurring job had at least that jitter. " +
				"Runs whose jitter is not known yet are spread evenly over it. Up to 20,000 jobs are all computed; of more a sample is, which the answer says. It may be 5 seconds old.",
			Responses: []openapi.Response{openapi.JSON[belfry.Forecast](http.StatusOK, "The forecast.")},
		}, func(ctx context.Context, r *request, q belfry.ForecastQuery, _ none) (response, error) {
			return shown(a.Control.Forecast(ctx, r.namespace, q))
		}),
		handle(a, openapi.Operation{
			ID: "getFleet", Method: "GET", Path: apiPath + "/fleet", Group: groupServer, Permission: auth.Read, Summary: "Get the nodes, workers and the database",
			Doc:    "The nodes of the cluster with the shards that they own, the workers with their slots, and the database. It may be 2 seconds old.",
			Global: true, Responses: []openapi.Response{openapi.JSON[belfry.Fleet](http.StatusOK, "The fleet.")},
		}, func(ctx context.Context, _ *request, _, _ none) (response, error) {
			return shown(a.Control.Fleet(ctx))
		}),
	}
}
