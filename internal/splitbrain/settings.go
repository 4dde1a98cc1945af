// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package splitbrain

import (
	"cmp"
	"errors"
	"strconv"
	"time"

	"github.com/refold-io/refold/internal/fielderror"
)

// ErrInvalid is matched by errors about invalid settings.
var ErrInvalid = errors.New("splitbrain: invalid")

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
	// Off never downs members. An operator has to.
	Off Strategy = "off"

	automatic Strategy = "auto"
)

// Settings configure the downing of unreachable members. They are comparable, and all nodes of a
// cluster must have the same. The zero value is KeepMajority after 20 seconds.
type Settings struct {
	// Strategy chooses the survivors. Defaults to KeepMajority.
	Strategy Strategy
	// StableAfter is how long members and reachability must be unchanged before a decision.
	// Defaults to 20 seconds; the package comment lists values by cluster size.
	StableAfter time.Duration
	// DownAllWhenUnstable is how much longer than StableAfter the reachability may keep changing
	// before all nodes are downed. Defaults to three quarters of StableAfter and at least 4
	// seconds. A negative value switches this off.
	DownAllWhenUnstable time.Duration
	// RemovalMargin is the time between the removal of a downed node and the start of its
	// singletons and shards on other nodes. Defaults to StableAfter, and to none with Off and Auto.
	// A negative value is none.
	RemovalMargin time.Duration
	// Role restricts the members that are counted. Defaults to "", which is all. Not for DownAll
	// and Off.
	Role string
	// QuorumSize is the number of members that may survive. StaticQuorum requires it, at least 1.
	// Other strategies reject it.
	QuorumSize int
	// KeepLoneOldest lets the oldest member survive if it is partitioned from all others. By
	// default it is downed and the others survive. For KeepOldest.
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
// its own singletons and shards. It is for experiments only. Each node logs a warning when it
// starts with these settings.
func Auto(after time.Duration) Settings {
	return Settings{Strategy: automatic, StableAfter: after}
}

// WithDefaults returns the settings with their defaults. The error matches ErrInvalid and lists the
// invalid fields.
func (s Settings) WithDefaults() (Settings, error) {
	if err := s.validate(); err != nil {
		return Settings{}, err
	}
	s.Strategy = cmp.Or(s.Strategy, KeepMajority)
	switch s.Strategy {
	case Off:
		return Settings{Strategy: Off, RemovalMargin: max(0, s.RemovalMargin)}, nil
	case automatic:
		s.RemovalMargin = max(0, s.RemovalMargin)
		s.DownAllWhenUnstable = -1
		return s, nil
	case LeaseMajority:
		s.MinorityDelay = cmp.Or(s.MinorityDelay, 2*time.Second)
		s.ReleaseAfter = cmp.Or(s.ReleaseAfter, 40*time.Second)
	case KeepMajority, StaticQuorum, KeepOldest, DownAll:
	}
	s.StableAfter = cmp.Or(s.StableAfter, 20*time.Second)
	s.DownAllWhenUnstable = max(-1, cmp.Or(s.DownAllWhenUnstable, max(4*time.Second, s.StableAfter*3/4)))
	s.RemovalMargin = max(0, cmp.Or(s.RemovalMargin, s.StableAfter))
	return s, nil
}

func (s Settings) validate() error {
	var errs fielderror.Errors
	fail := func(field, problem string, args ...any) { errs.Addf("Settings."+field, problem, args...) }
	// only rejects a field that the strategy does not use.
	only := func(set bool, field string, used ...Strategy) {
		for _, u := range used {
			set = set && cmp.Or(s.Strategy, KeepMajority) != u
		}
		if set {
			fail(field, "is not used by the strategy %q", cmp.Or(s.Strategy, KeepMajority))
		}
	}
	switch s.Strategy {
	case "", KeepMajority, KeepOldest, DownAll, LeaseMajority, Off, automatic:
		only(s.QuorumSize != 0, "QuorumSize", StaticQuorum)
	case StaticQuorum:
		if s.QuorumSize < 1 {
			fail("QuorumSize", "is %d, the strategy %q needs at least 1", s.QuorumSize, s.Strategy)
		}
	default:
		fail("Strategy", "is %.40q, there is %q, %q, %q, %q, %q and %q", s.Strategy, KeepMajority, StaticQuorum, KeepOldest, DownAll, LeaseMajority, Off)
		return errs.Err(ErrInvalid)
	}
	switch {
	case s.Strategy == automatic && s.StableAfter <= 0:
		fail("StableAfter", "is %v, automatic downing needs a time", s.StableAfter)
	case s.StableAfter < 0:
		fail("StableAfter", "is %v, it must not be negative", s.StableAfter)
	}
	if s.MinorityDelay < 0 {
		fail("MinorityDelay", "is %v, it must not be negative", s.MinorityDelay)
	}
	if s.ReleaseAfter < 0 {
		fail("ReleaseAfter", "is %v, it must not be negative", s.ReleaseAfter)
	}
	only(s.StableAfter != 0, "StableAfter", KeepMajority, StaticQuorum, KeepOldest, DownAll, LeaseMajority, automatic)
	only(s.DownAllWhenUnstable > 0, "DownAllWhenUnstable", KeepMajority, StaticQuorum, KeepOldest, DownAll, LeaseMajority)
	only(s.Role != "", "Role", KeepMajority, StaticQuorum, KeepOldest, LeaseMajority)
	only(s.KeepLoneOldest, "KeepLoneOldest", KeepOldest)
	only(s.LeaseName != "", "LeaseName", LeaseMajority)
	only(s.MinorityDelay > 0, "MinorityDelay", LeaseMajority)
	only(s.ReleaseAfter > 0, "ReleaseAfter", LeaseMajority)
	return errs.Err(ErrInvalid)
}

// Value is a setting that must be the same on all nodes.
type Value struct{ Key, Value string }

// Values returns the settings that are compared when a node joins, sorted by key. A key of one side
// only is not a mismatch, but the key "downing" always exists. The settings must be valid.
func (s Settings) Values() []Value {
	s, err := s.WithDefaults()
	if err != nil {
		return nil
	}
	switch s.Strategy {
	case Off:
		return []Value{{"downing", "off"}}
	case automatic:
		return []Value{{"downing", "auto"}, {"downing.stable-after", s.StableAfter.String()}}
	case KeepMajority, StaticQuorum, KeepOldest, DownAll, LeaseMajority:
	}
	unstable := "off"
	if s.DownAllWhenUnstable > 0 {
		unstable = s.DownAllWhenUnstable.String()
	}
	values := []Value{{"downing", "resolver"}, {"downing.down-all-when-unstable", unstable}}
	add := func(key, value string) { values = append(values, Value{"downing." + key, value}) }
	switch s.Strategy {
	case KeepOldest:
		add("keep-lone-oldest", strconv.FormatBool(s.KeepLoneOldest))
	case LeaseMajority:
		add("lease-name", s.LeaseName)
		add("minority-delay", s.MinorityDelay.String())
	case StaticQuorum:
		add("quorum-size", strconv.Itoa(s.QuorumSize))
	case KeepMajority, DownAll, Off, automatic:
	}
	if s.Strategy == LeaseMajority {
		add("release-after", s.ReleaseAfter.String())
	}
	add("removal-margin", s.RemovalMargin.String())
	if s.Strategy != DownAll {
		add("role", s.Role)
	}
	add("stable-after", s.StableAfter.String())
	add("strategy", string(s.Strategy))
	return values
}
