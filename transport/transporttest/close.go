// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transporttest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/refold-io/refold/transport"
)

func closeChecks() []check {
	return []check{
		{"CloseWaits", "Close ends the contexts of handlers and waits for them", closeWaits},
		{"CloseUnderLoad", "Close returns under load, requests fail, nothing is handled afterwards", closeUnderLoad},
	}
}

func closeWaits(f *fixture) {
	a, _ := f.open("a", transport.Config{})
	b, _ := f.open("b", transport.Config{})
	entered := make(chan struct{})
	var returned atomic.Bool
	b.Handle(kindA, func(ctx context.Context, _ transport.Message) {
		close(entered)
		select {
		case <-ctx.Done():
		case <-f.ctx.Done():
		}
		returned.Store(true)
	})
	if err := a.Send(b.Self(), transport.Data, kindA, nil); err != nil {
		f.Fatalf("Send: %v", err)
	}
	<-entered
	if err := b.Close(); err != nil {
		f.Errorf("Close: %v", err)
	}
	if !returned.Load() {
		f.Error("Close has returned, and the handler has not")
	}
	if err := b.Send(a.Self(), transport.Data, kindA, nil); !errors.Is(err, transport.ErrClosed) {
		f.Errorf("Send after Close: %v, want ErrClosed", err)
	}
}

func closeUnderLoad(f *fixture) {
	a, _ := f.open("a", transport.Config{})
	b, _ := f.open("b", transport.Config{})
	var closed, late, handled atomic.Int64
	b.Handle(kindA, func(context.Context, transport.Message) {
		handled.Add(1)
		late.Add(closed.Load())
	})
	b.HandleRequest(kindA, func(_ context.Context, r *transport.Request) { _ = r.Reply(nil) })
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for f.ctx.Err() == nil {
				if _, err := b.Request(f.ctx, b.Self(), kindA, nil); errors.Is(err, transport.ErrClosed) {
					return
				}
			}
			f.Error("a request does not fail")
		})
		wg.Go(func() {
			for f.ctx.Err() == nil && closed.Load() == 0 {
				for _, lane := range lanes() {
					_ = a.Send(b.Self(), lane, kindA, make([]byte, 100))
				}
			}
		})
	}
	f.until("that there is load", func() bool { return handled.Load() > 100 })
	if err := b.Close(); err != nil {
		f.Errorf("Close: %v", err)
	}
	closed.Store(1)
	wg.Wait()
	if n := late.Load(); n > 0 {
		f.Errorf("%d messages are handled after Close", n)
	}
}
