// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package singleton

import (
	"cmp"
	"slices"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/fielderror"
	"github.com/refold-io/refold/internal/membership"
)

// MaxBuffer is the largest BufferSize.
const MaxBuffer = 10_000

// ProxyConfig configures a proxy; see cluster.ProxyConfig.
type ProxyConfig struct {
	Singleton        string
	Role             string
	IdentifyInterval time.Duration
	BufferSize       int
}

// WithDefaults returns the configuration with its defaults.
func (c ProxyConfig) WithDefaults() ProxyConfig {
	c.Singleton = cmp.Or(c.Singleton, "singleton")
	c.IdentifyInterval = cmp.Or(c.IdentifyInterval, time.Second)
	c.BufferSize = max(-1, cmp.Or(c.BufferSize, 1000))
	return c
}

func (c ProxyConfig) validate() error {
	var errs fielderror.Errors
	if len(c.Singleton) > MaxNameLength {
		errs.Addf("ProxyConfig.Singleton", "has %d bytes, at most %d are allowed", len(c.Singleton), MaxNameLength)
	}
	fielderror.NotNegative(&errs, "ProxyConfig.IdentifyInterval", c.IdentifyInterval)
	if c.BufferSize > MaxBuffer {
		errs.Addf("ProxyConfig.BufferSize", "is %d, at most %d is allowed", c.BufferSize, MaxBuffer)
	}
	return errs.Err(ErrInvalid)
}

// Proxy sends messages to the instance on any node, each at most once and in the order of Send. It
// is not safe for concurrent use.
type Proxy[M comparable] struct {
	cfg    ProxyConfig
	seen   Members
	oldest identity.Node
	// known: the oldest member runs the instance.
	known  bool
	round  uint64
	asked  int // requests in this round
	askAt  time.Duration
	buffer []M
}

// silentAfter is how many unanswered requests lead to a note. The requests are one interval apart,
// so that a hand-over or the removal of a crashed member can complete before the note.
const silentAfter = 60

// ProxyEffects are the effects of a proxy, in the order of the fields.
type ProxyEffects[M comparable] struct {
	// Dropped are messages that will not be sent: the oldest ones when the buffer is full.
	Dropped []M
	// Ask is a message to the manager on the node To, if its kind is not 0.
	Ask Message
	// Forward are messages to the instance on the node To, in this order.
	Forward []M
	// To is the oldest member.
	To identity.Node
	// Silent reports, once in each search, that To has not replied to many requests.
	Silent bool
}

// NewProxy returns a proxy. The error matches ErrInvalid and lists the invalid fields.
func NewProxy[M comparable](cfg ProxyConfig) (*Proxy[M], error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Proxy[M]{cfg: cfg.WithDefaults()}, nil
}

// See handles a new list of members, as a manager does.
func (p *Proxy[M]) See(now time.Duration, members Members) ProxyEffects[M] {
	var out ProxyEffects[M]
	if membership.SameSlice(members, p.seen) {
		return out
	}
	p.seen = members
	var oldest *identity.Member
	for i := range members {
		m := &members[i]
		switch m.Status {
		case identity.Up, identity.Leaving, identity.PreparingForShutdown, identity.ReadyForShutdown:
			if m.HasRole(p.cfg.Role) && (oldest == nil || m.OlderThan(oldest)) {
				oldest = m
			}
		case identity.Joining, identity.WeaklyUp, identity.Exiting, identity.Down, identity.Removed:
		}
	}
	var node identity.Node
	if oldest != nil {
		node = oldest.Node
	}
	if node != p.oldest {
		p.oldest = node
		p.lost(now, &out)
	}
	return out
}

// Send sends a message or buffers it.
func (p *Proxy[M]) Send(msg M) ProxyEffects[M] {
	switch {
	case p.known:
		return ProxyEffects[M]{Forward: []M{msg}, To: p.oldest}
	case p.cfg.BufferSize < 0:
		return ProxyEffects[M]{Dropped: []M{msg}}
	}
	var out ProxyEffects[M]
	if len(p.buffer) == p.cfg.BufferSize {
		out.Dropped = []M{p.buffer[0]}
		p.buffer = slices.Delete(p.buffer, 0, 1)
	}
	p.buffer = append(p.buffer, msg)
	return out
}

// Withdraw removes a buffered message.
func (p *Proxy[M]) Withdraw(msg M) {
	if i := slices.Index(p.buffer, msg); i >= 0 {
		p.buffer = slices.Delete(p.buffer, i, i+1)
	}
}

// Receive handles a message of a manager.
func (p *Proxy[M]) Receive(now time.Duration, from identity.Node, msg Message) ProxyEffects[M] {
	var out ProxyEffects[M]
	switch {
	case from != p.oldest || msg.Singleton != p.cfg.Singleton:
	case msg.Kind == Identified && msg.Round == p.round && !p.known:
		p.known = true
		out.Forward, out.To = p.buffer, p.oldest
		p.buffer = nil
	case msg.Kind == InstanceGone && p.known:
		p.lost(now, &out)
	}
	return out
}

// Tick searches for the instance if that is due.
func (p *Proxy[M]) Tick(now time.Duration) ProxyEffects[M] {
	var out ProxyEffects[M]
	if !p.known && now >= p.askAt {
		p.ask(now, &out)
	}
	return out
}

// Oldest returns the member that runs the instance or will run it, and whether the instance is
// known to run.
func (p *Proxy[M]) Oldest() (identity.Node, bool) { return p.oldest, p.known }

func (p *Proxy[M]) lost(now time.Duration, out *ProxyEffects[M]) {
	p.known = false
	p.round++
	p.asked = 0
	p.ask(now, out)
}

func (p *Proxy[M]) ask(now time.Duration, out *ProxyEffects[M]) {
	p.askAt = now + p.cfg.IdentifyInterval
	if !p.oldest.IsZero() {
		p.asked++
		out.Silent = p.asked == silentAfter+1
		out.Ask, out.To = Message{Kind: Identify, Singleton: p.cfg.Singleton, Round: p.round}, p.oldest
	}
}
