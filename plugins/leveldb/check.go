// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"slices"

	"github.com/syndtr/goleveldb/leveldb/storage"

	"github.com/refold-io/refold/journal"
)

// check verifies the manifest and the logs before the engine opens them, because the engine
// silently drops data that it cannot read. It returns the logs that hold data, in order.
func check(files storage.Storage, f format, readOnly bool) (logs []storage.FileDesc, err error) {
	all, err := files.List(storage.TypeAll)
	if err != nil {
		return nil, err
	}
	current, err := files.GetMeta()
	if err != nil {
		return nil, checkNew(files, all, readOnly, err)
	}
	var m manifest
	if err := checkManifest(files, f, current, &m); err != nil {
		return nil, err
	}
	present := make(map[storage.FileDesc]bool, len(all))
	for _, fd := range all {
		present[fd] = true
	}
	for _, number := range m.tableNumbers() {
		fd := storage.FileDesc{Type: storage.TypeTable, Num: int64(number)} //nolint:gosec // checked by fields.file
		if !present[fd] {
			return nil, missing(fd)
		}
	}
	fd := storage.FileDesc{Type: storage.TypeJournal, Num: int64(m.log)} //nolint:gosec // checked by fields.file
	if m.log != 0 && !present[fd] {                                      // 0: power failure before the first log
		return nil, missing(fd)
	}
	logs = slices.DeleteFunc(all, func(fd storage.FileDesc) bool {
		number := uint64(fd.Num) //nolint:gosec // not negative
		return fd.Type != storage.TypeJournal || number < m.log && (m.previousLog == 0 || number != m.previousLog)
	})
	slices.SortFunc(logs, func(a, b storage.FileDesc) int { return cmp.Compare(a.Num, b.Num) })
	return logs, checkLogs(files, logs, m.sequence)
}

func missing(fd storage.FileDesc) error {
	return &journal.CorruptError{File: fd.String(), Offset: -1, Detail: "the file is missing"}
}

