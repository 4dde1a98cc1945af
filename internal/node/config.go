// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/internal/splitbrain"
)

// ErrInvalid is matched by errors about invalid configurations.
var ErrInvalid = errors.New("node: invalid")

// Config configures a Machine.
type Config struct {
	// Cluster is the name of the cluster. It is part of the names of leases. Required.
	Cluster string
	// Membership configures the membership protocol. The values of Downing are added to Check.
	// SuspendAfter and the other limits of suspension default to values that fit Downing.
	Membership membership.Config
	// Downing chooses the survivors when members are unreachable. The zero value keeps the
	// majority.
	Downing splitbrain.Settings
	// ExitTimeout is how long a leaving node waits for the hand-over of its singletons. Defaults to
	// 10 s.
	ExitTimeout time.Duration
}

// withDefaults returns the configuration with its defaults, or an error about settings that concern
// more than one machine.
func (c Config) withDefaults() (Config, error) {
	var errs fielderror.Errors
	if c.Cluster == "" {
		errs.Addf("Config.Cluster", "is missing")
	}
	fielderror.NotNegative(&errs, "Config.ExitTimeout", c.ExitTimeout)
	c.ExitTimeout = cmp.Or(c.ExitTimeout, 10*time.Second)
	if c.Downing.Strategy == downing.LeaseMajority {
		c.Downing.LeaseName = cmp.Or(c.Downing.LeaseName, c.Cluster+"-downing")
	}
	settings, err := c.Downing.WithDefaults()
	if err != nil {
		errs.Join(err, "Settings.", "Config.Downing.")
		return c, errs.Err(ErrInvalid)
	}
	c.Downing = settings
	c.Membership.Check = slices.Clone(c.Membership.Check)
	for _, v := range settings.Values() {
		if slices.ContainsFunc(c.Membership.Check, func(s membership.Setting) bool { return s.Key == v.Key }) {
			errs.Addf("Config.Membership.Check", "has the reserved key %q", v.Key)
		}
	}
	c.Membership.Check = append(c.Membership.Check, settings.Values()...)
	slices.SortFunc(c.Membership.Check, func(a, b membership.Setting) int { return strings.Compare(a.Key, b.Key) })
	limits := c.Membership.Settings.Limits()
	if checkLimits(&errs, settings.For(1), c.limits(limits, 1)) {
		checkLimits(&errs, settings.For(splitbrain.MaxSize), c.limits(limits, splitbrain.MaxSize))
	}
	c.Membership.Limits = func(members int) membership.Limits { return c.limits(limits, members) }
	return c, errs.Err(ErrInvalid)
}

// limits returns the configured limits with their defaults for a number of members: the times after
// which a node stops hosting while it is disconnected or waits for a downing decision.
func (c *Config) limits(l membership.Limits, members int) membership.Limits {
	d := c.Downing.For(members)
	if d.StableAfter == 0 { // decisions have no time limit
		l.SuspendAfter = cmp.Or(l.SuspendAfter, 20*time.Second)
		return l
	}
	pause := cmp.Or(c.Membership.Settings.AcceptablePause, 3*time.Second)
	l.GiveUpAfter = cmp.Or(l.GiveUpAfter, 2*d.StableAfter+4*pause)
	if l.SuspendAfter == 0 {
		l.SuspendAfter = max(pause, d.StableAfter)
		if l.SuspendAfter >= d.StableAfter+d.RemovalMargin {
			l.SuspendAfter = pause
		}
	}
	if d.RemovalMargin > 0 {
		l.UndecidedAfter = cmp.Or(l.UndecidedAfter, d.StableAfter+d.RemovalMargin/2)
		l.LeavingUndecidedAfter = cmp.Or(l.LeavingUndecidedAfter, d.RemovalMargin/2)
	}
	return l
}

// checkLimits checks that a node stops before other nodes start to host. Other nodes start after
// StableAfter plus RemovalMargin at the earliest.
func checkLimits(errs *fielderror.Errors, d splitbrain.Settings, l membership.Limits) bool {
	if d.StableAfter == 0 || d.RemovalMargin == 0 {
		return true
	}
	limit := d.StableAfter + d.RemovalMargin
	const settings = "Config.Membership.Settings."
	switch {
	case l.LeavingUndecidedAfter >= d.RemovalMargin:
		errs.Addf(settings+"LeavingUndecidedAfter", "is %v, it must be less than Config.Downing.RemovalMargin, %v", l.LeavingUndecidedAfter, d.RemovalMargin)
	case l.UndecidedAfter <= d.StableAfter || l.UndecidedAfter >= limit:
		errs.Addf(settings+"UndecidedAfter", "is %v, it must be more than Config.Downing.StableAfter, %v, and less than that plus RemovalMargin, %v",
			l.UndecidedAfter, d.StableAfter, limit)
	case l.SuspendAfter >= limit:
		errs.Addf(settings+"SuspendAfter", "is %v, it must be less than StableAfter plus RemovalMargin of Config.Downing, %v: other nodes would start "+
			"singletons and shards that still run on this node", l.SuspendAfter, limit)
	default:
		return true
	}
	return false
}
