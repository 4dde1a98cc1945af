// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transporttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/transport"
)

func linkChecks() []check {
	return []check{
		{"LinkOrder", "messages of one sender on one lane are handled in order, one at a time", func(f *fixture) {
			const senders, each = 3, 1000
			b, _ := f.open("b", transport.Config{})
			box := collect(b)
			var wg sync.WaitGroup
			for i := range senders {
				a, _ := f.open(fmt.Sprint("a", i), transport.Config{})
				for _, lane := range lanes() {
					wg.Go(func() {
						for k := range each {
							if err := a.Send(b.Self(), lane, kindA, fmt.Append(nil, k)); err != nil {
								f.Errorf("Send: %v", err)
								return
							}
						}
					})
				}
			}
			wg.Wait()
			type source struct {
				from identity.Node
				lane transport.Lane
			}
			next := make(map[source]int)
			for _, m := range box.wait(f, senders*each*len(lanes())) {
				s := source{m.From, m.Lane}
				if string(m.Payload) != fmt.Sprint(next[s]) {
					f.Errorf("handled message %s from %v on %v, want %d", m.Payload, m.From, m.Lane, next[s])
					return
				}
				next[s]++
			}
		}},
		{"LinkSizes", "messages of all sizes up to the limit arrive, on every lane", func(f *fixture) {
			a, b := f.pair()
			box := collect(b)
			n := 0
			for _, lane := range lanes() {
				for _, size := range []int{0, 1, 32 << 10, 1<<20 - 1, 1 << 20} {
					payload := strings.Repeat("x", size)
					if err := a.Send(b.Self(), lane, kindA, []byte(payload)); err != nil {
						f.Fatalf("Send of %d bytes: %v", size, err)
					}
					n++
					if got := box.wait(f, n)[n-1]; string(got.Payload) != payload || got.Lane != lane {
						f.Errorf("%d bytes arrived on %v, want %d on %v", len(got.Payload), got.Lane, size, lane)
					}
				}
				if err := a.Send(b.Self(), lane, kindA, make([]byte, 1<<20+1)); err == nil {
					f.Error("Send accepted a message beyond the limit")
				}
			}
		}},
		{"LinkAtMostOnce", "a frame that arrives twice is handled once", func(f *fixture) {
			dropsTwo(f, []Fate{Pass, Duplicate, Duplicate, Pass}, "0", "1", "2", "3", "end")
		}},
		{"LinkGap", "lost frames are counted and reported, later ones are handled", func(f *fixture) {
			for _, lane := range lanes() {
				got, b, events := exchange(f, lane, []Fate{Pass, Drop, Drop, Pass})
				if want := []string{"0", "3", "end"}; !slices.Equal(got, want) {
					f.Errorf("handled %v on %v, want %v", got, lane, want)
				}
				if s := b.Stats().Lanes[lane]; s.Gaps != 1 || s.Lost != 2 {
					f.Errorf("%d gaps and %d lost frames are counted on %v, want 1 and 2", s.Gaps, s.Lost, lane)
				}
				if len(events) != 1 {
					f.Errorf("the reported events are %v, want one gap", events)
				} else if gap, ok := events[0].(transport.Gap); !ok || gap.Frames != 2 || gap.Lane != lane || gap.From.Name != "a" {
					f.Errorf("the reported event is %+v, want a gap of 2 frames from a on %v", events[0], lane)
				}
			}
		}},
		{"LinkOvertaken", "an overtaken frame is not handled", func(f *fixture) {
			dropsTwo(f, []Fate{Pass, Hold, Pass, Hold, Pass}, "0", "2", "4", "end")
		}},
	}
}

// exchange sends numbers, one per frame, and returns the messages that were handled.
func exchange(f *fixture, lane transport.Lane, fates []Fate) ([]string, endpoint, []transport.Event) {
	var events mailbox[transport.Event]
	a, faulty := f.open("a", transport.Config{})
	b, _ := f.open("b", transport.Config{OnEvent: events.put})
	box := collect(b)
	faulty.Next(lane, fates...)
	for i := range fates {
		f.must("Send", a.Send(b.Self(), lane, kindA, fmt.Append(nil, i)))
		// FramesOut counts a frame before the carrier receives it. Flush returns only after the
		// carrier has received the frame. So the next message is in another frame, and Release
		// cannot overtake the last frame.
		f.must("Flush", a.Flush(f.ctx))
	}
	f.check("Release", faulty.Release())
	f.must("Send", a.Send(b.Self(), lane, kindA, []byte("end")))
	f.until("the last message is handled", func() bool {
		return slices.ContainsFunc(box.all(), func(m transport.Message) bool { return string(m.Payload) == "end" })
	})
	var got []string
	for _, m := range box.all() {
		got = append(got, string(m.Payload))
	}
	if b.Stats().Lanes[lane].Gaps > 0 {
		f.until("the gap is reported", func() bool { return len(events.all()) > 0 })
	}
	return got, b, events.all()
}

