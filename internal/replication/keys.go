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

// ensure returns the entry of a key. It creates the entry if the key does not exist.
func (m *Machine) ensure(key string) (*entry, error) {
	if e := m.keys[key]; e != nil {
		return e, nil
	}
	if len(m.keys) >= m.cfg.MaxKeys {
		return nil, Errorf(ErrFull, "%d keys, no room for %q", len(m.keys), key)
	}
	e := &entry{key: strings.Clone(key), bucket: bucketOf(key)}
	_, e.durable = m.durable.find(key)
	m.recordForSubscribers(e)
	m.keys[e.key] = e
	b := m.buckets[e.bucket]
	i, _ := findEntry(b, key)
	m.buckets[e.bucket] = slices.Insert(b, i, e)
	m.markDirty(e)
	m.alive++
	return e, nil
}

func findEntry(b []*entry, key string) (int, bool) {
	return slices.BinarySearchFunc(b, key, func(e *entry, key string) int { return strings.Compare(e.key, key) })
}

// entriesAfter returns the entries of a bucket after a key.
func entriesAfter(b []*entry, key string) []*entry {
	i, found := findEntry(b, key)
	if found {
		i++
	}
	return b[i:]
}

// forget removes an entry completely. Machine.base keeps its version.
func (m *Machine) forget(e *entry) {
	m.recordForSubscribers(e)
	m.markDirty(e)
	m.removeDirty(e)
	e.removed = true
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

func (m *Machine) set(e *entry, v crdt.Value) {
	m.recordForSubscribers(e)
	m.markDirty(e)
	if e.value.IsZero() { // the type never changes
		e.causal = v.Deltas() == crdt.CausalDeltas
	}
	e.value = v
	m.out.Values = append(m.out.Values, Change{Key: e.key, Value: v})
}

func (m *Machine) makeTombstone(e *entry) {
	m.recordForSubscribers(e)
	m.markDirty(e)
	e.value, e.deleted, e.size = crdt.Value{}, true, 0
	e.versions, e.pruning = nil, nil
	m.alive--
	m.out.Values = append(m.out.Values, Change{Key: e.key, Deleted: true})
}

// markDirty removes an entry from the digest tree until its digest is needed.
func (m *Machine) markDirty(e *entry) {
	if e.dirty == 0 {
		m.tree.add(e.bucket, sum{-e.leaf.a, -e.leaf.b})
		m.dirty = append(m.dirty, e)
		e.dirty = len(m.dirty)
	}
}

// removeDirty removes an entry from the dirty list; the last entry takes its index.
func (m *Machine) removeDirty(e *entry) {
	last := len(m.dirty) - 1
	moved := m.dirty[last]
	m.dirty[e.dirty-1], moved.dirty = moved, e.dirty
	m.dirty[last], m.dirty, e.dirty = nil, m.dirty[:last], 0
}

func (m *Machine) updateDigests() {
	for n := len(m.dirty); n > 0; n-- {
		m.updateDigest(m.dirty[n-1])
	}
	m.exchange.next = 0
}

// updateDigest adds an entry to the digest tree if it is dirty.
func (m *Machine) updateDigest(e *entry) {
	if e.dirty == 0 {
		return
	}
	if e.deleted {
		m.setDigest(e, nil)
		return
	}
	b, err := e.value.AppendBinary(m.valueBuf[:0])
	if err != nil {
		m.note(Note{Kind: NoteRefused, Key: e.key, Err: err})
		b = m.valueBuf[:0]
	}
	m.setDigest(e, b)
	if cap(b) <= maxScratch {
		m.valueBuf = b[:0]
	}
}

// setDigest adds an entry, whose encoded value is given, to the digest tree.
func (m *Machine) setDigest(e *entry, value []byte) {
	if len(value) > MaxMessage-overhead {
		m.note(Note{Kind: NoteTooLarge, Key: e.key, N: len(value)})
	}
	e.size = len(value)
	e.digest = entryDigest(e.deleted, value, e.pruning)
	w := writer{b: m.digestBuf[:0]}
	w.key(e.key)
	w.digest(e.digest)
	w.uint(e.used)
	e.leaf = sumOf(w.b)
	m.digestBuf = w.b[:0]
	m.tree.add(e.bucket, e.leaf)
	m.removeDirty(e)
}

// entryDigest returns the digest of an entry without its versions.
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

func (m *Machine) encodeEntry(e *entry) (Entry, error) {
	w, _, err := m.appendEntry(e, make([]byte, 0, e.size+64))
	return w, err
}

// appendEntry is like encodeEntry, but appends the encoded value to values. It returns the entry
// and the extended values.
func (m *Machine) appendEntry(e *entry, values []byte) (Entry, []byte, error) {
	w := Entry{Key: e.key, Deleted: e.deleted, Used: e.used}
	if e.deleted {
		return w, values, nil
	}
	b, err := e.value.AppendBinary(values)
	if err != nil {
		return w, values, fmt.Errorf("encode %q: %w", e.key, err)
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

type absorbed struct {
	e       *entry // nil if the entry was dropped
	had     bool   // the key existed
	changed bool
}

// absorb merges an entry of another node.
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
		deleted, err := m.ensure(in.Key)
		if err != nil {
			return absorbed{}, err
		}
		m.use(deleted, in.Used)
		m.makeTombstone(deleted)
		m.count.Merged++
		return absorbed{deleted, a.had, true}, nil
	case a.had && e.dirty == 0 && e.digest == in.digest(): // only versions can be new
		m.takeVersions(e, in)
		m.count.Known++
		return a, nil
	}
	v, err := m.types.Decode(in.Value)
	if err != nil {
		return a, fmt.Errorf("decode %q: %w", in.Key, err)
	}
	var pruning []Marker
	if a.had {
		pruning = e.pruning
	}
	pruning = m.markSeen(mergeMarkers(pruning, in.Pruning, m.wall(), m.isAlive))
	if v, err = cleanUp(v, pruning); err != nil {
		return a, fmt.Errorf("merge %q: %w", in.Key, err)
	}
	if !a.had {
		return m.addEntry(in, v, pruning)
	}
	mine, err := cleanUp(e.value, pruning)
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
	if !slices.EqualFunc(pruning, e.pruning, Marker.equal) {
		m.markDirty(e)
		e.pruning, a.changed = pruning, true
	}
	m.takeVersions(e, in)
	if a.changed {
		m.count.Merged++
	} else {
		m.count.Known++
	}
	return a, nil
}

// addEntry adds a received entry whose key does not exist.
func (m *Machine) addEntry(in *Entry, v crdt.Value, pruning []Marker) (absorbed, error) {
	e, err := m.ensure(in.Key)
	if err != nil {
		return absorbed{}, err
	}
	m.set(e, v)
	e.size, e.pruning = len(in.Value), pruning
	m.takeVersions(e, in)
	m.count.Merged++
	if len(in.Pruning) == 0 {
		m.setDigest(e, in.Value) // the received encoding is canonical
	}
	return absorbed{e, false, true}, nil
}

// takeVersions takes over the versions and the time of use of a received entry.
func (m *Machine) takeVersions(e *entry, in *Entry) {
	if e.causal {
		for _, v := range in.Versions {
			if v.Node != m.self && m.isAlive(v.Node) {
				e.raiseVersion(v.Node, v.N)
			}
		}
	}
	e.dropVersions()
	m.use(e, in.Used)
}

// markSeen adds this node to the nodes that have seen the markers.
func (m *Machine) markSeen(markers []Marker) []Marker {
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
		return Errorf(ErrType, "%q: %w", key, err)
	}
	return fmt.Errorf("merge %q: %w", key, err)
}

