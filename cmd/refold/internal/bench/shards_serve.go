// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/eventsourcing"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/inmem"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/sharding"
)

// ServeShards is the whole of a process with a region: it reads orders from in, one JSON object each, and answers each of them to
// out, until in ends.
func ServeShards(ctx context.Context, in io.Reader, out io.Writer, log *slog.Logger) (err error) {
	s := &shardServer{log: log}
	defer func() { err = errors.Join(err, s.stop(context.WithoutCancel(ctx))) }()
	orders, answers := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var o shardOrder
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read an order: %w", err)
		}
		a, err := s.do(ctx, &o)
		if err != nil {
			a.Err = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return fmt.Errorf("answer an order: %w", err)
		}
	}
}

// shardServer is one such process.
type shardServer struct {
	log    *slog.Logger
	setup  *shardSetup
	rt     *eventsourcing.Runtime
	node   *cluster.Node
	region *sharding.Region[tallyCommand]
	local  *eventsourcing.Entities[tallyCommand, event] // those that are in no cluster
	homes  map[string][]eventsourcing.Ref[tallyCommand] // by wayHere and wayThere
	after  []func() error                               // what to do at the end, the last first
	conn   *natsgo.Conn                                 // see bare
}

func (s *shardServer) stop(ctx context.Context) (err error) {
	if s.node != nil {
		s.node.Stop()
		<-s.node.Done()
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
		return shardAnswer{}, errors.New("it has not joined")
	}
	switch o.Do {
	case shardAwait:
		return s.await(ctx, o.Count)
	case shardWhere:
		return s.where(ctx, o.Count)
	case shardEcho:
		return s.echo(ctx, o)
	case shardLeave:
		return shardAnswer{}, s.node.Shutdown(ctx)
	}
	return shardAnswer{}, fmt.Errorf("%q is not known", o.Do)
}

// join joins the cluster and waits until the node is up.
func (s *shardServer) join(ctx context.Context, o *shardOrder) (shardAnswer, error) {
	s.setup = o.Setup
	self, err := identity.New(o.Name)
	if err != nil {
		return shardAnswer{}, err
	}
	j := inmem.NewJournal()
	s.after = append(s.after, j.Close)
	if s.rt, err = eventsourcing.Open(eventsourcing.Config{Journal: j}); err != nil { //nolint:contextcheck // it ends with Close
		return shardAnswer{}, err
	}
	alone := tallies(self.Name)
	alone.Name = "alone"
	if s.local, err = eventsourcing.Host(s.rt, alone, eventsourcing.HostOptions{}); err != nil {
		return shardAnswer{}, err
	}
	carrier, err := nats.Connect(nats.Config{Access: s.setup.Access, Cluster: "bench", Self: self, Logger: s.log}) //nolint:contextcheck // it ends with the node
	if err != nil {
		return shardAnswer{}, err
	}
	if s.node, err = cluster.Start(cluster.Config{Cluster: "bench", Carrier: carrier, Seeds: s.setup.Seeds, Logger: s.log}); err != nil { //nolint:contextcheck // it ends with Stop
		return shardAnswer{}, err
	}
	r, err := ddata.Start(ctx, s.node, ddata.Config{})
	if err != nil {
		return shardAnswer{}, err
	}
	if s.region, err = sharding.Start(ctx, s.node, tallies(self.Name), sharding.Options{
		Runtime: s.rt, State: sharding.ReplicatedState(r), Shards: s.setup.Shards, MinMembers: s.setup.Regions,
	}); err != nil {
		return shardAnswer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	err = s.node.AwaitUp(ctx)
	return shardAnswer{Node: self, At: time.Now()}, err
}

// await waits until the coordinator knows as many regions.
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
