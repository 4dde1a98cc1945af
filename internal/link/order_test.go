// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
)

func TestOrder(t *testing.T) {
	t.Parallel()
	for lane := range link.Lane(link.Lanes) {
		a, b := pair(t)
		a.send(b, lane, tell("1"), tell("2"))
		b.move(a, lane)
		a.send(b, lane, tell("3"), link.Message{Type: link.Request, Kind: 9, Correlation: 4, Payload: []byte("4")})
		b.move(a, lane)
		b.want("1", "2", "3", "4")
		last := b.got[3]
		if last.Type != link.Request || last.Kind != 9 || last.Correlation != 4 || last.Named || b.last.From != alice {
			t.Errorf("delivered %+v from %v, want the request 4 of kind 9 from alice", last, b.last.From)
		}
		if s := b.Stats(); s.Lanes[lane].Gaps != 0 || s.Lanes[lane].MessagesIn != 4 || s.Lanes[lane].FramesIn != 2 {
			t.Errorf("stats of the lane: %+v, want 4 messages in 2 frames and no gap", s.Lanes[lane])
		}
	}
}

func TestSmallMessages(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	for range 900 {
		a.send(b, link.Data, tell(strings.Repeat("x", 10)))
	}
	if frames := a.frames(link.Data); len(frames) != 1 {
		t.Errorf("900 messages of 10 bytes were sent in %d frames, want 1", len(frames))
	} else {
		b.take(a, link.Data, frames...)
	}
	if len(b.got) != 900 {
		t.Errorf("%d messages were delivered, want 900", len(b.got))
	}
	grants(a, b)
	a.send(b, link.Data, slices.Repeat([]link.Message{tell(strings.Repeat("x", 20<<10))}, 4)...)
	if frames := a.frames(link.Data); len(frames) != 4 {
		t.Errorf("4 messages of 20 KiB were sent in %d frames of 32 KiB, want 4", len(frames))
	}
}

func TestDuplicatedFrames(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.send(b, link.Data, tell("1"))
	first := a.frames(link.Data)
	a.send(b, link.Data, tell("2"))
	second := a.frames(link.Data)
	b.take(a, link.Data, first[0], first[0], second[0], first[0], second[0])
	b.want("1", "2")
	b.wantDropped(link.Old, 3)
}

func TestReorderedFrames(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	var frames [][]byte
	for _, s := range []string{"1", "2", "3", "4", "5"} {
		a.send(b, link.Data, tell(s))
		frames = append(frames, a.frames(link.Data)...)
	}
	b.take(a, link.Data, frames[0], frames[3])
	if b.last.Lost != 2 {
		t.Errorf("%d frames were reported missing between 1 and 4, want 2", b.last.Lost)
	}
	b.take(a, link.Data, frames[1], frames[4])
	b.want("1", "4", "5")
	b.wantDropped(link.Old, 1)
	if s := b.Stats().Lanes[link.Data]; s.Gaps != 1 || s.Lost != 2 {
		t.Errorf("counted %d gaps and %d lost frames, want 1 and 2", s.Gaps, s.Lost)
	}
}

func TestFirstFrameMissing(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.send(b, link.Control, tell("1"))
	a.frames(link.Control)
	a.send(b, link.Control, tell("2"))
	b.move(a, link.Control)
	b.want("2")
	if b.lost != 1 {
		t.Errorf("%d frames were reported missing, want 1", b.lost)
	}
}

func TestSequenceNumbersPerLane(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.send(b, link.Control, tell("c"))
	a.send(b, link.Data, tell("d"))
	a.send(b, link.Bulk, tell("b"))
	b.move(a, link.Bulk)
	b.move(a, link.Control)
	b.move(a, link.Data)
	b.want("b", "c", "d")
	if b.lost != 0 {
		t.Errorf("%d frames were reported missing, want 0", b.lost)
	}
}

func TestLinksTakeTurns(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	m := open(t, mallory)
	big := tell(strings.Repeat("x", 30<<10))
	a.send(b, link.Data, big, big, big)
	a.send(m, link.Data, big, big)
	var order []string
	for {
		to, _, ok := a.Flush(0, link.Data, nil)
		if !ok {
			break
		}
		order = append(order, to.Name)
	}
	if want := []string{bob.Name, mallory.Name, bob.Name, mallory.Name, bob.Name}; !slices.Equal(order, want) {
		t.Errorf("the frames were sent to %v, want %v", order, want)
	}
}

func TestForget(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.send(b, link.Data, tell("1"))
	early := a.frames(link.Data)
	a.send(b, link.Data, tell("2"))
	b.move(a, link.Data)
	a.send(b, link.Data, tell("never sent"))
	a.Forget(bob)
	a.wantDropped(link.Forgotten, 1)
	if a.Stats().Peers != 0 || len(a.frames(link.Data)) != 0 {
		t.Error("a forgotten peer still has state")
	}
	a.send(b, link.Data, tell("3"))
	b.move(a, link.Data)
	b.want("2", "3")
	b.take(a, link.Data, early...)
	b.want("2", "3")
	b.wantDropped(link.Stale, 1)
}

func TestIncarnationLimit(t *testing.T) {
	t.Parallel()
	b := open(t, bob)
	for uid := range uint64(20) {
		a := open(t, identity.Node{Name: alice.Name, UID: uid + 1})
		a.send(b, link.Data, tell("x"))
		b.move(a, link.Data)
		if uid == 0 {
			defer func() { // the active incarnation sent frames all the time, so its links still exist
				a.send(b, link.Data, tell("y"))
				b.move(a, link.Data)
				if b.lost != 0 {
					t.Errorf("%d frames are missing from the active incarnation, want 0", b.lost)
				}
			}()
			continue
		}
		again := open(t, identity.Node{Name: alice.Name, UID: 1})
		again.send(b, link.Data, tell("old"))
		b.move(again, link.Data)
	}
	if n := b.Stats().Peers; n != 8 {
		t.Errorf("%d incarnations of a name have links, want 8", n)
	}
}

func TestPeerLimit(t *testing.T) {
	t.Parallel()
	few := func(c *link.Config) { c.MaxPeers = 2 }
	b := open(t, bob, few)
	for _, name := range []string{"a", "b", "c"} {
		from := open(t, identity.Node{Name: name, UID: 1})
		from.send(b, link.Data, tell(name))
		b.move(from, link.Data)
	}
	b.want("a", "b")
	b.wantDropped(link.TooManyPeers, 1)
	if err := b.Send(alice, link.Data, tell("x")); err == nil {
		t.Error("Send accepted one peer above the limit")
	}
}
