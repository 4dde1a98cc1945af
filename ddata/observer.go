// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/refold-io/refold/internal/replication"
)

// Observer is told what happens to a replicator: a struct of functions, each of which may be nil and then costs
// nothing.
type Observer struct {
	// Request: a request has ended. It is called by whoever has made it, before it returns.
	Request func(RequestInfo)
	// Stats: the figures, each Config.StatsInterval, on a goroutine of its own.
	Stats func(Stats)
}

// RequestInfo describes a request that has ended.
type RequestInfo struct {
	// Replicator is the name of the replicator.
	Replicator string
	// Op is "get", "update" or "delete".
	Op  string
	Key string
	// Level is as its String says.
	Level string
	Took  time.Duration
	// Err is what it has returned.
	Err error
}

// Stats are figures of a replicator since it was started.
type Stats struct {
	// Protocol counts what the protocol has done.
	Protocol replication.Counters
	// Digest stands for all that this node holds: two nodes with the same one hold the same.
	Digest replication.Digest
	// Replicas is how many nodes count in a quorum.
	Replicas int
	// Synced says that the node has got what others had when it joined.
	Synced bool
	// Subscribers is how many loops over Subscribe there are.
	Subscribers int
	// Unsent counts packets that the transport did not take, Malformed those that could not be read.
	Unsent, Malformed uint64
	// Turns counts how often the loop has looked for work, Packets and Requests what it has found.
	Turns, Packets, Requests uint64
	// DiskWrites counts calls of the store, DiskErrors those that have failed, Waiting is how many records wait for the next one.
	DiskWrites, DiskErrors uint64
	Waiting                int
}

// Stats returns the figures. It takes the longer the more has changed since the last comparison with another node. The
// error is that of ctx, or ErrStopped.
func (r *Replicator) Stats(ctx context.Context) (s Stats, err error) {
	err = r.digested(ctx, func() { s = r.stats() })
	if err != nil {
		err = fmt.Errorf("ddata: figures of %q: %w", r.cfg.Name, err)
	}
	return s, err
}

// stats returns the figures. It is called by the loop.
// maxRefreshes is after how many turns digests are computed in one go, as keys change faster than that.
const maxRefreshes = 10_000

// digested calls f as call does, once the digests of all keys are computed. That takes a turn for some of them each, so that others have
// theirs in between.
func (r *Replicator) digested(ctx context.Context, f func()) error {
	for turn := 1; ; turn++ {
		done := false
		if err := r.call(ctx, func() {
			if done = r.machine.Protocol().Refresh() || turn == maxRefreshes; done {
				f()
			}
		}); done || err != nil {
			return err
		}
	}
}

func (r *Replicator) stats() Stats {
	p := r.machine.Protocol()
	s := r.count
	s.Protocol, s.Digest, s.Replicas, s.Synced = p.Counters(), p.Root(), p.ReplicaCount(), p.Synced()
	s.Malformed, s.Subscribers = r.machine.Malformed(), r.subs.len()
	if r.writer != nil {
		s.DiskWrites, s.DiskErrors, s.Waiting = r.writer.stats()
	}
	return s
}

// observe tells of a request that has ended. Its level becomes an interface only if somebody listens, as that takes memory.
func observe[L fmt.Stringer](r *Replicator, began time.Time, op, key string, level L, err error) {
	if began.IsZero() {
		return
	}
	r.callObserver(func() {
		r.cfg.Observer.Request(RequestInfo{Replicator: r.cfg.Name, Op: op, Key: key, Level: level.String(), Took: time.Since(began), Err: err})
	})
}

// tell calls an observer, which may panic.
func (r *Replicator) callObserver(f func()) {
	defer func() {
		if p := recover(); p != nil {
			r.log.ErrorContext(r.base, "an observer panicked", slog.String("panic", fmt.Sprint(p)))
		}
	}()
	f()
}

// report tells the figures again and again.
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

// touched are the keys that were read past the loop, so that they don't expire.
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

// take returns them, and begins anew.
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

// line is a kind of lines that somebody else can cause, and so that there may be many of.
type lineKind uint8

const (
	lineUnsent lineKind = iota
	lineMalformed
	lineRefused
	lineTooLarge
	lineStore
	lineFull
	lineSlow
	lineKinds
)

// lineInterval is how often there is one of a kind.
const lineInterval = time.Minute

// lines remember when lines were written last.
type lines [lineKinds]struct {
	next time.Duration
	lost int
}

// write writes a line unless there was one of its kind shortly before.
func (l *lines) write(r *Replicator, kind lineKind, level slog.Level, message string, attrs ...slog.Attr) {
	k := &l[kind]
	now := r.now()
	if k.next > now {
		k.lost++
		return
	}
	if k.lost > 0 {
		attrs = append(attrs, slog.Int("not_logged_before", k.lost))
	}
	k.next, k.lost = now+lineInterval, 0
	r.log.LogAttrs(r.base, level, message, attrs...) //nolint:sloglint // those that are given are constants
}

// note logs what the protocol finds worth knowing.
func (r *Replicator) logNote(n *replication.Note) {
	ctx := r.base
	peer, key, count, why := slog.String("peer", n.Node.String()), slog.String("key", n.Key), slog.Int("count", n.N), slog.Any("error", publicError(n.Err))
	switch n.Kind {
	case replication.NoteMalformed:
		r.lines.write(r, lineMalformed, slog.LevelWarn, "a message can't be read", peer, why)
	case replication.NoteRefused:
		r.lines.write(r, lineRefused, slog.LevelWarn, "what a node has sent can't be merged", peer, key, why)
	case replication.NoteFull:
		r.lines.write(r, lineFull, slog.LevelError, "there is no room for a key", peer, key, why)
	case replication.NoteTooLarge:
		r.lines.write(r, lineTooLarge, slog.LevelError, "a value is too large to be sent, until it is smaller", key, slog.Int("bytes", n.N))
	case replication.NoteStore:
		r.lines.write(r, lineStore, slog.LevelError, "durable keys can't be written to disk", key, count, why)
	case replication.NoteLoad:
		r.log.LogAttrs(ctx, slog.LevelError, "a durable key can't be loaded", key, why)
	case replication.NotePulling:
		r.log.LogAttrs(ctx, slog.LevelDebug, "the data is got from other nodes", slog.Int("nodes", n.N))
	case replication.NotePulled:
		r.log.LogAttrs(ctx, slog.LevelInfo, "the data was got from other nodes", slog.Int("keys", n.N))
	case replication.NotePruning:
		r.log.LogAttrs(ctx, slog.LevelDebug, "what a node has changed that has left is about to be moved to this one", slog.String("node", n.Node.String()), slog.Int("keys", n.N))
	case replication.NotePruned:
		r.log.LogAttrs(ctx, slog.LevelInfo, "what a node has changed that has left was moved to this one", slog.String("left", n.Node.String()), slog.Int("keys", n.N))
	case replication.NoteRemoved:
		r.log.LogAttrs(ctx, slog.LevelInfo, "the replicator ends: the node is no member any more")
	}
}
