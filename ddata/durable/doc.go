// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package durable is the SPI of what keeps replicated data on disk: an [Opener],
// which a program chooses, and the [Store] that it opens for each replicator.
//
//	store, err := opener.Open(ctx, durable.ID{Node: "10.0.0.1:7355", Replicator: "carts"})
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	for r, err := range store.Load(ctx) { ... }
//	err = store.Write(ctx, []durable.Record{{Key: "cart-1", Data: data}, {Key: "cart-2"}}) // the second is deleted
//
// A store maps keys to records, and knows nothing about them: bytes that carry a
// version of their own. Keys are independent of each other, so a call of Write that fails
// may have stored some of its records. What it must get right is that nil means on
// disk, and that nothing comes back which was replaced or deleted.
//
// # What a replicator does with it
//
// It opens the store before it takes part, hands all records of Load to its protocol,
// and only then serves; an error stops it, as going on without a record would lose what
// was acknowledged. From then on it writes, on one goroutine that the protocol never waits
// for: what has piled up while a call was under way goes into the next one, the last
// record of each key. All that waits for one of these records is answered when that
// call has returned: it was stored, or why it was not. A record that Check refuses is
// answered alone, and kept away from the others.
//
// With write-behind, which is an option of the replicator and not of stores, requests
// are answered at once. The first record arms a timer, and when that has run down the
// last record of each key is written. What could not be written stays, is
// logged, and is written with the next ones; Close writes what is left. So a crash
// loses up to one interval of what this node has acknowledged.
//
// # When something fails
//
// A store outlives an error: later calls try again, whatever the implementation
// has to do for that, and soon succeed once the disk works again. The records of a call that has failed may be on disk, or not.
// They are older than those of any later call, and never come back once such a call
// has stored the same key.
//
// Whether the data is in a format that can be read, and sound, is found out by Open as
// far as it can, and by Load for the rest.
//
// Implementations are checked by package durabletest.
package durable
