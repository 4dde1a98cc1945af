// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/wire"
)

// A message consists of a byte for the version of the encoding, a byte for its kind, and its
// fields. The high half of the version is the major version: messages with another one are
// rejected. A higher minor version may add fields at the end, which are skipped.
const wireVersion = 1 << 4

// AppendMessage appends the encoding of a message.
func AppendMessage(dst []byte, m Message) []byte {
	dst = append(dst, wireVersion, byte(m.kind()))
	switch m := m.(type) {
	case InitJoin:
		dst = appendSettings(dst, m.Settings)
	case InitJoinAck:
		dst = appendSettings(appendBool(dst, m.Compatible), m.Settings)
	case Join:
		dst = binary.AppendUvarint(dst, uint64(len(m.Roles)))
		for _, role := range m.Roles {
			dst = appendText(dst, role)
		}
		dst = appendText(dst, versionText(m.Version))
	case Welcome:
		dst = appendState(dst, m.State)
	case State:
		dst = appendState(dst, m)
	case NameInUse:
		dst = new(nodeWriter).append(dst, m.Holder)
	case Ping:
		dst = new(nodeWriter).append(dst, m.Node)
	case Digests:
		dst = append(append(dst, m.Version[:]...), m.Seen[:]...)
	case Versions:
		dst = append(dst, m.Seen[:]...)
		dst = binary.AppendUvarint(dst, uint64(len(m.Clock)))
		var nodes nodeWriter
		for _, t := range m.Clock {
			dst = binary.AppendUvarint(nodes.append(dst, t.Node), t.Count)
		}
	case Seen:
		dst = append(append(dst, m.Version[:]...), m.seen...)
	case Heartbeat:
		dst = appendHeartbeat(dst, m.Nr, m.At)
	case HeartbeatReply:
		dst = appendHeartbeat(dst, m.Nr, m.At)
	case Echo:
		dst = binary.AppendUvarint(dst, m.Nr)
	case LivenessQuery:
		dst = append(binary.AppendUvarint(dst, m.Nr), m.Version[:]...)
	case LivenessReply:
		dst = append(binary.AppendUvarint(dst, m.Nr), byte(m.Absence))
	case InitJoinNack, Pong, ExitingConfirmed, Quarantined, Stranger:
	}
	return dst
}

func appendBool(dst []byte, b bool) []byte {
	if b {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func appendSettings(dst []byte, settings []Setting) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(settings)))
	for _, s := range settings {
		dst = appendBool(appendText(appendText(dst, s.Key), s.Value), s.Optional)
	}
	return dst
}

func appendState(dst []byte, s State) []byte {
	dst = slices.Grow(dst, len(s.Version)+len(s.seen)+len(s.Content)+binary.MaxVarintLen64)
	dst = append(append(dst, s.Version[:]...), s.seen...)
	return appendText(dst, s.Content)
}

func appendHeartbeat(dst []byte, nr uint64, at time.Duration) []byte {
	return binary.AppendVarint(binary.AppendUvarint(dst, nr), int64(at))
}

// DecodeMessage decodes the format of AppendMessage. A State, a Welcome and a Seen refer to b,
// which must not be modified afterwards. The error matches ErrMalformed.
func DecodeMessage(b []byte) (Message, error) {
	r := wire.NewReader(b, wireVersion, MaxMessage, ErrMalformed)
	m := readMessage(r, Kind(r.Byte("kind")))
	if err := r.End(); err != nil {
		return nil, err
	}
	return m, nil
}

