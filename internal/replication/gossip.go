// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/identity"
)

const (
	// maxListed is the approximate number of keys listed in one comparison. maxListedAtOnce is the
	// approximate number in one message, because the receiver processes a message in a single step.
	maxListed       = 5_000
	maxListedAtOnce = 1_000
	// maxDigests and maxDigestBytes limit the entries whose digests are computed in one step before
	// a comparison. The rest follows after stepPause, so that requests do not wait for long.
	maxDigests     = 256
	maxDigestBytes = 64 << 10
	stepPause      = time.Millisecond
	// maxScanned limits the entries examined in one step, including skipped entries.
	maxScanned = 8 * maxDigests
)

type exchangeState struct {
	with     identity.Node // node to compare with when all digests are computed
	waiting  identity.Node // node that waits for an answer to its Root
	root     Digest        // the digest in that Root
	next     int           // index in Machine.dirty of the next entry to examine
	outgoing []outgoingEntries
}

// gossipTick starts a comparison with a random node and performs periodic work.
func (m *Machine) gossipTick() {
	m.setTimer(timerGossip, m.cfg.GossipInterval)
	clear(m.deltas.requested)
	m.assemblies = slices.DeleteFunc(m.assemblies, func(a *assembly) bool { return m.now-a.since > assemblyTTL })
	m.advancePruningClock()
	if m.loading {
		return
	}
	if len(m.cfg.Expire) > 0 && m.timers[timerExpire] == Never {
		m.expireSome()
	}
	if nodes := m.members.gossip; len(nodes) > 0 && !m.pulling() {
		m.exchange.with = nodes[m.rand.IntN(len(nodes))]
		m.compare()
	}
}

// compare starts the pending comparison and answers the pending Root, once all digests are
// computed.
func (m *Machine) compare() {
	if !m.updateSomeDigests() {
		m.setTimerBy(timerCompare, m.now+stepPause)
		return
	}
	x := &m.exchange
	if with := x.with; slices.Contains(m.members.gossip, with) {
		m.count.Compared++
		m.send(with, true, Root{m.tree.root.digest()})
	}
	x.with = identity.Node{}
	if asked := x.waiting; m.members.known[asked] {
		m.answerRoot(asked, x.root)
	}
	x.waiting = identity.Node{}
}

// updateSomeDigests computes some digests. It reports whether all digests are computed, except
// those of entries that changed recently. Such entries would be encoded for each comparison and
// would always differ.
func (m *Machine) updateSomeDigests() bool {
	x := &m.exchange
	n, size := 0, 0
	for looked := 0; x.next < len(m.dirty); looked++ {
		if n == maxDigests || size >= maxDigestBytes || looked == maxScanned {
			return false
		}
		e := m.dirty[x.next]
		if m.changedLately(e) {
			x.next++
			continue
		}
		size += e.size
		m.updateDigest(e) // moves the last entry to index next
		n++
	}
	x.next = 0
	return true
}

func (m *Machine) receiveRoot(from identity.Node, in Root) {
	if m.pulling() {
		return // the pull fetches most of the difference; a comparison follows the pull
	}
	if !m.updateSomeDigests() {
		m.exchange.waiting, m.exchange.root = from, in.Digest
		m.setTimerBy(timerCompare, m.now+stepPause)
		return
	}
	m.answerRoot(from, in.Digest)
}

func (m *Machine) answerRoot(from identity.Node, there Digest) {
	if there == m.tree.root.digest() {
		m.count.Equal++
		m.deltas.clearLarge()
		return
	}
	var out Groups
	for i := range out.Digests {
		out.Digests[i] = m.tree.groups[i].digest()
	}
	m.send(from, true, out)
}

func (m *Machine) receiveGroups(from identity.Node, in Groups) {
	var out Buckets
	for i := range in.Digests {
		if in.Digests[i] == m.tree.groups[i].digest() {
			continue
		}
		g := Group{Nr: uint8(i)}
		for j := range g.Digests {
			g.Digests[j] = m.tree.buckets[i*branch+j].digest()
		}
		out.Groups = append(out.Groups, g)
	}
	if len(out.Groups) > 0 {
		m.send(from, true, out)
	}
}

