// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/plugins/postgres"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/store"
	"github.com/refold-io/refold/transport"
)

// ServeWorker is the main function of a worker process. It reads orders from in, one JSON object
// each, and writes the result of each to out, until in ends.
func ServeWorker(ctx context.Context, in io.Reader, out io.Writer, log *slog.Logger) (err error) {
	s := &server{log: log}
	defer func() { err = errors.Join(err, s.stop(context.WithoutCancel(ctx))) }()
	orders, results := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var o order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read an order: %w", err)
		}
		r, err := s.do(ctx, &o)
		if err != nil {
			r.Err = err.Error()
		}
		if err = results.Encode(r); err != nil {
			return fmt.Errorf("answer an order: %w", err)
		}
	}
}

type server struct {
	log        *slog.Logger
	setup      *setup
	node       *cluster.Node
	conn       *natsgo.Conn // connection of the plain client; nil before its first use
	replicator *ddata.Replicator
	after      []func() error // clean-up functions, run in reverse order

	rt     *eventsourcing.Runtime
	region *sharding.Region[counter]
	load   *load                                   // the latest one
	local  *local                                  // a host of counters outside the cluster
	homes  map[string][]eventsourcing.Ref[counter] // by wayHere, wayThere and wayHost

	watching sync.WaitGroup
	mu       sync.Mutex
	seen     []observation // recorded by watch
}

func (s *server) stop(ctx context.Context) (err error) {
	if s.conn != nil {
		s.conn.Close()
	}
	if s.node != nil {
		s.node.Stop()
		<-s.node.Done()
		s.watching.Wait()
	}
	if s.rt != nil {
		err = s.rt.Close(ctx)
	}
	for _, f := range slices.Backward(s.after) {
		err = errors.Join(err, f())
	}
	return err
}

var handlers = map[string]func(*server, context.Context, *order) (result, error){
	orderJoin: (*server).join, orderAwait: (*server).await, orderDown: (*server).awaitDown, orderSeen: (*server).observations, orderView: (*server).view, orderCPU: (*server).cpu,
	orderPrepare: func(s *server, ctx context.Context, _ *order) (result, error) {
		return result{}, s.node.PrepareForShutdown(ctx)
	},
	orderLeave:  func(s *server, ctx context.Context, _ *order) (result, error) { return result{}, s.node.Shutdown(ctx) },
	orderAnswer: (*server).answer, orderRaw: (*server).raw,
	orderFill: (*server).fill, orderUpdate: (*server).update, orderStats: (*server).stats, orderSync: (*server).stats, orderCheck: (*server).check,
	orderDecode: (*server).decode,
	orderWhere:  (*server).where, orderEcho: (*server).echo, orderWake: (*server).wake, orderHomes: (*server).spread, orderProbe: (*server).probe,
	orderRuns: (*server).runs, orderLoad: (*server).startLoad, orderHalt: (*server).halt, orderTimes: (*server).times, orderLost: (*server).lost,
}

func (s *server) do(ctx context.Context, o *order) (result, error) {
	handle := handlers[o.Do]
	switch {
	case handle == nil:
		return result{}, fmt.Errorf("unknown order %q", o.Do)
	case s.node == nil && o.Do != orderJoin && o.Do != orderDecode:
		return result{}, errors.New("the process has not joined the cluster")
	case s.load == nil && slices.Contains([]string{orderHalt, orderTimes, orderLost}, o.Do):
		return result{}, errors.New("no load is running")
	}
	return handle(s, ctx, o)
}

func (s *server) join(ctx context.Context, o *order) (r result, err error) {
	s.setup = o.Setup
	self, err := identity.New(o.Name)
	if err != nil {
		return r, err
	}
	name := cmp.Or(s.setup.Cluster, "bench")
	carrier, err := nats.Connect(nats.Config{Access: s.setup.Access, Cluster: name, Self: self, Logger: s.log}) //nolint:contextcheck // the node closes it
	if err != nil {
		return r, err
	}
	if s.node, err = cluster.Start(cluster.Config{ //nolint:contextcheck // it ends with Stop
		Cluster: name, Carrier: carrier, Seeds: s.setup.Seeds, Downing: s.setup.Downing, Logger: s.log,
		PhaseTimeout: map[cluster.Phase]time.Duration{
			cluster.PhaseLeave: nodePatience, cluster.PhaseExiting: nodePatience, cluster.PhaseExitingDone: nodePatience,
		},
	}); err != nil {
		return r, err
	}
	s.watching.Go(func() { s.watch(context.WithoutCancel(ctx)) }) // until the node ends
	s.node.Transport().HandleRequest(echoKind, func(_ context.Context, q *transport.Request) { _ = q.Reply(answerTo(q.Payload)) })
	if s.setup.Regions > 0 {
		err = s.startRegion(ctx, self)
	} else if s.setup.Data {
		s.replicator, err = ddata.Start(ctx, s.node, ddata.Config{})
	}
	if err != nil || s.setup.NoWait {
		return r, err
	}
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	err = s.node.AwaitUp(ctx)
	return result{At: time.Now()}, err
}