func readMessage(r *wire.Reader, kind Kind) Message {
	switch kind {
	case KindInitJoin:
		return InitJoin{readSettings(r)}
	case KindInitJoinAck:
		return InitJoinAck{readBool(r, "verdict"), readSettings(r)}
	case KindInitJoinNack:
		return InitJoinNack{}
	case KindJoin:
		return Join{readRoles(r), readVersion(r)}
	case KindWelcome:
		return Welcome{readState(r)}
	case KindState:
		return readState(r)
	case KindNameInUse:
		return NameInUse{readNode(r)}
	case KindPing:
		return Ping{readNode(r)}
	case KindPong:
		return Pong{}
	case KindDigests:
		return Digests{readDigest(r, "version"), readDigest(r, "seen")}
	case KindVersions:
		return readVersions(r)
	case KindSeen:
		return Seen{readDigest(r, "version"), rawBitmap(r)}
	case KindHeartbeat:
		return readHeartbeat(r)
	case KindHeartbeatReply:
		return HeartbeatReply(readHeartbeat(r))
	case KindEcho:
		return Echo{r.Uint(1<<63, "number")}
	case KindExitingConfirmed:
		return ExitingConfirmed{}
	case KindQuarantined:
		return Quarantined{}
	case KindStranger:
		return Stranger{}
	case KindLivenessQuery:
		return LivenessQuery{r.Uint(1<<63, "number"), readDigest(r, "version")}
	case KindLivenessReply:
		return LivenessReply{r.Uint(1<<63, "number"), readAbsence(r)}
	case Kinds:
	}
	r.Fail("unknown kind %v", kind)
	return nil
}

func readBool(r *wire.Reader, field string) bool {
	b := r.Byte(field)
	if b > 1 {
		r.Fail("%s is not a boolean", field)
	}
	return b == 1
}

func readAbsence(r *wire.Reader) Absence {
	a := Absence(r.Byte("absence"))
	if a > AwayFromWell {
		r.Fail("unknown absence %d", a)
	}
	return a
}

func readSettings(r *wire.Reader) []Setting {
	var settings []Setting
	for range r.Count(maxSettings, 3, "settings") {
		s := Setting{string(r.Text(maxSetting, "key")), string(r.Text(maxSetting, "value")), readBool(r, "optional")}
		if n := len(settings); n > 0 && strings.Compare(settings[n-1].Key, s.Key) >= 0 {
			r.Fail("settings are not in order")
		}
		if r.Err() != nil {
			return nil
		}
		settings = append(settings, s)
	}
	return settings
}

func readState(r *wire.Reader) State {
	s := State{Version: readDigest(r, "version"), seen: rawBitmap(r)}
	s.Content = r.Text(MaxMessage, "content")
	return s
}

// rawBitmap reads a bitmap of an unknown number of members without copying it.
func rawBitmap(r *wire.Reader) []byte {
	start := r.Rest()
	r.Text(MaxMembers/8, "seen")
	return start[:len(start)-len(r.Rest())]
}

func readNode(r *wire.Reader) identity.Node {
	var nodes nodeReader
	if !nodes.next(r) {
		return identity.Node{}
	}
	return nodes.node()
}

func readVersions(r *wire.Reader) Versions {
	v := Versions{Seen: readDigest(r, "seen")}
	n := r.Count(MaxMembers, nodeSize+1, "ticks")
	var nodes nodeReader
	for range n {
		if !nodes.next(r) {
			return Versions{}
		}
		t := Tick{nodes.node(), r.Uint(1<<63, "tick")}
		if t.Count == 0 {
			r.Fail("a tick is 0")
		}
		v.Clock = append(v.Clock, t)
	}
	return v
}

func readHeartbeat(r *wire.Reader) Heartbeat {
	return Heartbeat{r.Uint(1<<63, "number"), time.Duration(r.Int("time"))}
}

// ErrMalformed is matched by errors about bytes that are not a valid message.
var ErrMalformed = errors.New("membership: malformed message")

// Limits of decoding.
const (
	// MaxMessage is the largest number of bytes of a message.
	MaxMessage = 1 << 20
	// MaxMembers is the largest number of members of a cluster.
	MaxMembers = 10_000

	maxTombstones = 100_000
	maxExtensions = 64
	maxSettings   = 256
	maxSetting    = 1024
	maxProfiles   = MaxMembers
)

