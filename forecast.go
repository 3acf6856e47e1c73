package belfry

import "time"

// Forecast is how many runs are planned for the next day and the next week.
type Forecast struct {
	_           struct{}        `doc:"How many runs the schedules plan: in each minute of the next 24 hours and in each hour of the next 7 days."`
	At          time.Time       `json:"at" example:"2026-12-01T14:30:20Z" doc:"When it was computed."`
	Jobs        int64           `json:"jobs" example:"41250" doc:"Jobs that have a run planned. Paused jobs have none."`
	Sampled     bool            `json:"sampled" example:"false" doc:"Not all jobs were looked at: all numbers are estimates."`
	SampledJobs int             `json:"sampled_jobs" example:"41250" doc:"Jobs that were looked at."`
	DayRuns     int64           `json:"day_runs" example:"180300" doc:"Runs in the next 24 hours."`
	WeekRuns    int64           `json:"week_runs" example:"1262100" doc:"Runs in the next 7 days."`
	MinutesFrom time.Time       `json:"minutes_from" example:"2026-12-01T14:30:00Z" doc:"Beginning of the first minute."`
	Minutes     []int64         `json:"minutes" example:"[120, 118]" doc:"Runs of each minute, 1,440 of them. The first one has what is due by now."`
	HoursFrom   time.Time       `json:"hours_from" example:"2026-12-01T14:00:00Z" doc:"Beginning of the first hour, which has the runs from now on."`
	Hours       []int64         `json:"hours" example:"[3600, 7150]" doc:"Runs of each hour, 168 of them."`
	Spikes      []Spike         `json:"spikes" doc:"The minutes with the most runs, highest first, with what makes them."`
	WithJitter  *JitterForecast `json:"with_jitter,omitempty" doc:"The same with more jitter, if the request asks for that."`
}

// Peak is the most runs of a minute; zero without any.
func (f Forecast) Peak() int64 {
	if len(f.Spikes) == 0 {
		return 0
	}
	return f.Spikes[0].Runs
}

// JitterForecast is a forecast as if all recurring jobs had some jitter.
type JitterForecast struct {
	_             struct{}  `doc:"A forecast as if every recurring job had at least some jitter."`
	JitterSeconds int       `json:"jitter_seconds" example:"300" doc:"The jitter."`
	Peak          int64     `json:"peak" example:"2400" doc:"Runs of the minute with the most."`
	PeakAt        time.Time `json:"peak_at,omitzero" example:"2026-12-02T00:01:00Z" doc:"Beginning of that minute; missing if there are no runs."`
	Minutes       []int64   `json:"minutes" example:"[120, 118]" doc:"Runs of each minute."`
}

// Spike is a minute with many runs.
type Spike struct {
	_         struct{}        `doc:"A minute with many runs."`
	At        time.Time       `json:"at" example:"2026-12-02T00:00:00Z" doc:"Beginning of the minute."`
	Runs      int64           `json:"runs" example:"12000" doc:"Runs in it."`
	Schedules []SpikeSchedule `json:"schedules" doc:"The schedules with the most of them, at most 5."`
}

// SpikeSchedule is the jobs of one schedule that make a spike.
type SpikeSchedule struct {
	_             struct{}   `doc:"Jobs with the same schedule that make a spike."`
	Schedule      string     `json:"schedule" example:"0 0 * * *" doc:"Schedule of the jobs as it was written; for all one-offs 'once'."`
	Timezone      string     `json:"timezone,omitempty" example:"UTC" doc:"Its time zone."`
	JitterSeconds int        `json:"jitter_seconds,omitempty" example:"60" doc:"The jitter of the jobs."`
	Jobs          int64      `json:"jobs" example:"11800" doc:"How many jobs have a run in the minute."`
	Runs          int64      `json:"runs" example:"11800" doc:"How many runs they have in it."`
	Examples      []SpikeJob `json:"examples" doc:"Some of the jobs, at most 3."`
}

// ScheduleOnce stands for the schedules of all one-offs.
const ScheduleOnce = "once"

// SpikeJob is a job that makes a spike.
type SpikeJob struct {
	_     struct{} `doc:"A job."`
	JobID ID       `json:"job_id" example:"01a1de7a-fae0-7c1a-9f3e-2b6d8f4a1c55" doc:"Id of the job."`
	Name  string   `json:"name,omitempty" example:"nightly-report" doc:"Name of the job, if it has one."`
}

// ForecastQuery says what a forecast is about.
type ForecastQuery struct {
	_             struct{} `doc:"What a forecast is about."`
	Queue         string   `json:"queue,omitempty" maxlen:"200" example:"default" doc:"Only jobs in this queue."`
	JitterSeconds int      `json:"jitter_seconds,omitempty" min:"1" max:"86400" example:"300" doc:"Compute also what would be if every recurring job had at least this jitter."`
}
