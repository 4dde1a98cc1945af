// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
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

// Config says who a node is and how it takes part in its cluster.
type Config struct {
	// Cluster is the name of the cluster, without dots, as the carrier has it. Names of leases are made of it. Required.
	Cluster string
	// Carrier is how messages get to other nodes; it also says who this node is. The node takes
	// it over, and closes it also when it can't start. Required.
	Carrier transport.Carrier
	// Transport are limits of the transport. OnEvent is told after the node was; Silent is added to. Its
	// Logger defaults to that of the node.
	Transport transport.Config

	// Seeds are names of nodes through which the cluster is joined, in the same order on all nodes. The
	// first of them founds the cluster if it finds none. Required by Join; without any Start does
	// not join, and Node.JoinVia does.
	Seeds []string
	// Roles are what the node is for: at most 64, which do not begin with "dc-". Defaults to
	// none.
	Roles []string
	// Version is that of the application, as in "1.2.0". Defaults to "0.0.0".
	Version string
	// VersionPending says that Node.SetVersion is going to tell the version. The node joins then, and not before.
	VersionPending bool

	// Downing says who survives when some members can't be reached; all nodes must have the same. The
	// zero value keeps the majority, after 20 s without change.
	Downing downing.Settings
	// Leases is where leases are kept. Required by downing.LeaseMajority and by singletons with a
	// lease. It stays the caller's.
	Leases lease.Store
	// Lease says how leases are held.
	Lease LeaseSettings
	// Check are further settings that have to be the same on all nodes. They are sent to whoever
	// joins: nothing secret belongs there.
	Check []Setting
	// Settings are times and limits of the membership. The zero value is the default of each.
	Settings Settings

	// PhaseTimeout is how long a phase of the shutdown may take. Defaults to 5 s, and to 10 s for
	// PhaseStopRegions, PhaseExiting and PhaseTerminate.
	PhaseTimeout map[Phase]time.Duration
	// StopWarning is after what time a singleton that was asked to stop, and has not, is complained about, again and
	// again. Defaults to 5 s.
	StopWarning time.Duration
	// MaxInputs is how many messages of the control lane may wait to be handled. More are dropped and counted: the
	// protocols repeat what matters. Defaults to 8,192; together they hold at most 64 MiB.
	MaxInputs int
	// MaxEvents is how many events may wait for a reader of Node.Events. One that is slower gets a
	// snapshot instead. Defaults to 16,384.
	MaxEvents int

	// Logger gets what happens; its handler says from which level on. Defaults to one that discards. It may block: lines wait for it,
	// up to 4,096.
	Logger *slog.Logger
	// Observer is told figures. Defaults to none.
	Observer Observer
	// StatsInterval is how often Observer.Stats is called. Defaults to 0: never.
	StatsInterval time.Duration
}

// LeaseSettings say how leases are held.
type LeaseSettings struct {
	// Interval is how often a lease is renewed, less than half of the time-out of the store. Defaults to a
	// tenth of it and at least 5 s, or to a quarter of it if that is less.
	Interval time.Duration
	// OperationTimeout is how long one call of the store may take. Defaults to 5 s.
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

// validate returns all that is wrong but for what the machines check, and the version.
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
		errs.Addf("Config.Cluster", "is %q, Config.Carrier is one of %q", c.Cluster, of.Cluster())
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

// of returns the configuration of a lease.
func (s LeaseSettings) of(name, owner string, log *slog.Logger) lease.Config {
	return lease.Config{Name: name, Owner: owner, Interval: s.Interval, OperationTimeout: s.OperationTimeout, Logger: log}
}
