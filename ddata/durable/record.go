// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package durable

import (
	"fmt"

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
