// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/enum"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/shardcore/shard"
	"github.com/refold-io/refold/sharding/allocation"
	"github.com/refold-io/refold/sharding/passivation"
)

// Options configure the distribution of an entity type. Shards, ShardOf, Role, State, Remember, Wake
// and DisableWake must be the same on all nodes: the coordinator rejects a region with other settings, see
// ErrMismatch. Of stores it compares only the kind, JournalStores or ReplicatedStores: it detects neither
// another database nor another store of the program's own. The zero value of a field is its default. Durations above ten years count as ten
// years.
type Options struct {
	// State is where the coordinator stores the allocation of shards: JournalStores or
	// ReplicatedStores. Defaults to JournalStores with the journal and the snapshot store of the
	// runtime, which all nodes must share; required if the runtime has no journal. A snapshot store
	// that is local to one node (see snapshot.Local) is left out. A proxy ignores the field.
	State CoordinatorStores
	// Host are options of the entities, such as the pauses after failures. PassivateAfter must not
	// be set: see Passivation. SharedJournal must not be set.
	Host eventsourcing.HostOptions

	// Shards is the number of shards. Use about ten for each node of the largest cluster that you
	// expect. It must not change while any node runs. Defaults to 1,000, at most 100,000.
	Shards int
	// ShardOf returns the shard of an entity, less than Shards. It must be deterministic and safe
	// for concurrent use. Defaults to a hash of the ID.
	ShardOf func(id string) Shard
	// Role is the role of the nodes that host entities of the type. Host starts a proxy on other
	// nodes. Defaults to "": all nodes.
	Role string
	// ProxyOnly lets Host start a proxy on this node, although the node could host entities. The
	// node may still run the coordinator. Nodes may have different values.
	ProxyOnly bool
	// MinMembers is the number of nodes that must host the type before shards are allocated, so
	// that the first node of a starting cluster does not get all shards. Proxies do not count.
	// Defaults to the minimum of the cluster: to the entry of MinMembersOfRole for Role, or to
	// MinMembers if Role is empty, both of cluster.Settings. Without them it defaults to 1.
	MinMembers int
	// Standbys is the number of nodes that keep the states of a shard's entities ready, besides the home
	// of the shard. A standby follows the events in the journal, which must implement journal.Querier.
	// It handles no commands. If the home of a shard is removed from the cluster, the standby that has
	// applied most events becomes the home, and an entity starts after it has read only the events
	// that the standby lacks. Each standby reads all events of the type. All nodes should have the same
	// value. Standbys exclude a Host.Recovery other than the zero value and Host.RecoveryOf: Host returns an
	// error that matches ErrInvalid. Defaults to 0, at most 9.
	Standbys int
	// Strategy decides which node hosts a shard. Defaults to Pure(allocation.LeastShards{}).
	Strategy Strategy
	// Passivation decides when idle entities leave memory. An entity that has work to do, such as a
	// timer, a deadline or an unconfirmed delivery, stays. Defaults to two idle minutes. An entity
	// without events leaves as soon as it has no work, unless Remember is set.
	Passivation passivation.Settings
	// Remember is where the IDs of running entities are stored: JournalStores or ReplicatedStores.
	// Remembered entities run again, without a command, after their shard has moved and after the
	// cluster was stopped. Only an entity that leaves by Effect.Passivate is forgotten; Passivation
	// does not apply. Defaults to nil: entities are not remembered.
	Remember RememberStores

	// Wake is where the index of entities with pending work is stored: the IDs of those with
	// unconfirmed deliveries or a deadline. Such entities continue without a command after their shard
	// has moved, after their node has crashed, and after the cluster was stopped. An entity is in the
	// index before the first event that gives it work is acknowledged, so this event takes one more
	// write. The entity stays in the index until it had no work for one to two minutes, so a busy sender
	// writes no more. If the index cannot be written, such commands wait.
	//
	// Defaults to JournalStores with the journal of the runtime, as in State, if the type has Parts or a
	// Deadline. It is ignored for other types, and on a proxy.
	Wake RememberStores
	// DisableWake is set if there is no such index. Then an entity continues its work with the next
	// command, or after Region.Wake.
	DisableWake bool
	// HandOff decides whether a planned move of a shard waits for all nodes. It should be the same
	// on all nodes; the value of the coordinator's node counts. Defaults to HandOffLossless.
	HandOff HandOff
	// Lease requires that a node holds a lease of cluster.Config.Leases for each shard while it runs
	// entities of the shard. Commands wait until the lease is acquired. If the lease is lost, the
	// entities are killed. The lease is released when the shard has moved, before it starts at its
	// next home. It must be the same on all nodes. Each lease is written at each
	// cluster.LeaseSettings.Interval. Defaults to false.
	Lease bool

	// Logger gets the log lines of the region, with the keys node and type. Its handler must not
	// block. Defaults to the logger of the node, whose handler does not block.
	Logger *slog.Logger
	// Observer observes commands that were not delivered. Defaults to none.
	Observer Observer
	// Tuning has limits, pauses and timeouts. Few programs need other values than the defaults.
	Tuning Tuning

	hasWork bool // entities of the type can have pending work
}

