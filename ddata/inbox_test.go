// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/refold-io/refold/ddata"
)

// Messages for a loop that does not keep up wait, up to a number and up to a size, and those who bring more wait
// with them.
func TestInboxIsLimited(t *testing.T) {
	t.Parallel()
	for name, payload := range map[string][]byte{"count": make([]byte, 1), "bytes": make([]byte, ddata.MaxWaiting/4)} {
		synctest.Test(t, func(t *testing.T) {
			room := min(ddata.MaxWaitingCount, ddata.MaxWaiting/len(payload))
			b := ddata.NewInbox()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan bool, 1)
			receive := func(n int) {
				for range n {
					b.Receive(ctx, payload)
				}
				done <- true
			}
			waits := func(want bool) {
				t.Helper()
				synctest.Wait()
				select {
				case <-done:
					if want {
						t.Errorf("%s: there is room", name)
					}
				default:
					if !want {
						t.Errorf("%s: there is no room", name)
					}
				}
			}
			take := func(want int) {
				t.Helper()
				if n := b.Take(); n != want {
					t.Errorf("%s: %d packets, not %d", name, n, want)
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
			b.Receive(ctx, payload)
			take(0)
			// What is larger than all the room has room where there is nothing else.
			b = ddata.NewInbox()
			b.Receive(ctx, make([]byte, ddata.MaxWaiting+1))
			take(1)
		})
	}
}
