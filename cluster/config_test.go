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
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/transport"
)

// shopCarrier is a carrier of the cluster "shop".
type shopCarrier struct{ transport.Carrier }

func (shopCarrier) Cluster() string { return "shop" }

// Each error names the field, and the carrier is closed.
func TestConfig(t *testing.T) {
	t.Parallel()
	bubble(t, func(w *world) {
		for field, change := range map[string]func(*cluster.Config){
			"Config.Cluster": func(c *cluster.Config) { c.Cluster = "my.bank" },
			"Config.Cluster is \"bank\", but Config.Carrier belongs to cluster \"shop\"": func(c *cluster.Config) { c.Carrier = shopCarrier{c.Carrier} },
			"Config.Seeds":   func(c *cluster.Config) { c.Seeds = []string{"a", "b c"} },
			"Config.Roles":   func(c *cluster.Config) { c.Roles = []string{"dc-east"} },
			"Config.Version": func(c *cluster.Config) { c.Version = "1.2.3.4" },
			"Config.Leases":  func(c *cluster.Config) { c.Downing.Strategy = downing.LeaseMajority },
			"Config.Downing.QuorumSize is 0, the strategy \"static-quorum\"": func(c *cluster.Config) { c.Downing.Strategy = downing.StaticQuorum },
			"Config.PhaseTimeout":                           func(c *cluster.Config) { c.PhaseTimeout = map[cluster.Phase]time.Duration{cluster.PhaseLeave: -1} },
			"the phase 77":                                  func(c *cluster.Config) { c.PhaseTimeout = map[cluster.Phase]time.Duration{77: 1} },
			"Config.MaxInputs":                              func(c *cluster.Config) { c.MaxInputs = -1 },
			"Config.MaxEvents":                              func(c *cluster.Config) { c.MaxEvents = -1 },
			"Config.StopWarning":                            func(c *cluster.Config) { c.StopWarning = -1 },
			"Config.StatsInterval":                          func(c *cluster.Config) { c.StatsInterval = -1 },
			"Config.Settings.GossipInterval is 1ns":         func(c *cluster.Config) { c.Settings.GossipInterval = 1 },
			"Config.Settings.SuspendAfter is 1h0m0s":        func(c *cluster.Config) { c.Settings.SuspendAfter = time.Hour },
			"Config.Check has the reserved key \"downing\"": func(c *cluster.Config) { c.Check = []cluster.Setting{{Key: "downing", Value: "x"}} },
			"Config.Check: a key is empty or duplicated: \"field Settings.\"": func(c *cluster.Config) {
				c.Check = []cluster.Setting{{Key: "field Settings.", Value: "x"}, {Key: "field Settings.", Value: "x"}}
			},
			"Config.Settings.MaxSamples is -1, it must be at least 1; Config.Settings.MonitoredBy": func(c *cluster.Config) { c.Settings.MaxSamples, c.Settings.MonitoredBy = -1, -1 },
			"Config.Lease.Interval is 30s": func(c *cluster.Config) {
				c.Leases, c.Lease.Interval = inmem.NewLeases(time.Minute), 30*time.Second
			},
			"Config.Lease.OperationTimeout is -1s": func(c *cluster.Config) {
				c.Leases, c.Lease.OperationTimeout = inmem.NewLeases(time.Minute), -time.Second
			},
			"Config.Lease is not used": func(c *cluster.Config) { c.Lease.Interval = time.Second },
			"MaxMessage":               func(c *cluster.Config) { c.Transport.MaxMessage = -1 },
		} {
			cfg := w.config("a")
			change(&cfg)
			_, err := cluster.Start(cfg)
			if err != nil && field != "MaxMessage" && !strings.HasPrefix(err.Error(), "cluster: invalid: Config.") {
				w.Errorf("%s: the error does not begin with the field: %v", field, err)
			}
			if err == nil || !strings.Contains(err.Error(), field) || field != "MaxMessage" && !errors.Is(err, cluster.ErrInvalid) {
				w.Errorf("the error does not contain %q: %v", field, err)
			}
		}
		if _, err := cluster.Start(cluster.Config{}); !errors.Is(err, cluster.ErrInvalid) {
			w.Errorf("Start without a carrier: %v, want ErrInvalid", err)
		}
		w.cluster("a") // the failed calls of Start left the name free
	})
}