// HandOff is how the shards of a type move from one node to another.
type HandOff uint8

const (
	// HandOffLossless begins a move when all nodes have acknowledged that no command to the shard is
	// in transit. It loses no command. A node that does not reply delays the move until its removal,
	// or until Tuning.HandOffTimeout.
	HandOffLossless HandOff = iota
	// HandOffAtOnce begins a move without waiting for other nodes. The old home forwards the commands
	// that arrive later. The order of each sender is kept. A command that would be forwarded a second
	// time, because its shard moves again, is refused with ErrNotHome. Use it for senders that retry.
	HandOffAtOnce
)

func (h HandOff) String() string { return enum.Name(h, "hand-off", "lossless", "at once") }

// Tuning has limits, pauses and timeouts of a region and its coordinator.
type Tuning struct {
	// BufferSize is how many commands may wait on a node for shards without a home and for entities
	// that start and stop. Their bytes are limited by transport.Config.MemoryBudget. Defaults to
	// 100,000, at most 1,000,000.
	BufferSize int
	// MaxStarts is how many entities may be starting on a node at the same time. Defaults to 1,000.
	MaxStarts int
	// StandbyEntities is how many states a node keeps as a standby. Above it, the states with the oldest
	// events are dropped. Defaults to 100,000.
	StandbyEntities int
	// RecoverNumber is how many remembered entities, and entities with pending work, a node starts in
	// each RecoverInterval. Defaults to 0: all at once, within MaxStarts.
	RecoverNumber int
	// RecoverInterval is the time between two such groups of starts. Defaults to 100 ms.
	RecoverInterval time.Duration
	// RestartBackoff is the pause before a remembered entity that ended without a request is
	// started again. A command starts it earlier. Defaults to 10 s.
	RestartBackoff time.Duration
	// ShardBackoff is the pause before a shard is started again after the store of remembered
	// entities failed. Defaults to 10 s.
	ShardBackoff time.Duration
	// RetryInterval is the interval at which unacknowledged requests are repeated, and calls of a
	// failing store of Options.Wake. Defaults to 2 s.
	RetryInterval time.Duration
	// HandOffTimeout is the time limit of moving a shard. Five seconds before its end, but after at
	// least 1 s, entities that have not stopped are killed. Defaults to 60 s.
	HandOffTimeout time.Duration
	// ShardStartTimeout is how long a node may take to start a shard before the coordinator repeats
	// the request. Defaults to 10 s.
	ShardStartTimeout time.Duration
	// RebalanceInterval is the interval at which the strategy may move shards. Defaults to 10 s.
	RebalanceInterval time.Duration
	// LoadTimeout limits a call that loads the state of the coordinator, or the remembered entities
	// of a shard. Defaults to 5 s.
	LoadTimeout time.Duration
	// SaveTimeout limits a call that stores a change of the coordinator's state, or of the
	// remembered entities of a shard. Defaults to 5 s.
	SaveTimeout time.Duration
	// LeaseRetryInterval is the time between two attempts to acquire the lease of a shard. Defaults
	// to 5 s.
	LeaseRetryInterval time.Duration
	// StrategyTimeout limits a call of the strategy. Defaults to 5 s.
	StrategyTimeout time.Duration
	// CoordinatorBackoff is the pause before a failed coordinator is started again. After repeated
	// failures it grows to at most five times this value. Defaults to 5 s.
	CoordinatorBackoff time.Duration
}

// Observer is a struct of callbacks of a region. A nil callback costs nothing. Callbacks must not
// block.
type Observer struct {
	// Dropped is called for each command that was not delivered. A caller that waits for the reply
	// gets an error as well.
	Dropped func(DroppedInfo)
}

// DroppedInfo describes a command that was not delivered.
type DroppedInfo struct {
	// Type is the name of the entity type, Entity the ID.
	Type   string
	Entity string
	Shard  Shard
	// Asked reports whether a caller waits for the reply.
	Asked bool
	Err   error
}

