package servertest

import (
	"testing"
)

// Each server answers, and again after it was killed. RabbitMQ, which takes long, is left to
// the tests that use it.
func TestServers(t *testing.T) {
	for name, start := range map[string]func(testing.TB) *Server{
		"nats": NATS, "etcd": Etcd, "kafka": Kafka, "debian etcd": DebianEtcd, "zookeeper": ZooKeeper,
		"redis": func(tb testing.TB) *Server { return Redis(tb) }, "sqs": func(tb testing.TB) *Server { return SQS(tb, "a", "b.fifo") },
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.Kill()
			if accepts(t.Context(), s.Addr) == nil {
				t.Fatal("a server that was killed answers")
			}
			s.Start()
		})
	}
}
