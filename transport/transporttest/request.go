// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transporttest

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/transport"
)

func requestChecks() []check {
	return []check{
		{"RequestReply", "concurrent requests get their own replies", func(f *fixture) {
			a, b := f.pair()
			b.HandleRequest(kindA, func(_ context.Context, r *transport.Request) {
				f.check("Reply", r.Reply(bytes.ToUpper(r.Payload)))
			})
			var wg sync.WaitGroup
			for i := range 64 {
				wg.Go(func() {
					for k := range 20 {
						payload := fmt.Sprintf("request %d/%d", i, k)
						got, err := a.Request(f.ctx, b.Self(), kindA, []byte(payload))
						if err != nil || string(got) != fmt.Sprintf("REQUEST %d/%d", i, k) {
							f.Errorf("Request(%q) = %q, %v", payload, got, err)
							return
						}
					}
				})
			}
			wg.Wait()
			if n := a.Stats().Requests; n != 0 {
				f.Errorf("%d requests are still open at the end, want 0", n)
			}
		}},
		{"RequestContext", "a request ends with its context", func(f *fixture) {
			a, b := f.pair()
			entered := make(chan struct{}) // stays closed for the second request, which enters no handler
			enter := sync.OnceFunc(func() { close(entered) })
			b.HandleRequest(kindA, func(context.Context, *transport.Request) { enter() })
			for _, to := range []identity.Node{b.Self(), f.node("nobody")} {
				f.endsWithContext(fmt.Sprintf("Request to %v", to), entered, func(ctx context.Context) error {
					_, err := a.Request(ctx, to, kindA, nil)
					return err
				})
			}
		}},
		{"RequestNoHandler", "a request without a handler fails soon", func(f *fixture) {
			a, b := f.pair()
			b.Handle(kindA, func(context.Context, transport.Message) {})
			f.want(transport.ErrNoHandler, "Request")(a.Request(f.ctx, b.Self(), kindA, nil))
		}},
		{"RequestLater", "a request can be answered after its handler has returned", func(f *fixture) {
			a, b := f.pair()
			var wg sync.WaitGroup
			defer wg.Wait()
			returned := make(chan struct{})
			b.HandleRequest(kindA, func(_ context.Context, r *transport.Request) {
				wg.Go(func() {
					<-returned // by the next message on the lane
					f.check("Reply", r.Reply([]byte("later")))
				})
			})
			b.Handle(kindB, func(context.Context, transport.Message) { close(returned) })
			wg.Go(func() {
				f.until("the request is sent", func() bool { return a.Stats().Lanes[transport.Data].FramesOut > 0 })
				f.check("Send", a.Send(b.Self(), transport.Data, kindB, nil))
			})
			if got, err := a.Request(f.ctx, b.Self(), kindA, nil); err != nil || string(got) != "later" {
				f.Errorf("Request = %q, %v", got, err)
			}
		}},
	}
}
