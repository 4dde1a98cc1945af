// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"errors"
	"testing"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
)

const heartbeat link.Kind = 2

func silent(c *link.Config) { c.Silent = []link.Kind{heartbeat} }

func TestQuarantine(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.send(b, link.Data, tell("1"))
	b.move(a, link.Data)
	b.send(a, link.Data, tell("never sent"))
	b.Quarantine(alice, false)
	if len(b.frames(link.Data)) != 0 {
		t.Error("a message queued for a quarantined peer was sent")
	}
	if err := b.Send(alice, link.Data, tell("x")); !errors.Is(err, link.ErrQuarantined) {
		t.Errorf("Send to a quarantined peer: %v, want ErrQuarantined", err)
	}
	b.wantDropped(link.Quarantined, 2)
	a.send(b, link.Data, tell("2"))
	b.move(a, link.Data)
	b.want("1")
	b.wantDropped(link.Quarantined, 3)
	if !b.IsQuarantined(alice) || b.Stats().Peers != 0 {
		t.Error("a link with a quarantined peer still exists")
	}
	next := open(t, identity.Node{Name: alice.Name, UID: alice.UID + 1})
	next.send(b, link.Data, tell("another incarnation"))
	b.move(next, link.Data)
	b.want("1", "another incarnation")
	// Each node draws its own UID, so two names may have the same UID.
	other := open(t, identity.Node{Name: "other", UID: alice.UID})
	other.send(b, link.Data, tell("another node with the same UID"))
	b.move(other, link.Data)
	b.want("1", "another incarnation", "another node with the same UID")
	b.send(other, link.Data, tell("x"))
}

// The table of quarantined incarnations is bounded. Those that are still heard of stay in it.
func TestQuarantineIsBounded(t *testing.T) {
	t.Parallel()
	a, b := pair(t, func(c *link.Config) { c.MaxPeers = 10 })
	b.Quarantine(alice, true)
	for uid := range uint64(100) {
		b.Quarantine(identity.Node{Name: "other", UID: uid + 1}, true)
		a.send(b, link.Data, tell("x"))
		b.move(a, link.Data)
	}
	b.want()
	known := 0
	for uid := range uint64(100) {
		if b.IsQuarantined(identity.Node{Name: "other", UID: uid + 1}) {
			known++
		}
	}
	if known != 9 || !b.IsQuarantined(alice) || !b.IsQuarantined(identity.Node{Name: "other", UID: 100}) {
		t.Errorf("%d silent incarnations are quarantined and alice is: %t; want 9 with the last one, and true", known, b.IsQuarantined(alice))
	}
}

func TestNotices(t *testing.T) {
	t.Parallel()
	a, b := pair(t, silent)
	b.Quarantine(alice, false)
	notices := func(msg link.Message, lane link.Lane) int {
		a.send(b, lane, msg)
		b.move(a, lane)
		frames := b.frames(link.Control)
		a.take(b, link.Control, frames...)
		return len(frames)
	}
	if n := notices(link.Message{Type: link.Tell, Kind: heartbeat}, link.Control); n != 0 {
		t.Errorf("a heartbeat caused %d notices, want 0", n)
	}
	if n := notices(tell("x"), link.Data); n != 1 || !a.last.Quarantined || a.last.From != bob {
		t.Errorf("a message caused %d notices with the effects %+v, want 1 with Quarantined", n, a.last)
	}
	if n := notices(tell("x"), link.Data); n != 0 {
		t.Errorf("sent %d notices within a second, want 0", n)
	}
	b.now += time.Second
	if n := notices(tell("x"), link.Bulk); n != 1 {
		t.Errorf("sent %d notices after a second, want 1", n)
	}
	if n := b.Stats().Notices; n != 2 {
		t.Errorf("%d notices were counted, want 2", n)
	}
	// Two nodes that quarantine each other soon send no more notices.
	a.Quarantine(bob, false)
	b.now += time.Second
	frame := link.AppendFrame(nil, link.Frame{Lane: link.Control, From: bob, To: alice.UID, Body: link.AppendNotice(nil, alice.UID)})
	a.take(b, link.Control, frame)
	if n := len(a.frames(link.Control)); n != 0 {
		t.Errorf("a notice caused %d notices, want 0", n)
	}
}

func TestQuietQuarantine(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	b.Quarantine(alice, true)
	a.send(b, link.Data, tell("x"))
	b.move(a, link.Data)
	b.want()
	if n := len(b.frames(link.Control)); n != 0 {
		t.Errorf("a quiet quarantine sent %d notices, want 0", n)
	}
	b.Quarantine(alice, false)
	b.Quarantine(alice, true) // the quarantine still sends notices
	a.send(b, link.Data, tell("x"))
	b.move(a, link.Data)
	if n := len(b.frames(link.Control)); n != 1 {
		t.Errorf("the quarantine with notices sent %d notices, want 1", n)
	}
}

func TestNoticeForOneIncarnation(t *testing.T) {
	t.Parallel()
	a := open(t, alice)
	for uid, want := range map[uint64]bool{alice.UID: true, bob.UID: false} {
		frame := link.AppendFrame(nil, link.Frame{Lane: link.Control, From: bob, To: alice.UID, Body: link.AppendNotice(nil, uid)})
		if eff := a.Receive(0, link.Control, bob.Name, frame); eff.Quarantined != want {
			t.Errorf("notice about UID %x to %v: Quarantined is %t, want %t", uid, alice, eff.Quarantined, want)
		}
	}
	frame := link.AppendFrame(nil, link.Frame{Lane: link.Control, From: bob, Body: link.AppendNotice(nil, alice.UID)})
	if eff := a.Receive(0, link.Control, bob.Name, frame); eff.Quarantined {
		t.Error("a notice to the bare name was accepted")
	}
}

func TestQuarantineOfSelf(t *testing.T) {
	t.Parallel()
	a := open(t, alice)
	a.Quarantine(alice, false)
	a.Quarantine(identity.Node{Name: "bare"}, false)
	a.send(a, link.Control, tell("to myself"))
	a.move(a, link.Control)
	a.want("to myself")
}