// startRegion starts a runtime, and a region with the stores of this run.
func (s *server) startRegion(ctx context.Context, self identity.Node) (err error) {
	var db store.DB
	if s.setup.DSN == "" {
		db, err = inmem.Open()
	} else {
		db, err = postgres.Open(ctx, s.setup.DSN, postgres.Config{Schema: s.setup.Schema, Logger: s.log})
	}
	if err != nil {
		return err
	}
	s.after = append(s.after, db.Close)
	if s.rt, err = eventsourcing.Open(eventsourcing.Config{Store: db}); err != nil { //nolint:contextcheck // it ends with Close
		return err
	}
	alone := sharded(self.Name)
	alone.Name = "alone"
	if s.local, err = eventsourcing.HostWith(s.rt, alone, eventsourcing.HostOptions{PassivateAfter: -1}); err != nil {
		return err
	}
	opts := sharding.Options{Shards: s.setup.Shards, MinMembers: s.setup.Regions}
	if s.setup.DSN != "" && !s.setup.Replicated {
		if s.setup.Remember != "" {
			opts.Remember = sharding.JournalStores{Journal: db.Journal(), Snapshots: db.Snapshots()}
		}
	} else {
		var cfg ddata.Config
		if s.setup.Remember != "" {
			cfg.Durable, cfg.Opener = []string{"shard-*"}, leveldb.NewDurable(s.setup.Remember, leveldb.DurableConfig{})
		}
		if s.replicator, err = ddata.Start(ctx, s.node, cfg); err != nil {
			return err
		}
		opts.State = sharding.ReplicatedStores{Replicator: s.replicator}
		if s.setup.Remember != "" {
			opts.Remember = sharding.ReplicatedStores{Replicator: s.replicator}
		}
	}
	s.region, err = sharding.Host(ctx, s.node, s.rt, sharded(self.Name), opts)
	return err
}

// await waits until there are as many nodes, and as many regions or replicas, as ordered.
func (s *server) await(ctx context.Context, o *order) (result, error) {
	err := until(ctx, 5*time.Millisecond, func(ctx context.Context) (bool, error) {
		switch {
		case s.region != nil:
			regions, err := s.region.CurrentRegions(ctx)
			if errors.Is(err, sharding.ErrNoCoordinator) {
				err = nil
			}
			return len(regions) == o.Count, err
		case s.replicator != nil:
			return s.replicator.ReplicaCount() == o.Count, nil
		}
		state, up := s.node.State(), 0
		for _, m := range state.Members {
			if m.Status == cluster.Up && state.Reachable(m.Node) {
				up++
			}
		}
		return up == o.Count, nil
	})
	return result{At: time.Now()}, err
}

type view struct {
	Members []viewMember
	Leader  identity.Node
}

type viewMember struct {
	Node        identity.Node
	Status      string
	Unreachable bool `json:",omitempty"`
}

// view returns the view of the node. A node that has ended has none.
func (s *server) view(context.Context, *order) (result, error) {
	select {
	case <-s.node.Done():
		return result{}, fmt.Errorf("the node has ended: %w", s.node.Err())
	default:
	}
	state := s.node.State()
	v := &view{Leader: state.Leader}
	for _, m := range state.Members {
		v.Members = append(v.Members, viewMember{m.Node, m.Status.String(), !state.Reachable(m.Node)})
	}
	return result{View: v}, nil
}

// observation records that a node has observed another node as unreachable, downed or removed.
type observation struct {
	Kind cluster.EventKind
	Node identity.Node
	At   time.Time
}

func (s *server) watch(ctx context.Context) {
	for e := range s.node.Events(ctx, cluster.MemberUnreachable, cluster.MemberDowned, cluster.MemberRemoved) {
		s.mu.Lock()
		s.seen = append(s.seen, observation{e.Kind, e.Member.Node, time.Now()})
		s.mu.Unlock()
	}
}

