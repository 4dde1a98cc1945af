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

// Limits of stored records. They also apply to reading.
const (
	// MaxKey is the maximum size of a key in bytes.
	MaxKey = 512
	// MaxData is the maximum size of a record without its key, in bytes.
	MaxData = 16<<20 + 4<<10
)

// ID identifies the data of a replicator. Two replicators of a node have separate stores. Two nodes
// that share a disk also have separate stores. An ID does not contain the incarnation of the node,
// so a restarted node finds its data.
type ID struct {
	// Node is the name of the node, valid for identity.CheckName.
	Node string
	// Replicator is the name of the replicator. It follows the same rules as Node.
	Replicator string
}

// Check returns an error that matches ErrInvalid unless the ID is valid.
func (id ID) Check() error {
	if err := identity.CheckName(id.Node); err != nil {
		return fmt.Errorf("%w: node: %w", ErrInvalid, err)
	}
	if err := identity.CheckName(id.Replicator); err != nil {
		return fmt.Errorf("%w: replicator: %w", ErrInvalid, err)
	}
	return nil
}

// String returns both names, such as "carts of 10.0.0.1:7355".
func (id ID) String() string { return id.Replicator + " of " + id.Node }

// Record is the stored data of a key.
type Record struct {
	// Key has 1 to MaxKey arbitrary bytes.
	Key string
	// Data has at most MaxData bytes. An empty Data deletes the record.
	Data []byte
}

// Check returns an error that matches ErrInvalid unless the record can be stored.
func (r Record) Check() error {
	if r.Key == "" || len(r.Key) > MaxKey {
		return fmt.Errorf("%w: key %.32q has %d bytes, want 1 to %d", ErrInvalid, r.Key, len(r.Key), MaxKey)
	}
	if len(r.Data) > MaxData {
		return fmt.Errorf("%w: record of %.64q has %d bytes, limit %d", ErrInvalid, r.Key, len(r.Data), MaxData)
	}
	return nil
}

// Opener opens stores. It is safe for concurrent use.
type Opener interface {
	// Open opens the store of a replicator, which is empty if it is opened for the first time. The
	// caller closes it. The error matches ErrInvalid if the ID is invalid, and ErrInUse if the
	// store is open in this or another process. It matches ErrVersion if the data has an
	// unsupported format, ErrForeign if the location holds other data, and ErrCorrupt if the data
	// is damaged. In all these cases Open does not change the existing data.
	Open(ctx context.Context, id ID) (Store, error)
}

// Store is the data of one replicator. A replicator has at most one open Store at a time. Its
// methods are safe for concurrent use.
type Store interface {
	// Load yields all records in the bytewise order of their keys, as of the start of the loop. The
	// caller owns their data. An error ends the loop and is yielded without a record. An error that
	// matches ErrCorrupt contains the damaged key or location.
	Load(ctx context.Context) iter.Seq2[Record, error]

	// Write stores the records that have data and deletes the others, in order: of several records
	// of a key, the last one is effective. It returns nil once all changes are on disk. The store
	// does not retain the slices. If the error matches ErrInvalid (a record fails Check) or
	// ErrClosed, nothing was stored. After any other error each record may be stored or not, and
	// the store remains usable.
	//
	// If ctx has already ended, Write returns the error of ctx and stores nothing. If ctx ends
	// later, the store may ignore it until the disk responds.
	//
	// The space of replaced and deleted records is reclaimed eventually.
	Write(ctx context.Context, records []Record) error

	// Close waits for running calls and releases the store. Later calls fail with ErrClosed; a
	// second Close does nothing.
	Close() error
}

var (
	// ErrClosed is returned by calls after Close.
	ErrClosed = errors.New("durable: closed")
	// ErrInvalid matches errors about invalid arguments.
	ErrInvalid = errors.New("durable: invalid argument")
	// ErrInUse is returned if the store is open in this or another process.
	ErrInUse = errors.New("durable: in use")
	// ErrVersion is returned if the data was written by another version of Refold, in an
	// unsupported format.
	ErrVersion = errors.New("durable: unsupported format")
	// ErrForeign is returned if the location holds other data.
	ErrForeign = errors.New("durable: not durable data of Refold")
	// ErrCorrupt is returned if the data is damaged.
	ErrCorrupt = errors.New("durable: corrupt")
)
