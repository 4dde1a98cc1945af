// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/internal/wire"
)

// A message consists of a version byte, a kind byte, the table of the nodes that it refers to, and
// its fields. The high half of the version byte is the major version; messages of another major
// version cannot be decoded. A higher minor version may append fields, which the decoder skips.
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
		writeList(&w, m.Items, func(i *Item) {
			w.b = appendChange(w.b, i.Key, i.From, i.To, i.Delta)
			w.sortedNodes(i.Pruned)
		})
	case Ack:
		return appendAck(dst, m.Nr, m.Verdict)
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
		writeList(&w, m.Groups, func(g *Group) {
			w.b = append(w.b, g.Nr)
			w.digests(&g.Digests)
		})
	case Keys:
		w.bool(m.More)
		writeList(&w, m.Lists, w.keyList)
	case Uses:
		writeList(&w, m.Keys, func(u *Use) {
			w.key(u.Key)
			w.uint(u.Used)
		})
	case Want:
		writeList(&w, m.Keys, func(key *string) { w.key(*key) })
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

func (w *writer) keyList(l *KeyList) {
	w.uint(uint64(l.Bucket))
	w.key(l.After)
	w.bool(l.Complete)
	writeList(w, l.Keys, func(k *KeyDigest) {
		w.key(k.Key)
		w.digest(k.Digest)
		w.uint(k.Used)
	})
}

func (w *writer) entries(entries []Entry) {
	size := 0
	for i := range entries {
		size += entrySize(&entries[i])
	}
	w.b = slices.Grow(w.b, size)
	writeList(w, entries, w.entry)
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
	writeList(w, e.Versions, func(v *Version) {
		w.node(v.Node)
		w.uint(v.N)
	})
}

func (w *writer) markers(markers []Marker) {
	writeList(w, markers, func(k *Marker) {
		w.node(k.Removed)
		w.bool(k.Performed)
		if k.Performed {
			w.uint(k.Obsolete)
			return
		}
		w.node(k.Owner)
		w.sortedNodes(k.Seen)
	})
}

func (r *reader) head() Kind {
	kind := Kind(r.Byte("kind"))
	r.nodeTable()
	return kind
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
		groups := readList(r, 1+branch*len(Digest{}), "groups", func() Group {
			return Group{uint8(r.Uint(branch-1, "group")), r.digests()} //nolint:gosec // less than branch
		})
		return Buckets{ascending(r, groups, "groups", func(a, b Group) int { return cmp.Compare(a.Nr, b.Nr) })}
	case KindKeys:
		return readKeys(r)
	case KindUses:
		return Uses{readList(r, 3, "keys", func() Use { return Use{r.key(), r.number("time")} })}
	case KindWant:
		return Want{readList(r, 2, "keys", r.key)}
	case KindGossip:
		return Gossip{r.bool("send back"), r.entries()}
	case KindPull:
		p := Pull{r.number("number"), r.bucket(buckets - 1), r.bucket(buckets), r.optionalKey()}
		if p.From >= p.To {
			r.Fail("bucket range %d to %d", p.From, p.To)
		}
		return p
	case KindChunk:
		return Chunk{r.number("number"), r.entries(), r.bool("done"), r.bucket(buckets), r.optionalKey()}
	case KindPart:
		p := Part{r.number("number"), r.Uint(MaxMessage, "part"), r.Uint(MaxMessage, "parts"), r.text("part")}
		if p.Index >= p.Count || len(p.Data) == 0 {
			r.Fail("part %d of %d has %d bytes", p.Index, p.Count, len(p.Data))
		}
		return p
	case Kinds:
	}
	r.Fail("unknown kind %v", kind)
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
		if r.Err() != nil {
			break
		}
	}
	return d
}

func readAck(r *reader) Ack {
	a := Ack{r.number("number"), Verdict(r.Uint(uint64(Full), "verdict"))} //nolint:gosec // at most Full
	if a.Verdict == 0 {
		r.Fail("verdict is 0")
	}
	return a
}

func (r *reader) bucket(most uint64) uint16 { return uint16(r.Uint(most, "bucket")) } //nolint:gosec // at most buckets

func (r *reader) digests() (all [branch]Digest) {
	for i := range all {
		all[i] = r.digest()
	}
	return all
}

func readKeys(r *reader) Keys {
	var listed [buckets]bool
	more := r.bool("more")
	lists := readList(r, 4, "lists", func() KeyList {
		l := KeyList{Bucket: r.bucket(buckets - 1), After: r.optionalKey(), Complete: r.bool("complete")}
		if listed[l.Bucket] {
			r.Fail("bucket %d is listed twice", l.Bucket)
		}
		listed[l.Bucket] = true
		keys := readList(r, 18, "keys", func() KeyDigest { return KeyDigest{r.key(), r.digest(), r.number("time")} })
		if len(keys) > 0 && keys[0].Key <= l.After {
			r.Fail("the first key of bucket %d is not after %q", l.Bucket, l.After)
		}
		l.Keys = ascending(r, keys, "keys", func(a, b KeyDigest) int { return strings.Compare(a.Key, b.Key) })
		return l
	})
	return Keys{Lists: lists, More: more}
}

func (r *reader) entries() []Entry { return readList(r, 4, "entries", r.entry) }

