// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/refold-io/refold/ddata/crdt"
)

// subscriptions are who wants to know of changes.
type subscriptions struct {
	byNr     map[uint64]*subscription
	exact    map[string][]*subscription // active ones
	prefixes []*subscription            // active ones
	fresh    []*subscription            // that are not active yet
	watched  []watched
	flagged  map[string]bool // the keys in watched
}

// subscription is one who wants to know. It is active once it was told what there is.
type subscription struct {
	Subscribe
	active bool
}

func (s *subscription) matches(key string) bool {
	if s.Prefix {
		return strings.HasPrefix(key, s.Key)
	}
	return key == s.Key
}

// watched is a key that has changed, with what subscribers know of it.
type watched struct {
	key     string
	value   crdt.Value
	deleted bool
	existed bool
}

func (m *Machine) subscribe(in Subscribe) {
	m.unsubscribe(in.Nr)
	s := &subscription{Subscribe: in}
	m.subs.byNr[in.Nr] = s
	m.subs.fresh = append(m.subs.fresh, s)
	m.soon(timerNotify, m.now+m.cfg.NotifyInterval)
}

func (m *Machine) unsubscribe(nr uint64) {
	s := m.subs.byNr[nr]
	if s == nil {
		return
	}
	delete(m.subs.byNr, nr)
	is := func(o *subscription) bool { return o == s }
	switch {
	case !s.active:
		m.subs.fresh = slices.DeleteFunc(m.subs.fresh, is)
	case s.Prefix:
		m.subs.prefixes = slices.DeleteFunc(m.subs.prefixes, is)
	default:
		if m.subs.exact[s.Key] = slices.DeleteFunc(m.subs.exact[s.Key], is); len(m.subs.exact[s.Key]) == 0 {
			delete(m.subs.exact, s.Key)
		}
	}
}

// watch remembers what an entry holds before it is changed, if somebody wants to
// know.
func (m *Machine) watch(e *entry) {
	s := &m.subs
	if len(s.byNr) == 0 || s.flagged[e.key] || len(m.interested(e.key)) == 0 {
		return
	}
	if s.flagged == nil {
		s.flagged = map[string]bool{}
	}
	s.flagged[e.key] = true
	s.watched = append(s.watched, watched{e.key, e.value, e.deleted, m.keys[e.key] == e})
	m.soon(timerNotify, m.now+m.cfg.NotifyInterval)
}

// interested returns the active subscriptions of a key, by number.
func (m *Machine) interested(key string) []*subscription {
	all := m.subs.exact[key]
	for _, s := range m.subs.prefixes {
		if s.matches(key) {
			all = append(slices.Clip(all), s)
		}
	}
	return slices.SortedFunc(slices.Values(all), func(a, b *subscription) int { return cmp.Compare(a.Nr, b.Nr) })
}

// notify tells subscribers what has changed, and new ones what there is.
func (m *Machine) notify() {
	if m.loading {
		return
	}
	s := &m.subs
	m.timers[timerNotify] = Never
	changed := s.watched
	s.watched, s.flagged = nil, nil
	for i := range changed {
		w := &changed[i]
		e := m.keys[w.key]
		kind := Changed
		switch {
		case e == nil && !w.existed, e != nil && e.deleted && w.deleted:
			continue
		case e == nil:
			kind = Expired
		case e.deleted:
			kind = WasDeleted
		case w.existed && !w.deleted && crdt.Equal(w.value, e.value):
			continue
		}
		for _, o := range m.interested(w.key) {
			m.event(o, kind, w.key, e, !w.existed)
		}
	}
	fresh := s.fresh
	s.fresh = nil
	for _, o := range fresh {
		m.present(o)
		o.active = true
		if o.Prefix {
			s.prefixes = append(s.prefixes, o)
		} else {
			s.exact[o.Key] = append(s.exact[o.Key], o)
		}
	}
}

// present tells a new subscriber what there is.
func (m *Machine) present(s *subscription) {
	keys := []string{s.Key}
	if s.Prefix {
		keys = slices.Sorted(maps.Keys(m.keys))
	}
	for _, key := range keys {
		e := m.keys[key]
		switch {
		case e == nil || !s.matches(key):
		case e.deleted:
			m.event(s, WasDeleted, key, e, false)
		default:
			m.event(s, Changed, key, e, false)
		}
	}
}

func (m *Machine) event(s *subscription, kind EventKind, key string, e *entry, isNew bool) {
	event := Event{Nr: s.Nr, Kind: kind, Key: key, New: isNew}
	if kind == Changed {
		event.Value = e.value
	}
	m.out.Events = append(m.out.Events, event)
}