// noteRefused notes that an entry could not be merged and returns the verdict for its sender.
func (m *Machine) noteRefused(from identity.Node, key string, err error) Verdict {
	m.count.Refused++
	kind, verdict := NoteRefused, Refused
	if errors.Is(err, ErrFull) {
		kind, verdict = NoteFull, Full
	}
	m.note(Note{Kind: kind, Node: from, Key: key, Err: err})
	return verdict
}

// isDuplicate reports whether a message contains a key for the second time. A correct node never
// sends a key twice. A receiver stops processing a message at a duplicate, because each occurrence
// may cost as much as merging the whole value.
func (m *Machine) isDuplicate(from identity.Node, e *entry) bool {
	if e == nil {
		return false
	}
	again := e.lastMessage == m.messageNr
	if e.lastMessage = m.messageNr; again {
		m.count.Dropped[DropMalformed]++
		m.note(Note{Kind: NoteMalformed, Node: from, Key: e.key, Err: Errorf(ErrMalformed, "duplicate key %q", e.key)})
	}
	return again
}

// granularity is the precision of the time of use. It limits how often an entry is sent, because
// each update of the time of use causes the entry to be sent once.
func (m *Machine) granularity(after time.Duration) time.Duration {
	return max(m.cfg.GossipInterval, after/16)
}

func (m *Machine) touch(e *entry) {
	after, found := m.expire.find(e.key)
	if wall := m.wall(); found && wall >= e.used+millis(m.granularity(after)) {
		m.markDirty(e)
		e.used = wall
		m.storeSoon(e)
	}
}

// use records a use of a key on another node, whose clock may be wrong.
func (m *Machine) use(e *entry, used uint64) {
	if used = min(used, m.wall()); used > e.used {
		m.markDirty(e)
		e.used = used
		m.storeSoon(e)
	}
}

func (m *Machine) isExpired(key string, used uint64) bool {
	after, found := m.expire.find(key)
	return found && used != 0 && used+millis(after+m.granularity(after)) <= m.wall()
}

func millis(d time.Duration) uint64 { return uint64(max(0, d.Milliseconds())) }

// expireSome removes unused keys, some at a time.
func (m *Machine) expireSome() {
	if !m.expireUpTo(maxScanned) {
		m.setTimerBy(timerExpire, m.now+stepPause)
	}
}

// expireUpTo examines approximately most keys. It reports whether it has examined all keys.
func (m *Machine) expireUpTo(most int) bool {
	wall := m.wall()
	for looked := 0; m.expiring < buckets; m.expiring++ {
		if looked >= most {
			return false
		}
		looked += len(m.buckets[m.expiring])
		for _, e := range slices.Clone(m.buckets[m.expiring]) {
			if e.used > wall { // the clock was set back
				m.markDirty(e)
				e.used = wall
			}
			if !m.isExpired(e.key, e.used) {
				continue
			}
			m.count.Expired++
			m.forget(e)
			if e.durable {
				m.deleteRecord(e)
			}
		}
	}
	m.expiring = 0
	return true
}
