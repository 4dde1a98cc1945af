// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cluster/downing"
)

// Each error names the field, and the carrier is closed.
func TestConfig(t *testing.T) {
	t.Parallel()
	in(t, func(w *world) {
		for field, change := range map[string]func(*cluster.Config){
			"Config.Cluster":          func(c *cluster.Config) { c.Cluster = "my.bank" },
			"Config.Seeds":            func(c *cluster.Config) { c.Seeds = []string{"a", "b c"} },
			"Config.Roles":            func(c *cluster.Config) { c.Roles = []string{"dc-east"} },
			"Config.Version":          func(c *cluster.Config) { c.Version = "1.2.3.4" },
			"Config.Leases":           func(c *cluster.Config) { c.Downing.Strategy = downing.LeaseMajority },
			"QuorumSize":              func(c *cluster.Config) { c.Downing.Strategy = downing.StaticQuorum },
			"Config.PhaseTimeout":     func(c *cluster.Config) { c.PhaseTimeout = map[cluster.Phase]time.Duration{cluster.PhaseLeave: -1} },
			"the phase 77":            func(c *cluster.Config) { c.PhaseTimeout = map[cluster.Phase]time.Duration{77: 1} },
			"Config.MaxInputs":        func(c *cluster.Config) { c.MaxInputs = -1 },
			"Config.MaxEvents":        func(c *cluster.Config) { c.MaxEvents = -1 },
			"Config.StopWarning":      func(c *cluster.Config) { c.StopWarning = -1 },
			"Config.StatsInterval":    func(c *cluster.Config) { c.StatsInterval = -1 },
			"Settings.GossipInterval": func(c *cluster.Config) { c.Settings.GossipInterval = 1 },
			"\"downing\"":             func(c *cluster.Config) { c.Check = []cluster.Setting{{Key: "downing", Value: "x"}} },
			"MaxMessage":              func(c *cluster.Config) { c.Transport.MaxMessage = -1 },
		} {
			cfg := w.config("a")
			change(&cfg)
			_, err := cluster.Start(cfg)
			if err == nil || !strings.Contains(err.Error(), field) || field != "MaxMessage" && !errors.Is(err, cluster.ErrInvalid) {
				w.Errorf("%s: %v", field, err)
			}
		}
		if _, err := cluster.Start(cluster.Config{}); !errors.Is(err, cluster.ErrInvalid) {
			w.Errorf("without a carrier: %v", err)
		}
		w.cluster("a") // the name is free
	})
}
