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

type subscriptions struct {
	byNr        map[uint64]*subscription
	exact       map[string][]*subscription // active subscriptions
	prefixes    []*subscription            // active subscriptions
	pending     []*subscription            // subscriptions that are not active yet
	changed     []changedKey
	changedKeys map[string]bool // the keys of changed
}

// subscription is a Subscribe input with its state. It is active once the initial events were sent.
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

// changedKey is a key that has changed, with its content at the last notification.
type changedKey struct {
	key     string
	value   crdt.Value
	deleted bool
	existed bool
}

func (m *Machine) subscribe(in Subscribe) {
	m.unsubscribe(in.Nr)
	s := &subscription{Subscribe: in}
	m.subs.byNr[in.Nr] = s
	m.subs.pending = append(m.subs.pending, s)
	m.setTimerBy(timerNotify, m.now+m.cfg.NotifyInterval)
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
		m.subs.pending = slices.DeleteFunc(m.subs.pending, is)
	case s.Prefix:
		m.subs.prefixes = slices.DeleteFunc(m.subs.prefixes, is)
	default:
		if m.subs.exact[s.Key] = slices.DeleteFunc(m.subs.exact[s.Key], is); len(m.subs.exact[s.Key]) == 0 {
			delete(m.subs.exact, s.Key)
		}
	}
}

// recordForSubscribers records the content of an entry before its first change since the last
// notification, if it has subscribers.
func (m *Machine) recordForSubscribers(e *entry) {
	s := &m.subs
	if len(s.byNr) == 0 || s.changedKeys[e.key] || len(m.subscribersOf(e.key)) == 0 {
		return
	}
	if s.changedKeys == nil {
		s.changedKeys = map[string]bool{}
	}
	s.changedKeys[e.key] = true
	s.changed = append(s.changed, changedKey{e.key, e.value, e.deleted, m.keys[e.key] == e})
	m.setTimerBy(timerNotify, m.now+m.cfg.NotifyInterval)
}

// subscribersOf returns the active subscriptions of a key, by number.
func (m *Machine) subscribersOf(key string) []*subscription {
	all := m.subs.exact[key]
	for _, s := range m.subs.prefixes {
		if s.matches(key) {
			all = append(slices.Clip(all), s)
		}
	}
	return slices.SortedFunc(slices.Values(all), func(a, b *subscription) int { return cmp.Compare(a.Nr, b.Nr) })
}

// notify sends the events of changed keys, and the initial events of new subscriptions.
func (m *Machine) notify() {
	if m.loading {
		return
	}
	s := &m.subs
	m.timers[timerNotify] = Never
	changed := s.changed
	s.changed, s.changedKeys = nil, nil
	for i := range changed {
		w := &changed[i]
		e := m.keys[w.key]
		switch {
		case e == nil && !w.existed, e != nil && e.deleted && w.deleted:
			continue
		case e != nil && !e.deleted && w.existed && !w.deleted && crdt.Equal(w.value, e.value):
			continue
		}
		for _, o := range m.subscribersOf(w.key) {
			m.addEvent(o, w.key, e, !w.existed)
		}
	}
	fresh := s.pending
	s.pending = nil
	for _, o := range fresh {
		m.sendInitial(o)
		o.active = true
		if o.Prefix {
			s.prefixes = append(s.prefixes, o)
		} else {
			s.exact[o.Key] = append(s.exact[o.Key], o)
		}
	}
}

func (m *Machine) sendInitial(s *subscription) {
	keys := []string{s.Key}
	if s.Prefix {
		keys = slices.Sorted(maps.Keys(m.keys))
	}
	for _, key := range keys {
		if e := m.keys[key]; e != nil && s.matches(key) {
			m.addEvent(s, key, e, false)
		}
	}
}

// addEvent notifies a subscriber of the content of a key. e is nil if the key has expired.
func (m *Machine) addEvent(s *subscription, key string, e *entry, isNew bool) {
	event := Event{Nr: s.Nr, Kind: Changed, Key: key, New: isNew}
	switch {
	case e == nil:
		event.Kind = Expired
	case e.deleted:
		event.Kind = WasDeleted
	default:
		event.Value = e.value
	}
	m.out.Events = append(m.out.Events, event)
}
