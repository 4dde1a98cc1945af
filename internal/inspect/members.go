// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inspect

import "github.com/refold-io/refold/cluster"

// Answers reports whether a member answers requests of operators: it has joined and is not down.
func Answers(m *cluster.SummaryMember) bool {
	return m.Status != cluster.Down.String() && m.Status != cluster.Joining.String()
}

// Leaves reports whether a member is leaving the cluster.
func Leaves(m *cluster.SummaryMember) bool {
	return m.Status == cluster.Leaving.String() || m.Status == cluster.Exiting.String()
}
