// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package features_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/testkit/natstest"
	"github.com/refold-io/refold/internal/testkit/pgtest"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/nats/embedded"
	"github.com/refold-io/refold/plugins/postgres"
	"github.com/refold-io/refold/store"
)

// A goroutine of goleveldb ends 30 s after the database is closed.
func TestMain(m *testing.M) {
	natstest.RunIfServer()
	pgtest.Main(m, goleak.IgnoreTopFunction("github.com/syndtr/goleveldb/leveldb.(*DB).mpoolDrain"))
}

// patience ends a test that waits for an event in vain.
const patience = 2 * time.Minute

// within returns the context of a test with a deadline.
func within(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	tb.Cleanup(cancel)
	return ctx
}

// askAgain asks until there is a reply or ctx ends. A command on its way to a node that crashes gets no
// reply, so each attempt has a time-out. The command must be harmless if it is repeated.
func askAgain[S, R any](ctx context.Context, to eventsourcing.Ref[S], command eventsourcing.Request[S, R]) (value R, err error) {
	for {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		value, err = eventsourcing.Ask(attempt, to, command)
		cancel()
		if err == nil || ctx.Err() != nil {
			return value, err
		}
	}
}

// quiet returns a logger that writes nothing, for tests with expected errors.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// eachStore runs a test on an empty database of each kind. The database is closed after the test.
func eachStore(t *testing.T, test func(t *testing.T, db store.DB)) {
	t.Helper()
	for name, open := range map[string]func(t *testing.T) (store.DB, error){
		"inmem":   func(*testing.T) (store.DB, error) { return inmem.Open() },
		"leveldb": func(t *testing.T) (store.DB, error) { t.Helper(); return leveldb.Open(t.TempDir(), leveldb.Config{}) },
		"postgres": func(t *testing.T) (store.DB, error) {
			t.Helper()
			return postgres.Open(t.Context(), pgtest.DSN(t), postgres.Config{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := open(t)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if closed := db.Close(); closed != nil {
					t.Error(closed)
				}
			})
			test(t, db)
		})
	}
}

// openRuntime returns a runtime on a database. It is closed after the test.
func openRuntime(tb testing.TB, db store.DB) *eventsourcing.Runtime {
	tb.Helper()
	rt, err := eventsourcing.Open(eventsourcing.Config{Store: db, Logger: quiet()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { closeRuntime(tb, rt) })
	return rt
}

func closeRuntime(tb testing.TB, rt *eventsourcing.Runtime) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience) // the context of the test has ended
	defer cancel()
	if err := rt.Close(ctx); err != nil {
		tb.Error(err)
	}
}

// fleet consists of nodes of one cluster that share a database and talk over a NATS server. Each
// node has its own runtime, as in a process of its own.
type fleet struct {
	tb       testing.TB
	server   *embedded.Server
	access   func(node string) nats.Access
	db       store.DB
	nodes    []*cluster.Node
	runtimes []*eventsourcing.Runtime
}

// threeNodes starts three nodes, node-0 to node-2, and waits until they are Up. They share an
// in-memory database. All nodes end after the test.
func threeNodes(tb testing.TB) *fleet {
	tb.Helper()
	db, err := inmem.Open()
	if err != nil {
		tb.Fatal(err)
	}
	return startNodes(tb, db, 3)
}

// startNodes is threeNodes with a database and a number of nodes. Node names begin with "node-".
func startNodes(tb testing.TB, db store.DB, count int) *fleet {
	tb.Helper()
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	f := &fleet{tb: tb, server: server, access: func(string) nats.Access { return server.Access() }, db: db}
	tb.Cleanup(func() {
		if closed := server.Close(); closed != nil {
			tb.Error(closed)
		}
	})
	for range count {
		f.add(nil)
	}
	return f
}

// add starts another node with changes to its configuration and returns its number.
func (f *fleet) add(change func(*cluster.Config)) int {
	f.tb.Helper()
	ctx := within(f.tb)
	self, err := identity.New(fmt.Sprintf("node-%d", len(f.nodes)))
	if err != nil {
		f.tb.Fatal(err)
	}
	carrier, err := nats.Connect(nats.Config{Access: f.access(self.Name), Cluster: "features", Self: self, Logger: quiet()})
	if err != nil {
		f.tb.Fatal(err)
	}
	cfg := cluster.Config{
		Cluster: "features", Carrier: carrier, Seeds: []string{"node-0"}, Logger: quiet(),
		Downing: downing.Settings{StableAfter: 3 * time.Second},
	}
	if change != nil {
		change(&cfg)
	}
	node, err := cluster.Join(ctx, cfg)
	if err != nil {
		f.tb.Fatal(err)
	}
	f.nodes, f.runtimes = append(f.nodes, node), append(f.runtimes, openRuntime(f.tb, f.db))
	f.tb.Cleanup(func() { f.crash(node) }) // runs first
	if err = node.AwaitUp(ctx); err != nil {
		f.tb.Fatal(err)
	}
	return len(f.nodes) - 1
}

// crash ends a node without a leave, and waits for its end. The other nodes find out by the missing
// heartbeats and remove it after several seconds.
func (*fleet) crash(node *cluster.Node) {
	node.Stop()
	<-node.Done()
}
