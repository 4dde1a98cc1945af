// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/identity"
)

// A message is a byte for the version of the encoding, one for its kind, and its
// fields. The high half of the version is the major one: another can't be read.
// A higher minor one may add fields at the end, which are passed over.
const (
	wireMajor = 1 << 4
	wireMinor = 0
)

// AppendMessage appends the encoding of a message.
func AppendMessage(dst []byte, m Message) []byte {
	dst = append(dst, wireMajor|wireMinor, byte(m.kind()))
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
	case Doubt:
		dst = append(binary.AppendUvarint(dst, m.Nr), m.Version[:]...)
	case Vouch:
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

// DecodeMessage decodes what AppendMessage has written. A State, a Welcome and a
// Seen refer to b, which must not be modified afterwards. The error matches
// ErrMalformed.
func DecodeMessage(b []byte) (Message, error) {
	r := &reader{b: b}
	if len(b) > MaxMessage {
		r.fail("it has %d bytes, at most %d are allowed", len(b), MaxMessage)
	}
	version := r.byte("version")
	kind := Kind(r.byte("kind"))
	if r.err == nil && version&0xf0 != wireMajor {
		r.fail("version %d.%d is not known", version>>4, version&0xf)
	}
	var m Message
	if r.err == nil {
		m = readMessage(r, kind)
	}
	if r.err == nil && len(r.b) > 0 && version&0xf <= wireMinor {
		r.fail("%d bytes too many", len(r.b))
	}
	if r.err != nil {
		return nil, r.err
	}
	return m, nil
}

func readMessage(r *reader, kind Kind) Message {
	switch kind {
	case KindInitJoin:
		return InitJoin{readSettings(r)}
	case KindInitJoinAck:
		return InitJoinAck{readBool(r, "verdict"), readSettings(r)}
	case KindInitJoinNack:
		return InitJoinNack{}
	case KindJoin:
		p := Member{Roles: readRoles(r)}
		if text := string(r.text(identity.MaxVersionLength, "version")); text != "" && r.err == nil {
			v, err := identity.ParseVersion(text)
			if err != nil {
				r.fail("%v", err)
			}
			p.Version = v
		}
		return Join{p.Roles, p.Version}
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
		return Digests{r.digest("version"), r.digest("seen")}
	case KindVersions:
		return readVersions(r)
	case KindSeen:
		return Seen{r.digest("version"), rawBitmap(r)}
	case KindHeartbeat:
		nr, at := readHeartbeat(r)
		return Heartbeat{nr, at}
	case KindHeartbeatReply:
		nr, at := readHeartbeat(r)
		return HeartbeatReply{nr, at}
	case KindEcho:
		return Echo{r.uint(1<<63, "number")}
	case KindExitingConfirmed:
		return ExitingConfirmed{}
	case KindQuarantined:
		return Quarantined{}
	case KindStranger:
		return Stranger{}
	case KindDoubt:
		return Doubt{r.uint(1<<63, "number"), r.digest("version")}
	case KindVouch:
		return Vouch{r.uint(1<<63, "number"), readAbsence(r)}
	case Kinds:
	}
	r.fail("%v is not known", kind)
	return nil
}

func readBool(r *reader, what string) bool {
	switch r.byte(what) {
	case 0:
	case 1:
		return true
	default:
		r.fail("%s is neither true nor false", what)
	}
	return false
}

func readAbsence(r *reader) Absence {
	a := Absence(r.byte("absence"))
	if a > AwayFromWell {
		r.fail("absence %d is not known", a)
	}
	return a
}

func readSettings(r *reader) []Setting {
	var settings []Setting
	for range r.count(maxSettings, 3, "settings") {
		s := Setting{string(r.text(maxSetting, "key")), string(r.text(maxSetting, "value")), readBool(r, "optional")}
		if n := len(settings); n > 0 && strings.Compare(settings[n-1].Key, s.Key) >= 0 {
			r.fail("settings are not in order")
		}
		if r.err != nil {
			return nil
		}
		settings = append(settings, s)
	}
	return settings
}

func readState(r *reader) State {
	s := State{Version: r.digest("version"), seen: rawBitmap(r)}
	s.Content = r.text(MaxMessage, "content")
	return s
}

// rawBitmap reads a bitmap of an unknown number of members. It is not copied.
func rawBitmap(r *reader) []byte {
	start := r.b
	r.text(MaxMembers/8, "seen")
	return start[:len(start)-len(r.b)]
}

func readNode(r *reader) identity.Node {
	var nodes nodeReader
	if !nodes.next(r) {
		return identity.Node{}
	}
	return nodes.node()
}

func readVersions(r *reader) Versions {
	v := Versions{Seen: r.digest("seen")}
	n := r.count(MaxMembers, nodeSize+1, "ticks")
	var nodes nodeReader
	for range n {
		if !nodes.next(r) {
			return Versions{}
		}
		t := Tick{nodes.node(), r.uint(1<<63, "tick")}
		if t.Count == 0 {
			r.fail("a tick is none")
		}
		v.Clock = append(v.Clock, t)
	}
	return v
}

func readHeartbeat(r *reader) (nr uint64, at time.Duration) {
	nr = r.uint(1<<63, "number")
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail("time is missing")
		return 0, 0
	}
	r.b = r.b[n:]
	return nr, time.Duration(v)
}
