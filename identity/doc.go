// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package identity has the values that identify and describe the nodes of a cluster: Node, Member,
// Status and Version.
//
// A node has a configured name, which survives restarts, and a UID, which is drawn at random at
// each start. A process that restarts under the same name is a different node:
//
//	name   orders-1:7400          survives restarts
//	uid    9f2c..., then 31d0...  one for each start
//
// Names are ordered bytewise, nodes by name and then by UID. All types are values without shared
// state.
package identity