// dropsTwo checks which messages are handled, and that two frames are counted as old.
func dropsTwo(f *fixture, fates []Fate, want ...string) {
	f.Helper()
	for _, lane := range lanes() {
		got, b, _ := exchange(f, lane, fates)
		if !slices.Equal(got, want) {
			f.Errorf("handled %v on %v, want %v", got, lane, want)
		}
		if n := b.Stats().Dropped[transport.DropOld]; n != 2 {
			f.Errorf("%d old frames are counted on %v, want 2", n, lane)
		}
	}
}

func flowChecks() []check {
	return []check{
		{"FlowBackpressure", "a sender that is too fast gets ErrBackpressure, and all accepted messages are handled once", func(f *fixture) {
			a, _ := f.open("a", small())
			b, _ := f.open("b", small())
			gate := make(chan struct{})
			var box mailbox[string]
			b.Handle(kindA, func(ctx context.Context, m transport.Message) {
				block(ctx, gate)
				box.put(string(m.Payload[:8]))
			})
			sent := 0
			f.until("backpressure", func() bool {
				err := a.Send(b.Self(), transport.Data, kindA, chunk(sent))
				if err != nil && !errors.Is(err, transport.ErrBackpressure) {
					f.Fatalf("Send: %v, want ErrBackpressure", err)
				}
				if err == nil {
					sent++
				}
				return err != nil
			})
			if sent < 16 || sent > 48 {
				f.Errorf("Send accepted %d messages of 64 KiB, although the window and the queue are 1 MiB each", sent)
			}
			if a.Stats().Refused == 0 {
				f.Error("Stats counts no rejected message")
			}
			close(gate)
			box.wait(f, sent)
			f.until("restored credit", func() bool {
				err := a.Send(b.Self(), transport.Data, kindA, chunk(sent))
				if err == nil {
					sent++
				}
				return err == nil
			})
			for i, got := range box.wait(f, sent) {
				if got != fmt.Sprintf("%08d", i) {
					f.Errorf("handled message %s, want %d", got, i)
					return
				}
			}
		}},
		{"FlowSlowReceiver", "a blocking handler delays its sender's lane only", func(f *fixture) {
			a, _ := f.open("a", small())
			c, _ := f.open("c", small())
			b, _ := f.open("b", small())
			gate := make(chan struct{})
			var box mailbox[string]
			b.Handle(kindA, func(ctx context.Context, m transport.Message) {
				if m.From == a.Self() && m.Lane == transport.Data {
					block(ctx, gate)
					return
				}
				box.put(fmt.Sprint(m.From.Name, " on ", m.Lane))
			})
			defer close(gate)
			f.until("backpressure", func() bool { return a.Send(b.Self(), transport.Data, kindA, chunk(0)) != nil })
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
				f.Errorf("handled %v, want %v", got, want)
			}
		}},
		{"FlowLoss", "credit of lost frames is restored", func(f *fixture) {
			a, faulty := f.open("a", small())
			b, _ := f.open("b", small())
			var handled atomic.Int64
			b.Handle(kindA, func(context.Context, transport.Message) { handled.Add(1) })
			f.must("Send", a.Send(b.Self(), transport.Bulk, kindA, nil))
			f.until("the first message is handled", func() bool { return handled.Load() == 1 })
			faulty.Decide(func(lane transport.Lane, _ identity.Node, frame []byte) Fate {
				if lane == transport.Bulk && len(frame) > 1000 {
					return Drop
				}
				return Pass
			})
			sent := 0
			f.until("backpressure", func() bool {
				err := a.Send(b.Self(), transport.Bulk, kindA, chunk(0))
				sent++
				return err != nil || sent > 30
			})
			faulty.Decide(nil)
			f.until("restored credit", func() bool { return a.Send(b.Self(), transport.Bulk, kindB, nil) == nil })
			before := handled.Load()
			f.until("messages are handled again", func() bool {
				_ = a.Send(b.Self(), transport.Bulk, kindA, nil)
				return handled.Load() > before
			})
		}},
	}
}

func small() transport.Config {
	return transport.Config{MaxMessage: 256 << 10, Window: 1 << 20, MaxQueue: 1 << 20}
}

func chunk(i int) []byte { return []byte(fmt.Sprintf("%08d", i) + strings.Repeat("x", 64<<10)) }
