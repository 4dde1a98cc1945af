// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/shardcore"
	"github.com/refold-io/refold/internal/shardcore/coordinator"
	"github.com/refold-io/refold/internal/shardcore/region"
	"github.com/refold-io/refold/internal/shardcore/shard"
	"github.com/refold-io/refold/sharding/allocation"
	"github.com/refold-io/refold/sharding/passivation"
)

// Options say how an entity type is spread over the nodes. Shards, ShardOf, Role, State and Remember must be the same on all nodes: the
// coordinator refuses a region that has others, see ErrMismatch. The zero value of each field is its default; a duration beyond ten years is ten years.
type Options struct {
	// Runtime runs the entities on this node. It stays the caller's, who closes it after the node. Required.
	Runtime *eventsourcing.Runtime
	// State says where the coordinator keeps which shard is where: JournalState or ReplicatedState. Required by Start;
	// a proxy has no use for it.
	State CoordinatorStores
	// Host are options of the entities, such as the pauses after they have failed. Route, Gone, Busy, Killed and PassivateAfter must not be
	// set.
	Host eventsourcing.HostOptions

	// Shards is how many shards there are, about ten for each node that there may ever be. It must never change as long as any node
	// runs. Defaults to 1,000, at most 100,000.
	Shards int
	// ShardOf returns the shard of an entity, below Shards. It is called by many goroutines, and must always return the same. Defaults to a
	// hash of the ID.
	ShardOf func(id string) Shard
	// Role is what a node must have to host entities of the type. Start on other nodes starts a proxy. Defaults to "": all do.
	Role string
	// MinMembers is how many nodes must host the type before shards are allocated, so that the first one of a cluster that starts does not get
	// all. Defaults to 1.
	MinMembers int
	// Strategy says where shards are. Defaults to Pure(allocation.LeastShards{}).
	Strategy Strategy
	// Passivation says when entities that nobody needs leave memory. One that has something to do, such as a timer, a deadline or a delivery
	// that is not confirmed, stays. Defaults to after two idle minutes.
	Passivation passivation.Settings

	// Remember says where it is kept which entities run: JournalEntities or ReplicatedEntities. Those that ran run again, without a
	// command, when their shard has moved and when the cluster has been stopped; only one that asks to leave, with Context.Passivate, is
	// forgotten. Passivation has no part in them. Defaults to nil: nothing is
	// remembered.
	Remember RememberStores
	// RecoverNumber is how many remembered entities a node starts in each RecoverInterval. Defaults to 0: all at once, within
	// MaxStarts.
	RecoverNumber int
	// RecoverInterval is the time between them. Defaults to 100 ms.
	RecoverInterval time.Duration
	// RestartBackoff is how long after it has ended by itself a remembered entity is started again, unless a command comes, and after
	// the store of remembered entities has failed their shard. Defaults to 10 s.
	RestartBackoff time.Duration

	// BufferSize is how many commands may wait on a node for shards without a home, and for entities that come and go. Defaults to
	// 100,000, at most 1,000,000.
	BufferSize int
	// MaxStarts is how many entities may be starting on a node. Defaults to 1,000.
	MaxStarts int
	// RetryInterval is how often what was not answered is said again. Defaults to 2 s.
	RetryInterval time.Duration
	// HandOffTimeout is how long moving a shard may take. Five seconds before, but at least after 1 s, entities that have not stopped
	// are ended by force. Defaults to 60 s.
	HandOffTimeout time.Duration
	// ShardStartTimeout is how long a node may take to start a shard before it is told again. Defaults to 10 s.
	ShardStartTimeout time.Duration
	// RebalanceInterval is how often the strategy is asked which shards should move. Defaults to 10 s.
	RebalanceInterval time.Duration
	// StateTimeout is how long a call of the coordinator's store may take. Defaults to 5 s.
	StateTimeout time.Duration
	// StrategyTimeout is how long the strategy may take. Defaults to 5 s.
	StrategyTimeout time.Duration
	// CoordinatorBackoff is how long after a failure of the coordinator there is another one, up to five times as long after
	// several. Defaults to 5 s.
	CoordinatorBackoff time.Duration

	// Logger is told what happens. A handler that blocks holds up the region. Defaults to that of the node, which does not.
	// Lines have the keys node and type.
	Logger *slog.Logger
	// Observer is told more. Defaults to none.
	Observer Observer
}

