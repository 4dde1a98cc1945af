// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package durable is the SPI for storing replicated data on disk: an [Opener], which a program
// chooses, and the [Store] that it opens for each replicator.
//
//	store, err := opener.Open(ctx, durable.ID{Node: "10.0.0.1:7355", Replicator: "carts"})
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	for r, err := range store.Load(ctx) { ... }
//	err = store.Write(ctx, []durable.Record{{Key: "cart-1", Data: data}, {Key: "cart-2"}}) // the second is deleted
//
// A store maps keys to records, which are opaque bytes with their own version. Keys are independent
// of each other, so a failed call of Write may have stored some of its records. A store must
// guarantee two things: after Write returns nil the records are on disk, and replaced or deleted
// records never return.
//
// # Use by a replicator
//
// A replicator opens the store before it takes part in replication, passes all records of Load to
// its protocol, and only then serves requests. An error stops the replicator, because continuing
// without a record would lose acknowledged data. Afterwards the replicator writes on a separate
// goroutine. The protocol never waits for this goroutine: records that arrive during a call are
// combined into the next call, which contains the last record of each key. Requests that wait for
// one of these records receive the result of that call. A record that fails Check is not passed to
// the store; requests that wait for this record receive a separate result.
//
// With write-behind, an option of the replicator, requests are answered at once. The first record
// starts a timer; when it expires, the last record of each key is written. If a write fails, the
// replicator logs it, keeps the records and writes them with the next ones. Close writes the rest.
// A crash therefore loses at most one interval of changes that this node has acknowledged.
//
// # Errors
//
// A store survives errors: later calls try again and succeed soon after the disk works again. The
// records of a failed call may be on disk or not. They count as older than the records of any later
// call: once a later call has stored a key, an older record of this key never returns.
//
// Open checks the format and the integrity of the data as far as possible, Load checks the rest.
//
// Package durabletest checks implementations.
package durable
