// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package durable

import (
	"context"
	"iter"
)

// Opener opens stores. It is safe for concurrent use.
type Opener interface {
	// Open opens the store of a replicator, which is empty if it was never opened before.
	// The caller closes it. The error matches ErrInvalid if the ID can't be one, ErrInUse
	// if the store is open already, here or in another process, ErrVersion if what is there
	// is in a format that it can't read, ErrForeign if it is something else, and ErrCorrupt
	// if it is damaged. Nothing of what is there is changed then.
	Open(ctx context.Context, id ID) (Store, error)
}

// Store is the data of one replicator. It belongs to whoever has opened it, and nobody else
// can open it meanwhile. Its methods are safe for concurrent use.
type Store interface {
	// Load yields all records in the bytewise order of their keys, as they are when the loop
	// begins. Their data belongs to the caller. An error ends the loop, and comes without
	// a record: one that matches ErrCorrupt names the key or the place that is
	// damaged.
	Load(ctx context.Context) iter.Seq2[Record, error]

	// Write stores records and deletes those without data, in order: of several with one
	// key, the last one counts. It returns nil once all of it is on disk. The store does not
	// keep the slices. The error matches ErrInvalid if Check refuses one of them, and
	// ErrClosed: nothing was stored then. After any other error each of them may be stored,
	// or not, and the store goes on.
	//
	// A context that has ended is an error and nothing is stored; one that ends later may
	// be ignored until the disk answers.
	//
	// Records that were replaced or deleted do not take up space for ever.
	Write(ctx context.Context, records []Record) error

	// Close waits for calls in progress, and lets others open the store. Afterwards calls
	// fail with ErrClosed; a second Close does nothing.
	Close() error
}
