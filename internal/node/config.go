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
	c.suspension(&errs)
	return c, errs.Err(ErrInvalid)
}

// suspension sets the times after which a node stops hosting while it is disconnected or waits for
// a downing decision. It checks that the node stops before other nodes start to host. Other nodes
// start after StableAfter plus RemovalMargin at the earliest.
func (c *Config) suspension(errs *fielderror.Errors) {
	s := &c.Membership.Settings
	if c.Downing.StableAfter == 0 { // decisions have no time limit
		s.SuspendAfter = cmp.Or(s.SuspendAfter, 20*time.Second)
		return
	}
	limit := c.Downing.StableAfter + c.Downing.RemovalMargin
	pause := cmp.Or(s.AcceptablePause, 3*time.Second)
	s.GiveUpAfter = cmp.Or(s.GiveUpAfter, 2*c.Downing.StableAfter+4*pause)
	if s.SuspendAfter == 0 {
		s.SuspendAfter = max(pause, c.Downing.StableAfter)
		if s.SuspendAfter >= limit {
			s.SuspendAfter = pause
		}
	}
	if c.Downing.RemovalMargin == 0 {
		return
	}
	s.UndecidedAfter = cmp.Or(s.UndecidedAfter, c.Downing.StableAfter+c.Downing.RemovalMargin/2)
	s.LeavingUndecidedAfter = cmp.Or(s.LeavingUndecidedAfter, c.Downing.RemovalMargin/2)
	const settings = "Config.Membership.Settings."
	switch {
	case s.LeavingUndecidedAfter >= c.Downing.RemovalMargin:
		errs.Addf(settings+"LeavingUndecidedAfter", "is %v, it must be less than Config.Downing.RemovalMargin, %v", s.LeavingUndecidedAfter, c.Downing.RemovalMargin)
	case s.UndecidedAfter <= c.Downing.StableAfter || s.UndecidedAfter >= limit:
		errs.Addf(settings+"UndecidedAfter", "is %v, it must be more than Config.Downing.StableAfter, %v, and less than that plus RemovalMargin, %v",
			s.UndecidedAfter, c.Downing.StableAfter, limit)
	case s.SuspendAfter >= limit:
		errs.Addf(settings+"SuspendAfter", "is %v, it must be less than StableAfter plus RemovalMargin of Config.Downing, %v: other nodes would start "+
			"singletons and shards that still run on this node", s.SuspendAfter, limit)
	}
}
