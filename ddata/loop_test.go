// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/refold-io/refold/ddata"
)

// The number and the size of the packets that wait for a slow loop are limited. At the limit,
// senders block.
func TestInboxIsLimited(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		payload []byte
		bulk    bool
	}{"count": {make([]byte, 1), false}, "bytes": {make([]byte, ddata.MaxWaiting/4), false}, "bulk": {make([]byte, ddata.MaxWaiting/4), true}} {
		payload := c.payload
		synctest.Test(t, func(t *testing.T) {
			room := min(ddata.MaxWaitingCount, ddata.MaxWaiting/len(payload))
			b := ddata.NewInbox()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan bool, 1)
			receive := func(n int) {
				for range n {
					b.Receive(ctx, payload, c.bulk)
				}
				done <- true
			}
			waits := func(want bool) {
				t.Helper()
				synctest.Wait()
				select {
				case <-done:
					if want {
						t.Errorf("%s: the inbox accepted a packet above the limit", name)
					}
				default:
					if !want {
						t.Errorf("%s: the inbox blocked below the limit", name)
					}
				}
			}
			take := func(want int) {
				t.Helper()
				got := b.Take(c.bulk)
				for c.bulk && got < want && b.Take(true) > 0 { // one at a time
					got++
				}
				if got != want {
					t.Errorf("%s: took %d packets, want %d", name, got, want)
				}
			}
			go receive(room)
			waits(false)
			go receive(1)
			waits(true)
			take(room)
			waits(false)
			take(1)
			go receive(room + 1)
			waits(true)
			cancel() // the transport is closed
			waits(false)
			take(room)
			ctx = t.Context()
			go receive(room + 1)
			waits(true)
			b.Close()
			waits(false)
			b.Receive(ctx, payload, c.bulk)
			take(0)
			// An empty queue accepts a packet above the limit.
			b = ddata.NewInbox()
			b.Receive(ctx, make([]byte, ddata.MaxWaiting+1), c.bulk)
			take(1)
		})
	}
}

// Bulk packets do not delay urgent packets: the loop takes one bulk packet at a time.
func TestBulkDoesNotDelayUrgent(t *testing.T) {
	t.Parallel()
	b := ddata.NewInbox()
	for range 4 {
		b.Receive(t.Context(), make([]byte, ddata.MaxWaiting/4), true)
	}
	for range 3 {
		b.Receive(t.Context(), make([]byte, ddata.MaxWaiting/4), false)
	}
	if urgent, bulk := b.Take(false), b.Take(true); urgent != 3 || bulk != 1 {
		t.Errorf("took %d urgent and %d bulk packets at a time, want 3 and 1", urgent, bulk)
	}
	b.Receive(t.Context(), make([]byte, ddata.MaxWaiting/4), true)
	for i := range 4 {
		if b.Take(true) != 1 {
			t.Errorf("bulk packet %d is missing", i)
		}
	}
	if b.Take(true) != 0 || b.Take(false) != 0 {
		t.Error("the inbox is not empty")
	}
}

// Requests for a blocked loop are limited.
func TestRequestsAreLimited(t *testing.T) {
	t.Parallel()
	b := ddata.NewInbox()
	if b.Ask(ddata.MaxWaitingItems) {
		t.Error("the inbox refused a request below the limit")
	}
	if !b.Ask(1) {
		t.Error("the inbox accepted a request above the limit")
	}
	b.Take(false)
	if b.Ask(1) {
		t.Error("the inbox refused a request after it was emptied")
	}
}
