// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/transport"
)

// A handler that ignores its context delays Close for a limited time.
func TestCloseTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		self, err := identity.New("a")
		if err != nil {
			t.Fatal(err)
		}
		tr, err := transport.Open(inmem.NewNetwork(inmem.NetworkConfig{}).Carrier(self), transport.Config{})
		if err != nil {
			t.Fatal(err)
		}
		goOn := make(chan struct{})
		tr.Handle(kindA, func(context.Context, transport.Message) { <-goOn })
		send(t, tr, tr, transport.Data, "x")
		synctest.Wait()
		if err := tr.Close(); err == nil || !strings.Contains(err.Error(), "handlers are still running") {
			t.Errorf("Close with a running handler: %v, want an error about running handlers", err)
		}
		close(goOn)
		synctest.Wait()
	})
}