func (m *Machine) receiveBuckets(from identity.Node, in Buckets) {
	var differ []uint16
	for i := range in.Groups {
		g := &in.Groups[i]
		for j := range g.Digests {
			if b := uint16(g.Nr)*branch + uint16(j); g.Digests[j] != m.tree.buckets[b].digest() {
				differ = append(differ, b)
			}
		}
	}
	if len(differ) == 0 {
		return
	}
	// Start at a random bucket, so that repeated comparisons cover all of them.
	start := m.rand.IntN(len(differ))
	var lists []KeyList
	size, listed, more := 0, 0, false
	for i := range differ {
		b := differ[(start+i)%len(differ)]
		bytes := m.listSize(b)
		if i > 0 && (size+bytes > m.cfg.MaxBatch || listed >= maxListed) {
			more = true
			break
		}
		l := m.list(b, bytes)
		more = more || !l.Complete || l.After != ""
		lists = append(lists, l)
		size += bytes
		listed += len(l.Keys)
	}
	for len(lists) > 0 {
		n, keys := 0, 0
		for n < len(lists) && keys < maxListedAtOnce {
			keys += len(lists[n].Keys)
			n++
		}
		m.send(from, true, Keys{More: more, Lists: lists[:n]})
		lists = lists[n:]
	}
}

// keySize is the size of a key in a list, without the key itself.
const keySize = 28

func (m *Machine) listSize(b uint16) int {
	size := 8
	for _, e := range m.buckets[b] {
		size += len(e.key) + keySize
	}
	return size
}

// list lists the keys of a bucket. If the bucket is too large for one message, the list starts at a
// random key.
func (m *Machine) list(b uint16, size int) KeyList {
	l := KeyList{Bucket: b}
	entries := m.buckets[b]
	if size > m.cfg.MaxBatch {
		if start := m.rand.IntN(len(entries)); start > 0 {
			l.After = entries[start-1].key
			entries = entries[start:]
		}
	}
	l.Keys = make([]KeyDigest, 0, min(len(entries), m.cfg.MaxBatch/keySize))
	size = 0
	for _, e := range entries {
		if size += len(e.key) + keySize; size > m.cfg.MaxBatch {
			return l
		}
		d := e.digest
		if e.dirty > 0 {
			d = changingDigest()
		}
		l.Keys = append(l.Keys, KeyDigest{e.key, d, e.used})
	}
	l.Complete = true
	return l
}

func (m *Machine) receiveKeys(from identity.Node, in Keys) {
	var differ, missing []*entry // entries that differ, and entries that only this node has
	var want Want
	var uses Uses
	for i := range in.Lists {
		l := &in.Lists[i]
		entries := entriesAfter(m.buckets[l.Bucket], l.After)
		for k := 0; k < len(l.Keys) || len(entries) > 0; {
			c := 0
			switch {
			case k == len(l.Keys):
				c = -1
			case len(entries) == 0:
				c = 1
			default:
				c = strings.Compare(entries[0].key, l.Keys[k].Key)
			}
			switch {
			case c < 0 && k == len(l.Keys) && !l.Complete:
				entries = nil
			case c < 0:
				if !m.isExpired(entries[0].key, entries[0].used) {
					missing = append(missing, entries[0])
				}
				entries = entries[1:]
			case c > 0:
				if !m.isExpired(l.Keys[k].Key, l.Keys[k].Used) {
					want.Keys = append(want.Keys, l.Keys[k].Key)
				}
				k++
			default:
				switch e, d := entries[0], l.Keys[k]; {
				case e.dirty > 0 || d.Digest == changingDigest(): // compared next time
				case e.digest != d.Digest:
					differ = append(differ, e)
				case e.used > d.Used:
					uses.Keys = append(uses.Keys, Use{e.key, e.used})
				default:
					m.use(e, d.Used)
				}
				entries, k = entries[1:], k+1
			}
		}
	}
	all := m.sendEntries(from, differ, true)
	all = m.sendEntries(from, missing, false) && all
	if len(want.Keys) > 0 {
		m.send(from, true, want)
	}
	if len(uses.Keys) > 0 {
		m.send(from, true, uses)
	}
	// If only entries that changed lately differ, the next comparison can wait.
	if in.More && len(differ)+len(missing)+len(want.Keys) > 0 || !all {
		m.exchange.with = from
		m.setTimerBy(timerCompare, m.now+m.cfg.DeltaInterval)
	}
}

