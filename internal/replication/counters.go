// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import "fmt"

// Drop is why a message was dropped, or not sent.
type Drop uint8

// The reasons.
const (
	DropMalformed Drop = iota // it can't be decoded
	DropStranger              // its sender is no member
	DropLoading               // records are still being loaded
	DropLate                  // nothing waits for it any more
	DropPruned                // it is a delta of a node that has left
	DropTooLarge              // it is larger than messages may be
	DropParts                 // other parts of it are missing
	// Drops is one more than the last.
	Drops
)

func (d Drop) String() string {
	names := []string{"malformed", "stranger", "loading", "late", "pruned", "too large", "parts"}
	if int(d) >= len(names) {
		return fmt.Sprintf("drop(%d)", uint8(d))
	}
	return names[d]
}

// Counters are what a machine has counted since it was made.
type Counters struct {
	Sent, Received, SentBytes [Kinds]uint64
	Dropped                   [Drops]uint64
	Outcomes                  [Stopped + 1]uint64
	// Compared counts comparisons of all data with another node's, Equal those that
	// ended at the root.
	Compared, Equal uint64
	// DeltasApplied, DeltasKnown and DeltasGap count deltas of others: merged, known
	// before, and those before which something was missing.
	DeltasApplied, DeltasKnown, DeltasGap uint64
	// DeltasAsStates counts changes that were sent as a whole value, DeltasDropped those
	// that nobody waited for in time.
	DeltasAsStates, DeltasDropped uint64
	// Merged counts entries of others that changed something, Known those that did
	// not, Refused those that could not be merged.
	Merged, Known, Refused uint64
	// SecondWaves counts requests that asked further nodes, Repaired reads that changed
	// something here.
	SecondWaves, Repaired uint64
	// Initiated, Pruned and Cleared count what was begun, done and forgotten of nodes
	// that have left, in keys.
	Initiated, Pruned, Cleared uint64
	// Expired counts keys that were forgotten.
	Expired uint64
	// Keys and Tombstones are what there is now, Open the requests that wait for others,
	// Log the changes that wait to be sent, Storing what waits for the disk.
	Keys, Tombstones, Open, Log, Storing int
}
