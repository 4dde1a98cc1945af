// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/sharding"
)

// TestRefusalErrors checks that each reason of a refusal has an error that reports that nothing was
// done.
func TestRefusalErrors(t *testing.T) {
	t.Parallel()
	for err, is := range map[error]error{
		sharding.ErrHandOff: eventsourcing.ErrStopped, sharding.ErrNotHome: eventsourcing.ErrStopped, sharding.ErrStopped: eventsourcing.ErrStopped,
		sharding.ErrNotSent: eventsourcing.ErrStopped, sharding.ErrAbandoned: eventsourcing.ErrStopped, sharding.ErrBuffersFull: eventsourcing.ErrStashFull,
	} {
		if !errors.Is(err, is) || !eventsourcing.NotDone(err) || eventsourcing.StatusOf(err).Code != eventsourcing.StatusOf(is).Code {
			t.Errorf("%v does not match %v", err, is)
		}
		if strings.Contains(err.Error(), "eventsourcing") || !strings.HasPrefix(err.Error(), "sharding: ") {
			t.Errorf("the error text is %q, want the prefix \"sharding: \" only", err)
		}
	}
	if errors.Is(sharding.ErrStopped, sharding.ErrHandOff) {
		t.Error("ErrStopped matches ErrHandOff")
	}
}
