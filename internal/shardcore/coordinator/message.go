// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"encoding/binary"
	"errors"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/enum"
	"github.com/refold-io/refold/internal/wire"
)

// Kind is the kind of a message.
type Kind uint8

// The numbers are part of the encoding and never change. The first group goes to a coordinator, the
// second one to regions and proxies.
const (
	// Register registers a region. It is repeated until RegisterAck arrives.
	Register Kind = 1 + iota
	// RegisterProxy registers a proxy.
	RegisterProxy
	// GetHomes requests the homes of shards. It is repeated until Homes or Host arrives.
	GetHomes
	// Hosted answers Host: the shards have started. It has the round of the Host.
	Hosted
	// BeginHandOffAck answers BeginHandOff: the sender sends no more messages to the shards, and
	// all messages that it sent have arrived. It covers all shards of the round.
	BeginHandOffAck
	// Stopped answers HandOff: no entity of these shards runs on this region. It has the round of
	// the last HandOff with these shards.
	Stopped
	// GracefulShutdown requests to hand off all shards. It is repeated.
	GracefulShutdown
	// RegionStopped reports that the region or proxy has stopped with all its entities.
	RegionStopped
	// Fenced answers a message of a lower term. Term is the higher term that the region has seen.
	Fenced
	// retired is the number of a request of earlier versions, which no region sent. A coordinator
	// ignores it.
	retired

	// RegisterAck answers Register and RegisterProxy.
	RegisterAck
	// Homes has the homes of shards.
	Homes
	// Host makes the receiver the home of shards, and the receiver starts them. Host is repeated
	// until Hosted arrives. Without shards it is a probe.
	Host
	// BeginHandOff requests to forget the homes of shards and to buffer their messages. It is
	// repeated.
	BeginHandOff
	// HandOff requests the home of shards to stop them. It is repeated.
	HandOff
	// RegisterAgain announces a coordinator of this term with which the receiver is not registered.
	// The coordinator sends it to all nodes that the previous coordinator had registered, and in
	// answer to messages for other terms.
	RegisterAgain
	// Refused answers a registration whose settings differ from those of the coordinator. It
	// contains the settings of the coordinator.
	Refused

	kinds
)

func (k Kind) String() string {
	return enum.Name(k, "kind", "", "register", "register proxy", "get homes", "hosted", "begin hand-off ack", "stopped", "graceful shutdown",
		"region stopped", "fenced", "retired", "register ack", "homes", "host", "begin hand-off", "hand-off", "register again", "refused")
}

// ToCoordinator reports whether regions and proxies send this kind to a coordinator. The other
// kinds are sent by the coordinator.
func (k Kind) ToCoordinator() bool { return k < RegisterAck }

// Batch is the maximum number of shards in one message of a coordinator.
const Batch = 500

// MaxTypeLength is the maximum length of the name of an entity type, in bytes.
const MaxTypeLength = 255

// Message is a message between a coordinator and a region or proxy. The envelope has the sender and
// the receiver. A message is immutable.
//
// A message of a coordinator has its term and a round, which never decreases within a term. The
// network may lose, delay and repeat messages, so a region acts only on the last message for each
// shard. It ignores messages to another instance, except RegisterAgain. It answers Fenced to a
// message with a lower term than it has seen. It ignores a message about a shard if it has acted on
// a message with a higher round for that shard.
type Message struct {
	Kind Kind
	// Type is the name of the entity type.
	Type string
	// Term is the term of the coordinator that sends or receives the message. It is 0 in Register,
	// RegisterProxy, GracefulShutdown and RegionStopped of a region that has not received the term
	// yet.
	Term uint64
	// Round is the round of the coordinator's message. Answers have the round of the message that
	// they answer.
	Round uint64
	// Instance counts the regions of this type that a node has had, from 1. Each message has the
	// instance of its region or proxy, sender or receiver. RegisterAgain has the last instance that
	// the coordinator has registered, or 0.
	Instance uint64
	// Shards are the shards of all kinds except Homes.
	Shards []Shard
	// Homes are regions with the shards that they host.
	Homes []Home
	// Settings are the sender's settings, in Register, RegisterProxy and Refused. Older versions do
	// not send them.
	Settings Settings
	// Load is the load of the sender, in a Hosted that answers no Host. Older versions do not send
	// it, and skip it. Nil for none.
	Load *Load
	// Followed is the position in the journal up to which the standbys of the sender have applied all
	// events, in Hosted. It is empty without standbys. At most MaxSetting bytes.
	Followed string
}

