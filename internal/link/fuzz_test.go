// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package link_test

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"github.com/refold-io/refold/internal/link"
)

func seeds(f *testing.F) {
	f.Helper()
	a, b := pair(f, tiny)
	a.send(b, link.Data, tell("small"), tell(string(make([]byte, 3000))))
	for _, frame := range a.frames(link.Data) {
		f.Add(frame)
	}
	b.Quarantine(alice, false)
	f.Add(link.AppendFrame(nil, link.Frame{Lane: link.Control, From: alice, Body: link.AppendMessages(nil, tell("join"))}))
	f.Add(link.AppendFrame(nil, link.Frame{Lane: link.Control, From: alice, To: bob.UID, Body: link.AppendNotice(nil, bob.UID)}))
	f.Add([]byte{})
}

// Encoding a decoded frame gives the same bytes, except for extensions.
func FuzzDecodeFrame(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		frame, err := link.DecodeFrame(data)
		if err != nil {
			return
		}
		again, err := link.DecodeFrame(link.AppendFrame(nil, frame))
		if err != nil || fmt.Sprint(again) != fmt.Sprint(frame) || !bytes.Equal(again.Body, frame.Body) {
			t.Errorf("%+v was encoded and decoded to %+v, %v", frame, again, err)
		}
	})
}

// A machine accepts any input, and allocates memory in proportion to the size of the input.
func FuzzReceive(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		b := open(t, bob)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for lane := range link.Lane(link.Lanes) {
			for range 2 {
				eff := b.Receive(0, lane, alice.Name, data)
				for _, d := range eff.Deliver {
					b.Consume(alice, lane, d.Cost)
				}
			}
			b.frames(link.Control)
		}
		runtime.ReadMemStats(&after)
		if grown := after.TotalAlloc - before.TotalAlloc; grown > uint64(64*len(data)+1<<20) {
			t.Errorf("%d bytes were allocated for an input of %d bytes", grown, len(data))
		}
	})
}
