// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/refold-io/refold/identity"
)

// A message consists of a version byte, a kind byte, the table of the nodes that it refers to, and
// its fields. The high half of the version is the major version; another major version cannot be
// decoded. A higher minor version may append fields, which are skipped.
const (
	wireMajor = 1 << 4
	wireMinor = 0
)

// AppendMessage appends the encoding of a message.
func AppendMessage(dst []byte, m Message) []byte {
	var w writer
	switch m := m.(type) {
	case Write:
		w.uint(m.Nr)
		w.entry(&m.Entry)
	case Delta:
		w.uint(m.Nr)
		w.count(len(m.Items))
		for i := range m.Items {
			w.item(&m.Items[i])
		}
	case Ack:
		w.uint(m.Nr)
		w.b = append(w.b, byte(m.Verdict))
	case Read:
		w.uint(m.Nr)
		w.key(m.Key)
	case ReadResult:
		w.uint(m.Nr)
		w.bool(m.Entry != nil)
		if m.Entry != nil {
			w.entry(m.Entry)
		}
	case Root:
		w.digest(m.Digest)
	case Groups:
		w.digests(&m.Digests)
	case Buckets:
		w.count(len(m.Groups))
		for i := range m.Groups {
			w.b = append(w.b, m.Groups[i].Nr)
			w.digests(&m.Groups[i].Digests)
		}
	case Keys:
		w.bool(m.More)
		w.count(len(m.Lists))
		for i := range m.Lists {
			w.list(&m.Lists[i])
		}
	case Uses:
		w.count(len(m.Keys))
		for _, u := range m.Keys {
			w.key(u.Key)
			w.uint(u.Used)
		}
	case Want:
		w.count(len(m.Keys))
		for _, key := range m.Keys {
			w.key(key)
		}
	case Gossip:
		w.bool(m.SendBack)
		w.entries(m.Entries)
	case Pull:
		w.uint(m.Nr)
		w.uint(uint64(m.From))
		w.uint(uint64(m.To))
		w.key(m.After)
	case Chunk:
		w.uint(m.Nr)
		w.entries(m.Entries)
		w.bool(m.Done)
		w.uint(uint64(m.Bucket))
		w.key(m.After)
	case Part:
		w.uint(m.Nr)
		w.uint(m.Index)
		w.uint(m.Count)
		w.text(m.Data)
	}
	return w.finish(dst, wireMajor|wireMinor, byte(m.kind()))
}

func (w *writer) digests(all *[branch]Digest) {
	for _, d := range all {
		w.digest(d)
	}
}

func (w *writer) list(l *KeyList) {
	w.uint(uint64(l.Bucket))
	w.key(l.After)
	w.bool(l.Complete)
	w.count(len(l.Keys))
	for i := range l.Keys {
		w.key(l.Keys[i].Key)
		w.digest(l.Keys[i].Digest)
		w.uint(l.Keys[i].Used)
	}
}

func (w *writer) entries(entries []Entry) {
	size := 0
	for i := range entries {
		size += entrySize(&entries[i])
	}
	w.b = slices.Grow(w.b, size)
	w.count(len(entries))
	for i := range entries {
		w.entry(&entries[i])
	}
}

func (w *writer) entry(e *Entry) {
	w.key(e.Key)
	w.bool(e.Deleted)
	w.uint(e.Used)
	if e.Deleted {
		return
	}
	w.text(e.Value)
	w.markers(e.Pruning)
	w.count(len(e.Versions))
	for _, v := range e.Versions {
		w.node(v.Node)
		w.uint(v.N)
	}
}

func (w *writer) markers(markers []Marker) {
	w.count(len(markers))
	for i := range markers {
		k := &markers[i]
		w.node(k.Removed)
		w.bool(k.Performed)
		if k.Performed {
			w.uint(k.Obsolete)
			continue
		}
		w.node(k.Owner)
		w.sortedNodes(k.Seen)
	}
}

