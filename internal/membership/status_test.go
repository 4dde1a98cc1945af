// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership_test

import (
	"slices"
	"testing"

	"github.com/refold-io/refold/internal/membership"
)

func TestTransitions(t *testing.T) {
	t.Parallel()
	const (
		joining, weakly, up, leaving = membership.Joining, membership.WeaklyUp, membership.Up, membership.Leaving
		exiting, down, removed       = membership.Exiting, membership.Down, membership.Removed
		preparing, prepared          = membership.PreparingForShutdown, membership.ReadyForShutdown
	)
	allowed := map[membership.Status][]membership.Status{
		joining: {weakly, up, leaving, down, removed}, weakly: {up, leaving, down, removed}, up: {leaving, down, removed, preparing},
		preparing: {prepared, leaving, down, removed}, prepared: {leaving, down, removed}, leaving: {exiting, down, removed},
		exiting: {down, removed}, down: {removed}, removed: nil,
	}
	for from, to := range allowed {
		for next := range allowed {
			if got, want := from.CanBecome(next), slices.Contains(to, next); got != want {
				t.Errorf("%v to %v: %t, want %t", from, next, got, want)
			}
		}
	}
	if membership.Status(0).CanBecome(up) || membership.Status(77).String() != "status(77)" {
		t.Error("no status")
	}
}
