// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package inspect

import "github.com/refold-io/refold/identity"

// Answers reports whether a member with a status, in words, answers requests of operators: it has joined
// and is not down.
func Answers(status string) bool {
	return status != identity.Down.String() && status != identity.Joining.String()
}

// Leaves reports whether a member with a status, in words, is leaving the cluster.
func Leaves(status string) bool {
	return status == identity.Leaving.String() || status == identity.Exiting.String()
}
