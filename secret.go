package belfry

import "time"

// MaxSecret is how many bytes the value of a named secret may have.
const MaxSecret = 64 << 10

// Secret is a named value that jobs of its namespace use without containing it.
type Secret struct {
	_                   struct{} `doc:"A named secret. Its value is never shown."`
	Name                string   `json:"name" required:"true" pattern:"^[a-z0-9][a-z0-9._-]{0,62}$" patterndoc:"must be lower-case letters, digits, '.', '_' and '-', at most 63" example:"stripe-key" doc:"Name of the secret, as in '{{secret \"stripe-key\"}}'."`
	Value               string   `json:"value,omitempty" maxlen:"65536" doc:"The value, at most 64 KiB. It is never shown; leave it out to change the rest and keep it."`
	AllowedHosts        []string `json:"allowed_hosts,omitempty" single:"true" maxitems:"20" itemmaxlen:"253" example:"[\"api.stripe.com\"]" doc:"Hosts that jobs may send the value to, '*.example.com' for all within a domain, '*' for any. Unset: as before, and any for a new secret."`
	KeepPreviousSeconds int      `json:"keep_previous_seconds,omitempty" min:"1" max:"2592000" example:"86400" doc:"For how long the value that is replaced stays valid beside the new one, for receivers of signatures; unset: not at all."`

	Namespace     string     `json:"namespace,omitempty" readonly:"true" example:"default" doc:"Namespace of the secret."`
	PreviousUntil *time.Time `json:"previous_until,omitempty" readonly:"true" doc:"Until when the value before it stays valid."`
	CreatedAt     time.Time  `json:"created_at,omitzero" readonly:"true" doc:"When it was created."`
	UpdatedAt     time.Time  `json:"updated_at,omitzero" readonly:"true" doc:"When it was last changed."`
}

// SecretDeletion is what the deletion of a secret may ignore.
type SecretDeletion struct {
	_     struct{} `doc:"How a secret is deleted."`
	Force bool     `json:"force,omitempty" doc:"Delete it although jobs use it. Their attempts fail until they are edited."`
}

// Reencryption is where a pass over all stored secrets is.
type Reencryption struct {
	_       struct{} `doc:"Where a pass over all stored secrets is."`
	After   string   `json:"after,omitempty" maxlen:"300" doc:"Where the pass continues; empty: it begins, or in an answer: it is done."`
	Read    int      `json:"read,omitempty" readonly:"true" doc:"How many rows this step has read."`
	Changed int      `json:"changed,omitempty" readonly:"true" doc:"How many of them it has encrypted, or encrypted anew."`
	Failed  int      `json:"failed,omitempty" readonly:"true" doc:"How many of them cannot be decrypted, and stay as they are."`
}
