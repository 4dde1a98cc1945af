// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"fmt"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/replication"
)

// Key identifies a value of a data type T, of package crdt or a user's own. It has 1 to 512 bytes
// of UTF-8 and does not end in a star. Keys with the same text are the same key, so they must have
// the same type.
type Key[T crdt.Data[T]] string

// Any returns the pattern that matches only this key, for Replicator.Subscribe.
func (k Key[T]) Any() Pattern { return Pattern{text: string(k)} }

// Value returns the value of a change, or the empty value if the key was deleted or has expired.
// The error matches ErrType if the value has another type, ErrInvalid if the type is not defined.
func (k Key[T]) Value(c Change) (T, error) {
	v, err := crdt.As[T](c.types, c.value)
	if err != nil {
		return v, &Error{Op: "read a change of", Key: c.Key, Reason: reasonOf(err), Cause: err}
	}
	return v, nil
}

// check returns an error if the pattern cannot match any key.
func (p Pattern) check() error {
	if !p.prefix {
		return replication.CheckKey(p.text)
	}
	if len(p.text) > replication.MaxKey {
		return fmt.Errorf("prefix has %d bytes, a key has at most %d", len(p.text), replication.MaxKey)
	}
	return nil
}

// Prefix returns the pattern that matches all keys with a prefix, including future ones; all keys
// if the prefix is empty.
func Prefix(text string) Pattern { return Pattern{text: text, prefix: true} }

// Pattern matches one key or all keys with a prefix.
type Pattern struct {
	text   string
	prefix bool
}

// String returns the key, or the prefix followed by a star.
func (p Pattern) String() string {
	if p.prefix {
		return p.text + "*"
	}
	return p.text
}

// Change is a change of a key.
type Change struct {
	Key  string
	Kind ChangeKind

	value crdt.Value
	types *crdt.Types
}

// Raw returns the value without its Go type, or the zero Value if the key was deleted or has
// expired. See Key.Value for the typed value.
func (c Change) Raw() crdt.Value { return c.value }

// ChangeKind is the kind of a change.
type ChangeKind uint8

// The kinds of changes.
const (
	// Changed: the key has another value.
	Changed = ChangeKind(replication.Changed)
	// Deleted: the key was deleted, which is permanent.
	Deleted = ChangeKind(replication.WasDeleted)
	// Expired: the key was not used for Config.Expire and was removed. It may be created again.
	Expired = ChangeKind(replication.Expired)
)

func (k ChangeKind) String() string { return replication.EventKind(k).String() }
