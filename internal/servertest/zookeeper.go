package servertest

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

const zooKeeperJar = "/usr/share/java/zookeeper.jar"

// ZooKeeper starts the ZooKeeper that Debian packages, with its usual times: a tick of 2
// seconds, so that a session lasts 4 seconds at least.
func ZooKeeper(tb testing.TB) *Server {
	tb.Helper()
	java := program(tb, "java", "zookeeperd")
	if _, err := os.Stat(zooKeeperJar); err != nil {
		missing(tb, zooKeeperJar+" is not installed: apt-get install zookeeperd (it need not be started)")
	}
	const script = `printf 'tickTime=2000\ndataDir=%s\nclientPort=%s\nclientPortAddress=%s\nadmin.enableServer=false\n4lw.commands.whitelist=ruok\n' {dir} {port} {host} >{dir}/zoo.cfg
exec "$0" -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dzookeeper.forceSync=no -Dorg.slf4j.simpleLogger.defaultLogLevel=error \
  -cp ` + zooKeeperJar + `:/usr/share/java/slf4j-simple.jar org.apache.zookeeper.server.quorum.QuorumPeerMain {dir}/zoo.cfg`
	return start(tb, zooKeeperReady, nil, "sh", "-c", script, java)
}

func zooKeeperReady(ctx context.Context, addr string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second)) // which cannot fail on an open connection
	if _, err := io.WriteString(conn, "ruok"); err != nil {
		return err
	}
	if answer, err := io.ReadAll(conn); err != nil || string(answer) != "imok" {
		return fmt.Errorf("answered %q, %w", answer, err)
	}
	return nil
}