// Observer is told what happens to a region: a struct of functions, each of which may be nil and then costs nothing. They must not
// block.
type Observer struct {
	// Dropped: a command reached nobody. If somebody waits for its answer, that is told as well.
	Dropped func(DroppedInfo)
}

// DroppedInfo describes a command that reached nobody.
type DroppedInfo struct {
	// Type is the name of the entity type.
	Type string
	// Entity is the ID.
	Entity string
	Shard  Shard
	// Asked says that somebody waits for the answer.
	Asked bool
	Err   error
}

func (o Options) withDefaults(node *cluster.Node) Options {
	o.Shards = cmp.Or(o.Shards, 1000)
	if o.Strategy == nil {
		o.Strategy = Pure(allocation.LeastShards{})
	}
	o.BufferSize = cmp.Or(o.BufferSize, 100_000)
	o.HandOffTimeout = cmp.Or(o.HandOffTimeout, time.Minute)
	o.RetryInterval = cmp.Or(o.RetryInterval, 2*time.Second)
	o.StateTimeout = cmp.Or(o.StateTimeout, 5*time.Second)
	o.StrategyTimeout = cmp.Or(o.StrategyTimeout, 5*time.Second)
	for _, d := range o.durations() {
		*d.value = min(*d.value, maxDuration)
	}
	if o.Logger == nil {
		o.Logger = node.Logger()
	} else {
		o.Logger = o.Logger.With(slog.String("node", node.Self().String()))
	}
	return o
}

// validate returns all that is wrong, by the names of the fields.
func (o *Options) validate(proxy bool) error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf("Options."+format, args...)) }
	if o.Runtime == nil && !proxy {
		fail("Runtime is missing")
	}
	if o.State == nil && !proxy {
		fail("State is missing: JournalState or ReplicatedState")
	}
	if o.Host.Route != nil || o.Host.Gone != nil || o.Host.Busy != nil || o.Host.Killed != nil || o.Host.PassivateAfter != 0 {
		fail("Host: Route, Gone, Busy, Killed or PassivateAfter is set, they are not for entities of a cluster: see Options.Passivation")
	}
	if o.Shards < 1 || o.Shards > coordinator.MaxShards {
		fail("Shards is %d, it must be from 1 to %d", o.Shards, coordinator.MaxShards)
	}
	if a, ok := o.Strategy.(pureStrategy); ok {
		if err := a.validate(); err != nil {
			fail("Strategy: %w", err)
		}
	}
	if _, err := o.Passivation.WithDefaults(); err != nil {
		errs = append(errs, errors.New(strings.ReplaceAll(err.Error(), passivation.ErrInvalid.Error()+": Settings", "Options.Passivation")))
	}
	if o.BufferSize < 1 || o.BufferSize > region.MaxBuffer {
		fail("BufferSize is %d, it must be from 1 to %d", o.BufferSize, region.MaxBuffer)
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"MinMembers", o.MinMembers}, {"MaxStarts", o.MaxStarts}, {"RecoverNumber", o.RecoverNumber}} {
		if n.value < 0 || n.value > region.MaxBuffer {
			fail("%s is %d, it must be from 0 to %d", n.name, n.value, region.MaxBuffer)
		}
	}
	for _, d := range o.durations() {
		if *d.value < 0 {
			fail("%s is %v, less than 0", d.name, *d.value)
		}
	}
	return errors.Join(errs...)
}

// longest is what a longer duration, which means for ever, is taken for: several of them can be added to the time.
const maxDuration = 10 * 365 * 24 * time.Hour

// duration is a field of Options.
type duration struct {
	name  string
	value *time.Duration
}