func (w *writer) item(i *Item) {
	w.key(i.Key)
	w.uint(i.From)
	w.uint(i.To)
	w.text(i.Delta)
	w.sortedNodes(i.Pruned)
}

// DecodeMessage decodes the output of AppendMessage. The message refers to b, which must not be
// modified afterwards. The error matches ErrMalformed.
func DecodeMessage(b []byte) (Message, error) {
	r := reader{b: b}
	kind := r.head()
	var m Message
	if r.err == nil {
		m = readMessage(&r, kind)
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	return m, nil
}

// head decodes the header of a message.
func (r *reader) head() Kind {
	if len(r.b) > MaxMessage {
		r.fail("%d bytes, limit %d", len(r.b), MaxMessage)
	}
	r.version = r.byte(255, "version")
	kind := Kind(r.byte(255, "kind"))
	if r.err == nil && r.version&0xf0 != wireMajor {
		r.fail("unknown version %d.%d", r.version>>4, r.version&0xf)
	}
	r.nodeTable()
	return kind
}

// end returns the first error. Unread bytes are an error unless the minor version is higher.
func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 && r.version&0xf <= wireMinor {
		r.fail("%d trailing bytes", len(r.b))
	}
	return r.err
}

func readMessage(r *reader, kind Kind) Message {
	switch kind {
	case KindWrite:
		return Write{r.number("number"), r.entry()}
	case KindDelta:
		return readDelta(r, nil)
	case KindAck:
		return readAck(r)
	case KindRead:
		return Read{r.number("number"), r.key()}
	case KindReadResult:
		a := ReadResult{Nr: r.number("number")}
		if r.bool("found") {
			e := r.entry()
			a.Entry = &e
		}
		return a
	case KindRoot:
		return Root{r.digest()}
	case KindGroups:
		return Groups{r.digests()}
	case KindBuckets:
		return readBuckets(r)
	case KindKeys:
		return readKeys(r)
	case KindUses:
		n := r.count(3, "keys")
		u := Uses{make([]Use, 0, n)}
		for range n {
			u.Keys = append(u.Keys, Use{r.key(), r.number("time")})
			if r.err != nil {
				break
			}
		}
		return u
	case KindWant:
		n := r.count(2, "keys")
		w := Want{make([]string, 0, n)}
		for range n {
			w.Keys = append(w.Keys, r.key())
			if r.err != nil {
				break
			}
		}
		return w
	case KindGossip:
		return Gossip{r.bool("send back"), r.entries()}
	case KindPull:
		p := Pull{r.number("number"), r.bucket(buckets - 1), r.bucket(buckets), r.optionalKey()}
		if p.From >= p.To {
			r.fail("bucket range %d to %d", p.From, p.To)
		}
		return p
	case KindChunk:
		return Chunk{r.number("number"), r.entries(), r.bool("done"), r.bucket(buckets), r.optionalKey()}
	case KindPart:
		p := Part{r.number("number"), r.uint(MaxMessage, "part"), r.uint(MaxMessage, "parts"), r.text("part")}
		if p.Index >= p.Count || len(p.Data) == 0 {
			r.fail("part %d of %d has %d bytes", p.Index, p.Count, len(p.Data))
		}
		return p
	case Kinds:
	}
	r.fail("unknown kind %v", kind)
	return nil
}

// readDelta decodes a Delta. It uses the memory of items for the list if that is large enough.
func readDelta(r *reader, items []Item) Delta {
	d := Delta{Nr: r.number("number")}
	n := r.count(5, "items")
	if d.Items = items; cap(items) < n {
		d.Items = make([]Item, 0, n)
	}
	for range n {
		d.Items = append(d.Items, r.item())
		if r.err != nil {
			break
		}
	}
	return d
}

func readAck(r *reader) Ack {
	a := Ack{r.number("number"), Verdict(r.byte(byte(Full), "verdict"))}
	if r.err == nil && a.Verdict == 0 {
		r.fail("verdict is 0")
	}
	return a
}

