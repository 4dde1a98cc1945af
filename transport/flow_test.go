// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/transport"
)

var kib64 = []byte(strings.Repeat("x", 64<<10))

// plain disables compression, so that messages have the size of their payloads.
func plain() transport.Config { return transport.Config{CompressAbove: -1} }

func TestSlowHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b, slow := c.open("a", plain()), c.open("b", plain()), c.open("slow", plain())
		release := make(chan struct{})
		var handled atomic.Int64
		slow.Handle(kindA, func(_ context.Context, m transport.Message) {
			if m.From == a.Self() && m.Lane == transport.Data {
				<-release
			}
			handled.Add(1)
		})
		sent := int64(0)
		for {
			err := a.Send(slow.Self(), transport.Data, kindA, kib64)
			synctest.Wait()
			if errors.Is(err, transport.ErrBackpressure) {
				break
			}
			if err != nil || sent > 1000 {
				t.Fatalf("Send after %d messages: %v, want ErrBackpressure", sent, err)
			}
			sent++
		}
		if bytes := sent * 64 << 10; bytes < 7<<20 || bytes > 9<<20 {
			t.Errorf("backpressure after %d bytes, want about 8 MiB for the window and the queue", bytes)
		}
		// Messages of other senders and on other lanes are handled.
		for _, lane := range []transport.Lane{transport.Control, transport.Data, transport.Bulk} {
			if err := b.Send(slow.Self(), lane, kindA, kib64); err != nil {
				t.Error(err)
			}
		}
		if err := a.Send(slow.Self(), transport.Bulk, kindA, kib64); err != nil {
			t.Error(err)
		}
		if err := a.Send(b.Self(), transport.Data, kindA, kib64); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := handled.Load(); n != 4 {
			t.Errorf("%d messages of other senders or lanes were handled, want 4", n)
		}
		close(release)
		synctest.Wait()
		if n := handled.Load(); n != sent+4 {
			t.Errorf("%d messages were handled, want %d", n, sent+4)
		}
		if err := a.Send(slow.Self(), transport.Data, kindA, kib64); err != nil {
			t.Errorf("credit was not restored: %v", err)
		}
	})
}

// All messages in flight are lost, and the sender has no credit left to send another one.
func TestCreditAfterLoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := c.open("a", plain()), c.open("b", plain())
		box := newMailbox()
		b.Handle(kindA, box.handle)
		send(t, a, b, transport.Data, "hello")
		synctest.Wait()
		heal := c.network.Partition([]string{"a"}, []string{"b"})
		sent := 0
		for a.Send(b.Self(), transport.Data, kindA, kib64) == nil {
			sent++
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		heal()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if err := a.Send(b.Self(), transport.Data, kindA, nil); err != nil {
			t.Errorf("Send after the partition: %v", err)
		}
		synctest.Wait()
		if got := len(box.all()); got < sent/3 || got >= sent {
			t.Errorf("%d of %d messages arrived, want all except those in flight", got, sent)
		}
	})
}

func TestQuarantine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		events := make(chan transport.Event, 10)
		cfg := transport.Config{OnEvent: func(e transport.Event) { events <- e }, Silent: []transport.Kind{kindSilent}}
		a, b := c.open("a", cfg), c.open("b", transport.Config{Silent: cfg.Silent})
		entered, release := make(chan struct{}), make(chan struct{})
		var handled atomic.Int64
		b.Handle(kindA, func(context.Context, transport.Message) {
			if handled.Add(1) == 1 {
				close(entered)
				<-release
			}
		})
		send(t, a, b, transport.Data, "1")
		send(t, a, b, transport.Data, "2")
		<-entered
		synctest.Wait()
		b.Quarantine(a.Self(), false)
		close(release)
		synctest.Wait()
		if n := handled.Load(); n != 1 {
			t.Errorf("%d messages were handled, want only the one before the quarantine", n)
		}
		if err := a.Send(b.Self(), transport.Control, kindSilent, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(events) != 0 {
			t.Error("a message of a silent kind caused a notice")
		}
		for range 3 {
			send(t, a, b, transport.Data, "3")
		}
		synctest.Wait()
		if want := (transport.QuarantinedBy{From: b.Self()}); len(events) != 1 || <-events != want {
			t.Errorf("received %d more notices, want one from b", len(events))
		}
		if err := b.Send(a.Self(), transport.Data, kindA, nil); !errors.Is(err, transport.ErrQuarantined) {
			t.Errorf("Send to a quarantined peer: %v, want ErrQuarantined", err)
		}
		if s := b.Stats(); s.Notices != 1 || s.Dropped[link.Quarantined] < 4 || handled.Load() != 1 {
			t.Errorf("%d notices, %d dropped and %d handled messages, want 1, at least 4, and 1", s.Notices, s.Dropped[link.Quarantined], handled.Load())
		}
	})
}

