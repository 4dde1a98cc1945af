// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/ddata/crdt"
	"github.com/refold-io/refold/identity"
)

// create makes an entry for a key that is not there.
func (m *Machine) create(key string) (*entry, error) {
	if len(m.keys) >= m.cfg.MaxKeys {
		return nil, fmt.Errorf("%w: there are %d, no room for %q", ErrFull, len(m.keys), key)
	}
	e := &entry{key: strings.Clone(key), bucket: bucketOf(key)}
	_, e.durable = m.durable.find(key)
	m.watch(e)
	m.keys[e.key] = e
	b := m.buckets[e.bucket]
	i, _ := findEntry(b, key)
	m.buckets[e.bucket] = slices.Insert(b, i, e)
	m.spoil(e)
	m.alive++
	return e, nil
}

func findEntry(b []*entry, key string) (int, bool) {
	return slices.BinarySearchFunc(b, key, func(e *entry, key string) int { return strings.Compare(e.key, key) })
}

// forget removes an entry as if it had never been there, but for its number.
func (m *Machine) forget(e *entry) {
	m.watch(e)
	m.spoil(e)
	m.unlist(e)
	e.gone = true
	m.base = max(m.base, e.version)
	delete(m.keys, e.key)
	b := m.buckets[e.bucket]
	if i, found := findEntry(b, e.key); found {
		m.buckets[e.bucket] = slices.Delete(b, i, i+1)
	}
	if !e.deleted {
		m.alive--
	}
	m.out.Values = append(m.out.Values, Change{Key: e.key})
}

// set gives an entry another value.
func (m *Machine) set(e *entry, v crdt.Value) {
	m.watch(e)
	m.spoil(e)
	if e.value.IsZero() { // the type never changes
		e.causal = v.Deltas() == crdt.CausalDeltas
	}
	e.value = v
	m.out.Values = append(m.out.Values, Change{Key: e.key, Value: v})
}

// bury deletes an entry for ever.
func (m *Machine) bury(e *entry) {
	m.watch(e)
	m.spoil(e)
	e.value, e.deleted, e.size = crdt.Value{}, true, 0
	e.versions, e.pruning = nil, nil
	m.alive--
	m.out.Values = append(m.out.Values, Change{Key: e.key, Deleted: true})
}

// spoil takes an entry out of the digest tree until it is needed again.
func (m *Machine) spoil(e *entry) {
	if e.dirty == 0 {
		m.tree.sub(e.bucket, e.leaf)
		m.dirty = append(m.dirty, e)
		e.dirty = len(m.dirty)
	}
}

// unlist takes an entry out of the list of those that are not in the digest tree. The last one takes its place.
func (m *Machine) unlist(e *entry) {
	last := len(m.dirty) - 1
	moved := m.dirty[last]
	m.dirty[e.dirty-1], moved.dirty = moved, e.dirty
	m.dirty[last], m.dirty, e.dirty = nil, m.dirty[:last], 0
}

// refresh puts all that has changed into the digest tree.
func (m *Machine) refresh() {
	for n := len(m.dirty); n > 0; n-- {
		m.clean(m.dirty[n-1])
	}
	m.exchange.next = 0
}

// clean computes the digest of an entry, if it has changed.
func (m *Machine) clean(e *entry) {
	if e.dirty == 0 {
		return
	}
	if e.deleted {
		m.settle(e, nil)
		return
	}
	b, err := e.value.AppendBinary(m.scratch[:0])
	if err != nil {
		m.note(Note{Kind: NoteRefused, Key: e.key, Err: err})
		b = m.scratch[:0]
	}
	m.settle(e, b)
	if cap(b) <= maxScratch {
		m.scratch = b[:0]
	}
}

// settle puts an entry, whose encoded value is given, into the digest tree.
func (m *Machine) settle(e *entry, value []byte) {
	if len(value) > MaxMessage-overhead {
		m.note(Note{Kind: NoteTooLarge, Key: e.key, N: len(value)})
	}
	e.size = len(value)
	e.digest = entryDigest(e.deleted, value, e.pruning)
	w := writer{b: m.leaf[:0]}
	w.key(e.key)
	w.digest(e.digest)
	w.uint(e.used)
	e.leaf = sumOf(w.b)
	m.leaf = w.b[:0]
	m.tree.add(e.bucket, e.leaf)
	m.unlist(e)
}

