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

// Data says how a node holds replicated data.
type Data struct {
	// Dir is the directory in which all of it is kept on disk. Defaults to none: it is in memory only.
	Dir string
	// PruneInterval and PruneAfter are those of ddata.Config.
	PruneInterval, PruneAfter time.Duration
}

// Request is what the parent wants done with replicated data. It is answered by one Report with its ID, unless the process
// is gone before.
type Request struct {
	ID   uint64
	Do   Doing
	Key  string
	Name string // of an element, or of a key of a map
	N    int64
	// Local asks no other node.
	Local   bool
	Timeout time.Duration
}

// Doing is what is done with a key.
type Doing string

// What can be done.
const (
	// Count adds N to a crdt.PNCounter, CountIn to the counter Name of a crdt.PNCounterMap.
	Count   Doing = "count"
	CountIn Doing = "count in"
	// Add adds the element Name to a crdt.ORSet, Remove removes it. It is refused if the node does not have the
	// element: then there is nothing that it could remove.
	Add    Doing = "add"
	Remove Doing = "remove"
	// Show answers with the value, as this node has it.
	Show Doing = "show"
	// Digest answers with the digest of all that the node holds.
	Digest Doing = "digest"
)

// Answer is what has become of a Request.
type Answer struct {
	ID uint64
	// Error is empty if it was done. Unknown says that it may have been done all the same.
	Error   string `json:",omitempty"`
	Unknown bool   `json:",omitempty"`
	// Value is what was asked for, as JSON.
	Value json.RawMessage `json:",omitempty"`
}

// ask is the word that a request follows in a line.
const ask = "data "

// Ask asks a node to do something with replicated data. The answer comes as a Report.
func (f *Fleet) Ask(name string, r Request) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("ask node %s: %w", name, err)
	}
	return f.Say(name, ask+string(line))
}

// holder is the replicator of a child, and who uses it.
type holder struct {
	replicator *ddata.Replicator

	mu     sync.Mutex
	closed bool
	users  sync.WaitGroup
}

// hold starts a replicator.
func hold(ctx context.Context, n *cluster.Node, d Data) (*holder, error) {
	cfg := ddata.Config{PruneInterval: d.PruneInterval, PruneAfter: d.PruneAfter}
	if d.Dir != "" {
		cfg.Durable, cfg.Opener = []string{"*"}, leveldb.NewDurable(d.Dir, leveldb.DurableConfig{})
	}
	r, err := ddata.Start(ctx, n, cfg)
	if err != nil {
		return nil, err
	}
	return &holder{replicator: r}, nil
}

// run runs f in a goroutine, unless it is too late.
func (h *holder) run(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.users.Go(f)
	}
}

// close waits for all that runs.
func (h *holder) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.users.Wait()
}

// serve does what a line asks for, and then reports that.
func (h *holder) serve(ctx context.Context, line string, report func(Report)) {
	var request Request
	err := json.Unmarshal([]byte(line), &request)
	h.run(func() {
		answer := Answer{ID: request.ID}
		if err == nil {
			limited, cancel := context.WithTimeout(ctx, request.Timeout)
			defer cancel()
			answer.Value, err = h.do(limited, request)
		}
		if err != nil {
			answer.Error = err.Error()
			answer.Unknown = errors.Is(err, ddata.ErrQuorum) || errors.Is(err, ddata.ErrGivenUp) || errors.Is(err, ddata.ErrStore) || errors.Is(err, ddata.ErrStopped)
		}
		report(Report{Answer: &answer})
	})
}

var errAbsent = errors.New("this node does not have the element")

func (h *holder) do(ctx context.Context, request Request) (json.RawMessage, error) {
	self, level := h.replicator.Self(), ddata.WriteMajority()
	if request.Local {
		level = ddata.WriteLocal()
	}
	switch request.Do {
	case Count:
		return nil, change(ctx, h, request.Key, level, func(c crdt.PNCounter) (crdt.PNCounter, error) { return c.Add(self, request.N), nil })
	case CountIn:
		return nil, change(ctx, h, request.Key, level, func(m crdt.PNCounterMap[string]) (crdt.PNCounterMap[string], error) {
			return m.Add(self, request.Name, request.N)
		})
	case Add:
		return nil, change(ctx, h, request.Key, level, func(s crdt.ORSet[string]) (crdt.ORSet[string], error) { return s.Add(self, request.Name) })
	case Remove:
		return nil, change(ctx, h, request.Key, level, func(s crdt.ORSet[string]) (crdt.ORSet[string], error) {
			if !s.Contains(request.Name) {
				return s, errAbsent
			}
			return s.Remove(self, request.Name)
		})
	case Show:
		v, err := h.replicator.Raw(ctx, request.Key, ddata.ReadLocal())
		if errors.Is(err, ddata.ErrNotFound) {
			err = nil
		}
		return crdt.JSON{}.Append(nil, v), err
	case Digest:
		s, err := h.replicator.Stats(ctx)
		if err != nil {
			return nil, err
		}
		return json.Marshal(fmt.Sprintf("%v of %d", s.Digest, s.Replicas))
	}
	return nil, fmt.Errorf("nothing that can be done with data: %q", request.Do)
}

func change[T crdt.Data[T]](ctx context.Context, h *holder, key string, level ddata.WriteLevel, modify func(T) (T, error)) error {
	_, err := ddata.Update(ctx, h.replicator, ddata.Key[T](key), level, modify)
	return err
}
