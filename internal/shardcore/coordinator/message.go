// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package coordinator

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/wire"
)

// Kind is what a message says.
type Kind uint8

// The numbers are those of the encoding and never change. First what regions and proxies say to a
// coordinator, then what it says to them.
const (
	// Register asks to be known as a region. It is repeated until RegisterAck comes.
	Register Kind = 1 + iota
	// RegisterProxy asks to be known as a proxy.
	RegisterProxy
	// GetHomes asks where shards are. It is repeated until Homes or Host comes.
	GetHomes
	// Hosted answers Host: the shards are started. Round is that of the Host.
	Hosted
	// BeginHandOffAck answers BeginHandOff: nothing is sent to the shards any more, and what was sent has
	// arrived. It is for all shards of the round.
	BeginHandOffAck
	// Stopped answers HandOff: nothing of these shards runs on this region. Round is that of the last HandOff
	// that named them.
	Stopped
	// GracefulShutdown asks to take all shards away. It is repeated.
	GracefulShutdown
	// RegionStopped says that the region, or the proxy, is gone, and nothing of it runs.
	RegionStopped
	// Fenced answers a message of a lower term: Term is the higher one that the region has seen.
	Fenced
	// StopShards asks to stop shards that are not needed any more. The answer is Stopped.
	StopShards

	// RegisterAck answers Register and RegisterProxy.
	RegisterAck
	// Homes says where shards are.
	Homes
	// Host says that the receiver is the home of shards, and is to start them. It is repeated until Hosted
	// comes. Without shards it asks whether the receiver is there.
	Host
	// BeginHandOff asks to forget the homes of shards, and to keep what is for them. It is
	// repeated.
	BeginHandOff
	// HandOff asks the home of shards to stop them. It is repeated.
	HandOff
	// RegisterAgain says that there is a coordinator of this term, and the receiver is not registered with
	// it. It goes to all that the one before knew, and answers what is for another term.
	RegisterAgain
	// Refused says that the receiver can't register, since its settings are not those of the coordinator, which it has.
	Refused

	kinds
)

func (k Kind) String() string {
	names := map[Kind]string{
		Register: "register", RegisterProxy: "register proxy", GetHomes: "get homes", Hosted: "hosted", BeginHandOffAck: "begin hand-off ack",
		Stopped: "stopped", GracefulShutdown: "graceful shutdown", RegionStopped: "region stopped", Fenced: "fenced", StopShards: "stop shards",
		RegisterAck: "register ack", Homes: "homes", Host: "host", BeginHandOff: "begin hand-off", HandOff: "hand-off",
		RegisterAgain: "register again", Refused: "refused",
	}
	if name := names[k]; name != "" {
		return name
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// ToCoordinator reports whether it is something that regions and proxies say to a coordinator. The rest is what it says to
// them.
func (k Kind) ToCoordinator() bool { return k < RegisterAck }

// Batch is how many shards a coordinator puts into one message at most.
const Batch = 500

// MaxTypeLength is the largest number of bytes that the name of an entity type has.
const MaxTypeLength = 255

// Message is what a coordinator and a region say to each other. Who says it to whom is on
// the envelope. It is immutable.
//
// The messages of a coordinator have its term, and a round, which never falls within a term. Whatever the network
// does, a region acts on the last one for each shard: it passes over what is for another instance, but for
// RegisterAgain; it refuses a message with a lower term than it has
// seen with Fenced, and passes over what a message says about a shard if the last one that it heeded about that shard had
// a higher round.
type Message struct {
	Kind Kind
	// Type is the name of the entity type.
	Type string
	// Term is that of the coordinator which says it, or which it is for. It is 0 where a region doesn't
	// know yet, in Register, RegisterProxy, GracefulShutdown, RegionStopped and StopShards.
	Term uint64
	// Round is when the coordinator said it. Answers have that of the question.
	Round uint64
	// Instance counts the regions of this type that a node has had, from 1. Each message has that of the
	// region or proxy that says it, or that it is for; RegisterAgain has that which the coordinator knows, or 0.
	Instance uint64
	// Shards are those that the message is about, but for Homes.
	Shards []Shard
	// Homes are regions with shards that they host.
	Homes []Home
	// Settings are those of who says it, of Register, RegisterProxy and Refused. They are not known from older versions.
	Settings Settings
}

// Home is a region and shards that it hosts.
type Home struct {
	Node   identity.Node
	Shards []Shard
}

// AppendMessage appends the encoding of a message.
func AppendMessage(dst []byte, m Message) []byte {
	v := byte(version)
	if m.Settings != (Settings{}) {
		v = messageVersion
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
	if v != version {
		dst = appendSettings(dst, m.Settings)
	}
	return dst
}

// MessageType returns the type that an encoded message is about. The rest is not looked at. The error matches
// ErrMalformed.
func MessageType(b []byte) (string, error) {
	r := newReader(b)
	r.Byte("kind")
	name := string(r.Bytes(int(r.Byte("length")), "type"))
	return name, r.Err()
}

// DecodeMessage decodes what AppendMessage has written. The error matches
// ErrMalformed.
func DecodeMessage(b []byte) (Message, error) {
	r := wire.NewReader(b, messageVersion, MaxBytes, ErrMalformed)
	m := Message{Kind: Kind(r.Byte("kind"))}
	if r.Err() == nil && (m.Kind == 0 || m.Kind >= kinds) {
		r.Fail("%v is not known", m.Kind)
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
	if err := r.End(); err != nil {
		return Message{}, err
	}
	return m, nil
}

// ErrMalformed is matched by the errors about bytes that are no message, event or
// state.
var ErrMalformed = errors.New("coordinator: malformed")

// version is that of the encodings: see package wire.
const version = 0x10

// messageVersion is that of messages which have settings.
const messageVersion = 0x11

// MaxBytes is the largest number of bytes of an encoded message, event or state.
const MaxBytes = 1 << 20

func appendShards(dst []byte, shards []Shard) []byte { return wire.AppendList(dst, shards) }

func readShards(r *wire.Reader) []Shard { return wire.List[Shard](r, MaxShards, "shards") }

func newReader(b []byte) *wire.Reader { return wire.NewReader(b, version, MaxBytes, ErrMalformed) }
