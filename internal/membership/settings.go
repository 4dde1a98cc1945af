// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"cmp"
	"errors"
	"time"

	"github.com/refold-io/refold/internal/fielderror"
)

// ErrInvalid is matched by errors about invalid configurations.
var ErrInvalid = errors.New("membership: invalid")

// Settings tune the protocol. The zero value of each field is its default.
type Settings struct {
	// SeedNodeTimeout is how long the first seed waits for another seed before it founds a cluster.
	// The other nodes log a warning after this time. Seeds are asked every second. Defaults to 5 s.
	SeedNodeTimeout time.Duration
	// RetryJoinAfter is when a node restarts joining with any seed, because the chosen seed does
	// not let it in. Until then it asks that seed every second. Defaults to 10 s; negative means
	// never.
	RetryJoinAfter time.Duration
	// StopJoiningAfter is when a node that was given seeds and is still not a member stops. 0 means
	// never.
	StopJoiningAfter time.Duration
	// IgnoreIncompatible lets a node join although its settings differ from those of the cluster.
	IgnoreIncompatible bool

	// MinMembers is the number of members before any becomes Up. Defaults to 1.
	MinMembers int
	// MinMembersOfRole is the number of members with a role before any becomes Up. Members of all
	// statuses count.
	MinMembersOfRole map[string]int
	// WeaklyUpAfter is how long the members must be without agreement before Joining members become
	// WeaklyUp. Defaults to 7 s; negative means never.
	WeaklyUpAfter time.Duration

	// InitialDelay is the time until a new member sends its first gossip and heartbeats. Defaults
	// to 1 s.
	InitialDelay time.Duration
	// GossipInterval is the time between two rounds of gossip. There are three times as many rounds
	// while less than half of the members have seen the last change. Defaults to 1 s.
	GossipInterval time.Duration
	// GossipTimeToLive is the age, since its arrival at this node, at which a gossip is dropped
	// unread. Defaults to 2 s.
	GossipTimeToLive time.Duration
	// DifferentView is the probability of choosing a member for gossip that has not seen the last
	// change, if there is one. Defaults to 0.8.
	DifferentView float64
	// ReduceDifferentView is the number of members above which DifferentView is reduced, down to a
	// tenth at three times this number. Defaults to 400.
	ReduceDifferentView int
	// LeaderInterval is the time between two attempts of the leader to act. Defaults to 1 s.
	LeaderInterval time.Duration
	// PruneTombstonesAfter is how long removed nodes are remembered. A longer partition may add
	// them again. Defaults to 24 h.
	PruneTombstonesAfter time.Duration
	// QuarantineRemovedAfter is how long messages of a node are accepted after it left. Defaults to
	// 5 s; negative means not at all.
	QuarantineRemovedAfter time.Duration

	// HeartbeatInterval is the time between two heartbeats to each monitored member, and to the
	// node itself. Defaults to 1 s.
	HeartbeatInterval time.Duration
	// AcceptablePause is how long heartbeats may be missing without any suspicion. Defaults to 3 s.
	AcceptablePause time.Duration
	// Threshold is the phi at which a member is unreachable. Defaults to 8.
	Threshold float64
	// MaxSamples is how many intervals between heartbeats are kept. Defaults to 1000.
	MaxSamples int
	// MinStdDeviation is the lower limit of the standard deviation of these intervals. Defaults to
	// 100 ms.
	MinStdDeviation time.Duration
	// MonitoredBy is how many members monitor each member. A member that finds as many unreachable
	// monitors all. Defaults to 9.
	MonitoredBy int
	// ExpectedResponseAfter is when a member that has never replied to a heartbeat becomes suspect.
	// Defaults to 1 s.
	ExpectedResponseAfter time.Duration
	// ReaperInterval is the time between two checks of all suspects. Defaults to 1 s.
	ReaperInterval time.Duration
	// SuspendAfter is how long a node that does not receive its own heartbeats continues to host
	// singletons and shards. It must be less than the time after which other nodes start them.
	// Defaults to 20 s.
	SuspendAfter time.Duration
	// UndecidedAfter is how long a node continues to host while members are unreachable that are
	// neither Down nor Exiting. The time starts when all members last agreed that all are
	// reachable. It must be longer than a downing decision takes, and less than the time after
	// which other nodes start the node's singletons and shards. 0, the default, means forever.
	UndecidedAfter time.Duration
	// LeavingUndecidedAfter is UndecidedAfter for a leaving node, which the others remove without a
	// decision as soon as they cannot reach it. 0, the default, means UndecidedAfter.
	LeavingUndecidedAfter time.Duration
	// GiveUpAfter limits the suspension of a node that receives its own heartbeats again: it waits
	// for other members to confirm its membership, or for a decision about the missing members.
	// After this time it marks itself as down and ends. It must be longer than a decision takes,
	// otherwise an outage in which one node crashes ends all nodes. 0, the default, means forever.
	GiveUpAfter time.Duration
}