func (r *reader) bucket(most uint64) uint16 { return uint16(r.uint(most, "bucket")) } //nolint:gosec // at most buckets

func (r *reader) digests() (all [branch]Digest) {
	for i := range all {
		all[i] = r.digest()
	}
	return all
}

func readBuckets(r *reader) Buckets {
	n := r.count(1+branch*len(Digest{}), "groups")
	b := Buckets{make([]Group, 0, n)}
	for i := range n {
		g := Group{r.byte(branch-1, "group"), r.digests()}
		if i > 0 && b.Groups[i-1].Nr >= g.Nr {
			r.fail("groups are not sorted")
		}
		if r.err != nil {
			break
		}
		b.Groups = append(b.Groups, g)
	}
	return b
}

func readKeys(r *reader) Keys {
	k := Keys{More: r.bool("more")}
	lists := r.count(4, "lists")
	var listed [buckets]bool
	k.Lists = make([]KeyList, 0, lists)
	for range lists {
		l := KeyList{Bucket: r.bucket(buckets - 1), After: r.optionalKey(), Complete: r.bool("complete")}
		if r.err == nil && listed[l.Bucket] {
			r.fail("bucket %d is listed twice", l.Bucket)
		}
		if r.err != nil {
			return k
		}
		listed[l.Bucket] = true
		last := l.After
		n := r.count(18, "keys")
		if n > 0 {
			l.Keys = make([]KeyDigest, 0, n)
		}
		for range n {
			d := KeyDigest{r.key(), r.digest(), r.number("time")}
			if d.Key <= last {
				r.fail("keys are not sorted")
			}
			if r.err != nil {
				return k
			}
			last = d.Key
			l.Keys = append(l.Keys, d)
		}
		k.Lists = append(k.Lists, l)
	}
	return k
}

func (r *reader) entries() []Entry {
	n := r.count(4, "entries")
	entries := make([]Entry, 0, n)
	for range n {
		entries = append(entries, r.entry())
		if r.err != nil {
			return nil
		}
	}
	return entries
}

func (r *reader) entry() Entry {
	e := Entry{Key: r.key(), Deleted: r.bool("deleted"), Used: r.number("time")}
	if e.Deleted || r.err != nil {
		return e
	}
	e.Value = r.text("value")
	e.Pruning = r.markers()
	n := r.count(2, "versions")
	if n > 0 {
		e.Versions = make([]Version, 0, n)
	}
	for range n {
		v := Version{r.node(), r.number("version")}
		if n := len(e.Versions); v.N == 0 || n > 0 && e.Versions[n-1].Node.Compare(v.Node) >= 0 {
			r.fail("versions are not sorted, or a version is 0")
		}
		if r.err != nil {
			break
		}
		e.Versions = append(e.Versions, v)
	}
	return e
}

func (r *reader) markers() []Marker {
	count := r.count(3, "markers")
	if count == 0 {
		return nil
	}
	markers := make([]Marker, 0, count)
	for range count {
		k := Marker{Removed: r.node(), Performed: r.bool("performed")}
		if k.Performed {
			k.Obsolete = r.number("time")
		} else {
			k.Owner = r.node()
			k.Seen = r.sortedNodes("nodes")
		}
		if n := len(markers); n > 0 && markers[n-1].Removed.Compare(k.Removed) >= 0 {
			r.fail("markers are not sorted")
		}
		if r.err != nil {
			return nil
		}
		markers = append(markers, k)
	}
	return markers
}

func (r *reader) item() Item {
	i := Item{Key: r.key(), From: r.number("version"), To: r.number("version"), Delta: r.text("delta"), Pruned: r.sortedNodes("nodes")}
	if i.From > i.To {
		r.fail("change range %d to %d", i.From, i.To)
	}
	return i
}

// deltaHead is the maximum size of a Delta without its items, if it refers to no nodes.
const deltaHead = 3 + 2*binary.MaxVarintLen64

