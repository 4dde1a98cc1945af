// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/cluster/downing"
	"github.com/refold-io/refold/codec"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/journal"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/plugins/postgres"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/snapshot"
	"github.com/refold-io/refold/store"
)

// ServeShards is the main function of a process with a region. It reads orders from in, one JSON
// object each, and writes the results to out, until in ends.
func ServeShards(ctx context.Context, in io.Reader, out io.Writer, log *slog.Logger) (err error) {
	s := &shardServer{log: log}
	defer func() { err = errors.Join(err, s.stop(context.WithoutCancel(ctx))) }()
	return obey(in, out, func(o *shardOrder) (shardAnswer, error) { return s.do(ctx, o) })
}

// shardServer is the state of such a process.
type shardServer struct {
	log       *slog.Logger
	setup     *shardSetup
	journal   journal.Journal
	snapshots snapshot.Store
	rt        *eventsourcing.Runtime
	node      *cluster.Node
	region    *sharding.Region[tally]
	load      *asking                               // the latest one
	local     *eventsourcing.Local[tally, event]    // those that are in no cluster
	homes     map[string][]eventsourcing.Ref[tally] // by wayHere and wayThere
	watching  sync.WaitGroup
	mu        sync.Mutex
	seen      []seenEvent    // recorded by watch
	after     []func() error // clean-up functions, run in reverse order
	conn      *natsgo.Conn   // see bare
}

func (s *shardServer) stop(ctx context.Context) (err error) {
	if s.node != nil {
		s.node.Stop()
		<-s.node.Done()
		s.watching.Wait()
	}
	if s.rt != nil {
		err = s.rt.Close(ctx)
	}
	for i := range s.after {
		err = errors.Join(err, s.after[len(s.after)-1-i]())
	}
	return err
}

func (s *shardServer) do(ctx context.Context, o *shardOrder) (shardAnswer, error) {
	if o.Do == shardJoin {
		return s.join(ctx, o)
	}
	if s.region == nil {
		return shardAnswer{}, errors.New("the process has not joined the cluster")
	}
	switch o.Do {
	case shardAwait:
		return s.await(ctx, o.Count)
	case shardWhere:
		return s.where(ctx, o.Count)
	case shardEcho:
		return s.echo(ctx, o)
	case shardFill:
		return s.fill(ctx, o)
	case shardLoad:
		s.load = ask(ctx, s.region, o, s.load)
		return shardAnswer{}, nil
	case shardHalt, shardTimes, shardCheck:
		if s.load == nil {
			return shardAnswer{}, errors.New("no load is running")
		}
		switch o.Do {
		case shardHalt:
			return s.load.halt(), nil
		case shardTimes:
			return s.load.times(o.From, o.To), nil
		}
		return s.load.check(ctx)
	case shardHomes:
		return s.spread(ctx)
	case shardProbe:
		return s.probe(ctx)
	case shardSeen:
		return s.learned(), nil
	case shardRuns:
		return s.runs(ctx)
	case shardPrepare:
		return shardAnswer{}, s.node.PrepareForShutdown(ctx)
	case shardLeave:
		return shardAnswer{}, s.node.Shutdown(ctx)
	}
	return shardAnswer{}, fmt.Errorf("unknown order %q", o.Do)
}