func (s Settings) withDefaults() Settings {
	s.SeedNodeTimeout = cmp.Or(s.SeedNodeTimeout, 5*time.Second)
	s.RetryJoinAfter = cmp.Or(s.RetryJoinAfter, 10*time.Second)
	s.MinMembers = cmp.Or(s.MinMembers, 1)
	s.WeaklyUpAfter = cmp.Or(s.WeaklyUpAfter, 7*time.Second)
	s.InitialDelay = cmp.Or(s.InitialDelay, time.Second)
	s.GossipInterval = cmp.Or(s.GossipInterval, time.Second)
	s.GossipTimeToLive = cmp.Or(s.GossipTimeToLive, 2*time.Second)
	s.DifferentView = cmp.Or(s.DifferentView, 0.8)
	s.ReduceDifferentView = cmp.Or(s.ReduceDifferentView, 400)
	s.LeaderInterval = cmp.Or(s.LeaderInterval, time.Second)
	s.PruneTombstonesAfter = cmp.Or(s.PruneTombstonesAfter, 24*time.Hour)
	s.QuarantineRemovedAfter = max(0, cmp.Or(s.QuarantineRemovedAfter, 5*time.Second))
	s.HeartbeatInterval = cmp.Or(s.HeartbeatInterval, time.Second)
	s.AcceptablePause = cmp.Or(s.AcceptablePause, 3*time.Second)
	s.Threshold = cmp.Or(s.Threshold, 8)
	s.MaxSamples = cmp.Or(s.MaxSamples, 1000)
	s.MinStdDeviation = cmp.Or(s.MinStdDeviation, 100*time.Millisecond)
	s.MonitoredBy = cmp.Or(s.MonitoredBy, 9)
	s.ExpectedResponseAfter = cmp.Or(s.ExpectedResponseAfter, time.Second)
	s.ReaperInterval = cmp.Or(s.ReaperInterval, time.Second)
	s.SuspendAfter = cmp.Or(s.SuspendAfter, 20*time.Second)
	s.LeavingUndecidedAfter = cmp.Or(s.LeavingUndecidedAfter, s.UndecidedAfter)
	return s
}

// validate returns all that is wrong with settings that have their defaults.
func (s *Settings) validate() fielderror.Errors {
	var errs fielderror.Errors
	least := func(name string, value, least time.Duration) {
		if value < least {
			errs.Addf("Config.Settings."+name, "is %v, it must be at least %v", value, least)
		}
	}
	least("SeedNodeTimeout", s.SeedNodeTimeout, time.Millisecond)
	least("StopJoiningAfter", s.StopJoiningAfter, 0)
	least("InitialDelay", s.InitialDelay, time.Millisecond)
	least("GossipInterval", s.GossipInterval, 3*time.Millisecond)
	least("GossipTimeToLive", s.GossipTimeToLive, time.Millisecond)
	least("LeaderInterval", s.LeaderInterval, time.Millisecond)
	least("PruneTombstonesAfter", s.PruneTombstonesAfter, time.Second)
	least("HeartbeatInterval", s.HeartbeatInterval, time.Millisecond)
	least("AcceptablePause", s.AcceptablePause, time.Millisecond)
	least("MinStdDeviation", s.MinStdDeviation, time.Millisecond)
	least("ExpectedResponseAfter", s.ExpectedResponseAfter, time.Millisecond)
	least("ReaperInterval", s.ReaperInterval, time.Millisecond)
	least("SuspendAfter", s.SuspendAfter, s.AcceptablePause)
	least("UndecidedAfter", s.UndecidedAfter, 0)
	least("LeavingUndecidedAfter", s.LeavingUndecidedAfter, 0)
	least("GiveUpAfter", s.GiveUpAfter, 0)
	for _, f := range []struct {
		name  string
		value int
	}{{"MinMembers", s.MinMembers}, {"ReduceDifferentView", s.ReduceDifferentView}, {"MaxSamples", s.MaxSamples}, {"MonitoredBy", s.MonitoredBy}} {
		if f.value < 1 {
			errs.Addf("Config.Settings."+f.name, "is %d, it must be at least 1", f.value)
		}
	}
	if !(s.DifferentView > 0 && s.DifferentView <= 1) {
		errs.Addf("Config.Settings.DifferentView", "is %v, it must be above 0 and at most 1", s.DifferentView)
	}
	if !(s.Threshold > 0) {
		errs.Addf("Config.Settings.Threshold", "is %v, it must be above 0", s.Threshold)
	}
	for _, r := range minimums(s.MinMembersOfRole) {
		if r.least < 1 {
			errs.Addf("Config.Settings.MinMembersOfRole", "of %q is %d, it must be at least 1", r.role, r.least)
		}
	}
	return errs
}

// differentView is the probability with which one of n members prefers another that has not seen
// the last change.
func (s *Settings) differentView(n int) float64 {
	low, high := s.ReduceDifferentView, 3*s.ReduceDifferentView
	least := s.DifferentView / 10
	switch {
	case n <= low:
		return s.DifferentView
	case n >= high:
		return least
	}
	return s.DifferentView - (s.DifferentView-least)*float64(n-low)/float64(high-low)
}
