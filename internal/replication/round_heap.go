// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import "container/heap"

// roundHeap orders rounds by when something is due.
type roundHeap []*round

func (h roundHeap) Len() int { return len(h) }
func (h roundHeap) Less(i, j int) bool {
	return h[i].due < h[j].due || h[i].due == h[j].due && h[i].nr < h[j].nr
}

func (h roundHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is part of heap.Interface.
func (h *roundHeap) Push(x any) {
	r := x.(*round) //nolint:errcheck,forcetypeassert // only rounds are pushed
	r.index = len(*h)
	*h = append(*h, r)
}

// Pop is part of heap.Interface.
func (h *roundHeap) Pop() any {
	old := *h
	r := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return r
}

var _ heap.Interface = (*roundHeap)(nil)
