// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package identity says who a node of a cluster is.
//
// A node has a name, which is configured and outlives it, and a UID, which is
// drawn when it starts. A process that comes back under the same name is another
// node:
//
//	name   orders-1:7400          stays
//	uid    9f2c..., then 31d0...  one for each start
//
// Names order bytewise, nodes by name and then by UID. All of the package is
// values without state.
package identity
