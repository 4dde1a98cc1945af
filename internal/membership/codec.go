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
// fields. The upper four bits of the version are the major version. Messages with another major
// version are rejected. A higher minor version may add fields at the end; this version skips them.
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
		return InitJoinAck{readBool(r, "compatible"), readSettings(r)}
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
	started    bool // a node was read
}

func (w *nodeReader) next(r *wire.Reader) bool {
	head, tail := int(r.Byte("node")), int(r.Byte("node"))
	middle := r.Text(identity.MaxNameLength, "name")
	uid := r.UID()
	if head+tail > len(w.name) || head+tail+len(middle) > identity.MaxNameLength {
		r.Fail("a name shares more bytes than the previous name has, or is too long")
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
		r.Fail("a node has no name or no UID")
	case w.started && (c > 0 || c == 0 && before >= uid):
		r.Fail("nodes are not in order")
	case c != 0:
		if err := checkName(w.name, head, tail); err != nil {
			r.Fail("%v", err)
		}
	}
	w.started = true
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

// The content of a gossip, without the set of members that have seen it, has this format:
//
//	profiles    count, then version, roles
//	members     count, then node, status, up number, index of the profile
//	clock       count, then index of the member (minus the previous one), count
//	observers   count, then index of the member, version, records;
//	            a record is the index of the subject, reach, version
//	tombstones  count, then node, seconds, count
//	extensions  count, then number, bytes
//
// Numbers are varints. Equal contents have equal encodings. New fields of later versions are
// extensions. Older versions forward extensions.

// AppendContent appends the encoding of the gossip without the set of members that have seen it.
func (g Gossip) AppendContent(dst []byte) []byte {
	c := g.state()
	dst = c.appendMembers(dst)
	last := 0
	dst = binary.AppendUvarint(dst, uint64(len(c.clock)))
	for _, t := range c.clock {
		dst, last = c.appendIndex(dst, t.Node, last)
		dst = binary.AppendUvarint(dst, t.Count)
	}
	last = 0
	dst = binary.AppendUvarint(dst, uint64(len(c.reach.Observers)))
	for _, o := range c.reach.Observers {
		dst, last = c.appendIndex(dst, o.Node, last)
		dst = binary.AppendUvarint(dst, o.Version)
		dst = binary.AppendUvarint(dst, uint64(len(o.Records)))
		subject := 0
		for _, rec := range o.Records {
			dst, subject = c.appendIndex(dst, rec.Subject, subject)
			dst = append(dst, byte(rec.Reach))
			dst = binary.AppendUvarint(dst, rec.Version)
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(c.tombstones)))
	var nodes nodeWriter
	for _, t := range c.tombstones {
		dst = nodes.append(dst, t.Node)
		dst = binary.AppendVarint(dst, t.At)
		dst = binary.AppendUvarint(dst, t.Count)
	}
	dst = binary.AppendUvarint(dst, uint64(len(c.extensions)))
	for _, e := range c.extensions {
		dst = binary.AppendUvarint(dst, e.Number)
		dst = appendText(dst, e.Data)
	}
	return dst
}

func (c *content) appendIndex(dst []byte, n identity.Node, last int) (encoded []byte, index int) {
	rest := c.members[last:]
	i := 1 // often the next member, because many members have ticks
	if len(rest) < 2 || rest[1].Node != n {
		i, _ = findMember(rest, n)
	}
	return binary.AppendUvarint(dst, uint64(i)), last + i
}

func (c *content) appendMembers(dst []byte) []byte {
	var profiles []*identity.Member
	profileOf := make([]uint16, len(c.members))
	last := 0
	for i, m := range c.members {
		if i == 0 || !sameProfile(profiles[last], m) {
			if last = slices.IndexFunc(profiles, func(p *identity.Member) bool { return sameProfile(p, m) }); last < 0 {
				last = len(profiles)
				profiles = append(profiles, m)
			}
		}
		profileOf[i] = uint16(last)
	}
	dst = binary.AppendUvarint(dst, uint64(len(profiles)))
	for _, p := range profiles {
		dst = appendText(dst, versionText(p.Version))
		dst = binary.AppendUvarint(dst, uint64(len(p.Roles)))
		for _, role := range p.Roles {
			dst = appendText(dst, role)
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(c.members)))
	var nodes nodeWriter
	for i, m := range c.members {
		dst = nodes.append(dst, m.Node)
		dst = append(dst, byte(m.Status))
		up := uint64(0)
		if m.UpNumber != identity.NeverUp {
			up = uint64(m.UpNumber) + 1 //nolint:gosec // not negative
		}
		dst = binary.AppendUvarint(dst, up)
		dst = binary.AppendUvarint(dst, uint64(profileOf[i]))
	}
	return dst
}

func sameProfile(a, b *identity.Member) bool {
	return a.Version == b.Version && sameRoles(a.Roles, b.Roles)
}

// DecodeContent decodes the format of AppendContent. Parts of the result that are equal to parts of
// known are shared with known. known may be the zero value. The result does not refer to b. The
// error matches ErrMalformed.
func DecodeContent(b []byte, known Gossip) (Gossip, error) {
	r := wire.NewFields(b, ErrMalformed)
	old := known.state()
	c := &content{}
	c.readMembers(r, old)
	c.readClock(r, old)
	c.readObservers(r, old)
	c.readTombstones(r)
	for i := range r.Count(maxExtensions, 2, "extensions") {
		e := Extension{Number: r.Uint(1<<63, "extension"), Data: slices.Clone(r.Text(MaxMessage, "extension"))}
		if i > 0 && e.Number <= c.extensions[i-1].Number {
			r.Fail("extensions are not in order")
			break
		}
		c.extensions = append(c.extensions, e)
	}
	if err := r.End(); err != nil {
		return Gossip{}, err
	}
	return Gossip{content: c}, nil
}

func (c *content) readMembers(r *wire.Reader, old *content) {
	profiles := make([]identity.Member, 0, 4)
	for range r.Count(maxProfiles, 2, "profiles") {
		profiles = append(profiles, identity.Member{Version: readVersion(r), Roles: readRoles(r)})
	}
	n := r.Count(MaxMembers, nodeSize+3, "members")
	if r.Err() != nil {
		return
	}
	c.members = make([]*identity.Member, 0, n)
	var nodes nodeReader
	at, same := 0, true
	var m identity.Member // allocated only if it is new
	for range n {
		if !nodes.next(r) {
			return
		}
		m = identity.Member{Status: identity.Status(r.Byte("status")), UpNumber: identity.NeverUp}
		if up := r.Uint(identity.NeverUp, "up number"); up > 0 {
			m.UpNumber = int32(up - 1) //nolint:gosec // at most NeverUp
		}
		profile := int(r.Uint(maxProfiles, "profile")) //nolint:gosec // at most maxProfiles
		if rank(m.Status) == 0 || m.Status == identity.Removed {
			r.Fail("unknown status %d", byte(m.Status))
		} else if profile >= len(profiles) {
			r.Fail("unknown profile %d", profile)
		}
		if r.Err() != nil {
			return
		}
		m.Roles, m.Version = profiles[profile].Roles, profiles[profile].Version
		for at < len(old.members) && nodes.isAfter(old.members[at].Node) {
			at++
		}
		if at < len(old.members) && nodes.equals(old.members[at].Node) {
			before := old.members[at]
			at++ // the next old member is usually the next match
			m.Node = before.Node
			if sameProfile(before, &m) { // sharing makes later comparisons fast
				profiles[profile].Roles, profiles[profile].Version = before.Roles, before.Version
			}
			if sameMember(before, &m) {
				same = same && at == len(c.members)+1
				c.members = append(c.members, before)
				continue
			}
		} else {
			m.Node = nodes.node()
		}
		same = false
		c.members = append(c.members, withStatus(&m, m.Status))
	}
	if same && len(c.members) == len(old.members) {
		c.members = old.members
	}
}

func readVersion(r *wire.Reader) (v identity.Version) {
	text := string(r.Text(identity.MaxVersionLength, "version"))
	if text == "" {
		return v
	}
	v, err := identity.ParseVersion(text)
	if err != nil {
		r.Fail("%v", err)
	}
	return v
}

func readRoles(r *wire.Reader) []string {
	var roles []string
	for range r.Count(maxRoles, 2, "roles") {
		roles = append(roles, string(r.Text(maxRole, "role")))
	}
	if r.Err() != nil {
		return nil
	}
	if sorted, err := CheckRoles(roles); err != nil {
		r.Fail("%v", err)
	} else if !slices.Equal(sorted, roles) {
		r.Fail("roles are not in order: %.100s", strings.Join(roles, ", "))
	}
	return roles
}

func (w *nodeReader) isAfter(n identity.Node) bool {
	return n.Name < string(w.name) || n.Name == string(w.name) && n.UID < w.uid
}

func (w *nodeReader) equals(n identity.Node) bool { return n.UID == w.uid && n.Name == string(w.name) }

// index reads the index of a member. Indices are strictly increasing.
func (c *content) index(r *wire.Reader, last int, first bool, field string) int {
	by := int(r.Uint(MaxMembers, field)) //nolint:gosec // at most MaxMembers
	switch {
	case r.Err() != nil:
		return 0
	case by == 0 && !first:
		r.Fail("%s is duplicated", field)
		return 0
	case last+by >= len(c.members):
		r.Fail("%s is not a member", field)
		return 0
	}
	return last + by
}

func (c *content) readClock(r *wire.Reader, old *content) {
	n := r.Count(MaxMembers, 2, "ticks")
	if n == 0 {
		return
	}
	c.clock = make(Clock, 0, n)
	last := 0
	for i := range n {
		last = c.index(r, last, i == 0, "tick")
		count := r.Uint(1<<63, "tick")
		if r.Err() == nil && count == 0 {
			r.Fail("a tick is 0")
		}
		if r.Err() != nil {
			return
		}
		c.clock = append(c.clock, Tick{c.members[last].Node, count})
	}
	if slices.Equal(c.clock, old.clock) {
		c.clock = old.clock
	}
}

func (c *content) readObservers(r *wire.Reader, old *content) {
	n := r.Count(MaxMembers, 3, "observers")
	last, at := 0, 0
	if n > 0 && r.Err() == nil {
		c.reach.Observers = make([]Observer, 0, n)
	}
	same := n == len(old.reach.Observers)
	for i := range n {
		last = c.index(r, last, i == 0, "observer")
		o := Observer{Version: r.Uint(1<<63, "observer's version")}
		size := r.Count(MaxMembers, 3, "records")
		if r.Err() != nil {
			return
		}
		o.Node = c.members[last].Node
		// Equal versions of an observer have equal records, unless a record was removed in between.
		for at < len(old.reach.Observers) && old.reach.Observers[at].Node.Compare(o.Node) < 0 {
			at++
		}
		if size > 0 {
			o.Records = make([]Record, 0, size)
		}
		subject := 0
		for k := range size {
			subject = c.index(r, subject, k == 0, "subject")
			rec := Record{Reach: Reach(r.Byte("reach")), Version: r.Uint(1<<63, "record's version")}
			if rec.Reach < Reachable || rec.Reach > Terminated {
				r.Fail("unknown reach %d", byte(rec.Reach))
			}
			if r.Err() != nil {
				return
			}
			rec.Subject = c.members[subject].Node
			o.Records = append(o.Records, rec)
		}
		if at < len(old.reach.Observers) && old.reach.Observers[at].equal(&o) {
			o.Records = old.reach.Observers[at].Records
		} else {
			same = false
		}
		c.reach.Observers = append(c.reach.Observers, o)
	}
	if same {
		c.reach.Observers = old.reach.Observers
	}
}

func (o *Observer) equal(other *Observer) bool {
	return o.Node == other.Node && o.Version == other.Version && slices.Equal(o.Records, other.Records)
}

func (c *content) readTombstones(r *wire.Reader) {
	n := r.Count(maxTombstones, nodeSize+2, "tombstones")
	if n == 0 {
		return
	}
	c.tombstones = make([]Tombstone, 0, n)
	var nodes nodeReader
	for range n {
		if !nodes.next(r) {
			return
		}
		t := Tombstone{nodes.node(), r.Int("time"), r.Uint(1<<63, "tombstone")}
		if _, member := findMember(c.members, t.Node); member {
			r.Fail("%v is both a member and removed", t.Node)
		}
		if r.Err() != nil {
			return
		}
		c.tombstones = append(c.tombstones, t)
	}
}
