package belfry

// CommandPayload is the payload of a job of type command.
type CommandPayload struct {
	_       struct{}          `doc:"What each run of a job of type 'command' executes: a command that the operator of a worker has named in a file. The worker refuses what the file does not allow. Exit status 0 is success."`
	Command string            `json:"command,omitempty" pattern:"^[a-zA-Z0-9._-]{1,80}$" patterndoc:"must have 1 to 80 letters, digits, dots, underscores and hyphens" example:"backup" doc:"Name of the command."`
	Args    []string          `json:"args,omitempty" maxitems:"100" example:"[\"--full\"]" doc:"Arguments after those of the file, each of which must match a pattern there."`
	Env     map[string]string `json:"env,omitempty" maxitems:"100" example:"{\"CUSTOMER\": \"7\"}" doc:"Environment variables that the file lets jobs set."`
	Stdin   string            `json:"stdin,omitempty" doc:"Standard input, if the file lets jobs set it."`
	Shell   string            `json:"shell,omitempty" doc:"Text for '/bin/sh -c' instead of a command. Only a node with the embedded database that was started with '--allow-shell' runs it."`
}

// CommandReport is the output of an attempt of a job of type command.
type CommandReport struct {
	_          struct{} `doc:"How a command ended."`
	ExitStatus int      `json:"exit_status" example:"0" doc:"Exit status; -1 if it did not exit."`
	Signal     string   `json:"signal,omitempty" example:"killed" doc:"Signal that ended it, if one did."`
	Sandbox    string   `json:"sandbox" example:"basic" doc:"Sandbox that the file asks for."`
	Layers     []string `json:"layers" doc:"What really confined the command."`
}