func (o *Options) durations() []duration {
	return []duration{
		{"RecoverInterval", &o.RecoverInterval},
		{"RestartBackoff", &o.RestartBackoff},
		{"RetryInterval", &o.RetryInterval},
		{"HandOffTimeout", &o.HandOffTimeout},
		{"ShardStartTimeout", &o.ShardStartTimeout},
		{"RebalanceInterval", &o.RebalanceInterval},
		{"StateTimeout", &o.StateTimeout},
		{"StrategyTimeout", &o.StrategyTimeout},
		{"CoordinatorBackoff", &o.CoordinatorBackoff},
	}
}

// patience is how many RetryIntervals a region that leaves waits for homes while no coordinator answers. One that moves, in order, is back sooner, and who
// gave up before would lose commands; PhaseStopRegions is longer, by default.
const leavePatience = 3

// machine returns the configuration of the machine.
func (o *Options) machineConfig(node *cluster.Node, name string, proxy bool) shardcore.Config {
	return shardcore.Config{
		Region: region.Config{
			Self: node.Self(), Type: name, Instance: 1, Role: o.Role, Proxy: proxy, BufferSize: o.BufferSize, RetryInterval: o.RetryInterval, GiveUpAfter: leavePatience * o.RetryInterval,
			Remember: o.Remember != nil && !proxy, RestartBackoff: o.RestartBackoff, Settings: o.settings(proxy),
		},
		Shard: shard.Config{
			BufferSize: o.BufferSize, Starts: o.MaxStarts, Passivation: o.Passivation,
			StopTimeout: max(o.HandOffTimeout-5*time.Second, time.Second), UpdateTimeout: o.StateTimeout,
			RecoverNumber: o.RecoverNumber, RecoverInterval: o.RecoverInterval,
		},
		Coordinator: coordinator.Config{
			Shards: o.Shards, MinRegions: o.MinMembers, RemovalMargin: max(0, node.RemovalMargin()), RetryInterval: o.RetryInterval,
			HandOffTimeout: o.HandOffTimeout, StartTimeout: o.ShardStartTimeout, RebalanceInterval: o.RebalanceInterval,
			SaveTimeout: o.StateTimeout,
		},
		CoordinatorBackoff: o.CoordinatorBackoff,
	}
}

// ErrMismatch says that a region, or a proxy, has other settings than the node with the coordinator, which does not let it register:
// nobody is reached through it. The text names the fields.
var ErrMismatch = errors.New("sharding: settings differ from those of the coordinator")

// mismatch is why a region is refused.
type mismatch struct {
	by     identity.Node
	theirs coordinator.Settings
	err    error
}

// settings are those that have to be the same on all nodes.
func (o *Options) settings(proxy bool) coordinator.Settings {
	s := coordinator.Settings{Shards: o.Shards, Routing: o.routingFingerprint(), Role: o.Role}
	if !proxy {
		s.State, s.Remember = storeKind(o.State), storeKind(o.Remember)
	}
	return s
}

// storeKind returns the kind of stores, empty of those that are the program's own: who knows how they are made on other nodes.
func storeKind(stores any) string {
	switch stores.(type) {
	case nil:
		return "none"
	case JournalConfig:
		return "journal"
	case ReplicatedConfig:
		return "replicated"
	}
	return ""
}

// sampleIDs is how many IDs are tried in each form.
const sampleIDs = 16

// routing is a fingerprint of ShardOf: the shards of some IDs, in forms that IDs have. It must never change.
func (o *Options) routingFingerprint() uint64 {
	at := shell{opts: *o}
	h := uint64(14695981039346656037)
	for i := range sampleIDs {
		for _, form := range []string{"%d", "customer-%03d", "tenant-%d/order-7", "7:%d", "user%d@example.org", "9f1c2b7e-0000-4000-8000-%012d", "帳戶 %d", "|%x|"} {
			n, err := at.shardOf(fmt.Sprintf(form, i*i*37))
			if err != nil { // IDs in this form are none
				n = coordinator.MaxShards
			}
			h = (h ^ uint64(n)) * 1099511628211
		}
	}
	return h
}