func readDigest(r *wire.Reader, field string) (d Digest) {
	copy(d[:], r.Bytes(len(d), field))
	return d
}

func readBitmap(r *wire.Reader, n int, field string) bitmap {
	size := r.Count((n+7)/8, 1, field)
	var set bitmap
	for i, b := range r.Bytes(size, field) {
		if b == 0 {
			continue
		}
		if set == nil {
			set = newBitmap(n)
		}
		set[i/8] |= uint64(b) << (i % 8 * 8)
	}
	if n%64 != 0 && len(set) > 0 && set[len(set)-1]>>(n%64) != 0 {
		r.Fail("%s names more than %d members", field, n)
		return nil
	}
	return set
}

// encodeBitmap encodes a set without trailing zero bytes.
func encodeBitmap(set bitmap) []byte {
	size := 0
	for i, word := range set {
		if word != 0 {
			size = i*8 + (bits.Len64(word)+7)/8
		}
	}
	dst := binary.AppendUvarint(make([]byte, 0, size+binary.MaxVarintLen32), uint64(size))
	for i := range size {
		dst = append(dst, byte(set[i/8]>>(i%8*8)&0xff))
	}
	return dst
}

func appendText[T string | []byte](dst []byte, s T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// nodeWriter encodes sorted nodes. It omits the prefix and the suffix that a name shares with the
// previous name.
type nodeWriter struct{ last string }

func (w *nodeWriter) append(dst []byte, n identity.Node) []byte {
	head, tail := 0, 0
	short := min(len(n.Name), len(w.last))
	for head < short && n.Name[head] == w.last[head] {
		head++
	}
	for tail < short-head && n.Name[len(n.Name)-1-tail] == w.last[len(w.last)-1-tail] {
		tail++
	}
	w.last = n.Name
	dst = append(dst, byte(head), byte(tail))
	dst = appendText(dst, n.Name[head:len(n.Name)-tail])
	return binary.LittleEndian.AppendUint64(dst, n.UID)
}

// nodeSize is the minimum size of a node in the format of nodeWriter.
const nodeSize = 2 + 1 + 8

// nodeReader decodes the format of nodeWriter. A name is valid until the next call.
type nodeReader struct {
	name, last []byte
	uid        uint64
	some       bool
}

func (w *nodeReader) next(r *wire.Reader) bool {
	head, tail := int(r.Byte("node")), int(r.Byte("node"))
	middle := r.Text(identity.MaxNameLength, "name")
	uid := r.UID()
	if head+tail > len(w.name) || head+tail+len(middle) > identity.MaxNameLength {
		r.Fail("a name shares bytes with a missing previous name")
	}
	if r.Err() != nil {
		return false
	}
	if w.last == nil {
		both := make([]byte, 2*identity.MaxNameLength)
		w.last, w.name = both[:0:identity.MaxNameLength], both[identity.MaxNameLength:identity.MaxNameLength]
	}
	w.last, w.name = w.name, append(append(append(w.last[:0], w.name[:head]...), middle...), w.name[len(w.name)-tail:]...)
	before := w.uid
	w.uid = uid
	switch c := bytes.Compare(w.last[head:], w.name[head:]); {
	case len(w.name) == 0 || uid == 0:
		r.Fail("a node is zero")
	case w.some && (c > 0 || c == 0 && before >= uid):
		r.Fail("nodes are not in order")
	case c != 0:
		if err := checkName(w.name, head, tail); err != nil {
			r.Fail("%v", err)
		}
	}
	w.some = true
	return r.Err() == nil
}

func (w *nodeReader) node() identity.Node { return identity.Node{Name: string(w.name), UID: w.uid} }

func checkName(name []byte, head, tail int) error {
	for _, c := range name[head : len(name)-tail] {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.', c == ':':
		default:
			return identity.CheckName(string(name))
		}
	}
	return nil
}
