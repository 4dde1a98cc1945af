// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package durable

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/refold-io/refold/identity"
)

// Limits of what is stored, and of what is taken for a record when it is read.
const (
	// MaxKey is the largest number of bytes of a key.
	MaxKey = 512
	// MaxData is the largest number of bytes of a record without its key.
	MaxData = 16<<20 + 4<<10
)

// ID says whose data it is. Two replicators of a node have stores of their own, and so have
// two nodes that share a disk. It holds no incarnation: a node that is started again finds
// what it has stored.
type ID struct {
	// Node is the name of the node, as identity.CheckName accepts it.
	Node string
	// Replicator is the name of the replicator, of the same characters.
	Replicator string
}

// Check returns an error that matches ErrInvalid unless the ID can be one.
func (id ID) Check() error {
	if err := identity.CheckName(id.Node); err != nil {
		return fmt.Errorf("%w: node: %w", ErrInvalid, err)
	}
	if err := identity.CheckName(id.Replicator); err != nil {
		return fmt.Errorf("%w: replicator: %w", ErrInvalid, err)
	}
	return nil
}

// String returns both names, as in "carts of 10.0.0.1:7355".
func (id ID) String() string { return id.Replicator + " of " + id.Node }

// Record is what is stored of a key.
type Record struct {
	// Key has 1 to MaxKey bytes, of any kind.
	Key string
	// Data has up to MaxData bytes. None means that there is no record, or that it is to
	// be deleted.
	Data []byte
}

// Check returns an error that matches ErrInvalid unless the record can be stored.
func (r Record) Check() error {
	if r.Key == "" || len(r.Key) > MaxKey {
		return fmt.Errorf("%w: key %.32q has %d bytes, it must have 1 to %d", ErrInvalid, r.Key, len(r.Key), MaxKey)
	}
	if len(r.Data) > MaxData {
		return fmt.Errorf("%w: the record of %.64q has %d bytes, at most %d are allowed", ErrInvalid, r.Key, len(r.Data), MaxData)
	}
	return nil
}

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

var (
	// ErrClosed says that the store was closed.
	ErrClosed = errors.New("durable: closed")
	// ErrInvalid is matched by the errors about arguments that can't be.
	ErrInvalid = errors.New("durable: invalid argument")
	// ErrInUse says that the store is open already, here or in another process.
	ErrInUse = errors.New("durable: in use")
	// ErrVersion says that the data was written by another version of Refold, in
	// a format that this one can't read.
	ErrVersion = errors.New("durable: written in another format")
	// ErrForeign says that there is something else in the place of the data.
	ErrForeign = errors.New("durable: not durable data of Refold")
	// ErrCorrupt says that the data is damaged.
	ErrCorrupt = errors.New("durable: corrupt")
)
