// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/membership"
	"github.com/refold-io/refold/lease"
	"github.com/refold-io/refold/transport"
)

// Config configures a node.
type Config struct {
	// Cluster is the name of the cluster, without dots. It must be equal to the cluster of the
	// carrier. The names of leases contain the name of the cluster. Required.
	Cluster string
	// Carrier sends and receives messages. It also provides the identity of this node. The node
	// owns the carrier and closes it, even if Start fails. Required.
	Carrier transport.Carrier
	// Transport configures the transport. Transport.OnEvent is called after the node has received
	// the event. The node adds its own message kinds to Transport.Silent. Transport.Logger defaults
	// to Logger.
	Transport transport.Config

	// Seeds are names of nodes through which the node joins, in the same order on all nodes. List
	// three, on different machines: the first seed founds a cluster if no other seed replies. Join
	// requires at least one seed. Without seeds, Start does not join: use Node.JoinVia, or the
	// command "refold cluster join".
	Seeds []string
	// Roles are the roles of the node: at most 64, none beginning with "dc-". Defaults to none.
	Roles []string
	// Version is the version of the application, such as "1.2.0". Defaults to "0.0.0".
	Version string
	// VersionPending delays joining until Node.SetVersion is called.
	VersionPending bool

	// Downing chooses the survivors when members are unreachable. It must be the same on all nodes.
	// With the zero value the majority survives, after 5 s (three nodes) to 20 s (a hundred) without a
	// change of members or reachability.
	Downing downing.Settings
	// Leases is the store of the leases. downing.LeaseMajority and singletons with a lease require
	// it. The node does not close the store.
	Leases lease.Store
	// Lease configures the leases.
	Lease LeaseSettings
	// Check holds further settings that must be the same on all nodes. They are sent to any node
	// that tries to join, so they must not contain secrets.
	Check []Setting
	// Settings tune the membership protocol.
	Settings Settings

	// Authorize decides whether an operator may send a request. The node calls it for each request,
	// reads and actions, before it carries out the request. An error or a panic refuses the
	// request; the operator receives the text of the error. Calls can be concurrent. A call counts
	// towards the limits of requests, see transport.AdminHandler, and its context ends with the
	// request. Defaults to nil: the node carries out all requests that the permissions of the
	// carrier allow.
	Authorize func(ctx context.Context, r OperatorRequest) error

	// PhaseTimeout is how long a phase of the shutdown may take. Defaults to 5 s, and to 10 s for
	// PhaseStopRegions, PhaseExiting and PhaseTerminate.
	PhaseTimeout map[Phase]time.Duration
	// StopWarning is the interval between warnings about a singleton instance that was asked to
	// stop and still runs. Defaults to 5 s.
	StopWarning time.Duration
	// MaxInputs is how many messages of the control lane may wait to be handled. Further messages
	// are dropped and counted; the protocols repeat important messages. Defaults to 8,192. All
	// waiting messages together have at most a quarter of Transport.MemoryBudget.
	MaxInputs int
	// MaxEvents is how many events may wait for a consumer of Node.Events before they are replaced
	// by a snapshot. Defaults to 16,384.
	MaxEvents int

	// Logger receives log lines. It may block: up to 4,096 lines wait for it. Defaults to a logger
	// that discards all lines.
	Logger *slog.Logger
	// Observer receives events of the node. Defaults to none.
	Observer Observer
	// StatsInterval is the time between two calls of Observer.Stats. Defaults to 0: never.
	StatsInterval time.Duration
}

// LeaseSettings configure leases.
type LeaseSettings struct {
	// Interval is the time between two renewals, less than half of the time-out of the store.
	// Defaults to a tenth of the time-out, or to 5 s if that is longer. The default is at most a
	// quarter of the time-out.
	Interval time.Duration
	// OperationTimeout limits one call of the store. Defaults to 5 s.
	OperationTimeout time.Duration
}

func (c Config) withDefaults() Config {
	timeouts := map[Phase]time.Duration{}
	for p := range phases {
		timeouts[p] = 5 * time.Second
	}
	timeouts[PhaseStopRegions], timeouts[PhaseExiting], timeouts[PhaseTerminate] = 10*time.Second, 10*time.Second, 10*time.Second
	maps.Copy(timeouts, c.PhaseTimeout)
	c.PhaseTimeout = timeouts
	c.StopWarning = cmp.Or(c.StopWarning, 5*time.Second)
	c.MaxInputs = cmp.Or(c.MaxInputs, 8192)
	c.MaxEvents = cmp.Or(c.MaxEvents, 16384)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// validate returns the parsed version. It checks only the fields that the machines do not check.
func (c *Config) validate() (identity.Version, error) {
	var errs fielderror.Errors
	check := func(field string, err error) { errs.Add("Config."+field, err) }
	least := func(field string, is, min int64) {
		if is < min {
			errs.Addf("Config."+field, "is %d, it must be at least %d", is, min)
		}
	}
	check("Cluster", identity.CheckCluster(c.Cluster))
	if of, ok := c.Carrier.(transport.Clustered); ok && of.Cluster() != c.Cluster {
		errs.Addf("Config.Cluster", "is %q, but Config.Carrier belongs to cluster %q", c.Cluster, of.Cluster())
	}
	check("Seeds", membership.CheckSeeds(c.Seeds))
	_, err := membership.CheckRoles(c.Roles)
	check("Roles", err)
	version, err := identity.ParseVersion(cmp.Or(c.Version, "0.0.0"))
	check("Version", err)
	least("MaxInputs", int64(c.MaxInputs), 1)
	least("MaxEvents", int64(c.MaxEvents), 1)
	least("StopWarning", int64(c.StopWarning), 1)
	least("StatsInterval", int64(c.StatsInterval), 0)
	for _, p := range slices.Sorted(maps.Keys(c.PhaseTimeout)) {
		if p >= phases {
			errs.Addf("Config.PhaseTimeout", "has the phase %d, which does not exist", p)
		}
		if d := c.PhaseTimeout[p]; d <= 0 {
			errs.Addf("Config.PhaseTimeout", "of %v is %v, it must be more than 0", p, d)
		}
	}
	if c.Downing.Strategy == downing.LeaseMajority && c.Leases == nil {
		errs.Addf("Config.Leases", "is missing, downing.LeaseMajority requires it")
	}
	if c.Leases != nil {
		_, err = lease.New(c.Leases, c.Lease.of("any", "any", nil))
		errs.Join(err, "Config.", "Config.Lease.")
	} else if c.Lease != (LeaseSettings{}) {
		errs.Addf("Config.Lease", "is not used without Config.Leases")
	}
	return version, errs.Err(ErrInvalid)
}

func (s LeaseSettings) of(name, owner string, log *slog.Logger) lease.Config {
	return lease.Config{Name: name, Owner: owner, Interval: s.Interval, OperationTimeout: s.OperationTimeout, Logger: log}
}
