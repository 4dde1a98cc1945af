// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package ddata

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/loop"
	"github.com/refold-io/refold/internal/replication"
)

// Subscribe yields the current values of the keys of a pattern when the loop begins, and then their
// changes, until ctx or the replicator ends. Changes are reported every Config.NotifyInterval and
// by Flush; each report contains only the last change of each key. A slow loop also receives only
// the last change of each key. It misses only replaced values, and keys that were created and have
// expired between two of its iterations. A value that equals the previously reported one is not
// reported.
//
// The loop ends without an error. If the replicator has ended, Replicator.Err returns the reason. A
// loop over a pattern that cannot match any key, such as Key("visits*").Any(), logs an error and
// ends at once.
func (r *Replicator) Subscribe(ctx context.Context, of Pattern) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		if err := of.check(); err != nil {
			r.log.ErrorContext(ctx, "subscription cannot match any key", slog.String("pattern", of.String()), slog.Any("error", err))
			return
		}
		s := &subscriber{ready: loop.NewSignal(), latest: map[string]pendingChange{}}
		nr, err := r.subs.Add(s)
		if err != nil { // the replicator has ended
			return
		}
		defer r.subs.Remove(nr)
		r.inbox.items.Add(item{in: replication.Subscribe{Nr: nr, Key: of.text, Prefix: of.prefix}})
		defer r.inbox.items.Add(item{in: replication.Unsubscribe{Nr: nr}})
		for {
			c, found, over := s.take()
			switch {
			case ctx.Err() != nil:
				return
			case found:
				if !yield(c) {
					return
				}
				continue
			case over:
				return
			}
			select {
			case <-s.ready:
			case <-ctx.Done():
				return
			}
		}
	}
}

// subscriber is a loop over Subscribe.
type subscriber struct {
	ready loop.Signal

	mu     sync.Mutex
	order  []string // keys in latest in order of arrival; may contain keys that are no longer in latest
	latest map[string]pendingChange
	over   bool
}

// pendingChange is a change that the loop has not received yet.
type pendingChange struct {
	Change

	isNew bool // the key is unknown to the loop
}

func (s *subscriber) put(c Change, isNew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, waits := s.latest[c.Key]
	switch {
	case !waits:
		s.order = append(s.order, c.Key)
	case old.isNew && c.Kind == Expired: // drop both changes: such keys would accumulate in a slow loop
		delete(s.latest, c.Key)
		s.tidy()
		return
	default:
		isNew = old.isNew
	}
	s.latest[c.Key] = pendingChange{c, isNew}
	s.ready.Set()
}

// tidy removes stale keys from the order when they are the majority.
func (s *subscriber) tidy() {
	const few = 64
	if len(s.order) <= 2*len(s.latest)+few {
		return
	}
	seen := make(map[string]bool, len(s.latest))
	s.order = slices.DeleteFunc(s.order, func(key string) bool {
		_, waits := s.latest[key]
		gone := !waits || seen[key]
		seen[key] = true
		return gone
	})
}

// take returns the oldest change, and whether the subscription has ended.
func (s *subscriber) take() (c Change, found, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.order) > 0 {
		key := s.order[0]
		s.order = s.order[1:]
		if next, waits := s.latest[key]; waits {
			delete(s.latest, key)
			return next.Change, true, s.over
		}
	}
	s.order = nil
	return c, false, s.over
}

func (s *subscriber) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.ready.Set()
}

func (r *Replicator) publish(events []replication.Event) {
	for i := range events {
		e := &events[i]
		r.subs.Answer(e.Nr, func(s *subscriber) bool {
			s.put(Change{Key: e.Key, Kind: ChangeKind(e.Kind), value: e.Value, types: r.types}, e.New)
			return false
		})
	}
}

// endSubscriptions ends all loops after their pending changes.
func (r *Replicator) endSubscriptions() {
	r.subs.Close()
	r.subs.AnswerAll(func(s *subscriber) bool {
		s.end()
		return false
	})
}

// Key identifies a value of a data type T, which package crdt or a user defines. It has 1 to 512
// bytes of UTF-8 and does not end in a star. Keys with the same text are the same key, so they must
// have the same type.
type Key[T crdt.Data[T]] string

// Any returns the pattern that matches only this key, for Replicator.Subscribe.
func (k Key[T]) Any() Pattern { return Pattern{text: string(k)} }

// Value returns the value of a change, or the empty value if the key was deleted or has expired.
// The error matches ErrType if the value has another type, ErrInvalid if the type is not defined.
func (k Key[T]) Value(c Change) (T, error) {
	return typed[T](c.types, "read a change of", c.Key, c.value)
}

// check returns an error if the pattern cannot match any key.
func (p Pattern) check() error {
	if !p.prefix {
		return replication.CheckKey(p.text)
	}
	if len(p.text) > replication.MaxKey {
		return fmt.Errorf("prefix has %d bytes, a key has at most %d", len(p.text), replication.MaxKey)
	}
	return nil
}

// Prefix returns the pattern that matches all keys with a prefix, including keys that are created
// later. An empty prefix matches all keys.
func Prefix(text string) Pattern { return Pattern{text: text, prefix: true} }

// Pattern matches one key or all keys with a prefix.
type Pattern struct {
	text   string
	prefix bool
}

// String returns the key, or the prefix followed by a star.
func (p Pattern) String() string {
	if p.prefix {
		return p.text + "*"
	}
	return p.text
}

// Change is a change of a key.
type Change struct {
	Key  string
	Kind ChangeKind

	value crdt.Value
	types *crdt.Types
}

// Raw returns the value without its Go type, or the zero Value if the key was deleted or has
// expired. See Key.Value for the typed value.
func (c Change) Raw() crdt.Value { return c.value }

// ChangeKind is the kind of a change.
type ChangeKind uint8

// The kinds of changes.
const (
	// Changed: the key has another value.
	Changed = ChangeKind(replication.Changed)
	// Deleted: the key was deleted, which is permanent.
	Deleted = ChangeKind(replication.WasDeleted)
	// Expired: the key was not used for Config.Expire and was removed. It may be created again.
	Expired = ChangeKind(replication.Expired)
)

func (k ChangeKind) String() string { return replication.EventKind(k).String() }
