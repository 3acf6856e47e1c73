package belfry

import "time"

// Preview is what a schedule means.
type Preview struct {
	Schedule    string       `json:"schedule"`
	Resolved    string       `json:"resolved_schedule,omitempty"` // with every H replaced; empty if there is none
	Timezone    string       `json:"timezone"`
	StartsAt    time.Time    `json:"starts_at,omitzero"` // also if it is only what the schedule would be counted from
	ZoneVersion string       `json:"zone_version"`
	Description string       `json:"description"`
	Warnings    []string     `json:"warnings"` // what may surprise somebody; never nil
	Next        []Occurrence `json:"next"`     // never nil
}

// Occurrence is an instant that a schedule names, as people see it.
type Occurrence struct {
	At      time.Time `json:"at"`             // in UTC
	Local   string    `json:"local"`          // in the time zone, with its offset
	Weekday string    `json:"weekday"`        // of the local time
	Note    string    `json:"note,omitempty"` // what a change of the clock has to do with it; mostly empty
}
