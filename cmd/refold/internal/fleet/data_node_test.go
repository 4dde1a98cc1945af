// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/lease"
	"github.com/refold-io/refold/plugins/leveldb"
	"github.com/refold-io/refold/plugins/nats"
)

// extra configures the extension of a node.
type extra struct {
	// Name is the name of the node.
	Name string
	// Leases is the lease store. Defaults to none.
	Leases nats.Access
	// Singleton makes the node take part in a singleton, whose instance only waits.
	Singleton bool
	// Data configures replicated data. Defaults to none.
	Data *dataConfig `json:",omitempty"`
}

// extraReport is a report of the extension. One field is set.
type extraReport struct {
	// Hosts reports that the singleton has started (true) or stopped (false) on the node.
	Hosts *bool `json:",omitempty"`
	// Answer is the answer to a request.
	Answer *answer `json:",omitempty"`
}

// leaseTimeout is the time-out of leases without renewal.
const leaseTimeout = 5 * time.Second

// raw returns the configuration as JSON.
func (x extra) raw() json.RawMessage {
	data, err := json.Marshal(x)
	if err != nil {
		panic(err) // all fields can be encoded
	}
	return data
}

// extension returns the extension of the nodes. The extension closes the leases when its process
// ends.
func extension(log *slog.Logger) Extension {
	var leases lease.Store
	return Extension{
		Prepare: func(ctx context.Context, data json.RawMessage, cfg *cluster.Config) (err error) {
			var x extra
			if err = json.Unmarshal(data, &x); err != nil || len(x.Leases.URLs) == 0 {
				return err
			}
			leases, err = nats.OpenLeases(ctx, nats.LeasesConfig{Access: x.Leases, Cluster: cfg.Cluster, Name: x.Name, Timeout: leaseTimeout, Logger: log})
			cfg.Leases = leases
			return err
		},
		Start: func(ctx context.Context, data json.RawMessage, n *cluster.Node, report func(any)) (func([]byte), func(), error) {
			var x extra
			if err := json.Unmarshal(data, &x); err != nil {
				return nil, nil, err
			}
			if x.Singleton {
				err := n.Singleton(context.WithoutCancel(ctx), cluster.Singleton{Run: func(ctx context.Context, _ *cluster.Inbox) error {
					yes, no := true, false
					report(extraReport{Hosts: &yes})
					<-ctx.Done()
					report(extraReport{Hosts: &no})
					return nil
				}})
				if err != nil {
					return nil, nil, err
				}
			}
			var r *replica
			stop := func() {
				if r != nil {
					r.close()
				}
				if leases != nil {
					_ = leases.Close()
				}
			}
			if x.Data == nil {
				return nil, stop, nil
			}
			var err error
			if r, err = startReplica(ctx, n, *x.Data); err != nil {
				return nil, stop, err
			}
			return func(line []byte) { r.serve(ctx, line, report) }, stop, nil
		},
	}
}

// dataConfig configures replicated data on a node.
type dataConfig struct {
	// Dir is the directory for durable data. Defaults to none: all data is in memory only.
	Dir string
	// PruneInterval and PruneAfter are the fields of ddata.Config.
	PruneInterval, PruneAfter time.Duration
}

// request is an operation on replicated data. The node answers it with the same ID, unless the
// process ends first.
type request struct {
	ID   uint64
	Do   operation
	Key  string
	Name string // name of an element, or key of a map
	N    int64
	// Local uses the consistency level of the local node only.
	Local   bool
	Timeout time.Duration
}

// operation is the name of the operation of a request.
type operation string

// The operations.
const (
	// opCount adds N to a crdt.PNCounter, and opCountIn to the counter Name of a crdt.PNCounterMap.
	opCount   operation = "count"
	opCountIn operation = "count in"
	// opAdd adds the element Name to a crdt.ORSet, and opRemove removes it. A node rejects the
	// removal of an element that it does not have.
	opAdd    operation = "add"
	opRemove operation = "remove"
	// opShow returns the local value.
	opShow operation = "show"
	// opDigest returns the digest of all local data.
	opDigest operation = "digest"
)

// answer is the result of a request.
type answer struct {
	ID uint64
	// Error is empty after success. Unknown reports that the operation may have succeeded although
	// it returned an error.
	Error   string `json:",omitempty"`
	Unknown bool   `json:",omitempty"`
	// Value is the result, as JSON.
	Value json.RawMessage `json:",omitempty"`
}

// replica is the replicator of a child, with its running requests.
type replica struct {
	replicator *ddata.Replicator

	mu     sync.Mutex
	closed bool
	users  sync.WaitGroup
}

// startReplica starts a replicator.
func startReplica(ctx context.Context, n *cluster.Node, d dataConfig) (*replica, error) {
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
func (r *replica) serve(ctx context.Context, line []byte, report func(any)) {
	var q request
	err := json.Unmarshal(line, &q)
	r.run(func() {
		a := extraReport{Answer: &answer{ID: q.ID}}
		if err == nil {
			limited, cancel := context.WithTimeout(ctx, q.Timeout)
			defer cancel()
			a.Answer.Value, err = r.do(limited, q)
		}
		if err != nil {
			a.Answer.Error = err.Error()
			a.Answer.Unknown = errors.Is(err, ddata.ErrQuorum) || errors.Is(err, ddata.ErrGivenUp) || errors.Is(err, ddata.ErrStore) || errors.Is(err, ddata.ErrStopped)
		}
		report(a)
	})
}

var errAbsent = errors.New("this node does not have the element")

func (r *replica) do(ctx context.Context, q request) (json.RawMessage, error) {
	self, level := r.replicator.Self(), ddata.WriteMajority()
	if q.Local {
		level = ddata.WriteLocal()
	}
	switch q.Do {
	case opCount:
		return nil, change(ctx, r.replicator, q.Key, level, func(c crdt.PNCounter) (crdt.PNCounter, error) { return c.Add(self, q.N), nil })
	case opCountIn:
		return nil, change(ctx, r.replicator, q.Key, level, func(m crdt.PNCounterMap[string]) (crdt.PNCounterMap[string], error) {
			return m.Add(self, q.Name, q.N)
		})
	case opAdd:
		return nil, change(ctx, r.replicator, q.Key, level, func(s crdt.ORSet[string]) (crdt.ORSet[string], error) { return s.Add(self, q.Name) })
	case opRemove:
		return nil, change(ctx, r.replicator, q.Key, level, func(s crdt.ORSet[string]) (crdt.ORSet[string], error) {
			if !s.Contains(q.Name) {
				return s, errAbsent
			}
			return s.Remove(self, q.Name)
		})
	case opShow:
		v, err := r.replicator.Raw(ctx, q.Key, ddata.ReadLocal())
		if errors.Is(err, ddata.ErrNotFound) {
			err = nil
		}
		return crdt.JSON{}.Append(nil, v), err
	case opDigest:
		s, err := r.replicator.Stats(ctx)
		if err != nil {
			return nil, err
		}
		return json.Marshal(fmt.Sprintf("%v of %d", s.Digest, s.Replicas))
	}
	return nil, fmt.Errorf("unknown operation %q", q.Do)
}

func change[T crdt.Data[T]](ctx context.Context, r *ddata.Replicator, key string, level ddata.WriteLevel, modify func(T) (T, error)) error {
	_, err := ddata.Update(ctx, r, ddata.Key[T](key), level, modify)
	return err
}
