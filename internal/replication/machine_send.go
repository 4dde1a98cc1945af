// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
)

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
