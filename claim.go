package belfry

// Claim asks for runs on behalf of one worker incarnation.
type Claim struct {
	Worker ID       // the incarnation: a fresh id every time a worker starts
	Lanes  []string // what it serves, see Spec.Lane
	Limit  int      // how many it has room for
}

// Beat tells that a worker is alive. The first one registers it.
type Beat struct {
	Worker   ID
	Node     string // a name for people
	Slots    int
	Lanes    []string
	Register bool   // make this incarnation known
	Leave    bool   // the worker is gone; it holds nothing any more
	Held     []Held // every attempt it holds; used only if Listed
	Listed   bool   // claims that are not in Held, and not brand-new, are released
}

// Held names an attempt that a worker believes it holds.
type Held struct {
	RunID   ID
	Attempt int
}

// Orders is the answer to a heartbeat.
type Orders struct {
	Unknown bool   // this incarnation was given up: drop everything, register as another
	Lost    []Held // listed attempts that are no longer the worker's
}
