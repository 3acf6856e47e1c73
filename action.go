package belfry

// Action is what is done to many jobs at once.
type Action string

// The actions.
const (
	ActionPause   Action = "pause"
	ActionResume  Action = "resume"
	ActionTrigger Action = "trigger"
	ActionDelete  Action = "delete"
	ActionCancel  Action = "cancel"
	ActionRetry   Action = "retry" // redrives the dead letters of the jobs
)

// Actions are all there are.
var Actions = []Action{ActionPause, ActionResume, ActionTrigger, ActionDelete, ActionCancel, ActionRetry}
