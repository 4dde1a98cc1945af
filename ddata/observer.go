// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/internal/enum"
	"github.com/refold-io/refold/internal/panics"
	"github.com/refold-io/refold/internal/replication"
)

// Observer is a set of functions that observe a replicator. Each function may be nil.
type Observer struct {
	// Request is called when a request has ended, on the goroutine of the caller, before the
	// request returns.
	Request func(RequestInfo)
	// Stats is called with the statistics every Config.StatsInterval, on its own goroutine.
	Stats func(Stats)
}

// RequestInfo describes a request that has ended.
type RequestInfo struct {
	// Replicator is the name of the replicator.
	Replicator string
	// Op is "get", "update" or "delete".
	Op  string
	Key string
	// Level is the text of the level.
	Level string
	Took  time.Duration
	// Err is the result of the request.
	Err error
}

// Stats are the statistics of a replicator since its start.
type Stats struct {
	// Replicator is the name of the replicator.
	Replicator string
	Protocol   ProtocolStats
	// Digest is the digest of all data on this node: nodes with the same digest hold the same data.
	Digest string
	// Replicas is the number of nodes that count in a quorum.
	Replicas int
	// Synced reports that the node has fetched the data that other nodes had when it joined.
	Synced bool
	// Subscribers is the number of running Subscribe loops.
	Subscribers int
	// Unsent counts packets that the transport did not accept. Malformed counts packets that could
	// not be decoded, and packets for no replicator of this node.
	Unsent, Malformed uint64
	// Turns counts the turns of the loop. Packets and Requests count the packets and requests that
	// the loop has handled.
	Turns, Packets, Requests uint64
	// DiskWrites counts calls of the store, DiskErrors the failed ones. Waiting is the number of
	// records that wait to be written.
	DiskWrites, DiskErrors uint64
	Waiting                int
}

// ProtocolStats are the statistics of the replication protocol since the start.
type ProtocolStats struct {
	// Keys and Tombstones are the current numbers of keys and of deleted keys. Open is the number
	// of requests that wait for other nodes. Log is the number of changes that wait to be sent.
	// Storing is the number of pending writes to disk.
	Keys, Tombstones, Open, Log, Storing int
	// Sent, Received and SentBytes count messages by kind, such as "delta", "write", "gossip".
	// Dropped counts dropped messages by reason.
	Sent, Received, SentBytes, Dropped map[string]uint64
	// Outcomes counts the results of requests, such as "done" and "timed out".
	Outcomes map[string]uint64
	// Compared counts comparisons of all data with another node. Equal counts the comparisons that
	// found no difference.
	Compared, Equal uint64
	// DeltasApplied, DeltasKnown and DeltasGap count deltas of other nodes. DeltasApplied counts
	// merged deltas, DeltasKnown counts deltas that were known before, and DeltasGap counts deltas
	// that came after a gap.
	DeltasApplied, DeltasKnown, DeltasGap uint64
	// DeltasAsStates counts changes that were sent as whole values. DeltasDropped counts changes
	// that were dropped because Config.MaxLog was reached.
	DeltasAsStates, DeltasDropped uint64
	// Merged counts values of other nodes that changed this node, Known counts values that changed
	// nothing, and Refused counts values that could not be merged.
	Merged, Known, Refused uint64
	// SecondWaves counts requests that were also sent to further nodes, because the first nodes
	// were late. Repaired counts reads that changed this node.
	SecondWaves, Repaired uint64
	// Initiated, Pruned and Cleared count the prunings that this node has begun, completed and
	// forgotten. A pruning counts once per key.
	Initiated, Pruned, Cleared uint64
	// Expired counts expired keys.
	Expired uint64
}

func protocolStats(c *replication.Counters) ProtocolStats {
	return ProtocolStats{
		Keys: c.Keys, Tombstones: c.Tombstones, Open: c.Open, Log: c.Log, Storing: c.Storing,
		Sent: enum.Counts[replication.Kind](c.Sent[:]), Received: enum.Counts[replication.Kind](c.Received[:]), SentBytes: enum.Counts[replication.Kind](c.SentBytes[:]),
		Dropped: enum.Counts[replication.Drop](c.Dropped[:]), Outcomes: enum.Counts[replication.Outcome](c.Outcomes[:]),
		Compared: c.Compared, Equal: c.Equal,
		DeltasApplied: c.DeltasApplied, DeltasKnown: c.DeltasKnown, DeltasGap: c.DeltasGap,
		DeltasAsStates: c.DeltasAsStates, DeltasDropped: c.DeltasDropped,
		Merged: c.Merged, Known: c.Known, Refused: c.Refused, SecondWaves: c.SecondWaves, Repaired: c.Repaired,
		Initiated: c.Initiated, Pruned: c.Pruned, Cleared: c.Cleared, Expired: c.Expired,
	}
}

// Stats returns the statistics. It computes the digests of all keys that have changed since the
// last comparison with another node. The error is that of ctx, or matches ErrStopped.
func (r *Replicator) Stats(ctx context.Context) (s Stats, err error) {
	err = r.digested(ctx, func() { s, s.Digest = r.stats(), r.machine.Root().String() })
	if err != nil {
		err = fmt.Errorf("ddata: statistics of %q: %w", r.cfg.Name, err)
	}
	return s, err
}

