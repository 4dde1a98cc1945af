// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/transport"
)

type (
	// Member is what is known of a node of the cluster. It never changes; its slices
	// must not be modified.
	Member = membership.Member
	// Status is where a member stands in its life. Being unreachable is no status.
	Status = membership.Status
	// Settings are what may be tuned; the zero value of each field is its default. The fields are
	// described at [membership.Settings].
	Settings = membership.Settings
	// Setting is a setting that has to be the same on all nodes of a cluster.
	Setting = membership.Setting
	// RoleLeader is the first among the members with a role.
	RoleLeader = membership.RoleLeader
	// Reachability is who finds whom unreachable.
	Reachability = membership.Reachability
)

// The life of a member.
const (
	Joining              = membership.Joining
	WeaklyUp             = membership.WeaklyUp
	Up                   = membership.Up
	Leaving              = membership.Leaving
	Exiting              = membership.Exiting
	Down                 = membership.Down
	Removed              = membership.Removed
	PreparingForShutdown = membership.PreparingForShutdown
	ReadyForShutdown     = membership.ReadyForShutdown
)

// Kinds of messages of this package, besides those of its protocols. They never change.
const (
	// kindForwarded is a message that a proxy passes on to an instance, as a message or as a
	// request. It has the number of node.KindForwarded.
	kindForwarded transport.Kind = 41
)
