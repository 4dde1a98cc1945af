// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/refold-io/refold/internal/link"
)

func tiny(c *link.Config) { c.MaxFrame = link.MinFrame }

func TestLargeMessages(t *testing.T) {
	t.Parallel()
	a, b := pair(t, tiny)
	large := strings.Repeat("0123456789", 10_000)
	a.send(b, link.Data, tell("before"))
	msg := link.Message{Type: link.Request, Kind: 3, Correlation: 5, Compressed: true, Payload: []byte(large)}
	a.send(b, link.Data, msg, tell("after"))
	frames := a.frames(link.Data)
	for _, frame := range frames {
		if len(frame) > link.MinFrame {
			t.Fatalf("sent a frame of %d bytes, want at most %d", len(frame), link.MinFrame)
		}
	}
	b.take(a, link.Data, frames...)
	b.want("before", large, "after")
	if d := b.got[1]; d.Type != msg.Type || d.Kind != msg.Kind || d.Correlation != msg.Correlation || !d.Compressed {
		t.Errorf("the completed message has type %v, kind %v, correlation %v, compressed %v, want those of the sent message", d.Type, d.Kind, d.Correlation, d.Compressed)
	}
	if n := a.Stats().Lanes[link.Data].MessagesOut; n != 3 {
		t.Errorf("%d messages were counted as sent, want 3", n)
	}
}

func TestLargestMessage(t *testing.T) {
	t.Parallel()
	for _, size := range []int{link.MinFrame, 64 << 10, 1 << 20} {
		a, b := pair(t, func(c *link.Config) { c.MaxFrame = size })
		for _, length := range []int{0, 1, size - 1, size, size + 1, 1<<20 - 1, 1 << 20} {
			want := strings.Repeat("x", min(length, 1<<20))
			a.send(b, link.Bulk, tell(want))
			for range 4 {
				b.move(a, link.Bulk)
				grants(a, b)
			}
			b.want(want)
			b.consume(a, link.Bulk)
			grants(a, b)
		}
		if err := a.Send(bob, link.Bulk, tell(strings.Repeat("x", 1<<20+1))); !errors.Is(err, link.ErrTooLarge) {
			t.Errorf("Send of one byte above the limit: %v, want ErrTooLarge", err)
		}
	}
}

func TestLostPart(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 3000)
	for lost := range 4 {
		a, b := pair(t, tiny)
		a.send(b, link.Data, tell(large), tell("after"))
		frames := a.frames(link.Data)
		if len(frames) != 4 {
			t.Fatalf("sent %d frames, want 4", len(frames))
		}
		for i, frame := range frames {
			if i != lost {
				b.take(a, link.Data, frame)
			}
		}
		for _, d := range b.got {
			if s := string(d.Payload); s != "after" {
				t.Errorf("part %d was lost: delivered another message of %d bytes", lost, len(s))
			}
		}
		b.consume(a, link.Data)
		a.send(b, link.Data, tell("again"))
		b.move(a, link.Data)
		b.want("again")
		if b.Stats().Dropped[link.Incomplete] == 0 {
			t.Errorf("part %d was lost: no loss was counted", lost)
		}
	}
}

// The end of the first message and the beginning of the second are lost. The sizes of the remaining
// parts fit together.
func TestPartsOfTwoMessages(t *testing.T) {
	t.Parallel()
	b := open(t, bob)
	part := func(number uint64, msgType link.Type, payload string, rest uint64) {
		f := link.Frame{
			Lane: link.Data, From: alice, To: bob.UID, Sequenced: true, Epoch: 1, Number: number, Offset: number * 1000,
			Body: link.AppendPart(nil, link.Message{Type: msgType, Payload: []byte(payload)}, rest),
		}
		for _, d := range b.Receive(0, link.Data, alice.Name, link.AppendFrame(nil, f)).Deliver {
			t.Errorf("delivered %q, which consists of parts of two messages", d.Payload)
		}
	}
	part(1, link.Tell, "first", 10)
	part(4, link.Continuation, "secon", 5)
	part(5, link.Continuation, "d end", 0)
}

func TestInvalidPartSizes(t *testing.T) {
	t.Parallel()
	part := func(msgType link.Type, length int, rest uint64) []byte {
		return link.AppendPart(nil, link.Message{Type: msgType, Kind: 1, Payload: make([]byte, length)}, rest)
	}
	for name, test := range map[string]struct {
		bodies [][]byte
		why    link.Reason
	}{
		"larger than allowed":        {[][]byte{part(link.Tell, 10, 1<<20)}, link.TooLarge},
		"far larger than allowed":    {[][]byte{part(link.Tell, 10, 1<<63)}, link.TooLarge},
		"single part too large":      {[][]byte{part(link.Tell, 1<<20+1, 0)}, link.TooLarge},
		"less than announced":        {[][]byte{part(link.Tell, 10, 100), part(link.Continuation, 10, 0)}, link.Incomplete},
		"more than announced":        {[][]byte{part(link.Tell, 10, 100), part(link.Continuation, 200, 0)}, link.Incomplete},
		"never ends":                 {[][]byte{part(link.Tell, 10, 100), part(link.Continuation, 10, 100)}, link.Incomplete},
		"another message in between": {[][]byte{part(link.Tell, 10, 100), part(link.Tell, 10, 100)}, link.Incomplete},
		"a part without a beginning": {[][]byte{part(link.Continuation, 10, 0)}, link.Incomplete},
	} {
		b := open(t, bob)
		offset := uint64(0)
		for i, body := range test.bodies {
			f := link.Frame{Lane: link.Data, From: alice, To: bob.UID, Sequenced: true, Epoch: 1, Number: uint64(i + 1), Offset: offset, Body: body}
			if eff := b.Receive(0, link.Data, alice.Name, link.AppendFrame(nil, f)); len(eff.Deliver) != 0 {
				t.Errorf("%s: delivered a message of %d bytes", name, len(eff.Deliver[0].Payload))
			}
			offset += uint64(len(body)) + 256
		}
		if b.Stats().Dropped[test.why] == 0 {
			t.Errorf("%s: not counted as %v: %v", name, test.why, b.Stats().Dropped)
		}
	}
}
