// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/identity"
)

const (
	// maxListed is how many keys are listed in one comparison, about, and maxListedAtOnce in one message: whoever receives it looks at all of
	// them in one go.
	maxListed       = 5_000
	maxListedAtOnce = 1_000
	// maxRefreshed is of how many entries the digests are computed at a time before a comparison, and maxRefreshedBytes of how many
	// bytes, about. More follow refreshPause later: requests should not have to wait for that.
	maxRefreshed      = 256
	maxRefreshedBytes = 64 << 10
	refreshPause      = time.Millisecond
	// maxLooked is at how many entries it looks for that at a time: most of them may be on their way.
	maxLooked = 8 * maxRefreshed
)

// exchangeState is about comparisons.
type exchangeState struct {
	with  identity.Node // with whom there is more to compare
	asked identity.Node // who waits to hear whether Root is the same here
	root  Digest        // what it has there
	next  int           // which of the entries without a digest is looked at next, before that or before a comparison
	rest  []sending
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
	if len(m.cfg.Expire) > 0 && m.timers[timerExpire] == Never {
		m.expireSome()
	}
	if nodes := m.members.gossip; len(nodes) > 0 && !m.pulling() {
		m.exchange.with = nodes[m.rand.IntN(len(nodes))]
		m.compare()
	}
}

// compare begins a comparison, and answers who has begun one, once all digests are computed.
func (m *Machine) compare() {
	if !m.refreshSome() {
		m.soon(timerCompare, m.now+refreshPause)
		return
	}
	x := &m.exchange
	if with := x.with; slices.Contains(m.members.gossip, with) {
		m.count.Compared++
		m.send(with, true, Root{m.tree.root.digest()})
	}
	x.with = identity.Node{}
	if asked := x.asked; m.members.known[asked] {
		m.answerRoot(asked, x.root)
	}
	x.asked = identity.Node{}
}

// refreshSome computes some digests, and reports whether those of all entries are computed but for those on their way: an entry that changes
// all the time would be encoded for each comparison, and differ in all of them.
func (m *Machine) refreshSome() bool {
	x := &m.exchange
	n, size := 0, 0
	for looked := 0; x.next < len(m.dirty); looked++ {
		if n == maxRefreshed || size >= maxRefreshedBytes || looked == maxLooked {
			return false
		}
		e := m.dirty[x.next]
		if m.onItsWay(e) {
			x.next++
			continue
		}
		size += e.size
		m.clean(e) // another one takes its place
		n++
	}
	x.next = 0
	return true
}

func (m *Machine) receiveRoot(from identity.Node, in Root) {
	if m.pulling() {
		return // most of what differs is on its way, and it compares when it has come
	}
	if !m.refreshSome() {
		m.exchange.asked, m.exchange.root = from, in.Digest
		m.soon(timerCompare, m.now+refreshPause)
		return
	}
	m.answerRoot(from, in.Digest)
}

// answerRoot says what is below the root, if it is another one.
func (m *Machine) answerRoot(from identity.Node, there Digest) {
	if there == m.tree.root.digest() {
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
	// It begins anywhere, so that in the end all are compared.
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
		d := e.digest
		if e.dirty > 0 {
			d = changing()
		}
		l.Keys = append(l.Keys, KeyDigest{e.key, d, e.used})
	}
	l.Complete = true
	return l
}

func (m *Machine) receiveKeys(from identity.Node, in Keys) {
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
				switch e, d := entries[0], l.Keys[k]; {
				case e.dirty > 0 || d.Digest == changing(): // it is compared another time
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
	// Where nothing differs but what is on its way, there is time until the next gossip.
	if in.More && len(differ)+len(missing)+len(want.Keys) > 0 || !all {
		m.exchange.with = from
		m.soon(timerCompare, m.now+m.cfg.DeltaInterval)
	}
}

// onItsWay reports whether an entry has changed lately, so that the others hear of it anyway, or have done so. One that changes all the time
// is compared now and then nevertheless: if neither of two nodes says so.
func (m *Machine) onItsWay(e *entry) bool {
	const compared = 4 // one of as many
	takes := 4 * m.cfg.DeltaInterval
	if len(m.members.gossip)+1 > small {
		takes = max(takes, m.cfg.GossipInterval)
	}
	return e.told > 0 && m.now-e.told < takes && !e.large && m.rand.IntN(compared) > 0
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
		if m.twice(from, m.keys[w.Key]) {
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

const (
	// maxBulk is up to how many bytes of entries are put together in one message of bulk. Whoever receives it merges them in one go, which takes
	// some hundred microseconds, and requests wait for that.
	maxBulk = 16 << 10
	// maxQuietBulk is the same for a node that is new, while nobody waits for the one that it gets the data from.
	maxQuietBulk = 64 << 10
	// maxAnswer is up to how many bytes of entries are sent in answer to one message, maxSent about how many of them at a time. More
	// follow sendPause later, and are forgotten if there is more than maxSending answers.
	maxAnswer  = 4 << 20
	maxSent    = 2 * maxBulk
	sendPause  = time.Millisecond
	maxSending = 64
)

// sending is entries that are to be sent to a node.
type sending struct {
	to       identity.Node
	entries  []*entry
	sendBack bool
}

// sendEntries sends entries, in as many messages and steps as it takes. It reports whether all are sent: at most about maxAnswer bytes
// are.
func (m *Machine) sendEntries(to identity.Node, entries []*entry, sendBack bool) bool {
	size, n := 0, 0
	for n < len(entries) && size < maxAnswer {
		size += len(entries[n].key) + entries[n].size
		n++
	}
	all := n == len(entries)
	left := m.sendSome(sending{to, entries[:n], sendBack})
	switch {
	case len(left.entries) == 0:
		return all
	case len(m.exchange.rest) >= maxSending:
		return false
	}
	m.exchange.rest = append(m.exchange.rest, left)
	m.soon(timerSend, m.now+sendPause)
	return all
}

// sendRest sends some of what is to be sent.
func (m *Machine) sendRest() {
	x := &m.exchange
	if len(x.rest) == 0 {
		return
	}
	left := x.rest[0]
	x.rest = slices.Delete(x.rest, 0, 1)
	if m.members.known[left.to] {
		left = m.sendSome(left)
	} else {
		left.entries = nil
	}
	if len(left.entries) > 0 {
		x.rest = append(x.rest, left) // others have their turn
	}
	if len(x.rest) > 0 {
		m.soon(timerSend, m.now+sendPause)
	}
}

// sendSome sends as many entries as take one step, and returns the others.
func (m *Machine) sendSome(s sending) (left sending) {
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
			left = sending{s.to, s.entries[i:], s.sendBack}
			break
		}
		if e.gone {
			continue
		}
		w, err := m.wire(e)
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

// bulkBatch is up to how many bytes of entries are put together in one message of bulk.
func (m *Machine) bulkBatch() int { return min(maxBulk, m.cfg.MaxBatch) }

// entrySize is about what an entry takes in a message.
func entrySize(e *Entry) int {
	n := len(e.Key) + len(e.Value) + 24 + 12*len(e.Versions)
	for i := range e.Pruning {
		n += 12 + 2*len(e.Pruning[i].Seen)
	}
	return n
}