// differs returns the error about settings of the coordinator's node that are others.
func (s *shell) mismatchError(by identity.Node, theirs coordinator.Settings) error {
	ours := s.cfg.Region.Settings
	var all []string
	for _, field := range ours.Differences(theirs) {
		var here, there any
		switch field {
		case "Shards":
			here, there = ours.Shards, theirs.Shards
		case "Role":
			here, there = fmt.Sprintf("%q", ours.Role), fmt.Sprintf("%q", theirs.Role)
		case "State":
			here, there = ours.State, theirs.State
		case "Remember":
			here, there = ours.Remember, theirs.Remember
		default:
			all = append(all, "Options."+field+" gives IDs other shards here than there")
			continue
		}
		all = append(all, fmt.Sprintf("Options.%s is %v here and %v there", field, here, there))
	}
	return fmt.Errorf("%w of type %q on %v: %s", ErrMismatch, s.name, by, strings.Join(all, ", "))
}

// updateMismatch takes note whether the coordinator refuses the region.
func (s *shell) updateMismatch() {
	by, theirs := s.machine.Refused()
	last := s.mismatch.Load()
	switch {
	case theirs == nil && last == nil:
	case theirs == nil:
		s.mismatch.Store(nil)
		s.log.InfoContext(s.ctx, "the coordinator does not refuse the region any more")
	case last == nil || last.by != by || last.theirs != *theirs:
		m := &mismatch{by, *theirs, s.mismatchError(by, *theirs)}
		s.mismatch.Store(m)
		s.log.ErrorContext(s.ctx, "the coordinator refuses the region, nobody is reached through it", slog.Any("error", m.err))
		if last == nil && !s.refusalNotified {
			s.refusalNotified = true
			close(s.refusal)
		}
	}
}

// mismatched returns why the coordinator refuses the region, nil if it does not.
func (s *shell) mismatchErr() error {
	if m := s.mismatch.Load(); m != nil {
		return m.err
	}
	return nil
}

// Strategy decides where shards are. Its methods are called by the coordinator, one at a time; they may take their time, up to
// Options.StrategyTimeout. One that fails or panics has decided nothing, and is asked again.
type Strategy interface {
	// Allocate returns the node that gets a shard, one of the regions of the view. The zero node says that there is none at the
	// moment.
	Allocate(ctx context.Context, view allocation.View, request allocation.Request) (identity.Node, error)
	// Rebalance returns the shards that are to move. They are allocated anew then.
	Rebalance(ctx context.Context, view allocation.View) ([]allocation.Shard, error)
}

// PureStrategy is a strategy that is a matter of arithmetic only: those of package allocation are. They can't fail and ask nobody, so that they
// can be simulated and tested as they are; a Strategy can, such as one that has the places from a service.
type PureStrategy interface {
	Allocate(view allocation.View, request allocation.Request) (identity.Node, bool)
	Rebalance(view allocation.View) []allocation.Shard
}

// Pure returns the strategy of some arithmetic, as in Pure(allocation.Threshold{}). If that has a method Validate() error, Start calls it.
func Pure(a PureStrategy) Strategy { return pureStrategy{a} }

type pureStrategy struct{ by PureStrategy }

// validate returns what is wrong with the settings.
func (a pureStrategy) validate() error {
	if a.by == nil {
		return errors.New("By has no arithmetic")
	}
	if v, ok := a.by.(interface{ Validate() error }); ok {
		return catchPanic(v.Validate) // a pointer in it may be nil
	}
	return nil
}

// Allocate is part of Strategy.
func (a pureStrategy) Allocate(_ context.Context, view allocation.View, request allocation.Request) (identity.Node, error) {
	n, _ := a.by.Allocate(view, request)
	return n, nil
}

// Rebalance is part of Strategy.
func (a pureStrategy) Rebalance(_ context.Context, view allocation.View) ([]allocation.Shard, error) {
	return a.by.Rebalance(view), nil
}
