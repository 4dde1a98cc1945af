// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem_test

import (
	"testing"
	"time"

	"github.com/refold-io/refold/lease"
	"github.com/refold-io/refold/lease/leasetest"
	"github.com/refold-io/refold/plugins/inmem"
)

// handle is one of several handles on a store. Closing it leaves the store open.
type handle struct{ lease.Store }

func (handle) Close() error { return nil }

func TestLeases(t *testing.T) {
	t.Parallel()
	leasetest.Run(t, leasetest.Config{
		Open:   func(_ testing.TB, timeout time.Duration) lease.Store { return inmem.NewLeases(timeout) },
		Attach: func(_ testing.TB, s lease.Store) lease.Store { return handle{s} },
	})
}
