package belfry

// Claim asks for runs on behalf of one worker incarnation.
type Claim struct {
	WorkerID ID       `json:"-"`     // the incarnation: a fresh id every time a worker starts
	Lanes    []string `json:"lanes"` // what it serves, see Lane
	Limit    int      `json:"limit"` // how many it has room for
}

// Beat tells that a worker is alive. The first one registers it.
type Heartbeat struct {
	WorkerID ID            `json:"-"`
	Node     string        `json:"node,omitempty"` // a name for people
	Slots    int           `json:"slots"`
	Lanes    []string      `json:"lanes"`
	Register bool          `json:"register,omitempty"` // make this incarnation known
	Leave    bool          `json:"leave,omitempty"`    // the worker is gone; it holds nothing any more
	Held     []HeldAttempt `json:"held,omitempty"`     // every attempt it holds; used only if Listed
	Complete bool          `json:"listed,omitempty"`   // claims that are not in Held, and not brand-new, are released
}

// Held names an attempt that a worker believes it holds.
type HeldAttempt struct {
	RunID   ID  `json:"run_id"`
	Attempt int `json:"attempt"`
}

// Orders is the answer to a heartbeat.
type HeartbeatReply struct {
	Unknown bool          `json:"unknown"` // this incarnation was given up: drop everything, register as another
	Lost    []HeldAttempt `json:"lost"`    // listed attempts that are no longer the worker's
	Cancel  []HeldAttempt `json:"cancel"`  // attempts of the worker, listed or not, whose runs somebody cancelled: end them and say so
}
