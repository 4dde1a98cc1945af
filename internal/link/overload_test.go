// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
)

var carol = identity.Node{Name: "carol:1", UID: 0xca401}

func (e *end) wantRoom(lane link.Lane, queued, held int) {
	e.t.Helper()
	if s := e.Stats().Lanes[lane]; s.Queued != queued || s.Held != held {
		e.t.Errorf("%d bytes are queued and %d held, want %d and %d", s.Queued, s.Held, queued, held)
	}
}

const cost64 = 64<<10 + 64 // of kib64

// The queued bytes of all peers of a lane are limited. Sending, forgetting and quarantining release
// queued bytes.
func TestQueuesOfAllPeers(t *testing.T) {
	t.Parallel()
	a := open(t, alice, small, func(c *link.Config) { c.MaxQueue, c.MaxQueueAll = 100<<10, 150<<10 })
	b, m, c := open(t, bob), open(t, mallory), open(t, carol)
	refused := func(to identity.Node, lane link.Lane) {
		t.Helper()
		if err := a.Send(to, lane, kib64); !errors.Is(err, link.ErrBackpressure) {
			t.Errorf("Send beyond the limit of all queues: %v, want ErrBackpressure", err)
		}
	}
	for _, lane := range []link.Lane{link.Data, link.Control} { // each lane has its own limit
		a.send(b, lane, kib64)
		a.send(m, lane, kib64)
		refused(carol, lane)
		a.wantRoom(lane, 2*cost64, 0)
	}
	refused(identity.Node{Name: "name:1"}, link.Control)
	if n := a.Stats().Refused; n != 3 {
		t.Errorf("%d messages were counted as refused, want 3", n)
	}
	a.frames(link.Data)
	a.send(c, link.Data, kib64)
	a.send(m, link.Data, kib64)
	refused(bob, link.Data)
	a.Forget(carol)
	a.send(b, link.Data, kib64)
	refused(carol, link.Data)
	a.Quarantine(mallory, true)
	a.send(c, link.Data, kib64)
	a.wantRoom(link.Data, 2*cost64, 0)
	a.wantRoom(link.Control, cost64, 0)
	a.frames(link.Data)
	a.frames(link.Control)
	a.wantRoom(link.Data, 0, 0)
	a.wantRoom(link.Control, 0, 0)
	if err := a.Send(identity.Node{Name: "name:1"}, link.Control, kib64); err != nil {
		t.Error(err)
	}
	a.wantRoom(link.Control, cost64, 0)
}

// The unconsumed bytes of all peers of a lane are limited, even if each peer respects its credit. A
// dropped frame leaves no state.
func TestHeldOfAllPeers(t *testing.T) {
	t.Parallel()
	b := open(t, bob, small, func(c *link.Config) { c.MaxHeldAll = 1 << 20 })
	var peers []*end
	for i := range 6 {
		p := open(t, identity.Node{Name: fmt.Sprint("peer:", i), UID: uint64(i) + 1}, small)
		peers = append(peers, p)
		p.send(b, link.Data, kib64, kib64, kib64)
		b.move(p, link.Data)
	}
	b.wantDropped(link.Overload, 3)
	b.wantDropped(link.OverCredit, 0)
	b.wantRoom(link.Data, 0, 15*cost64)
	peers[0].send(b, link.Bulk, kib64) // each lane has its own limit
	b.move(peers[0], link.Bulk)
	b.wantRoom(link.Bulk, 0, cost64)

	// Bytes received from a forgotten peer still count.
	b.got = nil
	b.Forget(peers[0].self)
	b.wantRoom(link.Data, 0, 15*cost64)
	for _, p := range peers[:5] {
		b.Consume(p.self, link.Data, 3*cost64)
	}
	b.Consume(peers[0].self, link.Bulk, cost64)
	b.wantRoom(link.Data, 0, 0)
	b.wantRoom(link.Bulk, 0, 0)
	last := peers[5]
	for range 40 {
		last.send(b, link.Data, kib64)
		last.now += time.Second
		last.Tick(last.now)
		b.move(last, link.Data)
		b.consume(last, link.Data)
		grants(last, b)
	}
	b.move(last, link.Data)
	if n := last.Stats().Lanes[link.Data]; n.Queued > 0 {
		t.Errorf("%d bytes are still queued", n.Queued)
	}
}

// The bytes of an incomplete message are released when its link ends.
func TestHeldBytesOfParts(t *testing.T) {
	t.Parallel()
	a, b := pair(t, small, func(c *link.Config) { c.MaxFrame = 32 << 10 })
	for range 2 {
		a.send(b, link.Data, kib64)
		frames := a.frames(link.Data)
		b.take(a, link.Data, frames[0])
		if s := b.Stats().Lanes[link.Data]; s.Held == 0 {
			t.Error("no bytes are held after a part of a message arrived, want its cost")
		}
		b.Forget(alice)
		b.wantRoom(link.Data, 0, 0)
		a.Forget(bob)
	}
}

// When many bytes are held, peers get less credit, but they can still send.
func TestCreditUnderLoad(t *testing.T) {
	t.Parallel()
	b := open(t, bob, small, func(c *link.Config) { c.Window, c.MaxHeldAll = 4<<20, 6<<20 })
	sent := func(from *end) (messages int) {
		for range 100 {
			from.send(b, link.Data, kib64)
		}
		before := 0
		for before = -1; before < messages; {
			before = messages
			b.got = nil
			b.move(from, link.Data)
			messages += len(b.got)
			grants(from, b)
		}
		return messages
	}
	wide := func(c *link.Config) { c.Window, c.MaxQueue = 4<<20, 16<<20 }
	first := sent(open(t, mallory, small, wide))
	second := sent(open(t, alice, small, wide))
	if first != 63 || second != 15 { // the window is 4 MiB, or 1 MiB while more than 3 MiB are held
		t.Errorf("the first peer sent %d messages of 64 KiB and the second %d, want 63 and 15", first, second)
	}
	b.wantDropped(link.Overload, 0)
}