// join joins the cluster and waits until the node is Up.
func (s *shardServer) join(ctx context.Context, o *shardOrder) (shardAnswer, error) {
	s.setup = o.Setup
	self, err := identity.New(o.Name)
	if err != nil {
		return shardAnswer{}, err
	}
	if err = s.open(ctx); err != nil {
		return shardAnswer{}, err
	}
	if s.rt, err = eventsourcing.Open(eventsourcing.Config{Store: store.Of(s.journal, s.snapshots)}); err != nil { //nolint:contextcheck // it ends with Close
		return shardAnswer{}, err
	}
	alone := tallies(self.Name)
	alone.Name = "alone"
	if s.local, err = eventsourcing.Host(s.rt, alone); err != nil {
		return shardAnswer{}, err
	}
	cfg := cluster.Config{Seeds: s.setup.Seeds, Downing: downing.Settings{StableAfter: s.setup.StableAfter}, Logger: s.log}
	if s.node, err = startNode(self, s.setup.Access, cfg); err != nil { //nolint:contextcheck // it ends with Stop
		return shardAnswer{}, err
	}
	s.watching.Go(func() { s.watch(context.WithoutCancel(ctx)) }) // until the node ends
	opts, err := s.options(ctx)
	if err != nil {
		return shardAnswer{}, err
	}
	if s.region, err = sharding.Start(ctx, s.node, tallies(self.Name), opts); err != nil {
		return shardAnswer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	err = s.node.AwaitUp(ctx)
	return shardAnswer{Node: self, At: time.Now()}, err
}

// open opens the journal.
func (s *shardServer) open(ctx context.Context) error {
	if s.setup.DSN == "" {
		j := inmem.NewJournal()
		s.after = append(s.after, j.Close)
		s.journal = j
		return nil
	}
	db, err := postgres.Open(ctx, s.setup.DSN, postgres.Config{Schema: s.setup.Schema, Logger: s.log})
	if err != nil {
		return err
	}
	s.after = append(s.after, db.Close)
	s.journal, s.snapshots = db.Journal(), db.Snapshots()
	return nil
}

// options returns the default options with the number of shards and the stores of this run.
func (s *shardServer) options(ctx context.Context) (sharding.Options, error) {
	opts := sharding.Options{Runtime: s.rt, Shards: s.setup.Shards, MinMembers: s.setup.Regions}
	if s.setup.DSN != "" && !s.setup.Replicated {
		opts.State = sharding.JournalState(s.journal, s.snapshots)
		if s.setup.Remember != "" {
			opts.Remember = sharding.JournalEntities(s.journal, s.snapshots)
		}
		return opts, nil
	}
	var cfg ddata.Config
	if s.setup.Remember != "" {
		cfg.Durable, cfg.Opener = []string{"shard-*"}, leveldb.NewDurable(s.setup.Remember, leveldb.DurableConfig{})
	}
	r, err := ddata.Start(ctx, s.node, cfg)
	opts.State = sharding.ReplicatedState(r)
	if s.setup.Remember != "" {
		opts.Remember = sharding.ReplicatedEntities(r)
	}
	return opts, err
}

// await waits until as many regions are registered.
func (s *shardServer) await(ctx context.Context, n int) (shardAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	for {
		regions, err := s.region.CurrentRegions(ctx)
		if err != nil && !errors.Is(err, sharding.ErrNoCoordinator) {
			return shardAnswer{}, err
		}
		if err == nil && len(regions) == n {
			return shardAnswer{At: time.Now()}, nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return shardAnswer{}, err
		}
	}
}

// The entity that is spread over nodes: a tally that says on which node it is.
type (
	// where is answered with the node.
	where struct {
		eventsourcing.Command[tally, string]
	}
	// echo is answered with what it carries.
	echo struct {
		eventsourcing.Command[tally, []byte]
		Note []byte
	}
	// peek is answered with the number, raise with the one after it, which is stored.
	peek struct {
		eventsourcing.Command[tally, int64]
	}
	raise struct {
		eventsourcing.Command[tally, int64]
		Note []byte
	}

	tally struct {
		node string
		n    int64
	}
)

type (
	tallyContext[R any]  = eventsourcing.Context[tally, event, R]
	tallyDecision[R any] = eventsourcing.Decision[tally, event, R]
)

func (t *tally) where(ctx *tallyContext[string], _ where) tallyDecision[string] {
	return ctx.Reply(t.node)
}

func (t *tally) echo(ctx *tallyContext[[]byte], m echo) tallyDecision[[]byte] {
	return ctx.Reply(m.Note)
}

func (t *tally) peek(ctx *tallyContext[int64], _ peek) tallyDecision[int64] { return ctx.Reply(t.n) }

func (t *tally) raise(ctx *tallyContext[int64], m raise) tallyDecision[int64] {
	return ctx.Persist(added{N: 1, Note: m.Note}).ReplyFunc(func() int64 { return t.n })
}

func (t *tally) apply(ev event) {
	if e, ok := ev.(added); ok {
		t.n += e.N
	}
}

// tallies is the type of the entity on a node.
func tallies(node string) eventsourcing.Type[tally, event] {
	return eventsourcing.Type[tally, event]{
		Name: "tally",
		New:  func(string) *tally { return &tally{node: node} },
		Commands: eventsourcing.Commands(
			eventsourcing.On("where", (*tally).where), eventsourcing.On("echo", (*tally).echo),
			eventsourcing.On("peek", (*tally).peek), eventsourcing.On("raise", (*tally).raise),
		),
		Apply:  (*tally).apply,
		Events: codec.Types(codec.Name[added]("added")),
	}
}

// tallyID is the ID of the entity with a number.
func tallyID(i int) string { return "tally-" + strconv.Itoa(i) }