func TestFlush(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.open("a", transport.Config{}), c.open("b", transport.Config{})
	for range 100 {
		send(t, a, b, transport.Bulk, "x")
	}
	if err := a.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := a.Stats().Lanes[transport.Bulk].MessagesOut; n != 100 {
		t.Errorf("%d messages were sent, want 100", n)
	}
}

func TestCloseWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := c.open("a", transport.Config{}), c.open("b", transport.Config{})
		entered := make(chan struct{})
		returned := false
		b.Handle(kindA, func(ctx context.Context, _ transport.Message) {
			close(entered)
			<-ctx.Done()
			time.Sleep(time.Second)
			returned = true
		})
		send(t, a, b, transport.Data, "x")
		send(t, a, b, transport.Data, "never handled")
		<-entered
		if err := b.Close(); err != nil || !returned {
			t.Errorf("Close returned %v, the handler had returned: %t, want nil and true", err, returned)
		}
		errs := make(chan error)
		go func() {
			_, err := a.Request(t.Context(), b.Self(), kindA, nil)
			errs <- err
		}()
		synctest.Wait()
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if err := <-errs; !errors.Is(err, transport.ErrClosed) {
			t.Errorf("a request during Close: %v, want ErrClosed", err)
		}
	})
}

func TestCloseUnderLoad(t *testing.T) {
	t.Parallel()
	for range 20 {
		c := newCluster(t)
		a, b := c.open("a", transport.Config{}), c.open("b", transport.Config{})
		b.HandleRequest(kindA, func(_ context.Context, r *transport.Request) { _ = r.Reply(r.Payload) })
		b.Handle(kindA, func(context.Context, transport.Message) {})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for {
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
					_, err := a.Request(ctx, b.Self(), kindA, []byte("x"))
					cancel()
					if errors.Is(err, transport.ErrClosed) {
						return
					}
					_ = a.Send(b.Self(), transport.Bulk, kindA, []byte("y"))
				}
			})
		}
		if _, err := a.Request(t.Context(), b.Self(), kindA, nil); err != nil {
			t.Error(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

// Messages to the bare name have no credit. Each name has a limit, and all share the budget.
func TestNamedMessageLimits(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	b := c.open("b", transport.Config{Window: 2 << 20, MemoryBudget: 8 << 20})
	box, release := newMailbox(), make(chan struct{})
	b.HandleNamed(kindA, func(ctx context.Context, m transport.Message) {
		select {
		case <-release:
		case <-ctx.Done():
		}
		box.handle(ctx, m)
	})
	sent := uint64(0)
	send := func(from *transport.Transport) {
		t.Helper()
		if err := from.SendToName("b", kindA, make([]byte, 500<<10)); err != nil {
			t.Fatal(err)
		}
		sent++
		for b.Stats().Lanes[transport.Control].FramesIn < sent {
			runtime.Gosched()
		}
	}
	first := c.open("first", transport.Config{CompressAbove: -1})
	for range 5 { // four messages reach the limit of one name
		send(first)
	}
	for i := range 10 {
		send(c.open(fmt.Sprint("a", i), transport.Config{CompressAbove: -1}))
	}
	s := b.Stats()
	if s.Dropped[link.OverCredit] != 1 || s.Dropped[link.Overload] != 0 || s.Memory < 14*500<<10 {
		t.Errorf("%d messages exceeded the limit of their name, %d the budget, and %d bytes are held; want 1, 0 and at least %d",
			s.Dropped[link.OverCredit], s.Dropped[link.Overload], s.Memory, 14*500<<10)
	}
	for i := range 10 {
		send(c.open(fmt.Sprint("b", i), transport.Config{CompressAbove: -1}))
	}
	if n := b.Stats().Dropped[link.Overload]; n < 8 {
		t.Errorf("%d messages of new names exceeded the budget, want at least 8", n)
	}
	close(release)
	for b.Stats().Memory > 0 {
		runtime.Gosched()
	}
	for n := len(box.all()) + 1; len(box.all()) < n; { // handled messages have made room
		send(first)
	}
}

// TestReusedInbox checks that an inbox which was used for a quarantined peer serves other peers.
func TestReusedInbox(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b, other := c.open("a", plain()), c.open("b", plain()), c.open("other", plain())
		release, box := make(chan struct{}), newMailbox()
		b.Handle(kindA, func(ctx context.Context, m transport.Message) {
			if m.From == a.Self() {
				<-release
			}
			box.handle(ctx, m)
		})
		send(t, a, b, transport.Data, "1")
		synctest.Wait()
		b.Quarantine(a.Self(), true)
		close(release)
		synctest.Wait()
		send(t, other, b, transport.Data, "2")
		send(t, other, b, transport.Data, "3")
		synctest.Wait()
		if got := box.all(); len(got) != 3 || got[1].From != other.Self() {
			t.Errorf("handled %v, want the message before the quarantine and two of the other peer", got)
		}
	})
}
