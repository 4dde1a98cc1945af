// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/internal/membership"
)

// Config configures a Machine.
type Config struct {
	// Cluster is the name of the cluster. Names of leases are made of it. Required.
	Cluster string
	// Membership is that of the membership. To Check are added what Downing says. SuspendAfter
	// defaults to what fits Downing.
	Membership membership.Config
	// Downing says who survives when some can't be reached. The zero value keeps the
	// majority.
	Downing downing.Settings
	// ExitTimeout is how long a node that leaves waits for its singletons to be handed
	// over. Defaults to 10 s.
	ExitTimeout time.Duration
}

// suspendOff is after what a node suspends itself where nobody decides by a time.
const suspendOff = 20 * time.Second

// withDefaults returns the configuration as it is used, or all that is wrong with
// what concerns more than one machine.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	if c.Cluster == "" {
		errs = append(errs, errors.New("field Config.Cluster is missing"))
	}
	if c.ExitTimeout < 0 {
		errs = append(errs, fmt.Errorf("field Config.ExitTimeout is %v, less than 0", c.ExitTimeout))
	}
	c.ExitTimeout = cmp.Or(c.ExitTimeout, 10*time.Second)
	if c.Downing.Strategy == downing.LeaseMajority {
		c.Downing.LeaseName = cmp.Or(c.Downing.LeaseName, c.Cluster+"-downing")
	}
	settings, err := c.Downing.WithDefaults()
	if err != nil {
		return c, errors.Join(append(errs, err)...)
	}
	c.Downing = settings
	c.Membership.Check = slices.Clone(c.Membership.Check)
	for _, v := range settings.Values() {
		if slices.ContainsFunc(c.Membership.Check, func(s membership.Setting) bool { return s.Key == v.Key }) {
			errs = append(errs, fmt.Errorf("field Config.Membership.Check has the key %q, which is taken", v.Key))
			continue
		}
		c.Membership.Check = append(c.Membership.Check, membership.Setting{Key: v.Key, Value: v.Value})
	}
	slices.SortFunc(c.Membership.Check, func(a, b membership.Setting) int { return strings.Compare(a.Key, b.Key) })
	return c, errors.Join(append(errs, c.suspension())...)
}

// suspension sets when a node that is cut off, or does not know who is, stops what it hosts, and checks that this is
// before others start it: they wait at least for StableAfter and RemovalMargin.
func (c *Config) suspension() error {
	s := &c.Membership.Settings
	if c.Downing.StableAfter == 0 { // nobody decides by a time
		s.SuspendAfter = cmp.Or(s.SuspendAfter, suspendOff)
		return nil
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
		return nil
	}
	if s.UndecidedAfter == 0 {
		s.UndecidedAfter = c.Downing.StableAfter + c.Downing.RemovalMargin/2
	}
	if s.LeavingUndecidedAfter == 0 {
		s.LeavingUndecidedAfter = c.Downing.RemovalMargin / 2
	}
	if s.LeavingUndecidedAfter >= c.Downing.RemovalMargin {
		return fmt.Errorf("field Config.Membership.Settings.LeavingUndecidedAfter is %v, it must be less than RemovalMargin of Config.Downing, %v", s.LeavingUndecidedAfter, c.Downing.RemovalMargin)
	}
	if s.UndecidedAfter <= c.Downing.StableAfter || s.UndecidedAfter >= limit {
		return fmt.Errorf("field Config.Membership.Settings.UndecidedAfter is %v, it must be more than StableAfter of Config.Downing, %v, and less than that plus RemovalMargin, %v",
			s.UndecidedAfter, c.Downing.StableAfter, limit)
	}
	if s.SuspendAfter >= limit {
		return fmt.Errorf("field Config.Membership.Settings.SuspendAfter is %v, it must be less than StableAfter plus RemovalMargin of Config.Downing, %v: others would start "+
			"what this node still hosts", s.SuspendAfter, limit)
	}
	return nil
}
