package belfry

import "time"

// APIKey is what whoever has a key of the database may do.
type APIKey struct {
	_              struct{}      `doc:"An API key: what whoever has it may do."`
	Name           string        `json:"name,omitempty" maxlen:"64" pattern:"^[A-Za-z0-9._-]+$" patterndoc:"must be letters, digits, dots, underscores and hyphens" example:"deploy" doc:"Name of the key, for people."`
	Role           Role          `json:"role,omitempty" required:"true" example:"author" doc:"What it may do."`
	Namespaces     []string      `json:"namespaces,omitempty" maxitems:"100" itemmaxlen:"63" example:"[\"billing\"]" doc:"Namespace that it may use; all of them unless set."`
	Queues         []string      `json:"queues,omitempty" maxitems:"20" itemmaxlen:"64" example:"[\"default\"]" doc:"Queue that a worker may claim from; all of them unless set."`
	Commands       bool          `json:"commands,omitempty" doc:"May create jobs of type 'command', and choose what they execute. An admin of all namespaces always may."`
	ExpiresSeconds Optional[int] `json:"expires_seconds,omitzero" min:"0" max:"315360000" zero:"never" doc:"After how long it expires; 0 is never. Unset it is 90 days, or never for the first key of all. Only in requests."`

	ID         string       `json:"key_id,omitempty" readonly:"true" example:"k7m2q9d4" doc:"Id of the key: its part that is not secret."`
	Key        string       `json:"key,omitempty" readonly:"true" doc:"The key itself. It is in the answer that creates it, and in no other."`
	Status     APIKeyStatus `json:"status,omitempty" readonly:"true" example:"active" doc:"Whether it is accepted."`
	CreatedAt  time.Time    `json:"created_at,omitzero" readonly:"true" doc:"When it was created."`
	CreatedBy  *Actor       `json:"created_by,omitempty" readonly:"true" doc:"Who created it."`
	ExpiresAt  *time.Time   `json:"expires_at,omitempty" readonly:"true" doc:"When it expires, if it does."`
	LastUsedAt *time.Time   `json:"last_used_at,omitempty" readonly:"true" doc:"When it was last used, to the minute."`
	RevokedAt  *time.Time   `json:"revoked_at,omitempty" readonly:"true" doc:"When it was revoked."`
	ReplacedBy string       `json:"replaced_by,omitempty" readonly:"true" doc:"Id of the key that it was rotated to."`
}

// APIKeyStatus says whether a key is accepted.
type APIKeyStatus string

// The statuses of keys.
const (
	APIKeyActive  APIKeyStatus = "active"
	APIKeyExpired APIKeyStatus = "expired"
	APIKeyRevoked APIKeyStatus = "revoked"
)

// EnumValues lists the statuses.
func (APIKeyStatus) EnumValues() []EnumValue {
	return []EnumValue{
		{string(APIKeyActive), "it is accepted"},
		{string(APIKeyExpired), "its time is over"},
		{string(APIKeyRevoked), "somebody has revoked it"},
	}
}

// StatusAt is the status at an instant.
func (k APIKey) StatusAt(now time.Time) APIKeyStatus {
	switch {
	case k.RevokedAt != nil:
		return APIKeyRevoked
	case k.ExpiresAt != nil && !now.Before(*k.ExpiresAt):
		return APIKeyExpired
	}
	return APIKeyActive
}

// APIKeyRotation is how a key is rotated.
type APIKeyRotation struct {
	_              struct{}      `doc:"How a key is rotated."`
	OverlapSeconds Optional[int] `json:"overlap_seconds,omitzero" min:"0" max:"31536000" implicit:"86400" doc:"For how long the old key is still accepted."`
}