// checkNew replaces check when no current manifest can be determined, for the given reason. This is
// the case in an empty directory, and after a power failure during the creation of the database. In
// both cases there is neither a log nor a table.
func checkNew(files storage.Storage, all []storage.FileDesc, readOnly bool, reason error) error {
	var damaged *storage.ErrCorrupted
	if !errors.Is(reason, os.ErrNotExist) && !errors.As(reason, &damaged) {
		return reason
	}
	for _, fd := range all {
		if fd.Type == storage.TypeJournal || fd.Type == storage.TypeTable {
			return &journal.CorruptError{File: "CURRENT", Offset: -1, Detail: reason.Error()}
		}
	}
	if readOnly {
		return fmt.Errorf("no database: %w", os.ErrNotExist)
	}
	for _, fd := range all {
		if fd.Type == storage.TypeManifest { // the engine would treat it as a part of a damaged database
			if err := files.Remove(fd); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkManifest(files storage.Storage, f format, fd storage.FileDesc, m *manifest) error {
	_, _, err := scanFile(files, fd, m)
	if m.has[fieldComparer] {
		// Check the version first: damage may be a change of format in a newer version.
		if ferr := f.check(m.comparer); ferr != nil {
			return ferr
		}
	}
	if err != nil {
		return err
	}
	if field := m.incomplete(); field != "" {
		return &journal.CorruptError{File: fd.String(), Offset: -1, Detail: "manifest lacks the " + field}
	}
	return nil
}

func checkLogs(files storage.Storage, logs []storage.FileDesc, sequence uint64) error {
	sink := &batchCheck{sequence: sequence}
	var tornLog storage.FileDesc
	tornAt := int64(-1)
	for _, fd := range logs {
		valid, torn, err := scanFile(files, fd, sink)
		if err != nil {
			return err
		}
		if valid && tornAt >= 0 {
			return &journal.CorruptError{File: tornLog.String(), Offset: tornAt, Detail: fmt.Sprintf("damaged record before valid records in %s", fd)}
		}
		if torn >= 0 && tornAt < 0 {
			tornLog, tornAt = fd, torn
		}
		*sink = batchCheck{sequence: sink.sequence}
	}
	return nil
}

func scanFile(files storage.Storage, fd storage.FileDesc, sink recordSink) (valid bool, torn int64, err error) {
	r, err := files.Open(fd)
	if err != nil {
		return false, -1, err
	}
	valid, torn, err = scanLog(fd.String(), r, sink)
	return valid, torn, errors.Join(err, r.Close())
}

// A record of a log is a batch, with integers in little-endian order:
//
//	sequence  8 bytes, the engine's number of the first entry
//	count     4 bytes, of entries
//	entries   1 byte type (0 deletion, 1 value), key; a value too. Each is a length and bytes.
//
// The engine skips malformed batches, and those whose sequence is not above the previous ones.
const (
	batchHeader = 12
	maxSequence = 1<<56 - 1
)

// batchCheck is a recordSink that checks batches without storing them.
type batchCheck struct {
	sequence uint64 // lowest valid sequence of the next batch

	header  [batchHeader]byte
	filled  int
	entries uint32
	state   batchState
	value   bool   // the entry has a value
	length  uint64 // of the key or value; then the part of it that is left
	shift   uint
}

type batchState int

const (
	inHeader batchState = iota
	atEntry
	inKeyLength
	inKey
	inValueLength
	inValue
)

func badRecordf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errBadRecord, fmt.Sprintf(format, args...))
}

func (c *batchCheck) part(b []byte) error {
	for len(b) > 0 {
		switch c.state {
		case inHeader:
			n := copy(c.header[c.filled:], b)
			b, c.filled = b[n:], c.filled+n
			if c.filled == batchHeader {
				c.state = atEntry
			}
		case atEntry:
			if b[0] > 1 {
				return badRecordf("entry of unknown type %d", b[0])
			}
			c.value, b = b[0] == 1, b[1:]
			c.entries++
			c.state, c.length, c.shift = inKeyLength, 0, 0
		case inKeyLength, inValueLength:
			if bits.Len8(b[0]&0x7f) > 32-int(c.shift) {
				return badRecordf("length out of range")
			}
			c.length |= uint64(b[0]&0x7f) << c.shift
			c.shift += 7
			more := b[0]&0x80 != 0
			b = b[1:]
			if !more {
				c.state++
				c.skip(0)
			}
		case inKey, inValue:
			n := min(c.length, uint64(len(b)))
			b = b[n:]
			c.skip(n)
		}
	}
	return nil
}

// skip skips n bytes of a key or value.
func (c *batchCheck) skip(n uint64) {
	c.length -= n
	switch {
	case c.length > 0:
	case c.state == inKey && c.value:
		c.state, c.shift = inValueLength, 0
	default:
		c.state = atEntry
	}
}

func (c *batchCheck) end() error {
	sequence := binary.LittleEndian.Uint64(c.header[:])
	count := binary.LittleEndian.Uint32(c.header[8:])
	switch {
	case c.state != atEntry:
		return badRecordf("batch ends within an entry")
	case count != c.entries:
		return badRecordf("batch has %d entries, its header %d", c.entries, count)
	case sequence < c.sequence:
		return badRecordf("batch has sequence %d, want at least %d", sequence, c.sequence)
	case sequence > maxSequence-uint64(count):
		return badRecordf("batch sequence %d out of range", sequence)
	}
	*c = batchCheck{sequence: sequence + uint64(count)}
	return nil
}

// The end of a table: two block handles, each a varint offset and a varint length, zeros, and the
// magic number. No checksum covers it.
const (
	footerSize       = 48
	footerMagic      = "\x57\xfb\x80\x8b\x24\x75\x47\xdb"
	blockTrailerSize = 5
)

var errFooter = errors.New("damaged table footer")

// checkFooter returns an error if the footer points outside the table.
func checkFooter(r storage.Reader) error {
	size, err := r.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if size < footerSize {
		return fmt.Errorf("%w: file has %d bytes", errFooter, size)
	}
	var footer [footerSize]byte
	if _, err := r.ReadAt(footer[:], size-footerSize); err != nil {
		return err
	}
	if string(footer[footerSize-len(footerMagic):]) != footerMagic {
		return fmt.Errorf("%w: no magic number", errFooter)
	}
	handles := footer[:footerSize-len(footerMagic)]
	for range 2 {
		offset, n := binary.Uvarint(handles)
		if n <= 0 {
			return errFooter
		}
		length, m := binary.Uvarint(handles[n:])
		end := uint64(size - footerSize)
		if m <= 0 || offset > end || length > end-offset || blockTrailerSize > end-offset-length {
			return errFooter
		}
		handles = handles[n+m:]
	}
	return nil
}
