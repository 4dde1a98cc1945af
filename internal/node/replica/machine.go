// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

// Package replica is the state machine of one replicator of a node: the protocol of package
// replication, the encoding of its messages in packets, and the queue of its records. Package ddata
// and the simulator drive it.
//
//	members, packets, requests                effects
//	             |                                ^
//	+------------v--------------------------------|-----------+
//	|  Machine                                                |
//	|      unpack --> replication.Machine --> pack by node    |
//	+---------------------------------------------------------+
//	                                   records --> Backlog --> disk
//
// All replicators of a node share one message kind. A packet contains the name of its replicator
// (see NameOf) and any number of messages of one sender: all messages to a node of one step are
// sent together.
package replica

import (
	"errors"
	"fmt"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
)

// Never is the time of an event that does not happen.
const Never = replication.Never

// Config configures a Machine.
type Config struct {
	// Name identifies the replicator; replicators of a name on different nodes belong together. It
	// must be valid for identity.CheckName. Required.
	Name string
	// MaxPayload is the maximum payload of the transport in bytes. It determines the MaxMessage of
	// the protocol. Required.
	MaxPayload int
	// Protocol configures the protocol.
	Protocol replication.Config
}

// Machine is the state machine of one replicator. Its methods take the time of the node's monotonic
// clock and return effects; the same inputs at the same times give the same effects. It is not safe
// for concurrent use.
type Machine struct {
	name      string
	protocol  *replication.Machine
	malformed uint64
	spare     effects // memory for the next effects
	groups    []group // for pack
}

// New returns the machine of a replicator without data. The error names each invalid field.
func New(cfg Config) (*Machine, error) {
	named := identity.CheckName(cfg.Name)
	if named != nil {
		named = fmt.Errorf("replica: Config.Name: %w", named)
	}
	cfg.Protocol.MaxMessage = min(cfg.MaxPayload-Overhead, replication.MaxMessage)
	protocol, err := replication.New(cfg.Protocol)
	if err = errors.Join(named, err); err != nil {
		return nil, err
	}
	return &Machine{name: cfg.Name, protocol: protocol}, nil
}

// Batch is the input since the last step, processed in the order of the fields.
type Batch struct {
	// Members are the members of the cluster, nil if unchanged.
	Members *replication.Members
	// Packets are the received packets, in order.
	Packets []Packet
	// Inputs are all other inputs, in order.
	Inputs []replication.Input
}

// Effects are the results of a step. The caller performs them in the order of the fields, which
// have the meaning of those of replication.Effects.
type Effects struct {
	Notes   []replication.Note
	Store   []replication.Store
	Values  []replication.Change
	Send    []Send
	Replies []replication.Reply
	Events  []replication.Event
	// Stopped reports that this was the last step.
	Stopped bool
}

// effects collects the effects of several steps of the protocol.
type effects struct {
	Effects

	send []replication.Send
}

// add adds the effects of a step and returns their memory to the protocol.
func (m *Machine) add(e *effects, o replication.Effects) {
	e.Notes = append(e.Notes, o.Notes...)
	e.Store = append(e.Store, o.Store...)
	e.send = append(e.send, o.Send...)
	e.Values = append(e.Values, o.Values...)
	e.Replies = append(e.Replies, o.Replies...)
	e.Events = append(e.Events, o.Events...)
	e.Stopped = e.Stopped || o.Stopped
	m.protocol.Reuse(o)
}

// maxReused is the maximum length of a list whose memory is reused.
const maxReused = 4096

// begin returns empty effects.
func (m *Machine) begin() effects {
	e := m.spare
	m.spare = effects{}
	return e
}

// Reuse returns the memory of the effects of the last step, which must not be used afterwards.
// Effects that are not returned stay valid.
func (m *Machine) Reuse(e Effects) {
	m.spare.Effects = Effects{
		Notes: reuse(e.Notes), Store: reuse(e.Store), Send: reuse(e.Send), Values: reuse(e.Values), Replies: reuse(e.Replies), Events: reuse(e.Events),
	}
}

// reuse returns an empty list with the memory of s.
func reuse[E any](s []E) []E {
	if cap(s) > maxReused {
		return nil
	}
	clear(s)
	return s[:0]
}

// Step processes input at a time, which must not decrease.
func (m *Machine) Step(now time.Duration, b Batch) Effects {
	out := m.begin()
	if b.Members != nil {
		m.add(&out, m.protocol.Step(now, *b.Members))
	}
	for i := range b.Packets {
		p := &b.Packets[i]
		err := eachMessage(p.Payload, func(message []byte) {
			m.add(&out, m.protocol.Receive(now, replication.Received{From: p.From, Data: message}))
		})
		if err != nil {
			m.malformed++
			out.Notes = append(out.Notes, replication.Note{Kind: replication.NoteMalformed, Node: p.From, Err: err})
		}
	}
	for _, in := range b.Inputs {
		m.add(&out, m.protocol.Step(now, in))
	}
	return m.end(&out)
}

// Next returns the time at which Tick must be called, or Never. Every step may change it.
func (m *Machine) Next() time.Duration { return m.protocol.Next() }

// Tick runs everything that is due.
func (m *Machine) Tick(now time.Duration) Effects {
	out := m.begin()
	m.add(&out, m.protocol.Tick(now))
	return m.end(&out)
}

func (m *Machine) end(e *effects) Effects {
	e.Send = m.pack(e.Send, e.send)
	m.spare.send = reuse(e.send)
	return e.Effects
}

// Name returns the name of the replicator.
func (m *Machine) Name() string { return m.name }

// Protocol returns the protocol. Callers must use only its methods that do not change it.
func (m *Machine) Protocol() *replication.Machine { return m.protocol }

// Malformed returns the number of packets that could not be decoded.
func (m *Machine) Malformed() uint64 { return m.malformed }
