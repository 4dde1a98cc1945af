// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/internal/adminrpc"
	"github.com/refold-io/refold/internal/hosting"
	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/internal/shardcore"
)

// shell drives the shardcore.Machine of an entity type on a node: it owns the loop, the timer, and
// the access to the transport, the stores and the entities.
type shell struct {
	node           *cluster.Node
	router         *router
	runtime        *eventsourcing.Runtime // may be nil on a proxy
	name           string
	opts           Options
	commands       *codec.Registry
	carrier        hosting.Carrier
	proxy          bool
	hosted         atomic.Pointer[tenancy]
	standbys       *standbys // nil without Options.Standbys, and on a proxy
	store          CoordinatorStore
	rememberStore  RememberStore // nil if entities are not remembered
	wakeStore      RememberStore // the index of entities with pending work; nil for none
	log            *slog.Logger
	ctx            context.Context //nolint:containedctx // the lifetime of the shell
	cancel         context.CancelFunc
	commandCtx     context.Context //nolint:containedctx // parent of the contexts of peers' commands, without values
	startedAt      time.Time
	inbox          *loop.Mailbox[item]
	loadMeter      *loadMeter // nil unless the strategy reads the load
	paths          []fastPath
	membersChanged atomic.Bool
	stopping       atomic.Bool // ends the loop
	dropped        atomic.Uint64
	queuedTotal    atomic.Uint64 // commands through the loop
	budget         *loop.Budget
	own            *loop.Account // of the waiting commands of this node, of all types
	overBudget     atomic.Uint64 // refused commands

	unanswered     atomic.Uint64 // asks whose callers stopped waiting
	pendingQueries atomic.Int32  // queries of other nodes that wait for the loop

	mismatch atomic.Pointer[mismatch] // nil unless the coordinator rejects the region
	refusal  chan struct{}            // closed at the first rejection

	// The following fields belong to the loop.
	machine            *shardcore.Machine
	sweepAt            time.Duration
	routeVersion       uint64
	openPaths          map[Shard]struct{} // the paths that accept commands
	pendingInputs      []shardcore.Input  // results of applied effects
	localEntities      map[string]*localEntity
	leases             map[shardcore.ShardRun]*shardLease
	storeCalls         map[storeCall]chan struct{} // the last call for each shard, closed at its end
	indexWaiters       map[string][]func()         // entities that wait for the index
	started            []*localEntity              // entities to be added to the fast path
	coordinatorStopped chan struct{}               // closed when the coordinator has stopped, nil if no goroutine waits
	drainWaiters       []chan error                // closed when drained, or sent an error
	closing            bool                        // Region.Close has begun
	closed             bool                        // Region.Close has ended: Host may start the next region
	refusalNotified    bool                        // refusal is closed
	outageLogged       bool                        // an outage of the coordinator is logged
	handedOff          uint64                      // see Stats
	notHandedOff       uint64
	throttle           loop.Throttle[logKind]

	background    sync.WaitGroup
	hooks         []func()
	disconnect    func()        // ends the access of the runtime to the router; nil on a proxy without a runtime
	ready         chan struct{} // closed at the first registration
	nodeEnded     chan struct{} // closed when the membership of the node has ended
	regionStopped chan struct{} // closed when all goroutines and entities of the region have ended
	done          chan struct{}
}

func newShell(ctx context.Context, node *cluster.Node, rt *eventsourcing.Runtime, name string, commands *codec.Registry, opts Options, proxy bool) (*shell, error) {
	machine, err := shardcore.New(opts.machineConfig(node, name, proxy))
	if err != nil {
		return nil, err
	}
	budget := loop.BudgetOf(node.Transport())
	s := &shell{
		node: node, router: routerOf(node), runtime: rt, name: name, proxy: proxy || opts.ProxyOnly, opts: opts, commands: commands, machine: machine,
		log: opts.Logger.With(slog.String("type", name)), startedAt: time.Now(), paths: make([]fastPath, opts.Shards),
		inbox: loop.NewMailbox[item](loop.NewSignal(), loop.Limit{Count: opts.Tuning.BufferSize}, loop.Limit{Count: maxWaitingFrames, Bytes: maxWaitingBytes},
			loop.Limit{Count: maxWaitingFrames, Bytes: maxWaitingBytes, Account: budget.Account("frames of " + name)}),
		budget: budget, own: budget.Account(""),
		openPaths: map[Shard]struct{}{}, localEntities: map[string]*localEntity{}, storeCalls: map[storeCall]chan struct{}{}, indexWaiters: map[string][]func(){}, leases: map[shardcore.ShardRun]*shardLease{},
		refusal: make(chan struct{}), ready: make(chan struct{}), nodeEnded: make(chan struct{}), regionStopped: make(chan struct{}), done: make(chan struct{}),
	}
	for n := range s.paths {
		s.paths[n].shard = Shard(n)
	}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.commandCtx = context.Background()
	if proxy {
		return s, nil
	}
	if opts.Standbys > 0 && !opts.ProxyOnly {
		s.standbys = newStandbys(node.Self(), opts.Standbys, opts.Shards)
	}
	if readsLoad(opts.Strategy) && !opts.ProxyOnly {
		s.loadMeter = newLoadMeter(s)
	}
	scope := Scope{Type: name, Role: opts.Role, Shards: opts.Shards, Logger: s.log}
	if s.store, err = openStore(opts.State.OpenCoordinator, scope); err != nil {
		s.cancel()
		return nil, fmt.Errorf("Options.State: %w", err)
	}
	if opts.Remember != nil {
		if s.rememberStore, err = openStore(opts.Remember.OpenEntities, scope); err != nil {
			s.cancel()
			return nil, errors.Join(fmt.Errorf("Options.Remember: %w", err), s.closeStores())
		}
	}
	if opts.Wake != nil {
		scope.Pending = true
		if s.wakeStore, err = openStore(opts.Wake.OpenEntities, scope); err != nil {
			s.cancel()
			return nil, errors.Join(fmt.Errorf("Options.Wake: %w", err), s.closeStores())
		}
	}
	return s, nil
}

