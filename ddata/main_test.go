// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/inmem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	visits = ddata.Key[crdt.GCounter]("visits")
	cart   = ddata.Key[crdt.ORSet[string]]("cart")
)

// world is a network of nodes in a synctest bubble.
type world struct {
	*testing.T

	network *inmem.Network
	log     *journalled
	nodes   []*cluster.Node
	downing downing.Settings // of nodes that start later
}

// in runs a test in a bubble and stops all nodes at the end.
func in(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, network: inmem.NewNetwork(inmem.NetworkConfig{}), log: &journalled{}}
		defer w.end()
		f(w)
	})
}

func (w *world) end() {
	for _, n := range w.nodes {
		n.Stop()
	}
	for _, n := range w.nodes {
		<-n.Done()
	}
	if w.Failed() {
		w.Log(w.log.String())
	}
}

// start starts a node.
func (w *world) start(name string, change ...func(*cluster.Config)) *cluster.Node {
	w.Helper()
	self, err := identity.New(name)
	if err != nil {
		w.Fatal(err)
	}
	cfg := cluster.Config{
		Cluster: "bank", Carrier: w.network.Carrier(self), Seeds: []string{"a"}, Downing: w.downing,
		Logger: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
	for _, f := range change {
		f(&cfg)
	}
	n, err := cluster.Start(cfg)
	if err != nil {
		w.Fatal(err)
	}
	w.nodes = append(w.nodes, n)
	return n
}

// cluster starts nodes and waits until all are Up.
func (w *world) cluster(names ...string) []*cluster.Node {
	w.Helper()
	nodes := make([]*cluster.Node, len(names))
	for i, name := range names {
		nodes[i] = w.start(name)
	}
	w.allUp(nodes...)
	return nodes
}

// allUp waits until the nodes see each other as Up and reachable.
func (w *world) allUp(nodes ...*cluster.Node) {
	w.Helper()
	for _, n := range nodes {
		w.until(n, func(s *cluster.State) bool {
			return len(s.Members) == len(nodes) && len(s.Unreachable) == 0 &&
				!slices.ContainsFunc(s.Members, func(m cluster.Member) bool { return m.Status != cluster.Up })
		})
	}
}

// until waits until a condition of a node's state holds.
func (w *world) until(n *cluster.Node, ok func(*cluster.State) bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 5*time.Minute)
	defer cancel()
	for range n.Events(ctx) {
		if ok(n.State()) {
			return
		}
	}
	if !ok(n.State()) {
		w.Fatalf("%v did not reach the expected state: %+v", n.Self(), n.State())
	}
}

// replicate starts a replicator on a node.
func (w *world) replicate(n *cluster.Node, cfg ddata.Config) *ddata.Replicator {
	w.Helper()
	r, err := ddata.Start(w.Context(), n, cfg)
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// replicators starts a cluster with a replicator on each node, and waits until they see each other.
func (w *world) replicators(cfg ddata.Config, names ...string) []*ddata.Replicator {
	w.Helper()
	rs := make([]*ddata.Replicator, len(names))
	for i, n := range w.cluster(names...) {
		rs[i] = w.replicate(n, cfg)
	}
	synctest.Wait()
	for _, r := range rs {
		if r.ReplicaCount() != len(rs) {
			w.Fatalf("%v has %d replicas, want %d", r.Node().Self(), r.ReplicaCount(), len(rs))
		}
	}
	return rs
}

// add increments a counter.
func (w *world) add(r *ddata.Replicator, key ddata.Key[crdt.GCounter], level ddata.WriteLevel, n uint64) error {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Second)
	defer cancel()
	_, err := ddata.Update(ctx, r, key, level, func(c crdt.GCounter) (crdt.GCounter, error) { return c.Add(r.Self(), n), nil })
	return err
}

// put adds elements to a set.
func (w *world) put(r *ddata.Replicator, level ddata.WriteLevel, elements ...string) error {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Second)
	defer cancel()
	_, err := ddata.Update(ctx, r, cart, level, func(s crdt.ORSet[string]) (crdt.ORSet[string], error) { return s.Add(r.Self(), elements...) })
	return err
}

func (w *world) get(r *ddata.Replicator, key ddata.Key[crdt.GCounter], level ddata.ReadLevel) (uint64, error) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Second)
	defer cancel()
	c, err := ddata.Get(ctx, r, key, level)
	return c.Value(), err
}

func (w *world) want(r *ddata.Replicator, key ddata.Key[crdt.GCounter], level ddata.ReadLevel, n uint64) {
	w.Helper()
	if got, err := w.get(r, key, level); got != n || err != nil {
		w.Errorf("%v has %d of %s at %v, want %d: %v", r.Node().Self(), got, key, level, n, err)
	}
}

func (w *world) wantErr(err error, sentinel error) {
	w.Helper()
	if !errors.Is(err, sentinel) {
		w.Errorf("got error %v, want %v", err, sentinel)
	}
}

// converged waits until all replicators hold the same data.
func (w *world) converged(rs ...*ddata.Replicator) {
	w.Helper()
	for range 600 {
		same := true
		var first ddata.Stats
		for i, r := range rs {
			s, err := r.Stats(w.Context())
			w.must(err)
			if i == 0 {
				first = s
			}
			same = same && s.Digest == first.Digest
		}
		if same {
			return
		}
		w.sleep(100 * time.Millisecond)
	}
	w.Fatal("the replicators did not converge")
}

// sleep lets time pass.
func (w *world) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// journalled is a log that tests read.
type journalled struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *journalled) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *journalled) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