func (o Options) withDefaults(node *cluster.Node, rt *eventsourcing.Runtime) Options {
	o.Shards = cmp.Or(o.Shards, 1000)
	if o.Strategy == nil {
		o.Strategy = Pure(allocation.LeastShards{})
	}
	if rt != nil && rt.Store() != nil && rt.Store().Journal() != nil {
		stores := JournalStores{Journal: rt.Store().Journal(), Snapshots: rt.Store().Snapshots()}
		if hosting.NodeLocal(stores.Journal, stores.Snapshots) {
			stores.Snapshots = nil
		}
		if o.State == nil {
			o.State = stores
		}
		if o.Wake == nil {
			o.Wake = stores
		}
	}
	if !o.hasWork || o.DisableWake {
		o.Wake = nil
	}
	o.MinMembers = cmp.Or(o.MinMembers, node.MinMembers(o.Role))
	t := &o.Tuning
	t.BufferSize = cmp.Or(t.BufferSize, 100_000)
	t.StandbyEntities = cmp.Or(t.StandbyEntities, 100_000)
	t.HandOffTimeout = cmp.Or(t.HandOffTimeout, time.Minute)
	t.RetryInterval = cmp.Or(t.RetryInterval, 2*time.Second)
	t.LoadTimeout = cmp.Or(t.LoadTimeout, 5*time.Second)
	t.SaveTimeout = cmp.Or(t.SaveTimeout, 5*time.Second)
	t.StrategyTimeout = cmp.Or(t.StrategyTimeout, 5*time.Second)
	for _, d := range t.durations() {
		*d.value = min(*d.value, maxDuration)
	}
	if o.Logger == nil {
		o.Logger = node.Logger()
	} else {
		o.Logger = o.Logger.With(slog.String("node", node.Self().String()))
	}
	return o
}

func (o *Options) validate(errs *fielderror.Errors, proxy bool) {
	if o.State == nil && !proxy {
		errs.Addf("Options.State", "is missing, and the runtime has no journal: set it to JournalStores or ReplicatedStores")
	}
	if o.hasWork && !o.DisableWake && o.Wake == nil {
		errs.Addf("Options.Wake", "is missing, and the runtime has no journal: set it, or set DisableWake")
	}
	if o.Host.PassivateAfter != 0 {
		errs.Addf("Options.Host.PassivateAfter", "must not be set for entities of a cluster: see Options.Passivation")
	}
	if o.Host.SharedJournal {
		errs.Addf("Options.Host.SharedJournal", "must not be set for entities of a cluster: each has one instance")
	}
	if o.Shards < 1 || o.Shards > coordinator.MaxShards {
		errs.Addf("Options.Shards", "is %d, it must be from 1 to %d", o.Shards, coordinator.MaxShards)
	}
	if a, ok := o.Strategy.(pureStrategy); ok {
		errs.Add("Options.Strategy", a.validate())
	}
	if o.HandOff > HandOffAtOnce {
		errs.Addf("Options.HandOff", "is %v, it must be HandOffLossless or HandOffAtOnce", o.HandOff)
	}
	_, err := o.Passivation.WithDefaults()
	errs.Join(err, "Settings", "Options.Passivation")
	if o.Tuning.BufferSize < 1 || o.Tuning.BufferSize > region.MaxBuffer {
		errs.Addf("Options.Tuning.BufferSize", "is %d, it must be from 1 to %d", o.Tuning.BufferSize, region.MaxBuffer)
	}
	if o.Standbys < 0 || o.Standbys > coordinator.MaxStandbys {
		errs.Addf("Options.Standbys", "is %d, it must be from 0 to %d", o.Standbys, coordinator.MaxStandbys)
	}
	if o.Tuning.StandbyEntities < 1 {
		errs.Addf("Options.Tuning.StandbyEntities", "is %d, it must be at least 1", o.Tuning.StandbyEntities)
	}
	for _, n := range []field[int]{{"MinMembers", o.MinMembers}, {"Tuning.MaxStarts", o.Tuning.MaxStarts}, {"Tuning.RecoverNumber", o.Tuning.RecoverNumber}} {
		if n.value < 0 || n.value > region.MaxBuffer {
			errs.Addf("Options."+n.name, "is %d, it must be from 0 to %d", n.value, region.MaxBuffer)
		}
	}
	for _, d := range o.Tuning.durations() {
		if *d.value < 0 {
			errs.Addf("Options.Tuning."+d.name, "is %v, less than 0", *d.value)
		}
	}
}