// itemSize is the maximum size of an item that refers to no nodes.
func itemSize(key string, delta []byte) int {
	return len(key) + len(delta) + 4*binary.MaxVarintLen64 + 1
}

// appendItem appends an item that refers to no nodes. Its bytes are the same in each message.
func appendItem(dst []byte, key string, from, to uint64, delta []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(key)))
	dst = append(dst, key...)
	dst = binary.AppendUvarint(dst, from)
	dst = binary.AppendUvarint(dst, to)
	dst = binary.AppendUvarint(dst, uint64(len(delta)))
	dst = append(dst, delta...)
	return append(dst, 0)
}

// maxAck is the maximum size of an Ack.
const maxAck = 4 + binary.MaxVarintLen64

// appendAck appends an Ack in the encoding of AppendMessage.
func appendAck(dst []byte, nr uint64, verdict Verdict) []byte {
	dst = append(dst, wireMajor|wireMinor, byte(KindAck), 0)
	return append(binary.AppendUvarint(dst, nr), byte(verdict))
}

// appendDeltaHead appends the part of a Delta before its items. The Delta refers to no nodes.
func appendDeltaHead(dst []byte, nr uint64, items int) []byte {
	dst = append(dst, wireMajor|wireMinor, byte(KindDelta), 0)
	dst = binary.AppendUvarint(dst, nr)
	return binary.AppendUvarint(dst, uint64(items)) //nolint:gosec // not negative
}

// Limits of decoding.
const (
	// MaxMessage is the maximum size of a message in bytes.
	MaxMessage = 16 << 20
	// MaxNodes is the maximum number of nodes that a message refers to.
	MaxNodes = 10_000

	maxNumber = 1 << 62
	// overhead is the maximum size of a message with one ordinary entry, without the value.
	overhead = 4 << 10
)

// reader decodes fields. After the first error its methods return zero values.
type reader struct {
	b       []byte
	version byte
	nodes   []identity.Node
	known   map[string]*entry // keys that are known to be valid
	err     error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
		r.b = nil
	}
}

