// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"hash/maphash"
	"sync"
)

// ownEvents holds the highest sequence numbers of IDs whose last event this process has stored in
// the current epoch of the server. In an epoch, stored events are neither deleted nor lost, and those
// of an ID have no gap. The event after such a number therefore needs no check: if another process
// has stored one, the primary key rejects it.
type ownEvents struct {
	seed maphash.Seed

	mu    sync.Mutex
	epoch string     // as returned by append_batch; empty before the first call
	slots []ownEvent // one for each hash; an ID replaces another one
}

type ownEvent struct {
	id      string
	highest uint64
}

// maxOwnEvents is the number of IDs whose highest numbers a DB holds, 24 bytes each.
const maxOwnEvents = 1 << 16

// noEpoch is the result of append_batch if there is no epoch.
const noEpoch = "-"

func (o *ownEvents) slot(id string) *ownEvent {
	return &o.slots[maphash.String(o.seed, id)%maxOwnEvents]
}

// start begins another epoch.
func (o *ownEvents) start(epoch string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if epoch != o.epoch {
		o.epoch, o.slots = epoch, nil
	}
}

// find returns the epoch and marks the chains that need no check.
func (o *ownEvents) find(chains []chain) (epoch string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range chains {
		c := &chains[i]
		c.own = false
		if o.slots != nil {
			slot := o.slot(c.id)
			c.own = slot.highest == c.expect && slot.id == c.id
		}
	}
	return o.epoch
}

// add adds the chains that were stored in an epoch.
func (o *ownEvents) add(epoch string, chains []chain) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if epoch != o.epoch || epoch == noEpoch {
		return
	}
	if o.slots == nil {
		o.slots = make([]ownEvent, maxOwnEvents)
	}
	for i := range chains {
		*o.slot(chains[i].id) = ownEvent{id: chains[i].id, highest: chains[i].next}
	}
}