// changedLately reports whether other nodes receive the last change of an entry without a
// comparison. For an entry that changes permanently it returns false at random, so that two nodes
// compare the entry when both return false.
func (m *Machine) changedLately(e *entry) bool {
	const compared = 4 // changedLately returns false in one of this many calls on average
	takes := 4 * m.cfg.DeltaInterval
	if len(m.members.gossip)+1 > smallCluster {
		takes = max(takes, m.cfg.GossipInterval)
	}
	return e.changedAt > 0 && m.now-e.changedAt < takes && !e.large && m.rand.IntN(compared) > 0
}

func (m *Machine) receiveUses(in Uses) {
	for _, u := range in.Keys {
		if e := m.keys[u.Key]; e != nil {
			m.use(e, u.Used)
		}
	}
}

func (m *Machine) receiveWant(from identity.Node, in Want) {
	entries := make([]*entry, 0, len(in.Keys))
	for _, key := range in.Keys {
		if e := m.keys[key]; e != nil && !m.isExpired(key, e.used) {
			entries = append(entries, e)
		}
	}
	m.sendEntries(from, entries, false)
}

func (m *Machine) receiveGossip(from identity.Node, in Gossip) {
	var back []*entry
	for i := range in.Entries {
		w := &in.Entries[i]
		if m.isDuplicate(from, m.keys[w.Key]) {
			return
		}
		a, err := m.absorb(w)
		if err != nil {
			m.noteRefused(from, w.Key, err)
			continue
		}
		delete(m.deltas.requested, w.Key)
		if a.changed {
			m.storeSoon(a.e)
		}
		if in.SendBack && a.had {
			if m.updateDigest(a.e); a.e.digest != w.digest() || a.e.used > w.Used {
				back = append(back, a.e)
			}
		}
	}
	m.sendEntries(from, back, false)
}

const (
	// maxQuietBulk is the maximum size of a bulk message to a new node while the sender has no
	// requests to serve.
	maxQuietBulk = 64 << 10
	// maxAnswer limits the entries sent in answer to one message, and maxSent limits the entries
	// sent in one step. Both are approximate and in bytes. The rest of an answer follows after
	// sendPause. At most maxOutgoing answers wait; further answers are dropped.
	maxAnswer   = 4 << 20
	maxSent     = 2 * maxBulk
	sendPause   = time.Millisecond
	maxOutgoing = 64
)

type outgoingEntries struct {
	to       identity.Node
	entries  []*entry
	sendBack bool
}

// sendEntries sends up to about maxAnswer bytes of entries, in as many messages and steps as
// necessary. It reports whether all entries are sent or queued.
func (m *Machine) sendEntries(to identity.Node, entries []*entry, sendBack bool) bool {
	size, n := 0, 0
	for n < len(entries) && size < maxAnswer {
		size += len(entries[n].key) + entries[n].size
		n++
	}
	all := n == len(entries)
	left := m.sendSome(outgoingEntries{to, entries[:n], sendBack})
	switch {
	case len(left.entries) == 0:
		return all
	case len(m.exchange.outgoing) >= maxOutgoing:
		return false
	}
	m.exchange.outgoing = append(m.exchange.outgoing, left)
	m.setTimerBy(timerSend, m.now+sendPause)
	return all
}

func (m *Machine) sendOutgoing() {
	x := &m.exchange
	if len(x.outgoing) == 0 {
		return
	}
	left := x.outgoing[0]
	x.outgoing = slices.Delete(x.outgoing, 0, 1)
	if m.members.known[left.to] {
		left = m.sendSome(left)
	} else {
		left.entries = nil
	}
	if len(left.entries) > 0 {
		x.outgoing = append(x.outgoing, left) // round robin
	}
	if len(x.outgoing) > 0 {
		m.setTimerBy(timerSend, m.now+sendPause)
	}
}

