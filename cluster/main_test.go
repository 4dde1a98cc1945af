// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/inmem"
)

func TestMain(m *testing.M) {
	signal.Ignore(syscall.SIGUSR1) // a test may send the signal before the handler is installed
	goleak.VerifyTestMain(m)
}

// world is a network with its nodes, in a synctest bubble.
type world struct {
	*testing.T

	network *inmem.Network
	seeds   []string
	log     *logBuffer
	nodes   map[string]*cluster.Node // the last incarnation of each name
	all     []*cluster.Node
}

// bubble runs a test in a synctest bubble. It stops all nodes at the end of the test.
func bubble(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, network: inmem.NewNetwork(inmem.NetworkConfig{}), seeds: []string{"a", "b", "c"}, log: &logBuffer{}, nodes: map[string]*cluster.Node{}}
		defer w.end()
		f(w)
	})
}

func (w *world) end() {
	for _, n := range w.all {
		n.Stop()
	}
	for _, n := range w.all {
		<-n.Done()
	}
	if w.Failed() {
		w.Log(w.log.String())
	}
}

// config returns the configuration of a new incarnation of a name.
func (w *world) config(name string) cluster.Config {
	w.Helper()
	self, err := identity.New(name)
	if err != nil {
		w.Fatal(err)
	}
	return cluster.Config{
		Cluster: "bank", Carrier: w.network.Carrier(self), Seeds: w.seeds,
		Logger: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

// start starts a node without waiting until it has joined.
func (w *world) start(name string, change ...func(*cluster.Config)) *cluster.Node {
	w.Helper()
	cfg := w.config(name)
	for _, f := range change {
		f(&cfg)
	}
	n, err := cluster.Start(cfg)
	if err != nil {
		w.Fatal(err)
	}
	w.nodes[name] = n
	w.all = append(w.all, n)
	return n
}

// cluster starts nodes in the given order of age. The first is the oldest and the first seed.
func (w *world) cluster(names ...string) []*cluster.Node {
	w.Helper()
	return w.clusterWith(func(*cluster.Config) {}, names...)
}

func (w *world) clusterWith(change func(*cluster.Config), names ...string) []*cluster.Node {
	w.Helper()
	nodes := make([]*cluster.Node, len(names))
	for i, name := range names {
		nodes[i] = w.start(name, change)
		w.allUp(nodes[:i+1]...)
	}
	return nodes
}

// allUp waits until all given nodes have exactly these members, Up and reachable.
func (w *world) allUp(nodes ...*cluster.Node) {
	w.Helper()
	for _, n := range nodes {
		w.until(n, func(s *cluster.State) bool {
			return len(s.Members) == len(nodes) && len(s.Unreachable) == 0 &&
				!slices.ContainsFunc(s.Members, func(m cluster.Member) bool { return m.Status != cluster.Up })
		})
	}
}

// until waits until the state of a node satisfies a condition. It fails after five minutes.
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
		w.Fatalf("timeout: the state of %v is %+v", n.Self(), n.State())
	}
}

// sleep lets time pass.
func (w *world) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// awaitEnd waits until a node has ended, and returns the reason.
func (w *world) awaitEnd(n *cluster.Node) error {
	w.Helper()
	select {
	case <-n.Done():
		return n.Err()
	case <-time.After(5 * time.Minute):
		w.Fatalf("%v has not ended", n.Self())
		return nil
	}
}

func (w *world) wantEnded(n *cluster.Node, why error) {
	w.Helper()
	if err := w.awaitEnd(n); !errors.Is(err, why) {
		w.Errorf("%v ended with %v, want %v", n.Self(), err, why)
	}
}

// logBuffer stores the log for checks.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// logged reports whether the log contains a text, after pending lines were written.
func (w *world) logged(text string) bool {
	synctest.Wait()
	return strings.Contains(w.log.String(), text)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