// maxDuration replaces longer durations, so that sums of several do not overflow.
const maxDuration = 10 * 365 * 24 * time.Hour

type field[T any] struct {
	name  string
	value T
}

func (t *Tuning) durations() []field[*time.Duration] {
	return []field[*time.Duration]{
		{"RecoverInterval", &t.RecoverInterval},
		{"RestartBackoff", &t.RestartBackoff},
		{"ShardBackoff", &t.ShardBackoff},
		{"RetryInterval", &t.RetryInterval},
		{"HandOffTimeout", &t.HandOffTimeout},
		{"ShardStartTimeout", &t.ShardStartTimeout},
		{"RebalanceInterval", &t.RebalanceInterval},
		{"LoadTimeout", &t.LoadTimeout},
		{"SaveTimeout", &t.SaveTimeout},
		{"LeaseRetryInterval", &t.LeaseRetryInterval},
		{"StrategyTimeout", &t.StrategyTimeout},
		{"CoordinatorBackoff", &t.CoordinatorBackoff},
	}
}

// leavePatience is how many RetryIntervals a leaving region waits for homes while no coordinator
// replies. A planned move of the coordinator takes less time; with a shorter wait, the region would
// lose commands. PhaseStopRegions is longer by default.
const leavePatience = 3

func (o *Options) machineConfig(node *cluster.Node, name string, proxy bool) shardcore.Config {
	t := &o.Tuning
	return shardcore.Config{
		Region: region.Config{
			Self: node.Self(), Type: name, Instance: 1, Role: o.Role, Proxy: proxy || o.ProxyOnly, Remember: o.Remember != nil && !proxy, Settings: o.settings(proxy),
			BufferSize: t.BufferSize, RetryInterval: t.RetryInterval, GiveUpAfter: leavePatience * t.RetryInterval, RestartBackoff: t.ShardBackoff,
		},
		Shard: shard.Config{
			Index: o.Wake != nil && !proxy, IndexRetry: t.RetryInterval,
			BufferSize: t.BufferSize, Starts: t.MaxStarts, Passivation: o.Passivation, RestartBackoff: t.RestartBackoff,
			StopTimeout: max(t.HandOffTimeout-5*time.Second, time.Second), UpdateTimeout: t.SaveTimeout,
			Lease: o.Lease, LeaseRetry: t.LeaseRetryInterval,
		},
		Coordinator: coordinator.Config{
			ReadsLoad: readsLoad(o.Strategy), Shards: o.Shards, Standbys: o.Standbys, MinRegions: o.MinMembers, HandOffAtOnce: o.HandOff == HandOffAtOnce, RemovalMargin: node.RemovalMargin, RetryInterval: t.RetryInterval,
			HandOffTimeout: t.HandOffTimeout, StartTimeout: t.ShardStartTimeout, RebalanceInterval: t.RebalanceInterval, SaveTimeout: t.SaveTimeout,
		},
		CoordinatorBackoff: t.CoordinatorBackoff, RecoverNumber: t.RecoverNumber, RecoverInterval: t.RecoverInterval,
	}
}

// ErrMismatch reports that the settings of a region or a proxy differ from those of the
// coordinator's node. The coordinator does not register the region, and no entity can be reached
// through it. The error text names the settings.
var ErrMismatch = errors.New("sharding: settings differ from those of the coordinator")

type mismatch struct {
	by     identity.Node
	theirs coordinator.Settings
	err    error
}

// settings returns the settings that must be the same on all nodes.
func (o *Options) settings(proxy bool) coordinator.Settings {
	s := coordinator.Settings{Shards: o.Shards, Routing: o.routingFingerprint(), Role: o.Role}
	if !proxy {
		s.State, s.Remember = storeKind(o.State), storeKind(o.Remember)
		if o.hasWork { // not compared with nodes whose version of the type has no work
			s.Wake = storeKind(o.Wake)
		}
	}
	return s
}

// storeKind returns the kind of a store, empty for a store of the application, which cannot be
// compared across nodes.
func storeKind(stores any) string {
	switch stores.(type) {
	case nil:
		return "none"
	case JournalStores:
		return "journal"
	case ReplicatedStores:
		return "replicated"
	}
	return ""
}

// sampleIDs is how many IDs are sampled in each form.
const sampleIDs = 16

