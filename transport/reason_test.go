// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport_test

import (
	"testing"

	"github.com/refold-io/refold/transport"
)

// Each reason that package link counts has a name here.
func TestReasonsAreAllNamed(t *testing.T) {
	t.Parallel()
	all := []transport.Reason{
		transport.DropMalformed, transport.DropVersion, transport.DropForged, transport.DropWrongReceiver, transport.DropWrongLane, transport.DropQuarantined,
		transport.DropStale, transport.DropOld, transport.DropOverCredit, transport.DropTooLarge, transport.DropTooManyPeers, transport.DropIncomplete,
		transport.DropUnknownType, transport.DropForgotten, transport.DropNoHandler, transport.DropLateReply, transport.DropUndecompressed, transport.DropPanicked,
		transport.DropUnsent, transport.DropClosing, transport.DropOverload, transport.Reasons,
	}
	for i, why := range all {
		if int(why) != i+1 {
			t.Errorf("%v is %d, want %d", why, why, i+1)
		}
	}
}
