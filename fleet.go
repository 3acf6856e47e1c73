package belfry

import "time"

// Fleet is the processes of a cluster and what they hold.
type Fleet struct {
	_        struct{}      `doc:"The nodes, shards, workers and the database of a cluster."`
	At       time.Time     `json:"at" example:"2026-12-01T14:30:20Z" doc:"When it was read."`
	NodeID   ID            `json:"node_id,omitzero" example:"01a22f39-15c0-7a11-b0c4-6d1e5f7b2d08" doc:"The node that answers."`
	Nodes    []FleetNode   `json:"nodes" doc:"The nodes of the last 24 hours: those that are up first, then the latest; at most 500."`
	NodesAll int           `json:"nodes_total" example:"3" doc:"How many nodes there are in all."`
	NodesUp  int           `json:"nodes_up" example:"3" doc:"How many of them are up."`
	Shards   int           `json:"shards" example:"64" doc:"How many shards the jobs are divided into."`
	Election Election      `json:"election,omitempty" example:"database" doc:"What decides which node owns which shard; missing if one node owns all of them. If nodes differ, it is that of the node that started first."`
	Unowned  []int         `json:"unowned_shards" example:"[]" doc:"Shards that no node owns now: nothing of them is fired."`
	Duties   []FleetDuty   `json:"duties" doc:"What one node does for all of them."`
	Workers  []FleetWorker `json:"workers" doc:"The workers, also those inside nodes, by node; at most 500."`
	Total    FleetTotal    `json:"workers_total" doc:"All workers together."`
	Database FleetDatabase `json:"database" doc:"The database, as the node that answers sees it."`
}

// FleetNode is a node of a fleet.
type FleetNode struct {
	_                  struct{}   `doc:"A node: one process of the cluster."`
	ID                 ID         `json:"node_id" example:"01a22f39-15c0-7a11-b0c4-6d1e5f7b2d08" doc:"Id of the process; another one after a restart."`
	Name               string     `json:"name" example:"node-1" doc:"Name of its machine."`
	Address            string     `json:"address,omitempty" example:"node-1:8080" doc:"Where it listens."`
	Version            string     `json:"version" example:"v1.4.0" doc:"Version of the program."`
	Roles              []string   `json:"roles" example:"[\"api\", \"scheduler\", \"worker\"]" doc:"What it does."`
	State              NodeState  `json:"state" example:"up" doc:"Whether it is alive."`
	Election           Election   `json:"election,omitempty" example:"database" doc:"What it takes part in the election by; missing if it takes part in none now."`
	Shards             []int      `json:"shards" example:"[0, 3]" doc:"The shards that it owns."`
	ClockOffsetSeconds float64    `json:"clock_offset_seconds" example:"0.0004" doc:"How far the clock of the database is ahead of its own."`
	StartedAt          time.Time  `json:"started_at" example:"2026-12-01T09:00:00Z" doc:"When it started."`
	SeenAt             time.Time  `json:"seen_at" example:"2026-12-01T14:30:18Z" doc:"Its last heartbeat."`
	LeftAt             *time.Time `json:"left_at,omitempty" doc:"When it stopped."`
}

// NodeState is whether a node is alive.
type NodeState string

// The states of a node.
const (
	NodeUp   NodeState = "up"
	NodeLost NodeState = "lost"
	NodeLeft NodeState = "left"
)

// EnumValues lists the states.
func (NodeState) EnumValues() []EnumValue {
	return []EnumValue{
		{"up", "its heartbeats come"},
		{"lost", "it gave no sign of life for 20 seconds, and has not stopped"},
		{"left", "it has stopped"},
	}
}

// Election is what decides which node owns which shard.
type Election string

// The elections.
const (
	ElectionDatabase  Election = "database"
	ElectionEtcd      Election = "etcd"
	ElectionZooKeeper Election = "zookeeper"
)

// EnumValues lists the elections.
func (Election) EnumValues() []EnumValue {
	return []EnumValue{
		{"database", "leases in PostgreSQL"},
		{"etcd", "leases in etcd"},
		{"zookeeper", "ephemeral nodes in ZooKeeper"},
	}
}

// FleetDuty is something that one node does for all.
type FleetDuty struct {
	_      struct{} `doc:"Something that one node does for all."`
	Name   string   `json:"name" enum:"alerts,maintenance" example:"alerts" doc:"'alerts' evaluates and sends alerts; 'maintenance' deletes old records and measures the cluster."`
	NodeID ID       `json:"node_id,omitzero" example:"01a22f39-15c0-7a11-b0c4-6d1e5f7b2d08" doc:"The node that does it; missing if none does now."`
	Node   string   `json:"node,omitempty" example:"node-1" doc:"Name of the machine of the node."`
}

// FleetWorker is a worker of a fleet.
type FleetWorker struct {
	_         struct{}  `doc:"A worker: it executes runs, inside a node or in a program of its own."`
	ID        ID        `json:"worker_id" example:"01a22f39-15c0-7a11-b0c4-6d1e5f7b2d08" doc:"Id of the worker, as the attempts of runs have it."`
	Node      string    `json:"node,omitempty" example:"node-1" doc:"The machine that it says it runs on."`
	Namespace string    `json:"namespace,omitempty" example:"default" doc:"Namespace of its runs; missing for a worker inside a node, which serves all of them."`
	Queues    []string  `json:"queues" example:"[\"default\"]" doc:"The queues that it serves."`
	Handlers  []string  `json:"handlers" example:"[\"send-invoice\"]" doc:"The handlers that it has."`
	Slots     int       `json:"slots" example:"10" doc:"How many runs it executes at once."`
	Busy      int       `json:"busy" example:"4" doc:"How many it executes now."`
	StartedAt time.Time `json:"started_at" example:"2026-12-01T09:00:00Z" doc:"When it registered."`
	SeenAt    time.Time `json:"seen_at" example:"2026-12-01T14:30:18Z" doc:"Its last heartbeat."`
}

// FleetTotal is all workers of a fleet together.
type FleetTotal struct {
	_       struct{} `doc:"Workers together."`
	Workers int      `json:"workers" example:"12" doc:"How many workers there are."`
	Slots   int      `json:"slots" example:"120" doc:"How many runs they execute at once."`
	Busy    int      `json:"busy" example:"35" doc:"How many they execute now; counted up to 100,000."`
}

// FleetDatabase is the database of a fleet.
type FleetDatabase struct {
	_              struct{}    `doc:"The database."`
	Kind           string      `json:"kind" enum:"postgresql,sqlite" example:"postgresql" doc:"Which one."`
	Version        string      `json:"version" example:"16.4" doc:"Its version."`
	Bytes          int64       `json:"bytes" example:"73400320" doc:"Its size on disk."`
	LatencySeconds float64     `json:"latency_seconds" example:"0.0006" doc:"How long it took to answer the simplest question."`
	Pools          []FleetPool `json:"pools" doc:"Connections of the node that answers."`
}

// FleetPool is how connections to the database are used.
type FleetPool struct {
	_     struct{} `doc:"Connections of a node for one purpose."`
	Name  string   `json:"name" example:"main" doc:"What they are for."`
	Max   int      `json:"max" example:"10" doc:"How many there may be."`
	InUse int      `json:"in_use" example:"2" doc:"How many are used now."`
	Idle  int      `json:"idle" example:"3" doc:"How many are open and not used."`
}