// entryDigest is the digest of an entry without its numbers.
func entryDigest(deleted bool, value []byte, pruning []Marker) Digest {
	if deleted {
		return Digest{}
	}
	d := digestOf(value)
	if len(pruning) == 0 {
		return d
	}
	var w writer
	w.markers(pruning)
	return digestOf(w.finish(nil, d[:]...))
}

func (e *Entry) digest() Digest { return entryDigest(e.Deleted, e.Value, e.Pruning) }

// wire returns an entry as it is sent. The error says that it can't be encoded.
func (m *Machine) wire(e *entry) (Entry, error) {
	w, _, err := m.wireAfter(e, make([]byte, 0, e.size+64))
	return w, err
}

// wireAfter is wire with the value after others, which it returns with it.
func (m *Machine) wireAfter(e *entry, values []byte) (Entry, []byte, error) {
	w := Entry{Key: e.key, Deleted: e.deleted, Used: e.used}
	if e.deleted {
		return w, values, nil
	}
	b, err := e.value.AppendBinary(values)
	if err != nil {
		return w, values, fmt.Errorf("replication: encode %q: %w", e.key, err)
	}
	w.Value = b[len(values):len(b):len(b)]
	e.size = len(w.Value)
	w.Pruning = e.pruning
	if e.causal {
		w.Versions = e.versions
		if i, found := findVersion(e.versions, m.self); !found && e.version > 0 {
			w.Versions = slices.Insert(slices.Clone(e.versions), i, Version{m.self, e.version})
		}
	}
	return w, b, nil
}

// absorbed is what became of an entry that was received.
type absorbed struct {
	e       *entry // nil if it was not taken
	had     bool   // the key was there
	changed bool
}

// absorb merges what another node knows of a key.
func (m *Machine) absorb(in *Entry) (absorbed, error) {
	e := m.keys[in.Key]
	a := absorbed{e: e, had: e != nil}
	switch {
	case in.Used > 0 && m.isExpired(in.Key, in.Used):
		return absorbed{}, nil
	case a.had && e.deleted:
		m.use(e, in.Used)
		return a, nil
	case in.Deleted:
		if e == nil {
			var err error
			if e, err = m.create(in.Key); err != nil {
				return absorbed{}, err
			}
		}
		m.use(e, in.Used)
		m.bury(e)
		m.count.Merged++
		return absorbed{e, a.had, true}, nil
	case a.had && e.dirty == 0 && e.digest == in.digest(): // nothing new but numbers
		m.number(e, in)
		m.count.Known++
		return a, nil
	}
	v, err := m.types.Decode(in.Value)
	if err != nil {
		return a, fmt.Errorf("replication: decode %q: %w", in.Key, err)
	}
	var pruning []Marker
	if a.had {
		pruning = e.pruning
	}
	pruning = m.seen(mergeMarkers(pruning, in.Pruning, m.wall(), m.isAlive))
	if v, err = cleaned(v, pruning); err != nil {
		return a, fmt.Errorf("replication: merge %q: %w", in.Key, err)
	}
	if !a.had {
		return m.adopt(in, v, pruning)
	}
	mine, err := cleaned(e.value, pruning)
	if err == nil {
		v, err = mine.Merge(v)
	}
	if err != nil {
		return a, mergeError(in.Key, err)
	}
	if v != e.value {
		m.set(e, v)
		e.size += len(in.Value)
		a.changed = true
	}
	if !sameMarkers(pruning, e.pruning) {
		m.spoil(e)
		e.pruning, a.changed = pruning, true
	}
	m.number(e, in)
	if a.changed {
		m.count.Merged++
	} else {
		m.count.Known++
	}
	return a, nil
}

// adopt takes an entry whose key was not there.
func (m *Machine) adopt(in *Entry, v crdt.Value, pruning []Marker) (absorbed, error) {
	e, err := m.create(in.Key)
	if err != nil {
		return absorbed{}, err
	}
	m.set(e, v)
	e.size, e.pruning = len(in.Value), pruning
	m.number(e, in)
	m.count.Merged++
	if len(in.Pruning) == 0 {
		m.settle(e, in.Value) // what was received is what would be encoded
	}
	return absorbed{e, false, true}, nil
}

