// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/refold-io/refold/internal/fielderror"
)

// ErrInvalid is matched by errors about invalid configurations.
var ErrInvalid = errors.New("membership: invalid")

// Settings tune the protocol. The zero value of each field is its default. cluster.Settings has the
// same fields and documents them. Four defaults differ, because this package has no downing
// settings: SuspendAfter is 20 s, LeavingUndecidedAfter is UndecidedAfter, and UndecidedAfter and
// GiveUpAfter are unlimited.
type Settings struct {
	SeedNodeTimeout        time.Duration
	RetryJoinAfter         time.Duration
	StopJoiningAfter       time.Duration
	IgnoreIncompatible     bool
	MinMembers             int
	MinMembersOfRole       map[string]int
	WeaklyUpAfter          time.Duration
	InitialDelay           time.Duration
	GossipInterval         time.Duration
	GossipTimeToLive       time.Duration
	DifferentView          float64
	ReduceDifferentView    int
	LeaderInterval         time.Duration
	PruneTombstonesAfter   time.Duration
	QuarantineRemovedAfter time.Duration
	HeartbeatInterval      time.Duration
	AcceptablePause        time.Duration
	Threshold              float64
	MaxSamples             int
	MinStdDeviation        time.Duration
	MonitoredBy            int
	ExpectedResponseAfter  time.Duration
	ReaperInterval         time.Duration
	SuspendAfter           time.Duration
	UndecidedAfter         time.Duration
	LeavingUndecidedAfter  time.Duration
	GiveUpAfter            time.Duration
}

// Limits are the settings that limit how long a node hosts without evidence of its membership.
// Settings documents them.
type Limits struct{ SuspendAfter, UndecidedAfter, LeavingUndecidedAfter, GiveUpAfter time.Duration }

// Limits returns the limits in the settings.
func (s *Settings) Limits() Limits {
	return Limits{s.SuspendAfter, s.UndecidedAfter, s.LeavingUndecidedAfter, s.GiveUpAfter}
}

func (s *Settings) limit(l Limits) {
	s.SuspendAfter, s.UndecidedAfter, s.LeavingUndecidedAfter, s.GiveUpAfter = l.SuspendAfter, l.UndecidedAfter, l.LeavingUndecidedAfter, l.GiveUpAfter
}

func (s Settings) withDefaults() Settings {
	s.SeedNodeTimeout = cmp.Or(s.SeedNodeTimeout, 5*time.Second)
	s.RetryJoinAfter = cmp.Or(s.RetryJoinAfter, 10*time.Second)
	s.MinMembers = cmp.Or(s.MinMembers, 1)
	s.MinMembersOfRole = maps.Clone(s.MinMembersOfRole)
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
	for _, role := range slices.Sorted(maps.Keys(s.MinMembersOfRole)) {
		if n := s.MinMembersOfRole[role]; n < 1 {
			errs.Addf("Config.Settings.MinMembersOfRole", "of %q is %d, it must be at least 1", role, n)
		}
	}
	return errs
}

// differentView is the probability with which one of n members prefers a member that has not seen
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
