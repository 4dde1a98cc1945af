// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// fate is the outcome of the first append of a unit.
type fate uint8

const (
	fateStored      fate = iota
	fateRejected         // the journal rejects it
	fateConflict         // another incarnation writes first
	fateNotSent          // it is not sent
	fateLost             // unknown; it is not stored and never will be
	fateLanded           // unknown; it is stored
	fateLate             // unknown; it may land at any time
	fateUnavailable      // unknown, because the connection is lost; it is not stored
)

// error names the errors in the answer of the command.
func (f fate) error() string {
	switch f {
	case fateRejected:
		return "rejected"
	case fateConflict:
		return "conflict"
	case fateNotSent:
		return "not stored, not sent"
	case fateUnavailable:
		return "not stored, unavailable"
	default:
		return "not stored, lost"
	}
}

// errorOf names the errors for a command of which a part is stored or not.
func (f fate) errorOf(partly bool) string {
	if partly {
		return strings.TrimPrefix(f.error(), "not stored, ")
	}
	return f.error()
}

// reference is an entity without pipelining: it completes each command before the next one, and it
// receives the outcome of each write immediately. It is slow, simple and correct by inspection.
type reference struct {
	fates   map[string]fate // by the first event of a unit
	signals map[string][]act
	mailbox []message
	stash   []message
	waiting []string // messages with a later reply
	state   []string
	journal []string
	answers map[string]string
	calls   []string // labels of the callbacks that ran
	asked   []string // requests
}

// part is a unit or a callback that waits for the previous parts.
type part struct {
	names []string
	call  *callback
}

// handling is one command while it is handled.
type handling struct {
	parts    []part
	asked    []string
	resolved []string // name, value
	reply    string
	decided  bool
	silent   bool
	later    bool
	stash    bool
	unstash  bool
	stop     bool
	panicked bool
	failed   bool // the reply is an error
}

func (r *reference) run(commands []message) {
	r.answers = make(map[string]string)
	r.mailbox = slices.Clone(commands)
	for len(r.mailbox) > 0 {
		m := r.mailbox[0]
		r.mailbox = r.mailbox[1:]
		r.handle(m)
	}
	r.end()
}

// end stops the instance.
func (r *reference) end() {
	for _, m := range r.stash {
		r.answers[m.name] = "error stopped"
	}
	for _, name := range r.waiting {
		r.answers[name] = "error no reply, stopped"
	}
	r.stash, r.waiting = nil, nil
}

func (r *reference) refold() { r.state = slices.Clone(r.journal) }

func (r *reference) handle(m message) {
	h := &handling{}
	r.decide(h, m.acts)
	stored, dropCalls := false, false
	for len(h.parts) > 0 {
		p := h.parts[0]
		h.parts = h.parts[1:]
		if p.call != nil {
			if !dropCalls && !h.panicked {
				r.calls = append(r.calls, p.call.label)
				r.decide(h, p.call.acts)
			}
			continue
		}
		f := r.fates[p.names[0]]
		if f == fateLanded && slices.ContainsFunc(h.parts, func(p part) bool { return p.call == nil }) {
			f = fateLost // see simulation.fate
		}
		switch f {
		case fateStored, fateLanded:
			r.journal = append(r.journal, p.names...)
			stored = true
			dropCalls = dropCalls || f == fateLanded
			continue
		case fateConflict:
			r.journal = append(r.journal, "foreign")
		default:
		}
		err := f.errorOf(stored)
		if stored {
			err = "partly stored, " + err
		}
		r.answers[m.name] = "error " + err
		r.resolve(h, "error no reply, "+f.errorOf(stored))
		r.refold()
		r.failed(f)
		return
	}
	r.asked = append(r.asked, h.asked...)
	failure := ""
	if h.failed {
		failure = strings.Replace(h.reply, "error ", "error no reply, ", 1)
	}
	r.resolve(h, failure)
	switch {
	case h.stash || h.silent:
	case h.later:
		r.waiting = append(r.waiting, m.name)
	case h.decided && stored && h.failed:
		r.answers[m.name] = strings.Replace(h.reply, "error ", "error partly stored, ", 1)
	case h.decided && stored && h.reply == "error unhandled":
		r.answers[m.name] = "error no reply"
	case h.decided:
		r.answers[m.name] = h.reply
	default:
		r.answers[m.name] = "error no reply"
	}
	if h.unstash {
		r.mailbox = append(r.stash, r.mailbox...)
		r.stash = nil
	}
	if h.stash {
		r.stash = append(r.stash, m)
	}
	if h.panicked || dropCalls {
		r.refold()
	}
	if h.stop {
		r.end()
		r.refold()
	}
}

// resolve answers the messages that a command resolves, with its failure if it has failed.
func (r *reference) resolve(h *handling, failure string) {
	for i := 0; i < len(h.resolved); i += 2 {
		if k := slices.Index(r.waiting, h.resolved[i]); k >= 0 {
			r.waiting = slices.Delete(r.waiting, k, k+1)
			r.answers[h.resolved[i]] = cmp.Or(failure, h.resolved[i+1])
		}
	}
}

func (r *reference) failed(f fate) {
	name := "PersistFailed"
	switch f {
	case fateConflict:
		return
	case fateRejected:
		name = "PersistRejected"
	default:
	}
	if acts := r.signals[name]; acts != nil {
		r.handle(message{name: "signal", acts: acts})
	}
}

// decide performs the acts up to the first one that fails.
func (r *reference) decide(h *handling, acts []act) bool {
	for i := range acts {
		a := &acts[i]
		switch a.do {
		case "persist", "async":
			if slices.Contains(a.args, "?") {
				h.answer("error rejected")
				h.failed = true
				return false
			}
			if slices.Contains(a.args, "!") {
				h.panic()
				return false
			}
			h.parts = append(h.parts, part{names: a.args})
			r.state = append(r.state, a.args...)
		case "then", "thenasync":
			h.parts = append(h.parts, part{call: &callback{a.arg(), a.body(0)}})
		case "even":
			if !r.decide(h, a.body(len(r.state)%2)) {
				return false
			}
		case "reply":
			h.answer(strings.Join(r.state, " "))
		case "refuse":
			h.answer("error refused")
		case "unhandled":
			if !h.decided {
				h.answer("error unhandled")
			}
		case "noreply":
			h.silent = true
		case "later":
			h.later = true
		case "resolve":
			h.resolved = append(h.resolved, a.arg(), strings.Join(r.state, " "))
		case "stash":
			h.stash = true
		case "unstash":
			h.unstash = true
		case "stop":
			h.stop = true
		case "request":
			h.asked = append(h.asked, a.arg())
		case "save":
		case "panic":
			h.panic()
			return false
		default:
			panic(fmt.Sprintf("no such act: %s", a.do))
		}
	}
	return true
}

func (h *handling) answer(value string) {
	h.reply, h.decided, h.silent, h.later, h.failed = value, true, false, false, false
}

func (h *handling) panic() {
	h.answer("error panic")
	h.panicked, h.failed, h.stash, h.unstash, h.stop = true, true, false, false, false
}