func (s *server) observations(context.Context, *order) (result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return result{Seen: slices.Clone(s.seen)}, nil
}

// awaitDown waits until a node is Down. The result contains the time at which the node was Down.
func (s *server) awaitDown(ctx context.Context, o *order) (r result, err error) {
	err = until(ctx, 5*time.Millisecond, func(context.Context) (bool, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		i := slices.IndexFunc(s.seen, func(seen observation) bool { return seen.Node.Name == o.Name && seen.Kind != cluster.MemberUnreachable })
		if i >= 0 {
			r.At = s.seen[i].At
		}
		return i >= 0, nil
	})
	return r, err
}

func (*server) cpu(context.Context, *order) (result, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return result{Took: time.Duration(u.Utime.Nano() + u.Stime.Nano())}, err
}

// bare is the connection of the plain client.
func (s *server) bare() (conn *natsgo.Conn, err error) {
	if s.conn == nil {
		s.conn, err = dial(s.setup.Access)
	}
	return s.conn, err
}

func dial(access nats.Access) (*natsgo.Conn, error) {
	token, err := os.ReadFile(access.TokenFile)
	if err != nil {
		return nil, err
	}
	return natsgo.Connect(access.URLs[0], natsgo.Token(string(bytes.TrimSpace(token))), natsgo.Timeout(nodePatience))
}

// answer makes this process answer raw requests of the plain client.
func (s *server) answer(context.Context, *order) (result, error) {
	conn, err := s.bare()
	if err != nil {
		return result{}, err
	}
	_, err = conn.Subscribe(rawSubject(s.node.Self()), func(m *natsgo.Msg) { _ = m.Respond(answerTo(m.Data)) })
	return result{}, errors.Join(err, conn.Flush())
}

func rawSubject(n identity.Node) string { return "raw." + n.Name }

// answerTo returns a reply of the size that the first byte of the request contains.
func answerTo(request []byte) []byte {
	n := 0
	if len(request) > 0 {
		n = min(int(request[0]), len(request))
	}
	return request[:n]
}

// raw lets callers send raw requests, each to Count peers, and wait for all replies.
func (s *server) raw(ctx context.Context, o *order) (result, error) {
	var peers []identity.Node
	for _, m := range s.node.Members() {
		if m.Node != s.node.Self() {
			peers = append(peers, m.Node)
		}
	}
	if len(peers) < o.Count {
		return result{}, fmt.Errorf("%d peers, %d are needed", len(peers), o.Count)
	}
	request, err := s.requests(o.Way)
	if err != nil {
		return result{}, err
	}
	payload := make([]byte, max(o.Size, o.Reply))
	payload[0] = byte(o.Reply) //nolint:gosec // a reply is short
	callers := cmp.Or(o.Callers, dataCallers)
	rngs := randoms(callers)
	t, err := together(callers, o.Length, func(caller, _ int) (err error) {
		limited, cancel := context.WithTimeout(ctx, nodePatience)
		defer cancel()
		first := rngs[caller].IntN(len(peers))
		ask := func(i int) (err error) {
			got, err := request(limited, peers[(first+i)%len(peers)], payload)
			if err == nil && len(got) != o.Reply {
				err = fmt.Errorf("the reply has %d bytes, want %d", len(got), o.Reply)
			}
			return err
		}
		errs := make(chan error, o.Count)
		for i := 1; i < o.Count; i++ {
			go func() { errs <- ask(i) }()
		}
		err = ask(0)
		for range o.Count - 1 {
			err = errors.Join(err, <-errs)
		}
		return err
	})
	return result{Ops: t.ops, Took: t.elapsed}, err
}

func (s *server) requests(way string) (func(context.Context, identity.Node, []byte) ([]byte, error), error) {
	if way == wayTransport {
		return func(ctx context.Context, to identity.Node, payload []byte) ([]byte, error) {
			return s.node.Transport().Request(ctx, to, echoKind, payload)
		}, nil
	}
	conn, err := s.bare()
	return func(_ context.Context, to identity.Node, payload []byte) ([]byte, error) {
		return rawRequest(conn, rawSubject(to), payload)
	}, err
}

// sharded is the type of the counters that are distributed over the nodes.
func sharded(node string) eventsourcing.Type[counter, event] {
	typ := counters(0, eventsourcing.Snapshots[counter, event]{})
	typ.Name = "tally"
	typ.New = func(string) *counter { return &counter{node: node} }
	return typ
}

func tallyID(i int) string { return "tally-" + strconv.Itoa(i) }
