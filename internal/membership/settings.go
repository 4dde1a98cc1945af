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

// Settings are what may be tuned. The zero value of each field is its default.
type Settings struct {
	// SeedNodeTimeout is how long the first seed waits for another seed before it
	// joins itself, and after which the others log that no seed lets them in. Seeds are asked
	// every second. Defaults to 5 s.
	SeedNodeTimeout time.Duration
	// RetryJoinAfter is when joining begins anew, with any seed, if the one that was asked
	// lets nobody in. Until then it is asked every second. Defaults to 10 s; negative means never.
	RetryJoinAfter time.Duration
	// StopJoiningAfter is when a node that was given seeds and is still no member stops.
	// 0 means never.
	StopJoiningAfter time.Duration
	// IgnoreIncompatible lets a node join although its settings differ from those of
	// the cluster.
	IgnoreIncompatible bool

	// MinMembers is how many members there must be before any becomes Up. Defaults to 1.
	MinMembers int
	// MinMembersOfRole is how many members with a role there must be before any
	// becomes Up. All members count, whatever their status.
	MinMembersOfRole map[string]int
	// WeaklyUpAfter is how long the leader can't act before Joining members become
	// WeaklyUp. Defaults to 7 s; negative means never.
	WeaklyUpAfter time.Duration

	// InitialDelay is when a new member begins to gossip, to send heartbeats and so on.
	// Defaults to 1 s.
	InitialDelay time.Duration
	// GossipInterval is the time between two rounds of gossip; there are three times
	// as many while less than half of the members have seen the last change.
	// Defaults to 1 s.
	GossipInterval time.Duration
	// GossipTimeToLive is how old a gossip may be, from its arrival at this node, when
	// it is handled. Defaults to 2 s.
	GossipTimeToLive time.Duration
	// DifferentView is the probability of gossiping to a member that has not seen the
	// last change, if there is one. Defaults to 0.8.
	DifferentView float64
	// ReduceDifferentView is the number of members above which DifferentView gets
	// smaller, down to a tenth with three times as many. Defaults to 400.
	ReduceDifferentView int
	// LeaderInterval is the time between two attempts of the leader to act. Defaults
	// to 1 s.
	LeaderInterval time.Duration
	// PruneTombstonesAfter is for how long a removed node is remembered. A
	// partition that lasts longer may bring it back. Defaults to 24 h.
	PruneTombstonesAfter time.Duration
	// QuarantineRemovedAfter is for how long a node that left may still talk.
	// Defaults to 5 s; negative means not at all.
	QuarantineRemovedAfter time.Duration

	// HeartbeatInterval is the time between two heartbeats to each monitored member,
	// and to the node itself. Defaults to 1 s.
	HeartbeatInterval time.Duration
	// AcceptablePause is a time without heartbeats that is no reason to suspect
	// anything. Defaults to 3 s.
	AcceptablePause time.Duration
	// Threshold is the phi at which a member is unreachable. Defaults to 8.
	Threshold float64
	// MaxSamples is how many gaps between heartbeats are remembered. Defaults to 1000.
	MaxSamples int
	// MinStdDeviation is the least standard deviation that is assumed of them.
	// Defaults to 100 ms.
	MinStdDeviation time.Duration
	// MonitoredBy is how many members monitor each member. Who finds as many unreachable
	// monitors all. Defaults to 9.
	MonitoredBy int
	// ExpectedResponseAfter is when a member that never answered begins to be
	// suspected. Defaults to 1 s.
	ExpectedResponseAfter time.Duration
	// ReaperInterval is the time between two looks at who is suspected. Defaults to 1 s.
	ReaperInterval time.Duration
	// SuspendAfter is for how long a node that doesn't hear its own heartbeats goes on
	// hosting. It has to be less than the time after which the others start elsewhere
	// what it hosts. Defaults to 20 s; in package cluster to StableAfter of the downing settings.
	SuspendAfter time.Duration
	// UndecidedAfter is for how long a node goes on hosting while members that are neither
	// Down nor Exiting can't be reached, counted from when all agreed last that all can. It
	// has to be longer than a decision takes, and less than the time after which others start elsewhere what it
	// hosts. 0, the default, means forever; in package cluster it is StableAfter and half the RemovalMargin of the
	// downing settings.
	UndecidedAfter time.Duration
	// LeavingUndecidedAfter is the same for a node that leaves, which others remove without a decision as soon as they can't reach it. 0, the
	// default, means UndecidedAfter; in package cluster it is half the RemovalMargin.
	LeavingUndecidedAfter time.Duration
	// GiveUpAfter is for how long a node that was suspended since it did not hear itself, and does so again, waits for
	// others to vouch for it, or for a decision about those who are missing. Then it marks itself as down, and ends. It
	// has to be longer than a decision takes, or all end after an outage in which one has crashed. 0, the default,
	// means forever; in package cluster it is twice StableAfter of the downing settings and four times AcceptablePause.
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

// differentView is the probability with which one of n members prefers another
// that has not seen the last change.
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
