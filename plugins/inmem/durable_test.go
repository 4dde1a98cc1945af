// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inmem_test

import (
	"testing"

	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/ddata/durable/durabletest"
	"github.com/refold-io/refold/plugins/inmem"
)

func TestDurable(t *testing.T) {
	t.Parallel()
	durabletest.Run(t, durabletest.Config{Open: func(testing.TB) durable.Opener { return new(inmem.Durable) }})
}
