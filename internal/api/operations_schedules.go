package api

import (
	"net/http"

	"github.com/belfry-sh/belfry"
)

const (
	previewPath = "/api/v1/schedules/preview"

	examplePreview = `{"schedule": "30 2 * * *", "timezone": "Europe/Paris", "after": "2027-03-27T12:00:00Z", "count": 2}`

	examplePreviewRule = `{"schedule": "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE;BYHOUR=9;BYMINUTE=0;BYSECOND=0", "timezone": "America/New_York",
 "starts_at": "2027-03-01T00:00:00-05:00", "dst_overlap": "first"}`

	examplePreviewInterval = `{"schedule": "R5/2027-03-01T09:00:00Z/PT15M", "count": 10, "after": "2027-01-01T00:00:00Z"}`

	examplePreviewSpread = `{"schedule": "H H(0-5) * * *", "timezone": "Asia/Tokyo", "dst_gap": "skip"}`
)

// scheduleOperations are those about schedules that no job has yet.
func (a *api) scheduleOperations() []operation {
	return []operation{
		{
			id: "previewSchedule", method: "POST", path: previewPath, group: groupSchedules,
			summary: "Preview a schedule",
			about: "Says in a sentence what a schedule means, warns of what may surprise, and lists its next occurrences with what clocks show then; a note tells where a change of the " +
				"clock moved, skipped or repeated one. Nothing is stored. `H` has another value in each job; here it has the one of a job that there is not. What is wrong is told by " +
				"field and column, with an example of what is right.",
			body: reads[previewInput](map[string]string{
				"A night on which the clock is changed": examplePreview,
				"A calendar rule":                       examplePreviewRule,
				"An interval that ends":                 examplePreviewInterval,
				"At a time that the job decides on":     examplePreviewSpread,
			}),
			answers:  []reply{writes[belfry.Preview](http.StatusOK, "What the schedule means.")},
			refusals: refusing(readRefusals, http.StatusBadRequest),
			handler:  route(a, readPreview, a.previewSchedule),
		},
	}
}