// routingFingerprint hashes the shards of sample IDs, so that nodes can compare their ShardOf. It
// must never change.
func (o *Options) routingFingerprint() uint64 {
	at := shell{opts: *o}
	h := uint64(14695981039346656037)
	for i := range sampleIDs {
		for _, form := range []string{"%d", "customer-%03d", "tenant-%d/order-7", "7:%d", "user%d@example.org", "9f1c2b7e-0000-4000-8000-%012d", "帳戶 %d", "|%x|"} {
			n, err := at.shardOf(fmt.Sprintf(form, i*i*37))
			if err != nil { // ShardOf rejects IDs of this form
				n = coordinator.MaxShards
			}
			h = (h ^ uint64(n)) * 1099511628211
		}
	}
	return h
}

func (s *shell) mismatchError(by identity.Node, theirs coordinator.Settings) error {
	ours := s.opts.settings(s.store == nil)
	values := map[string][2]any{
		"Shards":   {ours.Shards, theirs.Shards},
		"Role":     {strconv.Quote(ours.Role), strconv.Quote(theirs.Role)},
		"State":    {ours.State, theirs.State},
		"Remember": {ours.Remember, theirs.Remember},
		"Wake":     {ours.Wake, theirs.Wake},
	}
	var all []string
	for _, field := range ours.Differences(theirs) {
		if v, ok := values[field]; ok {
			all = append(all, fmt.Sprintf("Options.%s is %v here and %v on that node", field, v[0], v[1]))
		} else {
			all = append(all, "Options."+field+" maps IDs to other shards on that node")
		}
	}
	return fmt.Errorf("%w of type %q on %v: %s", ErrMismatch, s.name, by, strings.Join(all, ", "))
}

func (s *shell) updateMismatch() {
	by, theirs := s.machine.Refused()
	last := s.mismatch.Load()
	switch {
	case theirs == nil && last == nil:
	case theirs == nil:
		s.mismatch.Store(nil)
		s.log.InfoContext(s.ctx, "the coordinator accepts the region again")
	case last == nil || last.by != by || last.theirs != *theirs:
		m := &mismatch{by, *theirs, s.mismatchError(by, *theirs)}
		s.mismatch.Store(m)
		s.log.ErrorContext(s.ctx, "the coordinator rejects the region: no entity can be reached through it", slog.Any("error", m.err))
		if last == nil && !s.refusalNotified {
			s.refusalNotified = true
			close(s.refusal)
		}
	}
}

// mismatchErr returns the reason for which the coordinator rejects the region, nil for none.
func (s *shell) mismatchErr() error {
	if m := s.mismatch.Load(); m != nil {
		return m.err
	}
	return nil
}

// Strategy decides which nodes host shards. The coordinator calls its methods one at a time. A call
// may take up to Tuning.StrategyTimeout. A call that fails or panics has no effect and is repeated
// later.
//
// If a strategy, or a PureStrategy, has a method ReadsLoad() bool that returns true, all nodes
// measure the load of their shards and report it to the coordinator, and the views have the load:
// see allocation.View. Without this method nothing is measured or sent.
type Strategy interface {
	// Allocate returns the node for a shard, one of the regions of the view. The zero node defers
	// the decision.
	Allocate(ctx context.Context, view allocation.View, request allocation.Request) (identity.Node, error)
	// Rebalance returns the shards to move. They are allocated again after their hand-off.
	Rebalance(ctx context.Context, view allocation.View) ([]allocation.Shard, error)
}

// PureStrategy is a strategy that computes its result from the view alone, like the strategies of
// package allocation. It cannot fail and does no I/O, so that it can be simulated. A Strategy may
// fail and do I/O, for example send requests to a service.
type PureStrategy interface {
	Allocate(view allocation.View, request allocation.Request) (identity.Node, bool)
	Rebalance(view allocation.View) []allocation.Shard
}

// Pure converts a PureStrategy. If the strategy has a method Validate() error, Host calls it.
func Pure(a PureStrategy) Strategy { return pureStrategy{a} }

type pureStrategy struct{ by PureStrategy }

func (a pureStrategy) validate() error {
	if a.by == nil {
		return errors.New("Pure needs a strategy")
	}
	if v, ok := a.by.(interface{ Validate() error }); ok {
		return panics.Catch(v.Validate) // it panics if the strategy is a nil pointer
	}
	return nil
}

// Allocate implements Strategy.
func (a pureStrategy) Allocate(_ context.Context, view allocation.View, request allocation.Request) (identity.Node, error) {
	n, _ := a.by.Allocate(view, request)
	return n, nil
}

// Rebalance implements Strategy.
func (a pureStrategy) Rebalance(_ context.Context, view allocation.View) ([]allocation.Shard, error) {
	return a.by.Rebalance(view), nil
}
