package belfry

import (
	"encoding/json"
	"time"
)

// AuditEntry is a change that somebody made. It is written in the transaction of the change.
type AuditEntry struct {
	_         struct{}        `doc:"A change that somebody made: who, when, and what. What nodes do by themselves has none."`
	ID        ID              `json:"audit_id" example:"01a22f39-15c0-7d3b-a6c4-90e15f7b2d08" doc:"Id of the entry. Ids are in the order of time."`
	At        time.Time       `json:"at" example:"2026-12-01T09:12:30.004Z" doc:"When the change was requested."`
	Actor     Actor           `json:"actor" doc:"Who made it."`
	Address   string          `json:"address,omitempty" example:"192.0.2.7" doc:"Address that the request came from."`
	RequestID string          `json:"request_id,omitempty" example:"01a22f39-15c0-7a11-b0c4-6d1e5f7b2d08" doc:"Id of the request, which the log of the server has too. The changes of a bulk action have the same."`
	Namespace string          `json:"namespace,omitempty" example:"default" doc:"Namespace of the object; none for what belongs to no namespace."`
	Action    AuditAction     `json:"action" example:"edit" doc:"What was done."`
	Object    AuditObject     `json:"object" doc:"What it was done to."`
	JobID     ID              `json:"job_id,omitzero" example:"01a1de7a-fae0-7c1a-9f3e-2b6d8f4a1c55" doc:"The job, if the change is about one or its runs."`
	Before    json.RawMessage `json:"before,omitempty" form:"object" doc:"The fields that changed, as they were, by their names. Secrets are '***', and long values are cut."`
	After     json.RawMessage `json:"after,omitempty" form:"object" doc:"The same fields as they are since, or what was asked for."`
	Count     int             `json:"count,omitempty" example:"20000" doc:"How many jobs or runs, if there may be several."`
}

// AuditObject is what a change was made to.
type AuditObject struct {
	_      struct{}  `doc:"What a change was made to."`
	Kind   AuditKind `json:"kind" example:"job" doc:"What it is."`
	ID     string    `json:"id,omitempty" example:"01a1de7a-fae0-7c1a-9f3e-2b6d8f4a1c55" doc:"Its id, if it has one; of an import that of the first job."`
	LastID ID        `json:"last_id,omitzero" example:"01a1de7a-fae0-7c1a-9f3e-2b6d91c0a7e4" doc:"Of an import: id of the last job. The ids of its jobs are between the two."`
	Name   string    `json:"name,omitempty" example:"nightly-report" doc:"Its name at that time."`
}

// AuditFilter selects audit entries.
type AuditFilter struct {
	_      struct{}    `doc:"Selects audit entries. Fields that are left out match everything."`
	Job    string      `json:"job,omitempty" maxlen:"200" example:"nightly-report" doc:"Only changes of this job and its runs, by its id or name; of a deleted job by its id."`
	Actor  string      `json:"actor,omitempty" maxlen:"200" example:"deploy" doc:"Only changes of this key or person, by id or name."`
	Action AuditAction `json:"action,omitempty" example:"edit" doc:"Only changes of this kind."`
	Since  time.Time   `json:"since,omitzero" example:"2026-12-01T00:00:00Z" doc:"Only changes at this instant or later."`
	Until  time.Time   `json:"until,omitzero" example:"2026-12-02T00:00:00Z" doc:"Only changes at an earlier instant."`
	Scope  AuditScope  `json:"scope,omitempty" implicit:"namespace" doc:"Where to look. All but 'namespace' need the role admin for all namespaces."`
	JobID  ID          `json:"-"` // of Job, once it is resolved
}

// AuditScope is which entries a list is about.
type AuditScope string

// The scopes.
const (
	AuditNamespace AuditScope = "namespace"
	AuditGlobal    AuditScope = "global"
	AuditAll       AuditScope = "all"
)

// EnumValues lists the scopes.
func (AuditScope) EnumValues() []EnumValue {
	return []EnumValue{
		{string(AuditNamespace), "the namespace of the request"},
		{string(AuditGlobal), "what belongs to no namespace, such as logins"},
		{string(AuditAll), "everything"},
	}
}

// AuditKind is what the object of a change is.
type AuditKind string

// The kinds of objects.
const (
	AuditJob     AuditKind = "job"
	AuditRun     AuditKind = "run"
	AuditChannel AuditKind = "channel"
	AuditAlert   AuditKind = "alert"
	AuditMonitor AuditKind = "monitor"
	AuditSession AuditKind = "session"
	AuditKey     AuditKind = "key"
	AuditSecret  AuditKind = "secret"
	AuditTenant  AuditKind = "namespace"
)

// EnumValues lists the kinds.
func (AuditKind) EnumValues() []EnumValue {
	return []EnumValue{
		{string(AuditJob), "a job, or the jobs of an import"},
		{string(AuditRun), "a run or a dead letter"},
		{string(AuditChannel), "a channel for alerts"},
		{string(AuditAlert), "an alert"},
		{string(AuditMonitor), "a monitor"},
		{string(AuditSession), "a login to the page"},
		{string(AuditKey), "an API key"},
		{string(AuditSecret), "a named secret"},
		{string(AuditTenant), "a namespace and its quota"},
	}
}

// AuditAction is what was done.
type AuditAction string

// The actions.
const (
	AuditCreate      AuditAction = "create"
	AuditEdit        AuditAction = "edit"
	AuditRollback    AuditAction = "rollback"
	AuditDelete      AuditAction = "delete"
	AuditImport      AuditAction = "import"
	AuditPause       AuditAction = "pause"
	AuditResume      AuditAction = "resume"
	AuditCancel      AuditAction = "cancel"
	AuditTrigger     AuditAction = "trigger"
	AuditBackfill    AuditAction = "backfill"
	AuditRedrive     AuditAction = "redrive"
	AuditDiscard     AuditAction = "discard"
	AuditAcknowledge AuditAction = "acknowledge"
	AuditTest        AuditAction = "test"
	AuditLogin       AuditAction = "login"
	AuditLoginFailed AuditAction = "login_failed"
	AuditLogout      AuditAction = "logout"
	AuditRotate      AuditAction = "rotate"
	AuditRevoke      AuditAction = "revoke"
)

// EnumValues lists the actions.
func (AuditAction) EnumValues() []EnumValue {
	return []EnumValue{
		{string(AuditCreate), "something was created"},
		{string(AuditEdit), "its settings were changed"},
		{string(AuditRollback), "a job got an earlier revision"},
		{string(AuditDelete), "it was deleted"},
		{string(AuditImport), "many jobs were created at once"},
		{string(AuditPause), "a job was paused"},
		{string(AuditResume), "a job was resumed"},
		{string(AuditCancel), "a job or a run was cancelled"},
		{string(AuditTrigger), "a run was requested"},
		{string(AuditBackfill), "runs of past occurrences were requested"},
		{string(AuditRedrive), "dead letters were made runs again"},
		{string(AuditDiscard), "dead letters were discarded"},
		{string(AuditAcknowledge), "an alert was acknowledged"},
		{string(AuditTest), "a channel was tested"},
		{string(AuditLogin), "somebody logged in to the page"},
		{string(AuditLoginFailed), "somebody tried to log in and could not"},
		{string(AuditLogout), "somebody logged out"},
		{string(AuditRotate), "a key or secret got a successor"},
		{string(AuditRevoke), "a key was revoked"},
	}
}
