// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"errors"
	"fmt"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/replication"
)

// Never is the time of something that is not going to happen.
const Never = replication.Never

// Config configures a Machine.
type Config struct {
	// Name tells the replicators of a node apart; those with the same name belong together. It
	// is as identity.CheckName accepts it. Required.
	Name string
	// MaxPayload is the largest payload that the transport takes, in bytes. The protocol's
	// MaxMessage follows from it. Required.
	MaxPayload int
	// Protocol is how it works.
	Protocol replication.Config
}

// Machine is one replicator of a node. It is told what happens, with the time on the node's
// monotonic clock, and answers what is to be done; the same inputs at the same times give the
// same effects. It is not safe for concurrent use.
type Machine struct {
	name      string
	protocol  *replication.Machine
	malformed uint64
	spare     effects // memory for effects
	groups    []group // for pack
}

// New returns the machine of a replicator that holds nothing. The error names each field that is
// wrong.
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

// Batch is what has happened since the last step. It is handled in the order of the
// fields.
type Batch struct {
	// Members is who is in the cluster, nil if that is as it was.
	Members *replication.Members
	// Packets have come in this order.
	Packets []Packet
	// Inputs are all the rest, in order.
	Inputs []replication.Input
}

// Effects are what is to be done after a step, in the order of the fields, which are those
// of replication.Effects.
type Effects struct {
	Notes   []replication.Note
	Store   []replication.Store
	Values  []replication.Change
	Send    []Send
	Replies []replication.Reply
	Events  []replication.Event
	// Stopped says that this was the last step.
	Stopped bool
}

// effects gathers those of several steps of the protocol.
type effects struct {
	Effects

	send []replication.Send
}

// add adds those of a step, and gives them back.
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

// maxReused is how long a list is, at most, of which the memory is used again.
const maxReused = 4096

// begin returns effects without any.
func (m *Machine) begin() effects {
	e := m.spare
	m.spare = effects{}
	return e
}

// Reuse gives back the effects of the last step, of which nothing must be used any more. Those of a step that are not given back stay as
// they are.
func (m *Machine) Reuse(e Effects) {
	m.spare.Effects = Effects{
		Notes: reuse(e.Notes), Store: reuse(e.Store), Send: reuse(e.Send), Values: reuse(e.Values), Replies: reuse(e.Replies), Events: reuse(e.Events),
	}
}

// reuse returns the memory of a list for another one.
func reuse[E any](s []E) []E {
	if cap(s) > maxReused {
		return nil
	}
	clear(s)
	return s[:0]
}

// Step handles what has happened until a time, which never goes back.
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

// Next returns when Tick is to be called next; Never if not at all. Every step may change it.
func (m *Machine) Next() time.Duration { return m.protocol.Next() }

// Tick handles all that is due.
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

// Protocol returns what is known of the data. Only those of its methods must be called that change
// nothing.
func (m *Machine) Protocol() *replication.Machine { return m.protocol }

// Malformed returns how many packets could not be read.
func (m *Machine) Malformed() uint64 { return m.malformed }
