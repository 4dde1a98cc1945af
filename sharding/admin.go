// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"maps"
	"slices"

	"github.com/refold-io/refold/transport"
)

// serve lets other nodes and operators ask for the regions of a node.
func (b *switchboard) serve() {
	b.node.Transport().HandleRequest(kindQuestion, b.questioned)
}

// types returns the types with a region or a proxy on the node, sorted.
func (b *switchboard) types() []string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return slices.Sorted(maps.Keys(b.sites))
}

var _ transport.RequestHandler = (*switchboard)(nil).questioned