// openStore calls a function of the application that opens a store. It returns an error if the
// function returns nil.
func openStore[S any](open func(Scope) (S, error), scope Scope) (store S, err error) {
	err = panics.Catch(func() (err error) {
		store, err = open(scope)
		if err == nil && any(store) == nil {
			err = errors.New("returned no store")
		}
		return err
	})
	return store, err
}

// singletonPrefix is the prefix of the names of the singletons that run coordinators.
const singletonPrefix = "sharding|"

// launch starts the loop. The argument host creates the entities.
func (s *shell) launch(ctx context.Context, host func() error, r any) error {
	if err := s.router.reserve(s); err != nil {
		return errors.Join(err, s.abandon())
	}
	s.node.Transport().HandleRequest(kindQuery, s.router.receiveQuery)
	admin := adminProtocol()
	s.node.HandleAdmin(adminService, admin.Commands, adminrpc.Serve(admin, s.router.administer))
	if err := s.addHooks(); err != nil {
		return errors.Join(err, s.abandon())
	}
	if err := host(); err != nil { // later steps must not fail, because the effect of host cannot be undone
		return errors.Join(err, s.abandon())
	}
	s.router.mu.Lock()
	s.router.shells[s.name], s.router.regions[s.name] = s, r
	s.router.mu.Unlock()
	if s.runtime != nil { // its entities reach all types of the node
		s.disconnect = hosting.AddRoutes(s.runtime, s.router.routeTo)
	}
	s.updateMembers() //nolint:contextcheck // the loop uses its own context
	s.background.Go(func() { s.followMembers(s.ctx) })
	s.background.Go(func() { s.followJoin(s.ctx) })
	go s.run() //nolint:contextcheck // the loop uses its own context
	if s.store == nil {
		return nil
	}
	// If the singleton ended with ctx, the type could not be started again on this node.
	err := s.node.Singleton(context.WithoutCancel(ctx), cluster.Singleton{Name: singletonPrefix + s.name, Role: s.opts.Role, Run: s.hostCoordinator})
	if err != nil { // the node has shut down
		s.post(s.end)
		<-s.done
	}
	return err
}

func (s *shell) abandon() error {
	s.router.remove(s)
	s.removeHooks()
	s.cancel()
	close(s.done)
	return s.closeStores()
}

// stopped returns ErrStopped. If the node has ended, the error also matches the reason.
func (s *shell) stopped() error {
	if why := s.node.State().Err; why != nil {
		return fmt.Errorf("%w: %w", ErrStopped, why)
	}
	return ErrStopped
}

func (s *shell) closeStores() error {
	var errs []error
	for _, store := range []io.Closer{s.wakeStore, s.rememberStore, s.store} {
		if store != nil {
			errs = append(errs, panics.Catch(store.Close))
		}
	}
	return errors.Join(errs...)
}

func (s *shell) addHooks() error {
	for phase, f := range map[cluster.Phase]func(context.Context) error{
		cluster.PhaseStopRegions: func(ctx context.Context) error {
			if err := s.endRegion(ctx, shardcore.Leave{}); err != nil { // other nodes may soon host these shards
				s.inbox.Add(item{input: shardcore.Stop{}})
				return fmt.Errorf("stopped shards by force: %w", err)
			}
			return nil
		},
		cluster.PhaseBeforeTerminate: s.close,
	} {
		remove, err := s.node.OnShutdown(phase, "sharding "+s.name, f)
		if err != nil {
			return err
		}
		s.hooks = append(s.hooks, remove)
	}
	return nil
}

func (s *shell) removeHooks() {
	for _, remove := range s.hooks {
		remove()
	}
}

func (s *shell) followMembers(ctx context.Context) {
	for range s.node.Events(ctx, cluster.MemberRemoved, cluster.MemberJoined, cluster.MemberWeaklyUp, cluster.MemberUp, cluster.MemberPreparing,
		cluster.MemberReady, cluster.MemberLeft, cluster.MemberExited, cluster.MemberDowned, cluster.MemberUnreachable, cluster.MemberReachable,
		cluster.ShuttingDown, cluster.Suspended, cluster.Resumed) {
		s.notifyMembers()
	}
}

// followJoin reports the end of a node that cannot join, which is no event.
func (s *shell) followJoin(ctx context.Context) {
	if s.node.AwaitJoined(ctx) != nil {
		s.notifyMembers()
	}
}

func (s *shell) notifyMembers() {
	s.membersChanged.Store(true)
	s.inbox.Ready.Set()
}

// endRegion passes a Leave or a Stop to the machine and waits for the end of the region.
func (s *shell) endRegion(ctx context.Context, in shardcore.Input) error {
	s.inbox.Add(item{input: in})
	select {
	case <-s.regionStopped:
		return nil
	case <-s.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close ends the region by force and the loop after it. It waits for the entities until ctx ends.
func (s *shell) close(ctx context.Context) error {
	err := s.endRegion(ctx, shardcore.Stop{})
	s.post(s.end)
	<-s.done
	return err
}

func (s *shell) end() { s.stopping.Store(true) }
