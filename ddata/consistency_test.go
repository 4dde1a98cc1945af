// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata_test

import (
	"fmt"
	"testing"

	"github.com/refold-io/refold/ddata"
)

// The text of a level contains all its settings.
func TestLevelText(t *testing.T) {
	t.Parallel()
	for want, level := range map[string]fmt.Stringer{
		"local":   ddata.ReadLocal(),
		"3 nodes": ddata.WriteTo(3),
		"majority plus 2 of at least 5, repairing peers, oldest first": ddata.ReadMajorityPlus(2).AtLeast(5).RepairPeers().PreferOldest(),
		"majority, repairing peers":                                    ddata.ReadMajority().RepairPeers(),
		"all, oldest first":                                            ddata.WriteAll().PreferOldest(),
	} {
		if got := level.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
