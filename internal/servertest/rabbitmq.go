package servertest

import (
	"net"
	"testing"

	"github.com/belfry-sh/belfry/internal/porttest"
)

// rabbitMQ runs the port mapper of Erlang beside the server: one that the server starts itself
// is a daemon, which would outlive the test.
const rabbitMQ = `epmd & exec "$@"`

// RabbitMQ starts Debian's RabbitMQ, with the user guest (password guest). It takes about ten
// seconds.
func RabbitMQ(tb testing.TB) *Server {
	tb.Helper()
	path := program(tb, "/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server")
	_, mapper, _ := net.SplitHostPort(porttest.Addr(tb))
	_, distribution, _ := net.SplitHostPort(porttest.Addr(tb))
	return start(tb, accepts, []string{
		"HOME={dir}", "ERL_EPMD_ADDRESS={host}", "ERL_EPMD_PORT=" + mapper,
		"RABBITMQ_NODENAME=test@localhost", "RABBITMQ_NODE_IP_ADDRESS={host}", "RABBITMQ_NODE_PORT={port}", "RABBITMQ_DIST_PORT=" + distribution,
		"RABBITMQ_MNESIA_BASE={dir}/mnesia", "RABBITMQ_LOG_BASE={dir}/log", "RABBITMQ_PID_FILE={dir}/pid",
		"RABBITMQ_ENABLED_PLUGINS_FILE={dir}/plugins", "RABBITMQ_CONFIG_FILE={dir}/none",
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=+S 1:1 +sbwt none",
	}, "sh", "-c", rabbitMQ, "sh", path)
}
