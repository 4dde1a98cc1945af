// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/syndtr/goleveldb/leveldb/comparer"
	"github.com/syndtr/goleveldb/leveldb/filter"
	"github.com/syndtr/goleveldb/leveldb/opt"

	"github.com/refold-io/refold/journal"
)

// Options returns the options under which a database of this package is opened:
// what a benchmark needs to compare with the engine alone. The caller owns it.
func Options() *opt.Options {
	return &opt.Options{
		Comparer:                     newOrder(eventsFormat(), formatVersion),
		Filter:                       filter.NewBloomFilter(10),
		WriteBuffer:                  16 << 20,
		BlockCacheCapacity:           32 << 20,
		CompactionTableSize:          8 << 20,
		DisableLargeBatchTransaction: true,              // a batch is one record of the log, whatever its size
		Strict:                       opt.DefaultStrict, // and the rest is checked before opening
	}
}

// The name of the key order stands in the first record of every manifest, where
// it can be read before the engine changes anything. So it carries the version
// of the format, and the directory of another program is told apart too.
const (
	orderPrefix   = "refold.leveldb/"
	formatVersion = 2
	// unorderedVersion is the version that had no order of all events.
	unorderedVersion = 1
)

// format is a kind of database, and the latest version of what is in there.
type format struct {
	prefix string
	latest uint32
}

// eventsFormat is that of events and snapshots.
func eventsFormat() format { return format{orderPrefix, formatVersion} }

// order is the bytewise order of keys. Its version is that of the format that
// the manifest says or, once another manifest is begun, is to say.
type order struct {
	prefix  string
	version atomic.Uint32
}

var _ comparer.Comparer = (*order)(nil)

func newOrder(f format, version uint32) *order {
	o := &order{prefix: f.prefix}
	o.version.Store(version)
	return o
}

// Compare implements comparer.Comparer.
func (*order) Compare(a, b []byte) int { return bytes.Compare(a, b) }

// Separator implements comparer.Comparer.
func (*order) Separator(dst, a, b []byte) []byte {
	return comparer.DefaultComparer.Separator(dst, a, b)
}

// Successor implements comparer.Comparer.
func (*order) Successor(dst, b []byte) []byte { return comparer.DefaultComparer.Successor(dst, b) }

// Name implements comparer.Comparer.
func (o *order) Name() string {
	return o.prefix + strconv.FormatUint(uint64(o.version.Load()), 10)
}

// checkOrder returns the version of the format of a database whose keys are
// ordered by the comparer of that name, or an error if this one can't read it.
func (f format) checkOrder(name string) (uint32, error) {
	version, ours := strings.CutPrefix(name, f.prefix)
	n, err := strconv.ParseUint(version, 10, 32)
	switch {
	case !ours || err != nil || n == 0:
		return 0, fmt.Errorf("%w: its keys are ordered by %q", ErrForeign, name)
	case n > uint64(f.latest):
		return 0, fmt.Errorf("%w: format %d, this one knows %d", journal.ErrNewerVersion, n, f.latest)
	}
	return uint32(n), nil
}
