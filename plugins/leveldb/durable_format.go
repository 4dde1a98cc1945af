// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/refold-io/refold/ddata/durable"
	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/journal"
)

// dirName returns the directory name for a name that identity.CheckName accepts: in lower case,
// with + for a colon and a comma for a dot at either end. After a = follows a bit for each byte
// that was in upper case, in hex.
func dirName(name string) string {
	b := []byte(name)
	upper := make([]byte, (len(b)+7)/8)
	found := false
	for i, c := range b {
		switch {
		case 'A' <= c && c <= 'Z':
			b[i] = c + 'a' - 'A'
			upper[i/8] |= 0x80 >> (i % 8)
			found = true
		case c == ':':
			b[i] = '+'
		case c == '.' && (i == 0 || i == len(b)-1):
			b[i] = ','
		}
	}
	if found {
		return string(b) + "=" + hex.EncodeToString(upper)
	}
	return string(b)
}

// nameOfDir reverses dirName. It returns false if dirName cannot have produced the directory name.
func nameOfDir(dir string) (string, bool) {
	lower, bits, _ := strings.Cut(dir, "=")
	b := []byte(strings.NewReplacer("+", ":", ",", ".").Replace(lower))
	upper, err := hex.DecodeString(bits)
	if err != nil {
		return "", false
	}
	for i, c := range b {
		if i/8 < len(upper) && upper[i/8]&(0x80>>(i%8)) != 0 && 'a' <= c && c <= 'z' {
			b[i] = c - ('a' - 'A')
		}
	}
	name := string(b)
	return name, identity.CheckName(name) == nil && dirName(name) == dir
}

// IDs returns the IDs of all stores, in the order of their directories. It skips other directories
// and files, and does not check the contents of the stores.
func (d *Durable) IDs() ([]durable.ID, error) {
	nodes, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, fmt.Errorf("leveldb: list durable data: %w", err)
	}
	var ids []durable.ID
	for _, n := range nodes {
		node, ok := nameOfDir(n.Name())
		if !ok || !n.IsDir() {
			continue
		}
		replicators, err := os.ReadDir(filepath.Join(d.dir, n.Name()))
		if err != nil {
			return nil, fmt.Errorf("leveldb: list durable data: %w", err)
		}
		for _, r := range replicators {
			if replicator, ok := nameOfDir(r.Name()); ok && r.IsDir() {
				ids = append(ids, durable.ID{Node: node, Replicator: replicator})
			}
		}
	}
	return ids, nil
}

// checkContents returns ErrForeign if dir is not a directory, or contains a file that LevelDB did
// not write.
func checkContents(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %w", ErrForeign, err)
	case err != nil:
		return err
	}
	for _, e := range entries {
		name := e.Name()
		ext := filepath.Ext(name)
		switch {
		case e.IsDir():
		case ext == ".log", ext == ".ldb", ext == ".sst", ext == ".tmp", ext == ".bak":
			continue
		case name == "LOCK", name == "LOG", name == "LOG.old", strings.HasPrefix(name, "CURRENT"), strings.HasPrefix(name, "MANIFEST-"):
			continue
		}
		return fmt.Errorf("%w: found %q in %q", ErrForeign, name, dir)
	}
	return nil
}

// The key of a record is tagRecord and the key of the durable record. The value is:
//
//	version   1 byte, and once more with its bits inverted
//	data
//	checksum  4 bytes, CRC-32C of the key and of all above, big-endian
//
// The engine has its own checksums. This one detects damage from before the data reached the
// engine, and values of another key.
const (
	tagRecord     = 'r'
	recordVersion = 1
	recordFixed   = 2 + 4
)

func recordKey(b []byte, key string) []byte { return append(append(b, tagRecord), key...) }

func appendRecord(b, key, data []byte) []byte {
	start := len(b)
	b = append(b, recordVersion, ^byte(recordVersion))
	b = append(b, data...)
	return binary.BigEndian.AppendUint32(b, checksum(checksum(0, key), b[start:]))
}

// decodeRecord decodes a record. The result refers to b.
func decodeRecord(key, b []byte) (durable.Record, error) {
	if len(key) == 0 || key[0] != tagRecord || len(key) == 1 || len(key) > 1+durable.MaxKey {
		return durable.Record{}, malformedKey(key)
	}
	r := durable.Record{Key: string(key[1:])}
	file := fmt.Sprintf("the record of %q", r.Key)
	if len(b) < 2 || b[0] != ^b[1] {
		return durable.Record{}, corrupt(file, errMalformed)
	}
	if b[0] != recordVersion {
		return durable.Record{}, corrupt(file, fmt.Errorf("%w: record version %d", journal.ErrNewerVersion, b[0]))
	}
	if len(b) <= recordFixed || len(b) > recordFixed+durable.MaxData {
		return durable.Record{}, corrupt(file, errMalformed)
	}
	body := b[:len(b)-4]
	if binary.BigEndian.Uint32(b[len(body):]) != checksum(checksum(0, key), body) {
		return durable.Record{}, corrupt(file, errChecksum)
	}
	r.Data = body[2:]
	return r, nil
}
