// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
)

// Messages to invented nodes take no room from nodes that send: a peer that has sent nothing is
// evicted first.
func TestUnheardPeersAreEvictedFirst(t *testing.T) {
	t.Parallel()
	b := open(t, bob, func(c *link.Config) { c.MaxPeers = 20 })
	var peers []*end
	for i := range 19 {
		p := open(t, identity.Node{Name: fmt.Sprintf("p%d", i), UID: 1})
		peers = append(peers, p)
		p.send(b, link.Data, tell("hello"))
		b.move(p, link.Data)
	}
	for i := range 100 {
		b.send(&end{self: identity.Node{Name: fmt.Sprintf("junk%d", i), UID: 7}}, link.Data, tell("x"))
		b.send(&end{self: identity.Node{Name: peers[0].self.Name, UID: uint64(100 + i)}}, link.Data, tell("x")) // invented incarnations of a peer
	}
	last := open(t, identity.Node{Name: "last", UID: 1})
	last.send(b, link.Data, tell("join"))
	b.move(last, link.Data)
	for _, p := range append(peers, last) {
		b.got = nil
		p.send(b, link.Data, tell("again"))
		b.move(p, link.Data)
		b.want("again")
	}
	if b.lost != 0 || b.Stats().Peers != 20 || b.Stats().Dropped[link.TooManyPeers] != 0 {
		t.Errorf("%d frames lost, stats %+v, want links to the 20 peers that have sent", b.lost, b.Stats())
	}
	if err := b.Send(alice, link.Data, tell("x")); !errors.Is(err, link.ErrTooManyPeers) {
		t.Errorf("Send to one more peer: %v, want ErrTooManyPeers", err)
	}
}

// The limit of incarnations of a name evicts those that have sent nothing first.
func TestUnheardIncarnationsAreEvictedFirst(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.send(b, link.Data, tell("1"))
	b.move(a, link.Data)
	for i := range 20 {
		b.send(&end{self: identity.Node{Name: alice.Name, UID: uint64(i + 1)}}, link.Data, tell("x"))
	}
	b.send(a, link.Data, tell("2"))
	before := b.Stats().Dropped[link.Forgotten]
	a.send(b, link.Data, tell("3"))
	b.move(a, link.Data)
	b.want("1", "3")
	if b.lost != 0 || b.Stats().Dropped[link.Forgotten] != before || b.Stats().Peers != 8 {
		t.Errorf("%d frames lost, stats %+v, want 8 incarnations and nothing of the active one lost", b.lost, b.Stats())
	}
}
