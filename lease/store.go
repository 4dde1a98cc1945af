// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/refold-io/refold/internal/panics"
)

var (
	// ErrHeld is returned when the entry exists.
	ErrHeld = errors.New("lease: held")
	// ErrFree is returned when the entry does not exist.
	ErrFree = errors.New("lease: free")
	// ErrConflict is returned when the entry does not have the given revision: it was written
	// again, it expired, or it was deleted.
	ErrConflict = errors.New("lease: the entry has another revision")
	// ErrClosed is returned after the store or the lease was closed.
	ErrClosed = errors.New("lease: closed")
	// ErrInvalid is matched by errors about invalid arguments.
	ErrInvalid = errors.New("lease: invalid argument")
)

// MaxLength is the largest number of bytes that a name or an owner may have.
const MaxLength = 256

// Entry is the stored state of a lease.
type Entry struct {
	Owner string
	// Revision is different after each write of the name, also after a deletion.
	Revision uint64
}

// Store keeps entries that expire. All changes are conditional, so that only one of several
// processes succeeds. Its methods are safe for concurrent use, and return soon after their context
// has ended. After ErrHeld, ErrFree, ErrConflict and ErrInvalid no change was made. After any other
// error a change may have been made or may still be made.
type Store interface {
	// Timeout returns how long after its last write an entry expires. An entry never expires
	// earlier.
	Timeout() time.Duration

	// Create creates an entry, or returns ErrHeld. The error matches ErrInvalid if Check rejects
	// the name or the owner.
	Create(ctx context.Context, name, owner string) (revision uint64, err error)

	// Renew writes an entry again, or returns ErrConflict if its revision differs.
	Renew(ctx context.Context, name, owner string, revision uint64) (uint64, error)

	// Delete removes an entry, or returns ErrConflict if its revision differs.
	Delete(ctx context.Context, name string, revision uint64) error

	// Get returns an entry, or ErrFree.
	Get(ctx context.Context, name string) (Entry, error)

	// Close ends all calls. It leaves entries as they are.
	Close() error
}

// Check returns nil if a name or an owner has 1 to MaxLength bytes. Otherwise it returns an error
// that matches ErrInvalid.
func Check(field, s string) error {
	if s == "" || len(s) > MaxLength {
		return fmt.Errorf("%w: %s %.32q has %d bytes, want 1 to %d", ErrInvalid, field, s, len(s), MaxLength)
	}
	return nil
}

// panicSafeStore converts panics of a store into errors: the outcome of the call is unknown. Leases
// are renewed on goroutines of this package, where a panic would end the process.
type panicSafeStore struct{ Store }

// Create implements Store.
func (g panicSafeStore) Create(ctx context.Context, name, owner string) (revision uint64, err error) {
	defer panics.Into(&err)
	return g.Store.Create(ctx, name, owner)
}

// Renew implements Store.
func (g panicSafeStore) Renew(ctx context.Context, name, owner string, revision uint64) (next uint64, err error) {
	defer panics.Into(&err)
	return g.Store.Renew(ctx, name, owner, revision)
}

// Delete implements Store.
func (g panicSafeStore) Delete(ctx context.Context, name string, revision uint64) (err error) {
	defer panics.Into(&err)
	return g.Store.Delete(ctx, name, revision)
}

// Get implements Store.
func (g panicSafeStore) Get(ctx context.Context, name string) (entry Entry, err error) {
	defer panics.Into(&err)
	return g.Store.Get(ctx, name)
}
