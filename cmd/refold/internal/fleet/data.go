// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/plugins/leveldb"
)

// Data configures replicated data on a node.
type Data struct {
	// Dir is the directory for durable data. Defaults to none: all data is in memory only.
	Dir string
	// PruneInterval and PruneAfter are the fields of ddata.Config.
	PruneInterval, PruneAfter time.Duration
}

// Request is an operation on replicated data. The child answers it with one Report with the same
// ID, unless the process ends first.
type Request struct {
	ID   uint64
	Do   Operation
	Key  string
	Name string // of an element or a map key
	N    int64
	// Local uses the consistency level of the local node only.
	Local   bool
	Timeout time.Duration
}

// Operation is an operation.
type Operation string

// The operations.
const (
	// Count adds N to a crdt.PNCounter, and CountIn to the counter Name of a crdt.PNCounterMap.
	Count   Operation = "count"
	CountIn Operation = "count in"
	// Add adds the element Name to a crdt.ORSet, and Remove removes it. A node rejects the removal
	// of an element that it does not have.
	Add    Operation = "add"
	Remove Operation = "remove"
	// Show returns the local value.
	Show Operation = "show"
	// Digest returns the digest of all local data.
	Digest Operation = "digest"
)

// Answer is the result of a Request.
type Answer struct {
	ID uint64
	// Error is empty after success. Unknown reports that the operation may have succeeded in spite
	// of the error.
	Error   string `json:",omitempty"`
	Unknown bool   `json:",omitempty"`
	// Value is the result, as JSON.
	Value json.RawMessage `json:",omitempty"`
}

// Ask sends a request to a node. The answer arrives as a Report.
func (f *Fleet) Ask(name string, r Request) error {
	p, err := f.find(name)
	if err != nil {
		return err
	}
	line, err := json.Marshal(r)
	if err == nil {
		_, err = p.stdin.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("ask node %s: %w", name, err)
	}
	return nil
}

// replica is the replicator of a child, with its running requests.
type replica struct {
	replicator *ddata.Replicator

	mu     sync.Mutex
	closed bool
	users  sync.WaitGroup
}

// startReplica starts a replicator.
func startReplica(ctx context.Context, n *cluster.Node, d Data) (*replica, error) {
	cfg := ddata.Config{PruneInterval: d.PruneInterval, PruneAfter: d.PruneAfter}
	if d.Dir != "" {
		cfg.Durable, cfg.Opener = []string{"*"}, leveldb.NewDurable(d.Dir, leveldb.DurableConfig{})
	}
	r, err := ddata.Start(ctx, n, cfg)
	if err != nil {
		return nil, err
	}
	return &replica{replicator: r}, nil
}

// run runs f in a goroutine, unless the replica is closed.
func (r *replica) run(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.users.Go(f)
	}
}

// close waits for the running requests.
func (r *replica) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.users.Wait()
}

// serve executes the request in a line, and reports its answer.
func (r *replica) serve(ctx context.Context, line []byte, report func(Report)) {
	var request Request
	err := json.Unmarshal(line, &request)
	r.run(func() {
		answer := Answer{ID: request.ID}
		if err == nil {
			limited, cancel := context.WithTimeout(ctx, request.Timeout)
			defer cancel()
			answer.Value, err = r.do(limited, request)
		}
		if err != nil {
			answer.Error = err.Error()
			answer.Unknown = errors.Is(err, ddata.ErrQuorum) || errors.Is(err, ddata.ErrGivenUp) || errors.Is(err, ddata.ErrStore) || errors.Is(err, ddata.ErrStopped)
		}
		report(Report{Answer: &answer})
	})
}

var errAbsent = errors.New("this node does not have the element")

func (r *replica) do(ctx context.Context, request Request) (json.RawMessage, error) {
	self, level := r.replicator.Self(), ddata.WriteMajority()
	if request.Local {
		level = ddata.WriteLocal()
	}
	switch request.Do {
	case Count:
		return nil, change(ctx, r.replicator, request.Key, level, func(c crdt.PNCounter) (crdt.PNCounter, error) { return c.Add(self, request.N), nil })
	case CountIn:
		return nil, change(ctx, r.replicator, request.Key, level, func(m crdt.PNCounterMap[string]) (crdt.PNCounterMap[string], error) {
			return m.Add(self, request.Name, request.N)
		})
	case Add:
		return nil, change(ctx, r.replicator, request.Key, level, func(s crdt.ORSet[string]) (crdt.ORSet[string], error) { return s.Add(self, request.Name) })
	case Remove:
		return nil, change(ctx, r.replicator, request.Key, level, func(s crdt.ORSet[string]) (crdt.ORSet[string], error) {
			if !s.Contains(request.Name) {
				return s, errAbsent
			}
			return s.Remove(self, request.Name)
		})
	case Show:
		v, err := r.replicator.Raw(ctx, request.Key, ddata.ReadLocal())
		if errors.Is(err, ddata.ErrNotFound) {
			err = nil
		}
		return crdt.JSON{}.Append(nil, v), err
	case Digest:
		s, err := r.replicator.Stats(ctx)
		if err != nil {
			return nil, err
		}
		return json.Marshal(fmt.Sprintf("%v of %d", s.Digest, s.Replicas))
	}
	return nil, fmt.Errorf("unknown operation %q", request.Do)
}

func change[T crdt.Data[T]](ctx context.Context, r *ddata.Replicator, key string, level ddata.WriteLevel, modify func(T) (T, error)) error {
	_, err := ddata.Update(ctx, r, ddata.Key[T](key), level, modify)
	return err
}
