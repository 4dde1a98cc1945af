// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"slices"
	"strings"

	"github.com/refold-io/refold/identity"
)

const (
	// maxListed is how many keys are listed in one comparison, about.
	maxListed = 5_000
	// maxAnswer is up to how many bytes of entries are sent in answer to one message.
	maxAnswer = 4 << 20
)

// exchangeState is about comparisons.
type exchangeState struct {
	with identity.Node // with whom there is more to compare
}

// gossipTick compares all data with another node, and does what else is to be
// done now and then.
func (m *Machine) gossipTick() {
	clear(m.deltas.asked)
	m.dropParts()
	m.advance()
	if m.loading {
		return
	}
	m.expireKeys()
	if nodes := m.members.gossip; len(nodes) > 0 && !m.pulling() {
		m.exchange.with = nodes[m.rand.IntN(len(nodes))]
		m.compare()
	}
}

// compare begins a comparison.
func (m *Machine) compare() {
	if with := m.exchange.with; slices.Contains(m.members.gossip, with) {
		m.refresh()
		m.count.Compared++
		m.send(with, true, Root{m.tree.root.digest()})
	}
}

func (m *Machine) receiveRoot(from identity.Node, in Root) {
	if m.pulling() {
		return // most of what differs is on its way, and it compares when it has come
	}
	m.refresh()
	if in.Digest == m.tree.root.digest() {
		m.count.Equal++
		m.deltas.known()
		return
	}
	var out Groups
	for i := range out.Digests {
		out.Digests[i] = m.tree.groups[i].digest()
	}
	m.send(from, true, out)
}

func (m *Machine) receiveGroups(from identity.Node, in Groups) {
	m.refresh()
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
	m.refresh()
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
	// It begins anywhere, so that in the end all are compared.
	start := m.rand.IntN(len(differ))
	var out Keys
	size, listed := 0, 0
	for i := range differ {
		b := differ[(start+i)%len(differ)]
		bytes := m.listSize(b)
		if i > 0 && (size+bytes > m.cfg.MaxBatch || listed >= maxListed) {
			out.More = true
			break
		}
		l := m.list(b, bytes)
		out.More = out.More || !l.Complete || l.After != ""
		out.Lists = append(out.Lists, l)
		size += bytes
		listed += len(l.Keys)
	}
	m.send(from, true, out)
}

// keySize is what a key takes in a list, without its own length.
const keySize = 28

func (m *Machine) listSize(b uint16) int {
	size := 8
	for _, e := range m.buckets[b] {
		size += len(e.key) + keySize
	}
	return size
}

// list lists the keys of a bucket: a part, another one each time, if it is too
// large for one message.
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
		l.Keys = append(l.Keys, KeyDigest{e.key, e.digest, e.used})
	}
	l.Complete = true
	return l
}

func (m *Machine) receiveKeys(from identity.Node, in Keys) {
	m.refresh()
	var differ, missing []*entry // here and there otherwise, here only
	var want Want
	var uses Uses
	for i := range in.Lists {
		l := &in.Lists[i]
		entries := m.buckets[l.Bucket]
		from, _ := findEntry(entries, l.After)
		if from < len(entries) && entries[from].key == l.After {
			from++
		}
		entries = entries[from:]
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
				if e, d := entries[0], l.Keys[k]; e.digest != d.Digest {
					differ = append(differ, e)
				} else if e.used > d.Used {
					uses.Keys = append(uses.Keys, Use{e.key, e.used})
				} else {
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
	if in.More || !all {
		m.exchange.with = from
		m.soon(timerCompare, m.now+m.cfg.DeltaInterval)
	}
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

// sendEntries sends entries, in as many messages as it takes. It reports whether it
// has sent all: at most maxAnswer bytes are sent.
func (m *Machine) sendEntries(to identity.Node, entries []*entry, sendBack bool) bool {
	var batch []Entry
	size, total := 0, 0
	flush := func() {
		if len(batch) > 0 {
			m.send(to, true, Gossip{sendBack, batch})
			batch, size = nil, 0
		}
	}
	for i, e := range entries {
		w, err := m.wire(e)
		if err != nil {
			m.note(Note{Kind: NoteRefused, Key: e.key, Err: err})
			continue
		}
		n := entrySize(&w)
		if size+n > m.cfg.MaxBatch {
			flush()
		}
		batch = append(batch, w)
		size += n
		if total += n; total >= maxAnswer {
			flush()
			return i == len(entries)-1
		}
	}
	flush()
	return true
}

// entrySize is about what an entry takes in a message.
func entrySize(e *Entry) int {
	n := len(e.Key) + len(e.Value) + 24 + 12*len(e.Versions)
	for i := range e.Pruning {
		n += 12 + 2*len(e.Pruning[i].Seen)
	}
	return n
}

func (m *Machine) receiveGossip(from identity.Node, in Gossip) {
	var back []*entry
	for i := range in.Entries {
		w := &in.Entries[i]
		if m.twice(from, w.Key) {
			return
		}
		a, err := m.absorb(w)
		if err != nil {
			m.refused(from, w.Key, err)
			continue
		}
		delete(m.deltas.asked, w.Key)
		if a.changed {
			m.keep(a.e)
		}
		if in.SendBack && a.had {
			if m.clean(a.e); a.e.digest != w.digest() || a.e.used > w.Used {
				back = append(back, a.e)
			}
		}
	}
	m.sendEntries(from, back, false)
}
