// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transporttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/transport"
)

func flowChecks() []check {
	return []check{
		{"FlowBackpressure", "who sends faster than it is handled gets ErrBackpressure, and all that was taken is handled once", flowBackpressure},
		{"FlowSlowReceiver", "a handler that blocks stalls its sender's lane and nothing else", flowSlowReceiver},
		{"FlowLoss", "credit for what was lost comes back", flowLoss},
	}
}

// small has little room, so that it is soon full.
func small() transport.Config {
	return transport.Config{MaxMessage: 256 << 10, Window: 1 << 20, MaxQueue: 1 << 20}
}

func chunk(i int) []byte { return []byte(fmt.Sprintf("%08d", i) + strings.Repeat("x", 64<<10)) }

func flowBackpressure(f *fixture) {
	a, _ := f.open("a", small())
	b, _ := f.open("b", small())
	gate := make(chan struct{})
	var box mailbox[string]
	b.Handle(kindA, func(ctx context.Context, m transport.Message) {
		select {
		case <-gate:
		case <-ctx.Done():
		}
		box.put(string(m.Payload[:8]))
	})
	sent := 0
	f.until("that there is backpressure", func() bool {
		err := a.Send(b.Self(), transport.Data, kindA, chunk(sent))
		if err != nil && !errors.Is(err, transport.ErrBackpressure) {
			f.Fatalf("Send: %v", err)
		}
		if err == nil {
			sent++
		}
		return err != nil
	})
	if sent < 16 || sent > 48 {
		f.Errorf("%d messages of 64 KiB are taken, the window and the queue are 1 MiB each", sent)
	}
	if a.Stats().Refused == 0 {
		f.Error("no refusal is counted")
	}
	close(gate)
	box.wait(f, sent)
	f.until("that there is room again", func() bool {
		err := a.Send(b.Self(), transport.Data, kindA, chunk(sent))
		if err == nil {
			sent++
		}
		return err == nil
	})
	for i, got := range box.wait(f, sent) {
		if got != fmt.Sprintf("%08d", i) {
			f.Errorf("%s is handled, want %d", got, i)
			return
		}
	}
}

func flowSlowReceiver(f *fixture) {
	a, _ := f.open("a", small())
	c, _ := f.open("c", small())
	b, _ := f.open("b", small())
	gate := make(chan struct{})
	var box mailbox[string]
	b.Handle(kindA, func(ctx context.Context, m transport.Message) {
		if m.From == a.Self() && m.Lane == transport.Data {
			select {
			case <-gate:
			case <-ctx.Done():
			}
			return
		}
		box.put(fmt.Sprint(m.From.Name, " on ", m.Lane))
	})
	defer close(gate)
	f.until("that there is backpressure", func() bool { return a.Send(b.Self(), transport.Data, kindA, chunk(0)) != nil })
	want := []string{"a on bulk", "a on control", "c on bulk", "c on control", "c on data"}
	for _, s := range want {
		from, lane := a, transport.Control
		if strings.HasPrefix(s, "c") {
			from = c
		}
		for _, l := range lanes() {
			if strings.HasSuffix(s, l.String()) {
				lane = l
			}
		}
		if err := from.Send(b.Self(), lane, kindA, chunk(0)); err != nil {
			f.Errorf("Send for %q: %v", s, err)
		}
	}
	got := box.wait(f, len(want))
	slices.Sort(got)
	if !slices.Equal(got, want) {
		f.Errorf("%v are handled, want %v", got, want)
	}
}

func flowLoss(f *fixture) {
	a, faulty := f.open("a", small())
	b, _ := f.open("b", small())
	var handled atomic.Int64
	b.Handle(kindA, func(context.Context, transport.Message) { handled.Add(1) })
	if err := a.Send(b.Self(), transport.Bulk, kindA, nil); err != nil {
		f.Fatalf("Send: %v", err)
	}
	f.until("that the first is handled", func() bool { return handled.Load() == 1 })
	faulty.Decide(func(lane transport.Lane, _ identity.Node, frame []byte) Fate {
		if lane == transport.Bulk && len(frame) > 1000 {
			return Drop
		}
		return Pass
	})
	sent := 0
	f.until("that there is backpressure", func() bool {
		err := a.Send(b.Self(), transport.Bulk, kindA, chunk(0))
		sent++
		return err != nil || sent > 30
	})
	faulty.Decide(nil)
	f.until("that there is room again", func() bool { return a.Send(b.Self(), transport.Bulk, kindB, nil) == nil })
	before := handled.Load()
	f.until("that a message is handled again", func() bool {
		_ = a.Send(b.Self(), transport.Bulk, kindA, nil)
		return handled.Load() > before
	})
}
