// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package env

import "time"

// event is a future event: a call of do, the arrival of a frame, or a wake-up of a process.
type event struct {
	at   time.Duration
	seq  uint64
	do   func()
	from *Process
	to   *Process
	data []byte // the frame, or the message with Direct
	kind uint16 // of a message
	name bool   // sent to the name without a UID
	lane uint8
}

// queue is a heap of events. Events of one time keep their order.
type queue struct {
	events []event
	seq    uint64
}

func (q *queue) len() int { return len(q.events) }

func (q *queue) first() time.Duration { return q.events[0].at }

func (q *queue) less(i, j int) bool {
	a, b := &q.events[i], &q.events[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

func (q *queue) push(e event) {
	q.seq++
	e.seq = q.seq
	q.events = append(q.events, e)
	for i := len(q.events) - 1; i > 0; {
		parent := (i - 1) / 2
		if !q.less(i, parent) {
			return
		}
		q.events[i], q.events[parent] = q.events[parent], q.events[i]
		i = parent
	}
}

func (q *queue) pop() event {
	e := q.events[0]
	last := len(q.events) - 1
	q.events[0] = q.events[last]
	q.events[last] = event{}
	q.events = q.events[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if q.less(child, least) {
				least = child
			}
		}
		if least == i {
			return e
		}
		q.events[i], q.events[least] = q.events[least], q.events[i]
		i = least
	}
}

// The hash is FNV-1a over words and bytes.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// mix adds an event to the hash.
func (w *Env) mix(kind, value uint64) {
	w.hash = (w.hash ^ kind) * fnvPrime
	w.hash = (w.hash ^ uint64(w.now)) * fnvPrime //nolint:gosec // not negative
	w.hash = (w.hash ^ value) * fnvPrime
}

func (w *Env) mixBytes(b []byte) {
	if w.Direct { // it would take too long
		return
	}
	h := w.hash
	for _, c := range b {
		h = (h ^ uint64(c)) * fnvPrime
	}
	w.hash = h
}
