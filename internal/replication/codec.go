// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package replication

import "slices"

// A message is a byte for the version of the encoding, one for its kind, the nodes
// that it names, and its fields. The high half of the version is the major one:
// another can't be read. A higher minor one may add fields at the end, which are
// passed over.
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

// DecodeMessage decodes what AppendMessage has written. The message refers to b,
// which must not be modified afterwards. The error matches ErrMalformed.
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

// head reads what every message begins with.
func (r *reader) head() Kind {
	if len(r.b) > MaxMessage {
		r.fail("it has %d bytes, at most %d are allowed", len(r.b), MaxMessage)
	}
	r.version = r.byte(255, "version")
	kind := Kind(r.byte(255, "kind"))
	if r.err == nil && r.version&0xf0 != wireMajor {
		r.fail("version %d.%d is not known", r.version>>4, r.version&0xf)
	}
	r.table()
	return kind
}

// end returns the first error, or that something is left over.
func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 && r.version&0xf <= wireMinor {
		r.fail("%d bytes too many", len(r.b))
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
		p := Pull{r.number("number"), r.bucket(buckets - 1), r.bucket(buckets), r.mark()}
		if p.From >= p.To {
			r.fail("buckets %d to %d", p.From, p.To)
		}
		return p
	case KindChunk:
		return Chunk{r.number("number"), r.entries(), r.bool("done"), r.bucket(buckets), r.mark()}
	case KindPart:
		p := Part{r.number("number"), r.uint(MaxMessage, "part"), r.uint(MaxMessage, "parts"), r.text("part")}
		if p.Index >= p.Count || len(p.Data) == 0 {
			r.fail("part %d of %d has %d bytes", p.Index, p.Count, len(p.Data))
		}
		return p
	case Kinds:
	}
	r.fail("%v is not known", kind)
	return nil
}

// readDelta reads a Delta, whose items take the memory of a list if there is enough.
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
		r.fail("no verdict")
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
			r.fail("groups are not in order")
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
		l := KeyList{Bucket: r.bucket(buckets - 1), After: r.mark(), Complete: r.bool("complete")}
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
				r.fail("keys are not in order")
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
			r.fail("versions are not in order, or 0")
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
			r.fail("markers are not in order")
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
		r.fail("changes %d to %d", i.From, i.To)
	}
	return i
}
