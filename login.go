package belfry

// Login is how people log in to a server with OpenID Connect.
type Login struct {
	_        struct{} `doc:"How people log in with OpenID Connect, for the command line."`
	Issuer   string   `json:"issuer,omitempty" example:"https://login.example.com" doc:"Address of the issuer. Unset: people use API keys."`
	ClientID string   `json:"client_id,omitempty" example:"belfry" doc:"Id of the client of the command line at the issuer."`
}
