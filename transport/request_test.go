// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/link"
	"github.com/refold-io/refold/transport"
)

func TestManyRequests(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.open("a", transport.Config{}), c.open("b", transport.Config{})
	echo := func(_ context.Context, r *transport.Request) { _ = r.Reply(slices.Concat([]byte("re: "), r.Payload)) }
	a.HandleRequest(kindA, echo)
	b.HandleRequest(kindA, echo)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			for k := range 50 {
				from, to := a, b
				if i%3 == 0 {
					from, to = b, a
				}
				payload := fmt.Sprintf("%d/%d", i, k)
				if got, err := from.Request(t.Context(), to.Self(), kindA, []byte(payload)); string(got) != "re: "+payload || err != nil {
					t.Errorf("Request(%q) = %q, %v, want %q", payload, got, err, "re: "+payload)
				}
			}
		})
	}
	wg.Wait()
	if n := a.Stats().Requests + b.Stats().Requests; n != 0 {
		t.Errorf("%d requests are still open, want 0", n)
	}
}

func TestRequestErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := c.open("a", transport.Config{MaxRequests: 2}), c.open("b", transport.Config{})
		asked := make(chan *transport.Request, 10)
		b.HandleRequest(kindA, func(_ context.Context, r *transport.Request) { asked <- r })
		b.HandleRequest(kindB, func(context.Context, *transport.Request) { panic("no") })

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := a.Request(ctx, b.Self(), kindA, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("request without a reply: %v, want context.DeadlineExceeded", err)
		}
		late := <-asked
		if err := late.Reply(nil); err != nil {
			t.Error(err)
		}
		if err := late.Reply(nil); err != nil { // only the first reply is sent
			t.Error(err)
		}
		synctest.Wait()
		if n := a.Stats().Dropped[link.LateReply]; n != 1 {
			t.Errorf("%d late replies were counted, want 1", n)
		}
		if _, err := a.Request(t.Context(), b.Self(), kindSilent, nil); !errors.Is(err, transport.ErrNoHandler) {
			t.Errorf("request without a handler: %v, want ErrNoHandler", err)
		}
		if _, err := a.Request(t.Context(), b.Self(), kindB, nil); !errors.Is(err, transport.ErrHandlerFailed) {
			t.Errorf("request whose handler panics: %v, want ErrHandlerFailed", err)
		}
		if _, err := a.Request(t.Context(), identity.Node{Name: "b"}, kindA, nil); !errors.Is(err, transport.ErrInvalid) {
			t.Errorf("request to a name: %v, want ErrInvalid", err)
		}
		if _, err := a.Request(t.Context(), b.Self(), kindA, make([]byte, 2<<20)); !errors.Is(err, transport.ErrTooLarge) {
			t.Errorf("request that is too large: %v, want ErrTooLarge", err)
		}
		errs := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := a.Request(t.Context(), b.Self(), kindA, nil)
				errs <- err
			}()
		}
		synctest.Wait()
		if _, err := a.Request(t.Context(), b.Self(), kindA, nil); !errors.Is(err, transport.ErrBackpressure) {
			t.Errorf("one request above the limit: %v, want ErrBackpressure", err)
		}
		a.Forget(b.Self())
		for range 2 {
			if err := <-errs; !errors.Is(err, transport.ErrForgotten) {
				t.Errorf("request to a forgotten peer: %v, want ErrForgotten", err)
			}
		}
		b.HandleRequest(kindA, func(_ context.Context, r *transport.Request) {
			if err := r.Reply(make([]byte, 2<<20)); !errors.Is(err, transport.ErrTooLarge) {
				t.Errorf("Reply that is too large: %v, want ErrTooLarge", err)
			}
		})
		if _, err := a.Request(t.Context(), b.Self(), kindA, nil); !errors.Is(err, transport.ErrHandlerFailed) {
			t.Errorf("request whose reply is too large: %v, want ErrHandlerFailed", err)
		}
		b.HandleRequest(kindA, func(context.Context, *transport.Request) {})
		go func() {
			_, err := a.Request(t.Context(), b.Self(), kindA, nil)
			errs <- err
		}()
		synctest.Wait()
		a.Quarantine(b.Self(), true)
		if err := <-errs; !errors.Is(err, transport.ErrQuarantined) {
			t.Errorf("request to a quarantined peer: %v, want ErrQuarantined", err)
		}
	})
}

// A node that guesses a correlation number cannot answer the request to another node.
func TestForgedReply(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := c.open("a", transport.Config{}), c.open("b", transport.Config{})
	self := identity.Node{Name: "mallory", UID: 1}
	r, m := c.raw(self), machine(t, self)
	b.HandleRequest(kindA, func(_ context.Context, req *transport.Request) {
		for correlation := range uint64(20) {
			r.send(t, m, a.Self(), transport.Data, link.Message{Type: link.Reply, Correlation: correlation, Payload: []byte("forged")})
		}
		// The reply arrives after the forged replies.
		for a.Stats().Dropped[link.LateReply] < 20 {
			continue
		}
		_ = req.Reply([]byte("honest"))
	})
	if got, err := a.Request(t.Context(), b.Self(), kindA, nil); string(got) != "honest" || err != nil {
		t.Errorf("Request = %s, %v, want honest", got, err)
	}
}
