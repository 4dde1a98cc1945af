// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/transport"
)

const (
	kindForwarded transport.Kind = 41 // a message for a singleton; it never changes
	kindTest                     = transport.FirstUserKind
)

// stranger opens a transport of a node that does not join.
func (w *world) stranger(name string) *transport.Transport {
	w.Helper()
	self, err := identity.New(name)
	must(w.T, err)
	return w.removed(self)
}

func strangers(n *cluster.Node) uint64 {
	s := n.Transport().Stats()
	for why := range transport.Reasons {
		if why.String() == "stranger" {
			return s.Dropped[why]
		}
	}
	return 0
}

// Nodes that are not members, and nodes that were removed, cannot command a singleton and reach no
// handler. Their messages are counted.
func TestStrangersReachNoHandler(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		nodes := w.cluster("a", "b")
		r := &recorder{}
		for _, n := range nodes {
			must(w.T, n.Singleton(w.Context(), cluster.Singleton{Name: "tape", Run: r.run}))
		}
		p := proxyOf(w, nodes[1], cluster.ProxyConfig{Singleton: "tape"})
		_, err := p.Ask(w.Context(), []byte("?"))
		must(w.T, err)
		var handled atomic.Int32
		nodes[0].Transport().Handle(kindTest, func(context.Context, transport.Message) { handled.Add(1) })
		evil := w.stranger("evil")
		attack := func() {
			w.Helper()
			for _, payload := range []string{"1", "2"} {
				must(w.T, evil.Send(nodes[0].Self(), transport.Data, kindForwarded, []byte("\x01\x04tape"+payload)))
				must(w.T, evil.Send(nodes[0].Self(), transport.Control, kindForwarded, []byte("\x01\x04tape"+payload)))
			}
			must(w.T, evil.Send(nodes[0].Self(), transport.Bulk, kindTest, nil))
			ctx, cancel := context.WithTimeout(w.Context(), 20*time.Second)
			defer cancel()
			if _, err := evil.Request(ctx, nodes[0].Self(), kindForwarded, []byte("\x01\x04tape?")); err == nil {
				w.Error("the singleton has replied to a stranger")
			}
		}
		attack()
		if n := strangers(nodes[0]); n != 6 {
			w.Errorf("%d messages of strangers were dropped, want 6", n)
		}
		// The name was that of a member, which was removed.
		c := w.start("c")
		w.allUp(nodes[0], nodes[1], c)
		must(w.T, nodes[0].Down(w.Context(), c.Self()))
		w.wantEnded(c, cluster.ErrDowned)
		w.allUp(nodes...)
		evil = w.removed(c.Self())
		for _, lane := range []transport.Lane{transport.Control, transport.Data, transport.Bulk} {
			must(w.T, evil.Send(nodes[0].Self(), lane, kindForwarded, []byte("\x01\x04taperemoved")))
		}
		w.sleep(20 * time.Second)
		if got := r.all(); !slices.Equal(got, []string{"b?"}) || handled.Load() != 0 {
			w.Errorf("the singleton received %q and the handler %d messages, want only the question of b", got, handled.Load())
		}
		if _, err := p.Ask(w.Context(), []byte("?")); err != nil {
			w.Errorf("Ask of a member: %v", err)
		}
	})
}

// removed opens a transport with the identity of a node that has ended.
func (w *world) removed(self identity.Node) *transport.Transport {
	w.Helper()
	t, err := transport.Open(w.network.Carrier(self), transport.Config{})
	must(w.T, err)
	w.Cleanup(func() {
		if err := t.Close(); err != nil {
			w.Error(err)
		}
	})
	return t
}

// A message of a new member waits until the gossip about this member arrives.
func TestMessagesOfNewMembersWait(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		b := w.cluster("a", "b")[1]
		var handled atomic.Int32
		b.Transport().Handle(kindTest, func(context.Context, transport.Message) { handled.Add(1) })
		var heal []func()
		for _, from := range []string{"a", "c"} {
			heal = append(heal, w.network.Inject(inmem.Fault{From: from, To: "b", Lanes: []transport.Lane{transport.Control}, Drop: 1}))
		}
		c := w.start("c", func(cfg *cluster.Config) { cfg.Seeds = []string{"a"} })
		must(w.T, c.AwaitJoined(w.Context()))
		for range 3 {
			must(w.T, c.Transport().Send(b.Self(), transport.Data, kindTest, nil))
		}
		w.sleep(time.Second)
		if _, known := b.State().Member(c.Self()); known || handled.Load() != 0 {
			w.Fatalf("b has member c: %t, %d messages were handled; want none before the gossip", known, handled.Load())
		}
		for _, f := range heal {
			f()
		}
		w.sleep(3 * time.Second)
		if handled.Load() != 3 {
			w.Errorf("%d messages were handled, want 3", handled.Load())
		}
	})
}
