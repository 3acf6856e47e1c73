package belfry

import "encoding/json"

// HTTPPayload is the payload of a job of type http: the request that each of its runs
// makes. A response with status 2xx is success.
type HTTPPayload struct {
	_       struct{}          `doc:"The request that each run of a job of type 'http' makes. A response with status 2xx is success."`
	URL     string            `json:"url" required:"true" pattern:"^(?i:https?)://" patterndoc:"must begin with http:// or https://" maxlen:"2048" example:"https://example.com/hooks/report" doc:"Address of the request. It must not contain a user name or password; use a header."`
	Method  string            `json:"method,omitempty" enum:"GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS" implicit:"POST" example:"POST" doc:"Method of the request."`
	Headers map[string]string `json:"headers,omitempty" maxitems:"64" example:"{\"Accept\": \"application/json\"}" doc:"Headers of the request. Headers that the connection or Belfry sets, such as 'Host' and 'Idempotency-Key', cannot be set."`
	Body    json.RawMessage   `json:"body,omitempty" example:"{\"format\": \"pdf\"}" doc:"Body of the request. A string is sent as it is, any other value as JSON."`
}

// Content is the body to send and its content type unless a header sets another. A
// string is sent as it is, any other value as JSON.
func (p HTTPPayload) Content() (body []byte, contentType string) {
	if len(p.Body) == 0 {
		return nil, ""
	}
	var text string
	if p.Body[0] != '"' || json.Unmarshal(p.Body, &text) != nil {
		return p.Body, "application/json"
	}
	return []byte(text), "text/plain; charset=utf-8"
}