// uint reads a number that is at most most.
func (r *reader) uint(most uint64, subject string) uint64 {
	v, n := binary.Uvarint(r.b)
	switch {
	case n <= 0:
		r.fail("%s is missing", subject)
		return 0
	case n > 1 && r.b[n-1] == 0:
		r.fail("%s is not in its shortest form", subject)
		return 0
	case v > most:
		r.fail("%s is %d, limit %d", subject, v, most)
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) number(subject string) uint64 { return r.uint(maxNumber, subject) }

// count reads the number of elements that follow, each of at least size bytes.
func (r *reader) count(size int, subject string) int {
	n := r.uint(MaxMessage, subject)
	if int(n)*size > len(r.b) { //nolint:gosec // at most MaxMessage
		r.fail("%d %s exceed the remaining %d bytes", n, subject, len(r.b))
		return 0
	}
	return int(n) //nolint:gosec // at most MaxMessage
}

func (r *reader) byte(most byte, subject string) byte {
	switch {
	case len(r.b) == 0:
		r.fail("%s is missing", subject)
		return 0
	case r.b[0] > most:
		r.fail("%s is %d, limit %d", subject, r.b[0], most)
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) bool(subject string) bool { return r.byte(1, subject) == 1 }

// bytes reads n bytes without copying them.
func (r *reader) bytes(n int, subject string) []byte {
	if n > len(r.b) {
		r.fail("%s is truncated", subject)
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

// text reads a length and that many bytes without copying them.
func (r *reader) text(subject string) []byte { return r.bytes(r.count(1, subject), subject) }

func (r *reader) key() string {
	b := r.text("key")
	if r.err != nil {
		return ""
	}
	if e := r.known[string(b)]; e != nil {
		return e.key
	}
	key := string(b[:min(len(b), MaxKey+1)])
	if err := CheckKey(key); err != nil {
		r.fail("%v", err)
		return ""
	}
	return key
}

// optionalKey reads a key that may be empty: a position between keys.
func (r *reader) optionalKey() string {
	if len(r.b) > 0 && r.b[0] == 0 {
		r.b = r.b[1:]
		return ""
	}
	return r.key()
}

func (r *reader) digest() (d Digest) {
	copy(d[:], r.bytes(len(d), "digest"))
	return d
}

// nodeTable reads the nodes that a message refers to.
func (r *reader) nodeTable() {
	n := r.count(10, "nodes")
	if n > MaxNodes {
		r.fail("%d nodes, limit %d", n, MaxNodes)
		return
	}
	for range n {
		name, uid := r.text("name"), r.bytes(8, "UID")
		if r.err != nil {
			return
		}
		if len(name) > identity.MaxNameLength {
			r.fail("node name has %d bytes", len(name))
			return
		}
		node := identity.Node{Name: string(name), UID: binary.LittleEndian.Uint64(uid)}
		if err := identity.CheckName(node.Name); err != nil || node.UID == 0 {
			r.fail("node %v is invalid", node)
			return
		}
		r.nodes = append(r.nodes, node)
	}
}

func (r *reader) node() identity.Node {
	i := r.uint(MaxNodes, "node")
	if r.err == nil && i >= uint64(len(r.nodes)) {
		r.fail("node index %d of %d", i, len(r.nodes))
	}
	if r.err != nil {
		return identity.Node{}
	}
	return r.nodes[i]
}

// sortedNodes reads a sorted list of nodes.
func (r *reader) sortedNodes(subject string) []identity.Node {
	n := r.count(1, subject)
	if n == 0 {
		return nil
	}
	nodes := make([]identity.Node, 0, min(n, len(r.nodes)))
	for range n {
		node := r.node()
		if len(nodes) > 0 && nodes[len(nodes)-1].Compare(node) >= 0 {
			r.fail("%s are not sorted", subject)
		}
		if r.err != nil {
			return nil
		}
		nodes = append(nodes, node)
	}
	return nodes
}

// writer encodes fields. Each node is written once, in a table before the fields.
type writer struct {
	b     []byte
	nodes []identity.Node
	index map[identity.Node]uint64
}

func (w *writer) uint(v uint64) { w.b = binary.AppendUvarint(w.b, v) }

func (w *writer) count(n int) { w.uint(uint64(n)) } //nolint:gosec // not negative

func (w *writer) bool(v bool) {
	if v {
		w.b = append(w.b, 1)
		return
	}
	w.b = append(w.b, 0)
}

func (w *writer) text(b []byte) {
	w.count(len(b))
	w.b = append(w.b, b...)
}

func (w *writer) key(key string) {
	w.count(len(key))
	w.b = append(w.b, key...)
}

func (w *writer) digest(d Digest) { w.b = append(w.b, d[:]...) }

func (w *writer) node(n identity.Node) {
	i, found := w.index[n]
	if !found {
		if w.index == nil {
			w.index = map[identity.Node]uint64{}
		}
		i = uint64(len(w.nodes))
		w.index[n] = i
		w.nodes = append(w.nodes, n)
	}
	w.uint(i)
}

func (w *writer) sortedNodes(nodes []identity.Node) {
	w.count(len(nodes))
	for _, n := range nodes {
		w.node(n)
	}
}

// finish appends a header, the node table and the fields.
func (w *writer) finish(dst []byte, head ...byte) []byte {
	size := len(head) + binary.MaxVarintLen32 + len(w.b)
	for _, n := range w.nodes {
		size += binary.MaxVarintLen32 + len(n.Name) + 8
	}
	dst = append(slices.Grow(dst, size), head...)
	dst = binary.AppendUvarint(dst, uint64(len(w.nodes)))
	for _, n := range w.nodes {
		dst = binary.AppendUvarint(dst, uint64(len(n.Name)))
		dst = append(dst, n.Name...)
		dst = binary.LittleEndian.AppendUint64(dst, n.UID)
	}
	return append(dst, w.b...)
}