// Home is a region and the shards that it hosts.
type Home struct {
	Node   identity.Node
	Shards []Shard
}

// AppendMessage appends the encoding of a message.
func AppendMessage(dst []byte, m Message) []byte {
	v := byte(version)
	switch {
	case m.Followed != "":
		v = followedVersion
	case m.Settings.Wake != "":
		v = wakeVersion
	case m.Load != nil:
		v = messageVersion
	case m.Settings != (Settings{}):
		v = settingsVersion
	}
	dst = append(dst, v, byte(m.Kind), byte(len(m.Type))) //nolint:gosec // at most MaxTypeLength
	dst = append(dst, m.Type...)
	dst = binary.AppendUvarint(dst, m.Term)
	dst = binary.AppendUvarint(dst, m.Round)
	dst = binary.AppendUvarint(dst, m.Instance)
	dst = appendShards(dst, m.Shards)
	dst = binary.AppendUvarint(dst, uint64(len(m.Homes)))
	for _, h := range m.Homes {
		dst = appendShards(wire.AppendNode(dst, h.Node), h.Shards)
	}
	if v >= settingsVersion {
		dst = appendSettings(dst, m.Settings)
	}
	if v >= messageVersion && m.Kind == Hosted {
		dst = appendLoad(dst, m.Load)
	}
	if v >= wakeVersion {
		dst = appendSetting(dst, m.Settings.Wake)
	}
	if v >= followedVersion {
		dst = appendSetting(dst, m.Followed)
	}
	return dst
}

// MessageType returns the entity type of an encoded message. It does not check the rest. The error
// matches ErrMalformed.
func MessageType(b []byte) (string, error) {
	r := newReader(b)
	r.Byte("kind")
	name := string(r.Bytes(int(r.Byte("length")), "type"))
	return name, r.Err()
}

// DecodeMessage decodes the result of AppendMessage. The error matches ErrMalformed.
func DecodeMessage(b []byte) (Message, error) {
	r := wire.NewReader(b, followedVersion, MaxBytes, ErrMalformed)
	m := Message{Kind: Kind(r.Byte("kind"))}
	if r.Err() == nil && (m.Kind == 0 || m.Kind >= kinds) {
		r.Fail("unknown %v", m.Kind)
	}
	m.Type = string(r.Bytes(int(r.Byte("length")), "type"))
	m.Term, m.Round, m.Instance = r.Uint(1<<63, "term"), r.Uint(1<<63, "round"), r.Uint(1<<63, "instance")
	m.Shards = readShards(r)
	for range r.Count(MaxRegions, 11, "homes") {
		h := Home{Node: r.Node(), Shards: readShards(r)}
		if r.Err() != nil {
			break
		}
		m.Homes = append(m.Homes, h)
	}
	if r.Err() == nil && r.Minor() > version&0xf {
		m.Settings = readSettings(r)
	}
	if r.Err() == nil && r.Minor() > settingsVersion&0xf && m.Kind == Hosted {
		m.Load = readLoad(r)
	}
	if r.Err() == nil && r.Minor() >= wakeVersion&0xf {
		m.Settings.Wake = readSetting(r)
	}
	if r.Err() == nil && r.Minor() >= followedVersion&0xf {
		m.Followed = readSetting(r)
	}
	if err := r.End(); err != nil {
		return Message{}, err
	}
	return m, nil
}

// ErrMalformed is matched by the errors about bytes that are not a valid message, event or state.
var ErrMalformed = errors.New("coordinator: malformed")

// version is the version of the encodings; see package wire.
const version = 0x10

const (
	settingsVersion = 0x11 // with settings
	messageVersion  = 0x12 // with settings and, in Hosted, the load
	wakeVersion     = 0x13 // with Settings.Wake after the other fields
	followedVersion = 0x14 // with Followed after the other fields
)

// MaxBytes is the maximum length of an encoded message, event or state.
const MaxBytes = 1 << 20

func appendShards(dst []byte, shards []Shard) []byte { return wire.AppendList(dst, shards) }

func readShards(r *wire.Reader) []Shard { return wire.List[Shard](r, MaxShards, "shards") }

func newReader(b []byte) *wire.Reader { return wire.NewReader(b, version, MaxBytes, ErrMalformed) }
