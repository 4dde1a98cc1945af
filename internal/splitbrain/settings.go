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

// ErrInvalid is matched by the errors about settings that can't be.
var ErrInvalid = errors.New("splitbrain: invalid")

// Strategy names a way to decide who survives. The texts are compared between
// nodes and never change.
type Strategy string

// The strategies. Automatic downing is none of them: see [Auto].
const (
	// KeepMajority keeps the side that has more members; of two equal sides the one with the lowest node.
	KeepMajority Strategy = "keep-majority"
	// StaticQuorum keeps a side that has at least QuorumSize members. The cluster must
	// never have more than 2*QuorumSize-1, or it downs itself as a whole.
	StaticQuorum Strategy = "static-quorum"
	// KeepOldest keeps the side that has the oldest member, unless that is all alone.
	KeepOldest Strategy = "keep-oldest"
	// DownAll keeps nobody.
	DownAll Strategy = "down-all"
	// LeaseMajority keeps the side that gets the lease, and lets the larger one try first.
	LeaseMajority Strategy = "lease-majority"
	// Off downs nobody: an operator has to.
	Off Strategy = "off"

	automatic Strategy = "auto"
)

// Settings say how to decide. They are comparable; all nodes of a cluster must
// have the same. The zero value is KeepMajority after 20 seconds.
type Settings struct {
	// Strategy names who survives. Defaults to KeepMajority.
	Strategy Strategy
	// StableAfter is for how long nothing may have changed before a decision is
	// taken. Defaults to 20 seconds; the package's comment says what suits which size.
	StableAfter time.Duration
	// DownAllWhenUnstable is for how much longer than StableAfter the reachability may
	// keep changing before all nodes go down. Defaults to three quarters of
	// StableAfter, at least 4 seconds. Negative switches that off.
	DownAllWhenUnstable time.Duration
	// RemovalMargin is how long after the removal of a downed node what it hosted
	// starts elsewhere. Defaults to StableAfter, and to none with Off and Auto. Negative
	// is none.
	RemovalMargin time.Duration
	// Role restricts who is counted. Defaults to "": all. Not for DownAll and Off.
	Role string
	// QuorumSize is the number of members that may go on. Required by StaticQuorum, at
	// least 1, and by no other.
	QuorumSize int
	// KeepLoneOldest lets the oldest member survive even if it is cut off alone. Defaults
	// to false: then it goes down, and the others stay. For KeepOldest.
	KeepLoneOldest bool
	// LeaseName is the name of the lease. Defaults to the name of the cluster and "-downing", such as
	// "bank-downing". For LeaseMajority.
	LeaseName string
	// MinorityDelay is how long the smaller side waits before it asks for the lease.
	// Defaults to 2 seconds. For LeaseMajority.
	MinorityDelay time.Duration
	// ReleaseAfter is how long the lease is held after the downed nodes are removed. It
	// has to be longer than anything may keep the other side of a split from deciding: nodes of it
	// that are stopped or disconnected for longer than that, while the split lasts, get the lease
	// afterwards and go on as well. Defaults to 40 seconds. For LeaseMajority.
	ReleaseAfter time.Duration
}

// Auto returns settings under which the leader downs each node that has been
// unreachable for a time, whatever the others see. A cut in the network makes two clusters of one, each
// with its own singletons: it is here for experiments only, and its users are
// warned when it is switched on.
func Auto(after time.Duration) Settings {
	return Settings{Strategy: automatic, StableAfter: after}
}

// WithDefaults returns the settings as they are used, or an error that matches
// ErrInvalid and names each field that is wrong.
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
	// only reports a field that is set for a strategy that has no use for it: whoever
	// set it expects something else.
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
		fail("StableAfter", "is %v, less than 0", s.StableAfter)
	}
	if s.MinorityDelay < 0 {
		fail("MinorityDelay", "is %v, less than 0", s.MinorityDelay)
	}
	if s.ReleaseAfter < 0 {
		fail("ReleaseAfter", "is %v, less than 0", s.ReleaseAfter)
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

// Value is a setting that has to be the same on all nodes.
type Value struct{ Key, Value string }

// Values returns what is compared when a node joins, sorted by key. A key that is
// there on one side only is no mismatch, but "downing" always is there. The settings must be valid.
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
