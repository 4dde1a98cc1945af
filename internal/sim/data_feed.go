// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"strings"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/internal/node/replica"
	"github.com/refold-io/refold/internal/replication"
)

// feed is a subscriber and what it was told.
type feed struct {
	nr     uint64
	prefix string
	ended  bool
	known  map[string]replication.Event
}

// subscribe begins to listen to keys: to all, or to some.
func (r *replicator) subscribe() {
	prefix := []string{"", "", "c", "durable/"}[r.d.rand.IntN(4)]
	f := &feed{nr: uint64(len(r.feeds) + 1), prefix: prefix, known: map[string]replication.Event{}}
	r.feeds = append(r.feeds, f)
	r.after(0, func() {
		r.step(replica.Batch{Inputs: []replication.Input{replication.Subscribe{Nr: f.nr, Key: prefix, Prefix: true}}})
	})
}

// resubscribe ends a subscription and begins another, or wants to know at once.
func (d *data) resubscribe(r *replicator) {
	if d.rand.IntN(3) == 0 {
		r.after(0, func() { r.step(replica.Batch{Inputs: []replication.Input{replication.Flush{}}}) })
		return
	}
	f := r.feeds[len(r.feeds)-1]
	r.after(0, func() {
		f.ended = true
		r.step(replica.Batch{Inputs: []replication.Input{replication.Unsubscribe{Nr: f.nr}}})
	})
	r.subscribe()
}

// event: subscribers are told of changes only, until they are there no more.
func (r *replicator) event(e *replication.Event) {
	r.d.hit("event", []string{"", "changed", "deleted", "expired"}[e.Kind])
	f := r.feeds[e.Nr-1]
	was, known := f.known[e.Key]
	switch {
	case f.ended:
		r.violate("subscribers-hear-of-changes", "subscription %d has ended, and hears of %q", e.Nr, e.Key)
	case !strings.HasPrefix(e.Key, f.prefix):
		r.violate("subscribers-hear-of-changes", "a subscription to %q hears of %q", f.prefix, e.Key)
	case known && was.Kind == replication.WasDeleted && e.Kind == replication.Changed && !strings.HasPrefix(e.Key, "lease"):
		r.violate("subscribers-hear-of-changes", "%q was deleted, and has changed", e.Key)
	case known && was.Kind == e.Kind && (e.Kind != replication.Changed || was.Value == e.Value || r.d.rand.IntN(10) == 0 && crdt.Equal(was.Value, e.Value)):
		r.violate("subscribers-hear-of-changes", "%q has changed to what it was", e.Key)
	}
	f.known[e.Key] = *e
}

// misinformed returns what subscribers are wrong about, or nothing.
func (r *replicator) misinformed() string {
	for _, f := range r.feeds {
		if f.ended {
			continue
		}
		for _, key := range r.m.Protocol().Keys() {
			if v, _, _ := r.value(key); strings.HasPrefix(key, f.prefix) && (f.known[key].Kind != replication.Changed || !crdt.Equal(f.known[key].Value, v)) {
				return "a subscriber does not know what " + key + " holds"
			}
		}
		for key, e := range f.known {
			if _, deleted, found := r.value(key); e.Kind == replication.Changed && (!found || deleted) {
				return "a subscriber thinks that " + key + " still is there"
			}
		}
	}
	return ""
}