// sendSome sends as many entries as fit in one step, and returns the rest.
func (m *Machine) sendSome(s outgoingEntries) (left outgoingEntries) {
	var batch []Entry
	size, total := 0, 0
	flush := func() {
		if len(batch) > 0 {
			m.send(s.to, true, Gossip{s.sendBack, batch})
			batch, size = nil, 0
		}
	}
	for i, e := range s.entries {
		if total >= maxSent {
			left = outgoingEntries{s.to, s.entries[i:], s.sendBack}
			break
		}
		if e.removed {
			continue
		}
		w, err := m.encodeEntry(e)
		if err != nil {
			m.note(Note{Kind: NoteRefused, Key: e.key, Err: err})
			continue
		}
		n := entrySize(&w)
		if size+n > m.bulkBatch() {
			flush()
		}
		batch = append(batch, w)
		size += n
		total += n
	}
	flush()
	return left
}

func (m *Machine) bulkBatch() int { return min(maxBulk, m.cfg.MaxBatch) }

// entrySize returns the approximate size of an entry in a message.
func entrySize(e *Entry) int {
	n := len(e.Key) + len(e.Value) + 24 + 12*len(e.Versions)
	for i := range e.Pruning {
		n += 12 + 2*len(e.Pruning[i].Seen)
	}
	return n
}

// Digest is a hash of data. Equal data has equal digests.
type Digest [16]byte

// String returns the digest in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// changingDigest is sent instead of the digest of an entry that is changing.
func changingDigest() Digest {
	const all = 0xff
	return Digest{all, all, all, all, all, all, all, all, all, all, all, all, all, all, all, all}
}

func digestOf(b []byte) (d Digest) {
	h := sha256.Sum256(b)
	copy(d[:], h[:])
	return d
}

// Levels of the digest tree: the root covers all data, 32 groups below it cover 32 buckets each.
const (
	branch  = 32
	buckets = branch * branch
)

// bucketOf returns the bucket of a key, which is the same on all nodes.
func bucketOf(key string) uint16 {
	h := sha256.Sum256([]byte(key))
	return binary.BigEndian.Uint16(h[:]) % buckets
}

// sum is a commutative sum of digests. An inner node of the tree holds the sum of its children, so
// that a change takes one addition per level.
type sum struct{ a, b uint64 }

func (s *sum) add(o sum) { s.a, s.b = s.a+o.a, s.b+o.b }

func (s sum) digest() (d Digest) {
	binary.LittleEndian.PutUint64(d[:], s.a)
	binary.LittleEndian.PutUint64(d[8:], s.b)
	return d
}

func sumOf(b []byte) sum {
	h := sha256.Sum256(b)
	return sum{binary.LittleEndian.Uint64(h[:]), binary.LittleEndian.Uint64(h[8:])}
}

type tree struct {
	root    sum
	groups  [branch]sum
	buckets [buckets]sum
}

func (t *tree) add(bucket uint16, s sum) {
	t.root.add(s)
	t.groups[bucket/branch].add(s)
	t.buckets[bucket].add(s)
}

// BucketCount is the number of buckets of the keys, the same on all nodes.
const BucketCount = buckets

// Refresh computes some of the digests that Root, Digests and Bucket require, and reports whether
// all are computed. Callers repeat it, each time in a separate step, so that requests do not wait
// for long.
func (m *Machine) Refresh() bool {
	for n, size := 0, 0; n < maxDigests && size < maxDigestBytes && len(m.dirty) > 0; n++ {
		e := m.dirty[len(m.dirty)-1]
		size += e.size
		m.updateDigest(e)
	}
	return len(m.dirty) == 0
}

// Digests returns the digest of each bucket. Two nodes with equal digests of a bucket hold the same data in that bucket.
func (m *Machine) Digests() (all [BucketCount]Digest) {
	m.updateDigests()
	for i := range all {
		all[i] = m.tree.buckets[i].digest()
	}
	return all
}

// Bucket returns up to limit keys of a bucket after a key, sorted, and whether there are more. The
// digest of a deleted key is the zero Digest.
func (m *Machine) Bucket(nr int, after string, limit int) (keys []KeyDigest, more bool) {
	if nr < 0 || nr >= BucketCount {
		return nil, false
	}
	m.updateDigests()
	b := entriesAfter(m.buckets[nr], after)
	for _, e := range b[:min(len(b), limit)] {
		keys = append(keys, KeyDigest{e.key, e.digest, e.used})
	}
	return keys, limit < len(b)
}
