// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/syndtr/goleveldb/leveldb/storage"
)

// The last bytes of a table: two block handles, each a varint offset and a
// varint length, zeros, and the magic number. No checksum covers them.
const (
	footerSize       = 48
	footerMagic      = "\x57\xfb\x80\x8b\x24\x75\x47\xdb"
	blockTrailerSize = 5
)

var errFooter = errors.New("the footer of the table is damaged")

// checkFooter returns an error if the footer points outside the table.
func checkFooter(r storage.Reader) error {
	size, err := r.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if size < footerSize {
		return fmt.Errorf("%w: the file has %d bytes", errFooter, size)
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
