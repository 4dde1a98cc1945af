// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import "github.com/refold-io/refold/internal/node/shards"

// dropGivenUp takes the commands out of the buffers of the region whose callers have left: a region that leaves must not wait for them, and others
// need the room.
func (s *site) dropGivenUp() {
	var gone []uint64
	for at := range s.machine.Buffered(s.now()) {
		if givenUp(&at) {
			gone = append(gone, at.Token)
		}
	}
	if len(gone) > 0 {
		s.step(shards.Drop{Tokens: gone})
	}
}

// givenUp reports whether nobody waits for the answer to a command any more. One that nobody has ever waited for is to be done.
func givenUp(at *shards.Buffered) bool {
	if p, own := at.Local.(*parcel); own {
		return p.message.Asked() && p.message.Context().Err() != nil
	}
	a, err := decodeArrival(at.Body)
	return err == nil && a.asker.waits() && a.limited && at.Waited >= a.left
}
