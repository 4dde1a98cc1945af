// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"fmt"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/replication"
)

// Key names a value of a data type, one of package crdt or of one's own: 1 to 512 bytes of
// UTF-8 that do not end in a star. Two keys with the same text are the same key, so they need to be of
// the same type.
type Key[T crdt.Data[T]] string

// Any returns what stands for this one key in Replicator.Subscribe.
func (k Key[T]) Any() Pattern { return Pattern{text: string(k)} }

// Value returns the value that a change tells of, the empty one if the key was deleted or has
// expired. The error matches ErrType if it is of another type, ErrInvalid if the type is not
// known.
func (k Key[T]) Value(c Change) (T, error) {
	v, err := crdt.As[T](c.types, c.value)
	if err != nil {
		return v, &Error{Op: "read a change of", Key: c.Key, Reason: reasonOf(err), Cause: publicError(err)}
	}
	return v, nil
}

// check returns an error if no key can be meant.
func (p Pattern) check() error {
	if !p.prefix {
		return publicError(replication.CheckKey(p.text))
	}
	if len(p.text) > replication.MaxKey {
		return fmt.Errorf("a prefix of %d bytes, a key has at most %d", len(p.text), replication.MaxKey)
	}
	return nil
}

// Prefix returns what stands for all keys that begin with a text, those that come later
// included; for all keys if it is empty.
func Prefix(text string) Pattern { return Pattern{text: text, prefix: true} }

// Pattern is one key, or all keys that begin with a text.
type Pattern struct {
	text   string
	prefix bool
}

// String returns the key, or the text with a star behind it.
func (p Pattern) String() string {
	if p.prefix {
		return p.text + "*"
	}
	return p.text
}

// Change is what became of a key.
type Change struct {
	Key  string
	Kind ChangeKind

	value crdt.Value
	types *crdt.Types
}

// Raw returns the value without its Go type, the zero Value if the key was deleted or has expired.
// See Key.Value for the typed one.
func (c Change) Raw() crdt.Value { return c.value }

// ChangeKind says what became of a key.
type ChangeKind uint8

// What becomes of keys.
const (
	// Changed: it has another value.
	Changed = ChangeKind(replication.Changed)
	// Deleted: it was deleted, for ever.
	Deleted = ChangeKind(replication.WasDeleted)
	// Expired: it was not used for long and is forgotten. It may come again.
	Expired = ChangeKind(replication.Expired)
)

func (k ChangeKind) String() string {
	switch k {
	case Changed:
		return "changed"
	case Deleted:
		return "deleted"
	case Expired:
		return "expired"
	}
	return "?"
}
