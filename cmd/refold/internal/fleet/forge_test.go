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
			func(s cluster.Stats) uint64 { return s.Refused },
		},
		{
			"take over", node.KindSingleton, singleton.AppendMessage(nil, singleton.Message{Kind: singleton.TakeOverFromMe, Singleton: "singleton"}),
			func(s cluster.Stats) uint64 { return s.Refused },
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

// TestForgedRemoval sends the notice that a node was removed from a member to all other members. The
// notice must change nothing, and each must be counted.
func TestForgedRemoval(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t, natstest.Config{Users: nodes(t, []string{"a", "b", "x"})})
	a, b, x := join(t, server.Access(t, "a"), "a"), join(t, server.Access(t, "b"), "b"), join(t, server.Access(t, "x"), "x")
	until(t, "all members to be Up", func() bool {
		up := func(m cluster.Member) bool { return m.Status == cluster.Up }
		return slices.IndexFunc(a.State().Members, func(m cluster.Member) bool { return !up(m) }) < 0 && len(a.State().Members) == 3 && len(b.State().Members) == 3
	})
	carrier, err := nats.Connect(nats.Config{Access: server.Access(t, "x"), Cluster: clusterName, Self: x.Self()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = carrier.Close() }()
	for _, victim := range []*cluster.Node{a, b} {
		// A link that has quarantined the victim answers a message of the victim with the notice.
		from, err := link.New(link.Config{Self: x.Self(), MaxFrame: 1 << 20})
		to, failed := link.New(link.Config{Self: victim.Self(), MaxFrame: 1 << 20})
		if err = errors.Join(err, failed); err != nil {
			t.Fatal(err)
		}
		from.Quarantine(victim.Self(), false)
		if err = to.Send(x.Self(), link.Control, link.Message{Type: link.Tell, Kind: link.Kind(transport.FirstUserKind)}); err != nil {
			t.Fatal(err)
		}
		_, frame, _ := to.Flush(0, link.Control, nil)
		from.Receive(0, link.Control, victim.Self().Name, frame)
		_, notice, found := from.Flush(0, link.Control, nil)
		if !found {
			t.Fatal("the link has no notice")
		}
		for range 3 {
			if err = carrier.Send(transport.Control, victim.Self(), notice); err != nil {
				t.Fatal(err)
			}
		}
		until(t, "the notices to be counted", func() bool { return figures(t, victim).Membership.Dropped["unconfirmed"] == 3 })
	}
	for _, n := range []*cluster.Node{a, b} {
		if m := n.State().Members; len(m) != 3 || n.Err() != nil {
			t.Errorf("node %v has the members %+v and the error %v, want three members and no error", n.Self(), m, n.Err())
		}
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
