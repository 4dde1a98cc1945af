// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"fmt"
)

// guarded is a store whose calls that panic fail: leases are renewed on goroutines of
// this package, where a panic would end the process.
type guarded struct{ Store }

// Create makes an entry.
func (g guarded) Create(ctx context.Context, name, owner string) (revision uint64, err error) {
	defer recovered(&err)
	return g.Store.Create(ctx, name, owner)
}

// Renew writes an entry again.
func (g guarded) Renew(ctx context.Context, name, owner string, revision uint64) (next uint64, err error) {
	defer recovered(&err)
	return g.Store.Renew(ctx, name, owner, revision)
}

// Delete removes an entry.
func (g guarded) Delete(ctx context.Context, name string, revision uint64) (err error) {
	defer recovered(&err)
	return g.Store.Delete(ctx, name, revision)
}

// Get returns an entry.
func (g guarded) Get(ctx context.Context, name string) (entry Entry, err error) {
	defer recovered(&err)
	return g.Store.Get(ctx, name)
}

// recovered makes a panic an error: what the call has done is not known.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("lease: the store panicked: %v", p)
	}
}