func (r *reader) entry() Entry {
	e := Entry{Key: r.key(), Deleted: r.bool("deleted"), Used: r.number("time")}
	if e.Deleted || r.Err() != nil {
		return e
	}
	e.Value = r.text("value")
	e.Pruning = r.markers()
	versions := readList(r, 2, "versions", func() Version {
		v := Version{r.node(), r.number("version")}
		if v.N == 0 {
			r.Fail("version is 0")
		}
		return v
	})
	e.Versions = ascending(r, versions, "versions", func(a, b Version) int { return a.Node.Compare(b.Node) })
	return e
}

func (r *reader) markers() []Marker {
	markers := readList(r, 3, "markers", func() Marker {
		k := Marker{Removed: r.node(), Performed: r.bool("performed")}
		if k.Performed {
			k.Obsolete = r.number("time")
		} else {
			k.Owner = r.node()
			k.Seen = r.sortedNodes("nodes")
		}
		return k
	})
	return ascending(r, markers, "markers", func(a, b Marker) int { return a.Removed.Compare(b.Removed) })
}

func (r *reader) item() Item {
	i := Item{Key: r.key(), From: r.number("version"), To: r.number("version"), Delta: r.text("delta"), Pruned: r.sortedNodes("nodes")}
	if i.From > i.To {
		r.Fail("change range %d to %d", i.From, i.To)
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
	return append(appendChange(dst, key, from, to, delta), 0)
}

func appendChange(dst []byte, key string, from, to uint64, delta []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(key)))
	dst = append(dst, key...)
	dst = binary.AppendUvarint(dst, from)
	dst = binary.AppendUvarint(dst, to)
	dst = binary.AppendUvarint(dst, uint64(len(delta)))
	return append(dst, delta...)
}

const maxAck = 4 + binary.MaxVarintLen64

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
	wire.Reader

	nodes []identity.Node
	known map[string]*entry // entries by key; their keys need no validation
}

func (r *reader) number(subject string) uint64 { return r.Uint(maxNumber, subject) }

// count reads the number of elements that follow, each of at least size bytes.
func (r *reader) count(size int, subject string) int { return r.Count(MaxMessage, size, subject) }

func (r *reader) bool(subject string) bool { return r.Uint(1, subject) == 1 }

// readList reads a list of elements of at least size bytes each. It returns nil for an empty list
// and after an error.
func readList[T any](r *reader, size int, subject string, read func() T) []T {
	n := r.count(size, subject)
	if n == 0 {
		return nil
	}
	list := make([]T, 0, n)
	for range n {
		list = append(list, read())
		if r.Err() != nil {
			return nil
		}
	}
	return list
}

// ascending fails unless each element of a list is greater than the one before.
func ascending[T any](r *reader, list []T, subject string, compare func(a, b T) int) []T {
	for i := 1; i < len(list); i++ {
		if compare(list[i-1], list[i]) >= 0 {
			r.Fail("%s are not sorted", subject)
			return nil
		}
	}
	return list
}

func (r *reader) text(subject string) []byte { return r.Bytes(r.count(1, subject), subject) }

func (r *reader) key() string {
	b := r.text("key")
	if r.Err() != nil {
		return ""
	}
	return r.checked(b)
}

func (r *reader) checked(b []byte) string {
	if e := r.known[string(b)]; e != nil {
		return e.key
	}
	key := string(b[:min(len(b), MaxKey+1)])
	if err := CheckKey(key); err != nil {
		r.Fail("%v", err)
		return ""
	}
	return key
}

// optionalKey reads a key that may be empty, because it is a position between keys.
func (r *reader) optionalKey() string {
	b := r.text("key")
	if len(b) == 0 {
		return ""
	}
	return r.checked(b)
}

func (r *reader) digest() (d Digest) {
	copy(d[:], r.Bytes(len(d), "digest"))
	return d
}

func (r *reader) nodeTable() {
	for range r.Count(MaxNodes, 10, "nodes") {
		name := r.Bytes(r.Count(identity.MaxNameLength, 1, "name"), "name")
		node := r.Checked(identity.Node{Name: string(name), UID: r.UID()})
		if r.Err() != nil {
			return
		}
		r.nodes = append(r.nodes, node)
	}
}

func (r *reader) node() identity.Node {
	i := r.Uint(MaxNodes, "node")
	if i >= uint64(len(r.nodes)) {
		r.Fail("node index %d of %d", i, len(r.nodes))
		return identity.Node{}
	}
	return r.nodes[i]
}

// sortedNodes reads a sorted list of nodes, which is not longer than the table.
func (r *reader) sortedNodes(subject string) []identity.Node {
	n := r.Count(len(r.nodes), 1, subject)
	if n == 0 {
		return nil
	}
	nodes := make([]identity.Node, n)
	for i := range nodes {
		nodes[i] = r.node()
	}
	return ascending(r, nodes, subject, identity.Node.Compare)
}

// writer encodes fields. Each node is written once, in a table before the fields.
type writer struct {
	b     []byte
	nodes []identity.Node
	index map[identity.Node]uint64
}

func (w *writer) uint(v uint64) { w.b = binary.AppendUvarint(w.b, v) }

func (w *writer) count(n int) { w.uint(uint64(n)) } //nolint:gosec // not negative

func writeList[T any](w *writer, list []T, write func(*T)) {
	w.count(len(list))
	for i := range list {
		write(&list[i])
	}
}

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
	writeList(w, nodes, func(n *identity.Node) { w.node(*n) })
}

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
