// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package splitbrain

import (
	"cmp"
	"errors"
	"strconv"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/membership"
)

// ErrInvalid is matched by errors about invalid settings.
var ErrInvalid = errors.New("splitbrain: invalid")

// Settings are the settings of package downing, which documents them. This package defines their
// defaults and validates them.
type Settings downing.Settings

// automatic is the strategy of downing.Auto.
const automatic = downing.Strategy("auto")

// WithDefaults returns the settings with the defaults that do not depend on the size of the cluster.
// Of the times, StableAfter is 0 if it depends on the size: see For. The error matches ErrInvalid
// and lists the invalid fields.
func (s Settings) WithDefaults() (Settings, error) {
	if err := s.validate(); err != nil {
		return Settings{}, err
	}
	s.Strategy = cmp.Or(s.Strategy, downing.KeepMajority)
	switch s.Strategy {
	case downing.Off:
		return Settings{Strategy: downing.Off, RemovalMargin: s.RemovalMargin}, nil
	case downing.LeaseMajority:
		s.MinorityDelay = cmp.Or(s.MinorityDelay, 2*time.Second)
		s.ReleaseAfter = cmp.Or(s.ReleaseAfter, 40*time.Second)
	case downing.KeepMajority, downing.StaticQuorum, downing.KeepOldest, downing.DownAll, automatic:
	}
	return s, nil
}

// MaxSize is a size of a cluster from which on the times do not change.
const MaxSize = 100

// For returns the settings for a number of members, with all defaults. A margin of 0 means none.
// The settings must be valid. All times grow with the number of members.
func (s Settings) For(members int) Settings {
	switch s.Strategy {
	case downing.Off:
	case automatic:
		s.DownAllWhenUnstable = -1
	default:
		s.StableAfter = cmp.Or(s.StableAfter, stableAfterFor(members))
		s.DownAllWhenUnstable = max(-1, cmp.Or(s.DownAllWhenUnstable, max(4*time.Second, s.StableAfter*3/4)))
		s.RemovalMargin = cmp.Or(s.RemovalMargin, s.StableAfter)
	}
	s.RemovalMargin = max(0, s.RemovalMargin)
	return s
}

// stableAfterFor returns the default of StableAfter for a number of members. It grows linearly
// between some sizes, and must never decrease: see decision 0047.
func stableAfterFor(members int) time.Duration {
	type step struct {
		size  int
		after time.Duration
	}
	low := step{3, 5 * time.Second}
	for _, high := range [...]step{{5, 7 * time.Second}, {10, 10 * time.Second}, {20, 13 * time.Second}, {50, 17 * time.Second}, {MaxSize, 20 * time.Second}} {
		if members < high.size {
			return low.after + (high.after-low.after)*time.Duration(max(0, members-low.size))/time.Duration(high.size-low.size)
		}
		low = high
	}
	return low.after
}

func (s Settings) validate() error {
	var errs fielderror.Errors
	fail := func(field, problem string, args ...any) { errs.Addf("Settings."+field, problem, args...) }
	// only reports an error if a field is set that the strategy does not use.
	only := func(set bool, field string, used ...downing.Strategy) {
		for _, u := range used {
			set = set && cmp.Or(s.Strategy, downing.KeepMajority) != u
		}
		if set {
			fail(field, "is not used by the strategy %q", cmp.Or(s.Strategy, downing.KeepMajority))
		}
	}
	switch s.Strategy {
	case "", downing.KeepMajority, downing.KeepOldest, downing.DownAll, downing.LeaseMajority, downing.Off, automatic:
		only(s.QuorumSize != 0, "QuorumSize", downing.StaticQuorum)
	case downing.StaticQuorum:
		if s.QuorumSize < 1 {
			fail("QuorumSize", "is %d, the strategy %q needs at least 1", s.QuorumSize, s.Strategy)
		}
	default:
		fail("Strategy", "is %.40q, must be %q, %q, %q, %q, %q or %q", s.Strategy, downing.KeepMajority, downing.StaticQuorum, downing.KeepOldest, downing.DownAll, downing.LeaseMajority, downing.Off)
		return errs.Err(ErrInvalid)
	}
	if s.Strategy == automatic && s.StableAfter <= 0 {
		fail("StableAfter", "is %v, automatic downing needs a positive duration", s.StableAfter)
	} else if s.StableAfter < 0 {
		fail("StableAfter", "is %v, it must not be negative", s.StableAfter)
	}
	fielderror.NotNegative(&errs, "Settings.MinorityDelay", s.MinorityDelay)
	fielderror.NotNegative(&errs, "Settings.ReleaseAfter", s.ReleaseAfter)
	only(s.StableAfter != 0, "StableAfter", downing.KeepMajority, downing.StaticQuorum, downing.KeepOldest, downing.DownAll, downing.LeaseMajority, automatic)
	only(s.DownAllWhenUnstable > 0, "DownAllWhenUnstable", downing.KeepMajority, downing.StaticQuorum, downing.KeepOldest, downing.DownAll, downing.LeaseMajority)
	only(s.Role != "", "Role", downing.KeepMajority, downing.StaticQuorum, downing.KeepOldest, downing.LeaseMajority)
	only(s.KeepLoneOldest, "KeepLoneOldest", downing.KeepOldest)
	only(s.LeaseName != "", "LeaseName", downing.LeaseMajority)
	only(s.MinorityDelay > 0, "MinorityDelay", downing.LeaseMajority)
	only(s.ReleaseAfter > 0, "ReleaseAfter", downing.LeaseMajority)
	return errs.Err(ErrInvalid)
}

// Values returns the settings that are compared when a node joins, sorted by key. A key that only
// one side has is not a mismatch; only the key "downing" always exists. The settings must be valid.
func (s Settings) Values() []membership.Setting {
	s, err := s.WithDefaults()
	if err != nil {
		return nil
	}
	values := []membership.Setting{{Key: "downing", Value: "resolver"}}
	add := func(used bool, key, value string) {
		if used {
			values = append(values, membership.Setting{Key: "downing." + key, Value: value})
		}
	}
	switch s.Strategy {
	case downing.Off, automatic:
		values[0].Value = string(s.Strategy)
		add(s.Strategy == automatic, "stable-after", s.StableAfter.String())
		return values
	default:
	}
	bySize := func(value func(s Settings) time.Duration) string {
		least, most := value(s.For(1)), value(s.For(MaxSize))
		switch {
		case least != most:
			return "by size"
		case least < 0:
			return "off"
		}
		return least.String()
	}
	withLease := s.Strategy == downing.LeaseMajority
	add(true, "down-all-when-unstable", bySize(func(s Settings) time.Duration { return s.DownAllWhenUnstable }))
	add(s.Strategy == downing.KeepOldest, "keep-lone-oldest", strconv.FormatBool(s.KeepLoneOldest))
	add(withLease, "lease-name", s.LeaseName)
	add(withLease, "minority-delay", s.MinorityDelay.String())
	add(s.Strategy == downing.StaticQuorum, "quorum-size", strconv.Itoa(s.QuorumSize))
	add(withLease, "release-after", s.ReleaseAfter.String())
	add(true, "removal-margin", bySize(func(s Settings) time.Duration { return s.RemovalMargin }))
	add(s.Strategy != downing.DownAll, "role", s.Role)
	add(true, "stable-after", bySize(func(s Settings) time.Duration { return s.StableAfter }))
	add(true, "strategy", string(s.Strategy))
	return values
}
