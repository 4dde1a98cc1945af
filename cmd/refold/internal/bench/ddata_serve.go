// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/plugins/nats"
)

// ServeData is the whole of a process with a replicator: it reads orders from in, one JSON object each, and answers each of them to
// out, until in ends.
func ServeData(ctx context.Context, in io.Reader, out io.Writer, log *slog.Logger) error {
	s := &dataServer{log: log}
	defer s.stop()
	return obey(in, out, func(o *dataOrder) (dataAnswer, error) { return s.do(ctx, o) })
}

// dataServer is one such process.
type dataServer struct {
	log  *slog.Logger
	node *cluster.Node
	r    *ddata.Replicator

	access nats.Access
	conn   *natsgo.Conn // of the bare client, nil if it was not needed
}

func (s *dataServer) stop() {
	if s.conn != nil {
		s.conn.Close()
	}
	if s.node != nil {
		s.node.Stop()
		<-s.node.Done()
	}
}

func (s *dataServer) do(ctx context.Context, o *dataOrder) (dataAnswer, error) {
	switch o.Do {
	case orderJoin:
		return s.join(ctx, o)
	case orderDecode:
		return decodeSets(o)
	}
	if s.r == nil {
		return dataAnswer{}, errors.New("it has not joined")
	}
	switch o.Do {
	case orderAwait:
		return s.await(ctx, func(ddata.Stats) bool { return s.r.ReplicaCount() == o.Count })
	case orderFill:
		return s.fill(ctx, o)
	case orderUpdate:
		return s.update(ctx, o)
	case orderAnswer:
		return s.answer()
	case orderRaw:
		return s.raw(ctx, o)
	case orderStats:
		return s.await(ctx, func(ddata.Stats) bool { return true })
	case orderSync:
		return s.await(ctx, func(t ddata.Stats) bool { return t.Synced && t.Digest == o.Digest })
	case orderSynced:
		return s.await(ctx, func(t ddata.Stats) bool { return t.Synced })
	case orderCheck:
		return s.check(ctx, o)
	case orderLeave:
		err := s.node.Shutdown(ctx)
		return dataAnswer{}, err
	}
	return dataAnswer{}, fmt.Errorf("%q is not known", o.Do)
}

// join joins the cluster and waits until the node is up.
func (s *dataServer) join(ctx context.Context, o *dataOrder) (dataAnswer, error) {
	self, err := identity.New(o.Name)
	if err != nil {
		return dataAnswer{}, err
	}
	cfg := cluster.Config{Seeds: o.Seeds, Logger: s.log, PhaseTimeout: map[cluster.Phase]time.Duration{
		cluster.PhaseLeave: nodePatience, cluster.PhaseExiting: nodePatience, cluster.PhaseExitingDone: nodePatience,
	}}
	s.access = *o.Access
	if s.node, err = startNode(self, *o.Access, cfg); err != nil { //nolint:contextcheck // it ends with Stop
		return dataAnswer{}, err
	}
	s.node.Transport().HandleRequest(echoKind, answerRaw)
	if s.r, err = ddata.Start(ctx, s.node, ddata.Config{}); err != nil {
		return dataAnswer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	err = s.node.AwaitUp(ctx)
	return dataAnswer{Node: self, At: time.Now()}, err
}

// await waits until something holds, and returns the figures.
func (s *dataServer) await(ctx context.Context, holds func(ddata.Stats) bool) (dataAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	for {
		t, err := s.r.Stats(ctx)
		if err != nil {
			return dataAnswer{}, err
		}
		if holds(t) {
			return dataAnswer{Node: s.node.Self(), At: time.Now(), Digest: t.Digest, Synced: t.Synced, Count: &t.Protocol}, nil
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return dataAnswer{}, err
		}
	}
}

// decodeSets says how long it takes on one core to decode sets and to keep them.
func decodeSets(o *dataOrder) (dataAnswer, error) {
	self, err := identity.New("decoder")
	if err != nil {
		return dataAnswer{}, err
	}
	by, err := crdt.NewSelf(self)
	if err != nil {
		return dataAnswer{}, err
	}
	encoded := make([][]byte, o.Count)
	size := 0
	for i := range encoded {
		var set crdt.ORSet[string]
		if set, err = set.Add(by, setElements(i, o.Size)...); err != nil {
			return dataAnswer{}, err
		}
		if encoded[i], err = set.ResetDelta().AppendBinary(nil); err != nil {
			return dataAnswer{}, err
		}
		size += len(encoded[i])
	}
	keys := dataKeys[crdt.ORSet[string]](o.Set, o.Count)
	runtime.GOMAXPROCS(1)
	runtime.GC()
	began := time.Now()
	values := make(map[string]crdt.Value)
	var types *crdt.Types
	for i, data := range encoded {
		if values[string(keys[i])], err = types.Decode(data); err != nil {
			return dataAnswer{}, err
		}
	}
	took := time.Since(began)
	return dataAnswer{Took: took, Bytes: size, Ops: len(values)}, nil
}
