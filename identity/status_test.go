// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	"slices"
	"testing"

	"github.com/refold-io/refold/identity"
)

func TestCanBecome(t *testing.T) {
	t.Parallel()
	const (
		joining, weakly, up, leaving = identity.Joining, identity.WeaklyUp, identity.Up, identity.Leaving
		exiting, down, removed       = identity.Exiting, identity.Down, identity.Removed
		preparing, prepared          = identity.PreparingForShutdown, identity.ReadyForShutdown
	)
	allowed := map[identity.Status][]identity.Status{
		joining: {weakly, up, leaving, down, removed}, weakly: {up, leaving, down, removed}, up: {leaving, down, removed, preparing},
		preparing: {prepared, leaving, down, removed}, prepared: {leaving, down, removed}, leaving: {exiting, down, removed},
		exiting: {down, removed}, down: {removed}, removed: nil,
	}
	for from, to := range allowed {
		for next := range allowed {
			if got, want := from.CanBecome(next), slices.Contains(to, next); got != want {
				t.Errorf("%v.CanBecome(%v) = %t, want %t", from, next, got, want)
			}
		}
	}
	if identity.Status(0).CanBecome(up) || identity.Status(77).String() != "status(77)" {
		t.Errorf("status 0 can become up: %t, status 77 is %v; want false and status(77)", identity.Status(0).CanBecome(up), identity.Status(77))
	}
}
