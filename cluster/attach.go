// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"
	"sync"
	"time"
)

// attached is what other packages keep for a node.
type attached struct {
	mu sync.Mutex
	by map[any]any
}

// Attached returns what a package that stands on this one keeps for the node, by a key that nobody else has: a value of a type of its
// own. The first call for a key makes it, with the lock of all keys held.
func (n *Node) Attached(key any, make func() any) any {
	n.attached.mu.Lock()
	defer n.attached.mu.Unlock()
	if v, ok := n.attached.by[key]; ok {
		return v
	}
	v := make()
	if n.attached.by == nil {
		n.attached.by = map[any]any{}
	}
	n.attached.by[key] = v
	return v
}

// Roles returns what the node is for, as configured: sorted and without duplicates.
func (n *Node) Roles() []string {
	return slices.Compact(slices.Sorted(slices.Values(n.cfg.Roles)))
}

// RemovalMargin is how long after the removal of a node it is sure that the node has stopped what it hosted.
func (n *Node) RemovalMargin() time.Duration { return n.machine.Config().Downing.RemovalMargin }
