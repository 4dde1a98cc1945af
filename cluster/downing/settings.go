// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package downing

import "time"

// Strategy names the rule by which the surviving side of a partition is chosen. All nodes of a
// cluster must use the same one.
type Strategy string

// The strategies. For automatic downing see [Auto].
const (
	// KeepMajority keeps the side with more members. Of two equal sides it keeps the one with the
	// lowest node.
	KeepMajority Strategy = "keep-majority"
	// StaticQuorum keeps a side with at least QuorumSize members. If the cluster grows beyond
	// 2*QuorumSize-1 members, the next partition downs all of them.
	StaticQuorum Strategy = "static-quorum"
	// KeepOldest keeps the side with the oldest member, unless that member is alone.
	KeepOldest Strategy = "keep-oldest"
	// DownAll downs all members.
	DownAll Strategy = "down-all"
	// LeaseMajority keeps the side that acquires the lease. The larger side tries first.
	LeaseMajority Strategy = "lease-majority"
	// Off never downs members. An operator must down them.
	Off Strategy = "off"

	automatic Strategy = "auto"
)

// Settings configure the downing of unreachable members. All nodes of a cluster must have equal
// settings. Settings can be compared with ==. The zero value is KeepMajority
// with times that depend on the number of members.
type Settings struct {
	// Strategy chooses the survivors. Defaults to KeepMajority.
	Strategy Strategy
	// StableAfter is how long members and reachability must be unchanged before a decision.
	// Defaults to 5 to 20 seconds, by the number of members: see the package comment.
	StableAfter time.Duration
	// DownAllWhenUnstable is how much longer than StableAfter the reachability may keep changing
	// before all nodes are downed. Defaults to three quarters of StableAfter and at least 4
	// seconds. A negative value means never.
	DownAllWhenUnstable time.Duration
	// RemovalMargin is the time between the removal of a downed node and the start of its
	// singletons and shards on other nodes. Defaults to StableAfter, and to none with Off and Auto.
	// A negative value means no margin.
	RemovalMargin time.Duration
	// Role restricts the members that are counted. Defaults to "", which counts all members.
	// DownAll and Off reject a role.
	Role string
	// QuorumSize is the minimum number of members of the surviving side. StaticQuorum requires a
	// value of at least 1. Other strategies reject it.
	QuorumSize int
	// KeepLoneOldest lets the oldest member survive if it is partitioned from all others. By
	// default the oldest member is downed in this case and the other members survive. For
	// KeepOldest.
	KeepLoneOldest bool
	// LeaseName is the name of the lease. Defaults to the name of the cluster and "-downing", such
	// as "bank-downing". For LeaseMajority.
	LeaseName string
	// MinorityDelay is how long the smaller side waits before it tries to acquire the lease.
	// Defaults to 2 seconds. For LeaseMajority.
	MinorityDelay time.Duration
	// ReleaseAfter is how long the lease is held after the downed nodes were removed. It must be
	// longer than any pause of a node on the other side: a node that is stopped or disconnected for
	// longer, while the partition lasts, acquires the lease later and survives as well. Defaults to
	// 40 seconds. For LeaseMajority.
	ReleaseAfter time.Duration
}

// Auto returns settings with which the leader downs each node that was unreachable for the given
// time, without regard to the other members. A network partition then makes two clusters, each with
// its own singletons and shards. Auto is for experiments only. Each node logs a warning when it
// starts with these settings.
func Auto(after time.Duration) Settings {
	return Settings{Strategy: automatic, StableAfter: after}
}
