// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/node"
	"github.com/refold-io/refold/internal/singleton"
	"github.com/refold-io/refold/internal/testkit/natstest"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/transport"
)

// forger has the access rights of a node but is not a member. It sends arbitrary messages.
type forger struct {
	t       *testing.T
	self    identity.Node
	carrier transport.Carrier
	links   map[identity.Node]*link.Machine
}

// Receive implements transport.Receiver.
func (f *forger) Receive(transport.Lane, string, []byte) {}

// Connection implements transport.Receiver.
func (f *forger) Connection(error) {}

// send sends a message whose envelope names a node as the sender.
func (f *forger) send(as, to identity.Node, kind membership.Kind, payload []byte) {
	f.t.Helper()
	m := f.links[as]
	if m == nil {
		var err error
		if m, err = link.New(link.Config{Self: as, MaxFrame: 1 << 20}); err != nil {
			f.t.Fatal(err)
		}
		f.links[as] = m
	}
	if err := m.Send(to, link.Control, link.Message{Type: link.Tell, Kind: link.Kind(kind), Payload: payload}); err != nil {
		f.t.Fatal(err)
	}
	_, frame, _ := m.Flush(0, link.Control, nil)
	if err := f.carrier.Send(transport.Control, to, frame); err != nil {
		f.t.Fatal(err)
	}
}

// join starts a node in this process that runs a singleton.
func join(t *testing.T, access nats.Access, name string) *cluster.Node {
	t.Helper()
	self, err := identity.New(name)
	if err != nil {
		t.Fatal(err)
	}
	carrier, err := nats.Connect(nats.Config{Access: access, Cluster: clusterName, Self: self})
	if err != nil {
		t.Fatal(err)
	}
	n, err := cluster.Join(t.Context(), cluster.Config{Cluster: clusterName, Carrier: carrier, Seeds: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Stop(); <-n.Done() })
	if err := n.Singleton(t.Context(), cluster.Singleton{Run: func(ctx context.Context, _ *cluster.Inbox) error { <-ctx.Done(); return nil }}); err != nil {
		t.Fatal(err)
	}
	if err := n.AwaitUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n
}

func figures(t *testing.T, n *cluster.Node) cluster.Stats {
	t.Helper()
	s, err := n.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestForgedMessages sends Down, Welcome and hand-over messages from a node that is not a member,
// under its own name and under the name of a member. The messages must change nothing, and each
// must be counted.
func TestForgedMessages(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t, natstest.Config{Users: nodes(t, []string{"a", "b", "x"})})
	a, b := join(t, server.Access(t, "a"), "a"), join(t, server.Access(t, "b"), "b")
	self, err := identity.New("x")
	if err != nil {
		t.Fatal(err)
	}
	x := &forger{t: t, self: self, links: map[identity.Node]*link.Machine{}}
	if x.carrier, err = nats.Connect(nats.Config{Access: server.Access(t, "x"), Cluster: clusterName, Self: self}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = x.carrier.Close() }()
	if err = x.carrier.Start(x); err != nil {
		t.Fatal(err)
	}
	before := a.State()

	// The true state with two changes: a is Down, and x is Up although it was never admitted.
	var g membership.Gossip
	g, err = g.Apply(b.Self(), membership.Change{Put: []*identity.Member{
		{Node: a.Self(), Status: identity.Down, UpNumber: 1}, {Node: b.Self(), Status: identity.Up, UpNumber: 2}, {Node: x.self, Status: identity.Up, UpNumber: 3},
	}})
	if err != nil {
		t.Fatal(err)
	}
	down := membership.AppendMessage(nil, membership.StateOf(g))
	welcome := membership.AppendMessage(nil, membership.Welcome{State: membership.StateOf(g)})
	for _, m := range []struct {
		subject string
		kind    membership.Kind
		data    []byte
		// counted returns how many messages of this kind from a node that is not a member were
		// dropped.
		counted func(cluster.Stats) uint64
	}{
		{"down", membership.KindState, down, func(s cluster.Stats) uint64 { return s.Membership.Dropped["stranger"] }},
		{"welcome", membership.KindWelcome, welcome, func(s cluster.Stats) uint64 { return s.Membership.Dropped["unexpected"] }},
		{
			"exiting", membership.KindExitingConfirmed, membership.AppendMessage(nil, membership.ExitingConfirmed{}),
			func(s cluster.Stats) uint64 { return s.Membership.Dropped["stranger"] },
		},
		{
			"quarantined", membership.KindQuarantined, membership.AppendMessage(nil, membership.Quarantined{}),
			func(s cluster.Stats) uint64 { return s.Membership.Dropped["stranger"] },
		},
		{
			"hand over", node.KindSingleton, singleton.AppendMessage(nil, singleton.Message{Kind: singleton.HandOverToMe, Singleton: "singleton"}),
			func(s cluster.Stats) uint64 { return s.Ignored },
		},
		{
			"take over", node.KindSingleton, singleton.AppendMessage(nil, singleton.Message{Kind: singleton.TakeOverFromMe, Singleton: "singleton"}),
			func(s cluster.Stats) uint64 { return s.Ignored },
		},
	} {
		forged := figures(t, a).Transport.Dropped[transport.DropForged]
		x.send(b.Self(), a.Self(), m.kind, m.data)
		until(t, m.subject+" under the name of a member to be counted", func() bool { return figures(t, a).Transport.Dropped[transport.DropForged] > forged })
		counted := m.counted(figures(t, a))
		x.send(x.self, a.Self(), m.kind, m.data)
		until(t, m.subject+" from a node that is not a member to be counted", func() bool { return m.counted(figures(t, a)) > counted })
	}

	after := a.State()
	if !slices.EqualFunc(before.Members, after.Members, func(m, n cluster.Member) bool {
		return m.Node == n.Node && m.Status == n.Status && m.UpNumber == n.UpNumber
	}) {
		t.Errorf("members = %+v, want %+v", after.Members, before.Members)
	}
	if _, err := a.Proxy(t.Context(), cluster.ProxyConfig{}); err != nil {
		t.Error(err)
	}
	select {
	case <-a.Done():
		t.Errorf("node a has ended after forged messages: %v", a.Err())
	case <-b.Done():
		t.Errorf("node b has ended after forged messages: %v", b.Err())
	default:
	}
}

// until polls until a condition holds.
func until(t *testing.T, subject string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("timed out"))
	defer cancel()
	pause := time.NewTicker(5 * time.Millisecond)
	defer pause.Stop()
	for !holds() {
		select {
		case <-pause.C:
		case <-ctx.Done():
			t.Fatalf("wait for %s: %v", subject, context.Cause(ctx))
		}
	}
}
