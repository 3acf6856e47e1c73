package belfry

// Role is what an API key, or a person who has logged in, may do.
type Role string

// The roles. Reader, operator, author and admin may do what those before them may.
const (
	RoleReader   Role = "reader"
	RoleOperator Role = "operator"
	RoleAuthor   Role = "author"
	RoleAdmin    Role = "admin"
	RoleWorker   Role = "worker"
)

// EnumValues lists the roles.
func (Role) EnumValues() []EnumValue {
	return []EnumValue{
		{string(RoleReader), "sees jobs, runs and results"},
		{string(RoleOperator), "also pauses, resumes, triggers, cancels, redrives and discards"},
		{string(RoleAuthor), "also creates, edits and deletes jobs, monitors and channels"},
		{string(RoleAdmin), "also manages API keys and secrets; with all namespaces, namespaces too"},
		{string(RoleWorker), "claims runs and reports results, and nothing else"},
	}
}

// ActorKind is what an actor is.
type ActorKind string

// The kinds of actors.
const (
	ActorKey   ActorKind = "key"   // an API key
	ActorUser  ActorKind = "user"  // a person who has logged in with OpenID Connect
	ActorNode  ActorKind = "node"  // a node by itself
	ActorLocal ActorKind = "local" // anybody, on a server without keys
)

// EnumValues lists the kinds.
func (ActorKind) EnumValues() []EnumValue {
	return []EnumValue{
		{string(ActorKey), "an API key"},
		{string(ActorUser), "a person who has logged in with OpenID Connect"},
		{string(ActorNode), "a node by itself"},
		{string(ActorLocal), "anybody, on a server without keys"},
	}
}

// Actor is who does something.
type Actor struct {
	_    struct{}  `doc:"Who does something."`
	Kind ActorKind `json:"kind" example:"key" doc:"What it is."`
	ID   string    `json:"id,omitempty" example:"k7m2q9d4" doc:"Id of the key, subject of the person, or id of the node."`
	Name string    `json:"name,omitempty" example:"deploy" doc:"Name of the key or person."`
}
