// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
)

func TestRejectedMessages(t *testing.T) {
	t.Parallel()
	good := link.Frame{Lane: link.Data, From: alice, To: bob.UID, Sequenced: true, Epoch: 1, Number: 1, Body: link.AppendMessages(nil, tell("x"))}
	frame := func(change func(*link.Frame)) []byte {
		f := good
		change(&f)
		return link.AppendFrame(nil, f)
	}
	same := func(*link.Frame) {}
	for name, test := range map[string]struct {
		lane  link.Lane
		from  string
		frame []byte
		want  link.Reason
	}{
		"valid":               {link.Data, alice.Name, frame(same), 0},
		"forged sender":       {link.Data, mallory.Name, frame(same), link.Forged},
		"another incarnation": {link.Data, alice.Name, frame(func(f *link.Frame) { f.To = 7 }), link.WrongReceiver},
		"another lane":        {link.Bulk, alice.Name, frame(same), link.WrongLane},
		"unknown lane":        {link.Data, alice.Name, frame(func(f *link.Frame) { f.Lane = 3 }), link.Malformed},
		"no sender's UID":     {link.Data, alice.Name, frame(func(f *link.Frame) { f.From.UID = 0 }), link.Malformed},
		"bad name":            {link.Data, "a b", frame(func(f *link.Frame) { f.From.Name = "a b" }), link.Malformed},
		"number 0":            {link.Data, alice.Name, frame(func(f *link.Frame) { f.Number = 0 }), link.Malformed},
		"epoch 0":             {link.Data, alice.Name, frame(func(f *link.Frame) { f.Epoch = 0 }), link.Malformed},
		"huge offset":         {link.Data, alice.Name, frame(func(f *link.Frame) { f.Offset = 1 << 63 }), link.Malformed},
		"link without UID":    {link.Data, alice.Name, frame(func(f *link.Frame) { f.To = 0 }), link.Malformed},
		"data without UID":    {link.Data, alice.Name, frame(func(f *link.Frame) { f.To, f.Sequenced = 0, false }), link.Malformed},
		"another version":     {link.Data, alice.Name, append([]byte{9}, frame(same)[1:]...), link.Version},
		"empty":               {link.Data, alice.Name, nil, link.Malformed},
		"garbage":             {link.Data, alice.Name, bytes.Repeat([]byte{1}, 100), link.Malformed},
		"cut off":             {link.Data, alice.Name, frame(same)[:len(frame(same))-1], link.Malformed},
		"trailing garbage":    {link.Data, alice.Name, append(frame(same), 0x81), link.Malformed},
	} {
		b := open(t, bob)
		eff := b.Receive(0, test.lane, test.from, test.frame)
		if eff.Dropped != test.want || (len(eff.Deliver) == 1) != (test.want == 0) {
			t.Errorf("%s: dropped with reason %v, want %v; %d messages delivered", name, eff.Dropped, test.want, len(eff.Deliver))
		}
		if test.want != 0 && b.Stats().Dropped[test.want] != 1 {
			t.Errorf("%s: the drop was not counted", name)
		}
		if b.Stats().Peers > 1 || test.want != 0 && b.Stats().Peers > 0 {
			t.Errorf("%s: the frame created a link", name)
		}
	}
}

func TestNewerMinorVersion(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.send(b, link.Control, tell("x"))
	frame := a.frames(link.Control)[0]
	body := link.AppendMessages(nil, tell("x"))
	head := frame[:len(frame)-len(body)-1]
	extended := append(append(bytes.Clone(head), 5), "extra"...)
	extended = append(extended, link.AppendMessages(nil, link.Message{Type: 9, Kind: 3, Payload: []byte("news")}, tell("x"))...)
	b.take(a, link.Control, extended)
	b.want("x")
	b.wantDropped(link.UnknownType, 1)
}

func TestSendToName(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	name := identity.Node{Name: bob.Name}
	if err := a.Send(name, link.Control, tell("join")); err != nil {
		t.Fatal(err)
	}
	if err := a.Send(name, link.Control, tell("me")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		to, frame, ok := a.Flush(0, link.Control, nil)
		if to != name || !ok {
			t.Fatalf("Flush returned a frame to %v, %t; want one to %v", to, ok, name)
		}
		b.take(a, link.Control, frame)
	}
	b.want("join", "me")
	if !b.got[0].Named || b.got[0].Cost == 0 || b.Stats().Peers != 0 || a.Stats().Peers != 0 {
		t.Errorf("first message %+v; %d peers of the receiver, %d of the sender; want a named message with a cost, and no peers", b.got[0], b.Stats().Peers, a.Stats().Peers)
	}
	if _, _, ok := a.Flush(0, link.Control, nil); ok {
		t.Error("Flush returned a third frame")
	}
	for subject, err := range map[string]error{
		"data to a name":            a.Send(name, link.Data, tell("x")),
		"a request to a name":       a.Send(name, link.Control, link.Message{Type: link.Request, Correlation: 1}),
		"an invalid name":           a.Send(identity.Node{Name: "a b"}, link.Control, tell("x")),
		"an invalid name and a UID": a.Send(identity.Node{Name: "a b", UID: 1}, link.Control, tell("x")),
		"an unknown lane":           a.Send(bob, link.Lanes, tell("x")),
		"an unknown type":           a.Send(bob, link.Data, link.Message{Type: 4}),
	} {
		if !errors.Is(err, link.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", subject, err)
		}
	}
	if err := a.Send(name, link.Control, tell(strings.Repeat("x", 1<<20))); !errors.Is(err, link.ErrTooLarge) {
		t.Errorf("a message to a name that is larger than a frame: %v, want ErrTooLarge", err)
	}
}

func TestConfigErrors(t *testing.T) {
	t.Parallel()
	_, err := link.New(link.Config{MaxFrame: 1, MaxMessage: 1 << 30, Window: 1, MaxQueue: -1, MaxQueueAll: -1, Budget: -1, MaxPeers: -1, FrameSize: 1, ProbeInterval: -1})
	for _, field := range []string{"Self", "MaxFrame", "MaxMessage", "Window", "MaxQueue", "MaxQueueAll", "Budget", "MaxPeers", "FrameSize", "ProbeInterval"} {
		if !errors.Is(err, link.ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("the error does not name %s: %v, want ErrInvalid", field, err)
		}
	}
}