// number takes over the numbers that come with an entry.
func (m *Machine) number(e *entry, in *Entry) {
	if e.causal {
		for _, v := range in.Versions {
			if v.Node != m.self {
				e.raise(v.Node, v.N)
			}
		}
	}
	e.dropVersions()
	m.use(e, in.Used)
}

// seen says in markers that this node has seen them.
func (m *Machine) seen(markers []Marker) []Marker {
	cloned := false
	for i := range markers {
		k := &markers[i]
		if k.Performed || k.Owner == m.self {
			continue
		}
		if seen := insertNode(k.Seen, m.self); len(seen) != len(k.Seen) {
			if !cloned {
				markers, cloned = slices.Clone(markers), true
			}
			markers[i].Seen = seen
		}
	}
	return markers
}

func mergeError(key string, err error) error {
	if errors.Is(err, crdt.ErrType) {
		return fmt.Errorf("%w: %q: %w", ErrType, key, err)
	}
	return fmt.Errorf("replication: merge %q: %w", key, err)
}

// refused notes that something could not be merged, and returns what whoever has sent it is told.
func (m *Machine) refused(from identity.Node, key string, err error) Verdict {
	m.count.Refused++
	kind, verdict := NoteRefused, Refused
	if errors.Is(err, ErrFull) {
		kind, verdict = NoteFull, Full
	}
	m.note(Note{Kind: kind, Node: from, Key: key, Err: err})
	return verdict
}

// twice reports whether a message says something of a key of which it has said something before. Nobody does that who means
// well: of a large value each time costs as much as of all of it.
func (m *Machine) twice(from identity.Node, e *entry) bool {
	if e == nil {
		return false
	}
	again := e.heard == m.heard
	if e.heard = m.heard; again {
		m.count.Dropped[DropMalformed]++
		m.note(Note{Kind: NoteMalformed, Node: from, Key: e.key, Err: fmt.Errorf("%w: %q comes twice", ErrMalformed, e.key)})
	}
	return again
}

// granularity is how exact the time of use is known: each new one makes the entry
// be sent once.
func (m *Machine) granularity(after time.Duration) time.Duration {
	return max(m.cfg.GossipInterval, after/16)
}

// touch says that a key is in use.
func (m *Machine) touch(e *entry) {
	after, found := m.expire.find(e.key)
	if wall := m.wall(); found && wall >= e.used+millis(m.granularity(after)) {
		m.spoil(e)
		e.used = wall
		m.keep(e)
	}
}

// use says when a key was used elsewhere. That clock may be wrong.
func (m *Machine) use(e *entry, used uint64) {
	if used = min(used, m.wall()); used > e.used {
		m.spoil(e)
		e.used = used
		m.keep(e)
	}
}

func (m *Machine) isExpired(key string, used uint64) bool {
	after, found := m.expire.find(key)
	return found && used != 0 && used+millis(after+m.granularity(after)) <= m.wall()
}

func millis(d time.Duration) uint64 { return uint64(max(0, d.Milliseconds())) }

// expireSome forgets what was not used for long, a part of the keys at a time.
func (m *Machine) expireSome() {
	if !m.expireUpTo(maxLooked) {
		m.soon(timerExpire, m.now+refreshPause)
	}
}

// expireUpTo looks at about as many keys, and reports whether it has looked at all.
func (m *Machine) expireUpTo(most int) bool {
	wall := m.wall()
	for looked := 0; m.expiring < buckets; m.expiring++ {
		if looked >= most {
			return false
		}
		looked += len(m.buckets[m.expiring])
		for _, e := range slices.Clone(m.buckets[m.expiring]) {
			if e.used > wall { // the clock was set back
				m.spoil(e)
				e.used = wall
			}
			if !m.isExpired(e.key, e.used) {
				continue
			}
			m.count.Expired++
			m.forget(e)
			if e.durable {
				m.erase(e)
			}
		}
	}
	m.expiring = 0
	return true
}
