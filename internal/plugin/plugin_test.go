// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"testing"
	"testing/synctest"

	"github.com/refold-io/refold/internal/plugin"
)

// A call that begins while Shut waits for another one is refused at once.
func TestEnterDuringShut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := plugin.NewHandle()
		if !h.Enter() {
			t.Fatal("Enter of an open handle failed")
		}
		shut := make(chan bool, 2)
		go func() { shut <- h.Shut() }()
		synctest.Wait()
		select {
		case <-shut:
			t.Fatal("Shut did not wait for the call")
		case <-h.Done():
		default:
			t.Error("Done is not closed while Shut waits")
		}
		if h.Enter() {
			t.Error("Enter succeeded after the call of Shut")
		}
		go func() { shut <- h.Shut() }()
		synctest.Wait()
		if len(shut) > 0 {
			t.Error("a second Shut did not wait for the call")
		}
		h.Leave()
		if first, second := <-shut, <-shut; first == second {
			t.Errorf("two calls of Shut returned %v and %v, want true once", first, second)
		}
	})
}
