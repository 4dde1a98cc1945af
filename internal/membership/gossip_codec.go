// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/wire"
)

// The content of a gossip, without the set of members that have seen it, is encoded as
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
// extensions, which older versions forward.

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

// appendIndex appends the index of a member, minus the previous index.
func (c *content) appendIndex(dst []byte, n identity.Node, last int) (encoded []byte, index int) {
	behind := c.members[last:]
	i := 1 // neighbours are likely, because often many members have ticks
	if len(behind) < 2 || behind[1].Node != n {
		i, _ = findMember(behind, n)
	}
	return binary.AppendUvarint(dst, uint64(i)), last + i
}

func (c *content) appendMembers(dst []byte) []byte {
	var profiles []*identity.Member
	of := make([]uint16, len(c.members))
	last := 0
	for i, m := range c.members {
		if i == 0 || !sameProfile(profiles[last], m) {
			if last = slices.IndexFunc(profiles, func(p *identity.Member) bool { return sameProfile(p, m) }); last < 0 {
				last = len(profiles)
				profiles = append(profiles, m)
			}
		}
		of[i] = uint16(last)
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
		dst = binary.AppendUvarint(dst, uint64(of[i]))
	}
	return dst
}

func sameProfile(a, b *identity.Member) bool {
	return a.Version == b.Version && sameRoles(a.Roles, b.Roles)
}

// DecodeContent decodes the format of AppendContent. The result shares equal parts with known,
// which may be the zero value, and does not refer to b. The error matches ErrMalformed.
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
		switch {
		case rank(m.Status) == 0 || m.Status == identity.Removed:
			r.Fail("unknown status %d", byte(m.Status))
		case profile >= len(profiles):
			r.Fail("unknown profile %d", profile)
		}
		if r.Err() != nil {
			return
		}
		m.Roles, m.Version = profiles[profile].Roles, profiles[profile].Version
		for at < len(old.members) && nodes.behind(old.members[at].Node) {
			at++
		}
		if at < len(old.members) && nodes.is(old.members[at].Node) {
			before := old.members[at]
			at++ // usually the next one
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

// behind reports whether a node sorts before the one that was read.
func (w *nodeReader) behind(n identity.Node) bool {
	return n.Name < string(w.name) || n.Name == string(w.name) && n.UID < w.uid
}

func (w *nodeReader) is(n identity.Node) bool { return n.UID == w.uid && n.Name == string(w.name) }

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
		// The same version of an observer has the same records, unless one of them was removed
		// since.
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
