// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"errors"
	"time"

	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
)

const (
	// maxRetries is how often a key is read or written until enough replicas take part. Each try has its share of
	// the time, and asks further nodes when a fifth of that is over: so one that doesn't answer costs little.
	maxRetries = 5
	// retryTimeout is how long that may take in all.
	retryTimeout = 5 * time.Second
)

// retry calls f until enough replicas have taken part, or the time is up. What f does may be done again.
func retry(ctx context.Context, f func(ctx context.Context) error) error {
	left := retryTimeout
	if deadline, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(deadline))
	}
	var err error
	for range maxRetries {
		once, cancel := context.WithTimeout(ctx, left/maxRetries)
		err = f(once)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, ddata.ErrQuorum) && !errors.Is(err, ddata.ErrBusy) && !errors.Is(err, ddata.ErrCanceled) {
			return err
		}
	}
	return err
}

// readKey reads a key. One that is not there is the empty value.
func readKey[T crdt.Data[T]](ctx context.Context, r *ddata.Replicator, key ddata.Key[T], level ddata.ReadLevel) (v T, err error) {
	err = retry(ctx, func(ctx context.Context) (err error) {
		v, err = ddata.Get(ctx, r, key, level)
		if errors.Is(err, ddata.ErrNotFound) {
			var none T
			v, err = none, nil
		}
		return err
	})
	return v, err
}

// writeKey changes a key. What modify does, it must do once if it is called again.
func writeKey[T crdt.Data[T]](ctx context.Context, r *ddata.Replicator, key ddata.Key[T], modify func(T) (T, error)) error {
	return retry(ctx, func(ctx context.Context) error {
		_, err := ddata.Update(ctx, r, key, ddata.WriteMajority().PreferOldest(), modify)
		return err
	})
}
