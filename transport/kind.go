// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package transport

import "github.com/refold-io/refold/internal/link"

// Kind says what a message is about, and so which handler gets it.
type Kind = link.Kind

// Who uses which kinds: a package takes its own from these ranges.
const (
	// FirstClusterKind is the first of package cluster.
	FirstClusterKind Kind = 1
	// FirstReplicationKind is the first of package ddata.
	FirstReplicationKind Kind = 100
	// FirstShardingKind is the first of package sharding.
	FirstShardingKind Kind = 200
	// FirstUserKind is the first for everybody else. Up to 65,535 is free.
	FirstUserKind Kind = 1000
)

// Lane is one of the ways that messages take from node to node.
type Lane = link.Lane

// The lanes.
const (
	Control = link.Control
	Data    = link.Data
	Bulk    = link.Bulk
)
