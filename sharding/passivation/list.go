// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package passivation

import "time"

// entry is an active entity.
type entry struct {
	id      string
	hash    uint64
	touched time.Duration
	idle    link // in the order of the last access
	order   link // in the order of its policy
	policy  policy
	level   int     // of segmented recency
	bucket  *bucket // of frequency
	count   uint64  // of accesses, of frequency
}

// link chains an entry into a list.
type link struct{ newer, older *entry }

// list is a chain of entries, the newest first. An entry is in one list by order and in
// one by idle, so there is nothing to allocate.
type list struct {
	byIdle         bool
	newest, oldest *entry
	n              int
}

func (l *list) link(e *entry) *link {
	if l.byIdle {
		return &e.idle
	}
	return &e.order
}

func (l *list) push(e *entry) {
	*l.link(e) = link{older: l.newest}
	if l.newest != nil {
		l.link(l.newest).newer = e
	} else {
		l.oldest = e
	}
	l.newest = e
	l.n++
}

func (l *list) remove(e *entry) {
	at := l.link(e)
	if at.newer != nil {
		l.link(at.newer).older = at.older
	} else {
		l.newest = at.older
	}
	if at.older != nil {
		l.link(at.older).newer = at.newer
	} else {
		l.oldest = at.newer
	}
	*at = link{}
	l.n--
}