// StatsOf returns the statistics of all replicators of a node, sorted by name. The digests are empty,
// because their computation takes time. Replicators that end during the call are omitted. The error
// is that of ctx.
func StatsOf(ctx context.Context, node *cluster.Node) ([]Stats, error) {
	var all []Stats
	for _, r := range routerOf(node).replicators() {
		var s Stats
		switch err := r.call(ctx, func() { s = r.stats() }); {
		case err == nil:
			all = append(all, s)
		case ctx.Err() != nil:
			return nil, fmt.Errorf("ddata: statistics of %q on %v: %w", r.cfg.Name, node.Self(), err)
		}
	}
	return all, nil
}

// maxRefreshes is the number of turns after which all remaining digests are computed in one turn.
// It is reached only if keys change faster than their digests are computed.
const maxRefreshes = 10_000

// digested calls f in a turn of the loop once the digests of all keys are computed. Each turn
// computes only some of them, so that requests do not wait for long.
func (r *Replicator) digested(ctx context.Context, f func()) error {
	for turn := 1; ; turn++ {
		done := false
		if err := r.call(ctx, func() {
			if done = r.machine.Refresh() || turn == maxRefreshes; done {
				f()
			}
		}); done || err != nil {
			return err
		}
	}
}

// stats returns the statistics without the digest. It needs the turn.
func (r *Replicator) stats() Stats {
	m := r.machine
	s, counters := r.count, m.Counters()
	s.Replicator, s.Protocol, s.Replicas, s.Synced = r.cfg.Name, protocolStats(&counters), m.ReplicaCount(), m.Synced()
	s.Malformed, s.Subscribers = counters.Malformed+r.router.unknown.Load(), r.subs.Len()
	if r.writer != nil {
		s.DiskWrites, s.DiskErrors, s.Waiting = r.writer.stats()
	}
	return s
}

// observe reports a request that has ended to the observer. It converts the level to an interface
// only if there is an observer, because the conversion allocates.
func observe[L fmt.Stringer](r *Replicator, began time.Time, op, key string, level L, err error) {
	if began.IsZero() {
		return
	}
	r.callObserver(func() {
		r.cfg.Observer.Request(RequestInfo{Replicator: r.cfg.Name, Op: op, Key: key, Level: level.String(), Took: time.Since(began), Err: err})
	})
}

func (r *Replicator) callObserver(f func()) {
	if p := panics.Call(f); p != nil {
		r.log.ErrorContext(r.base, "observer panicked", slog.String("panic", panics.Text(p.Value)), slog.String("stack", string(p.Stack)))
	}
}

func (r *Replicator) report(ctx context.Context) {
	ticker := time.NewTicker(r.cfg.StatsInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if s, err := r.Stats(ctx); err == nil {
			r.callObserver(func() { r.cfg.Observer.Stats(s) })
		}
	}
}

// readKeys collects the keys that were read outside of the loop, so that they do not expire.
type readKeys struct {
	on bool // some keys expire

	mu   sync.Mutex
	keys map[string]struct{}
}

func (t *readKeys) add(key string) {
	if !t.on {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.keys == nil {
		t.keys = map[string]struct{}{}
	}
	t.keys[key] = struct{}{}
}

func (t *readKeys) take() (keys []string) {
	t.mu.Lock()
	all := t.keys
	t.keys = nil
	t.mu.Unlock()
	for key := range all { // the order does not matter
		keys = append(keys, key)
	}
	return keys
}

// logThrottled writes a log line unless a line with the same message was written within the last
// minute, because other nodes or users can cause many such lines.
func (r *Replicator) logThrottled(level slog.Level, message string, attrs ...slog.Attr) {
	r.throttle.Log(r.base, r.log, message, level, message, attrs...)
}

func (r *Replicator) logNote(n *replication.Note) {
	ctx := r.base
	peer, key, cause := slog.String("peer", n.Node.String()), slog.String("key", n.Key), slog.Any("error", n.Err)
	keys := slog.Int("keys", n.N)
	switch n.Kind {
	case replication.NoteMalformed:
		r.logThrottled(slog.LevelWarn, "received a malformed message", peer, cause)
	case replication.NoteRefused:
		r.logThrottled(slog.LevelWarn, "received data cannot be merged", peer, key, cause)
	case replication.NoteFull:
		r.logThrottled(slog.LevelError, "no room for another key", peer, key, cause)
	case replication.NoteLarge:
		r.log.LogAttrs(ctx, slog.LevelWarn, "value approaches Config.MaxEntry: updates that exceed it fail", key, slog.Int("bytes", n.N), slog.Int("max", r.MaxEntry()))
	case replication.NoteTooLarge:
		r.logThrottled(slog.LevelError, "value is too large to be sent", key, slog.Int("bytes", n.N))
	case replication.NoteStore:
		r.logThrottled(slog.LevelError, "write of durable keys failed", key, slog.Int("count", n.N), cause)
	case replication.NoteLoad:
		r.log.LogAttrs(ctx, slog.LevelError, "durable key cannot be loaded", key, cause)
	case replication.NotePulling:
		r.log.LogAttrs(ctx, slog.LevelDebug, "fetching the data from other nodes", slog.Int("nodes", n.N))
	case replication.NotePulled:
		r.log.LogAttrs(ctx, slog.LevelInfo, "fetched the data from other nodes", keys)
	case replication.NotePruning:
		r.log.LogAttrs(ctx, slog.LevelDebug, "pruning: taking over the updates of a removed node", slog.String("node", n.Node.String()), keys)
	case replication.NotePruned:
		r.log.LogAttrs(ctx, slog.LevelInfo, "pruning: took over the updates of a removed node", slog.String("node", n.Node.String()), keys)
	case replication.NoteRemoved:
		r.log.LogAttrs(ctx, slog.LevelInfo, "replicator stops: the node is no longer a member")
	}
}
