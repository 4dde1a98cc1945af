// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/syndtr/goleveldb/leveldb/storage"

	"github.com/refold-io/refold/journal"
)

// checked is what check found out.
type checked struct {
	version uint32             // of the format
	logs    []storage.FileDesc // that count, in order
}

// check reads the manifest and the logs before the engine does, which drops
// what it can't read without a word.
func check(files storage.Storage, f format, readOnly bool) (c checked, err error) {
	all, err := files.List(storage.TypeAll)
	if err != nil {
		return c, err
	}
	current, err := files.GetMeta()
	if err != nil {
		return checked{version: f.latest}, checkNew(files, all, readOnly, err)
	}
	var m manifest
	if c.version, err = checkManifest(files, f, current, &m); err != nil {
		return c, err
	}
	present := make(map[storage.FileDesc]bool, len(all))
	for _, fd := range all {
		present[fd] = true
	}
	for _, number := range m.tableNumbers() {
		fd := storage.FileDesc{Type: storage.TypeTable, Num: int64(number)} //nolint:gosec // checked by fields.file
		if !present[fd] {
			return c, missing(fd)
		}
	}
	fd := storage.FileDesc{Type: storage.TypeJournal, Num: int64(m.log)} //nolint:gosec // checked by fields.file
	if m.log != 0 && !present[fd] {                                      // 0: the power was cut before there was any
		return c, missing(fd)
	}
	c.logs = slices.DeleteFunc(all, func(fd storage.FileDesc) bool {
		number := uint64(fd.Num) //nolint:gosec // not negative
		return fd.Type != storage.TypeJournal || number < m.log && (m.previousLog == 0 || number != m.previousLog)
	})
	slices.SortFunc(c.logs, func(a, b storage.FileDesc) int { return cmp.Compare(a.Num, b.Num) })
	return c, checkLogs(files, c.logs, m.sequence)
}

func missing(fd storage.FileDesc) error {
	return &journal.CorruptError{File: fd.String(), Offset: -1, Detail: "the file is missing"}
}

// checkNew is check where nothing says which manifest is the current one, for
// the given reason. That is so in an empty directory and where the power was cut
// while the database was created; both have neither a log nor a table.
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
		return fmt.Errorf("there is no database: %w", os.ErrNotExist)
	}
	for _, fd := range all {
		if fd.Type == storage.TypeManifest { // the engine would take it for the rest of a damaged database
			if err := files.Remove(fd); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkManifest returns the version of the format.
func checkManifest(files storage.Storage, f format, fd storage.FileDesc, m *manifest) (version uint32, err error) {
	_, _, err = scanFile(files, fd, m)
	if m.has[fieldComparer] {
		// A newer version may have changed whatever looks damaged.
		var oerr error
		if version, oerr = f.checkOrder(m.comparer); oerr != nil {
			return 0, oerr
		}
	}
	if err != nil {
		return 0, err
	}
	if field := m.incomplete(); field != "" {
		return 0, &journal.CorruptError{File: fd.String(), Offset: -1, Detail: "it does not name the " + field}
	}
	return version, nil
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
			return &journal.CorruptError{File: tornLog.String(), Offset: tornAt, Detail: fmt.Sprintf("damaged, and %s goes on behind it", fd)}
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
