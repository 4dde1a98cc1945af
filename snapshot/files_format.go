// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"time"
)

// A snapshot file, integers in little-endian order:
//
//	magic     8 bytes
//	version   1 byte, and once more with its bits inverted
//	length    4 bytes, of the header that follows
//	header    sequence number 8, time in microseconds since 1970 8, payload length 8,
//	          ID length 2, ID, manifest
//	checksum  4 bytes, CRC-32C of all above
//	payload
//	checksum  4 bytes, CRC-32C of all above
//
// The first ten bytes are the same in every future version. The version is stored twice because no
// checksum covers it: a flipped bit must be reported as damage and not as a newer version.
const (
	magic         = "RFLDSNAP"
	formatVersion = 1

	prefixSize    = len(magic) + 2 + 4
	fixedHeader   = 8 + 8 + 8 + 2
	checksumSize  = 4
	maxHeaderSize = fixedHeader + maxIDLength + maxManifest
	maxOverhead   = prefixSize + maxHeaderSize + 2*checksumSize
)

var (
	errMagic    = errors.New("not a snapshot file")
	errShort    = errors.New("truncated")
	errHeader   = errors.New("header is malformed")
	errLength   = errors.New("length differs from the one in the header")
	errChecksum = errors.New("checksum does not match")
)

// encode writes a snapshot that has passed Check.
func encode(w io.Writer, s Snapshot) error {
	length := fixedHeader + len(s.ID) + len(s.Manifest)
	b := make([]byte, 0, prefixSize+length+checksumSize)
	b = append(b, magic...)
	b = append(b, formatVersion, ^byte(formatVersion))
	b = binary.LittleEndian.AppendUint32(b, uint32(length)) //nolint:gosec // at most maxHeaderSize
	b = binary.LittleEndian.AppendUint64(b, s.SequenceNr)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.Time.UnixMicro()))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(s.Payload)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(s.ID))) //nolint:gosec // at most maxIDLength
	b = append(b, s.ID...)
	b = append(b, s.Manifest...)
	b = binary.LittleEndian.AppendUint32(b, checksum(b))
	sum := crc32.Update(checksum(b), castagnoli(), s.Payload)
	for _, part := range [][]byte{b, s.Payload, binary.LittleEndian.AppendUint32(nil, sum)} {
		if len(part) == 0 {
			continue
		}
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

type header struct {
	Metadata
	manifest string
	payload  int64 // length
	sum      uint32
}

// decodeHeader reads a file of the given size up to the payload. The error is ErrNewerVersion or
// describes the damage.
func decodeHeader(r io.Reader, size int64) (header, error) {
	b := make([]byte, prefixSize, prefixSize+fixedHeader+256)
	if err := readFull(r, b); err != nil {
		return header{}, err
	}
	version, inverted := b[len(magic)], b[len(magic)+1]
	length := binary.LittleEndian.Uint32(b[len(magic)+2:])
	switch {
	case string(b[:len(magic)]) != magic, version != ^inverted, version == 0:
		return header{}, errMagic
	case version > formatVersion:
		return header{}, fmt.Errorf("%w: version %d, this program reads up to %d", ErrNewerVersion, version, formatVersion)
	case length < fixedHeader, length > maxHeaderSize, int64(length) > size:
		return header{}, errHeader
	}
	b = append(b, make([]byte, length+checksumSize)...)
	if err := readFull(r, b[prefixSize:]); err != nil {
		return header{}, err
	}
	end := len(b) - checksumSize
	if checksum(b[:end]) != binary.LittleEndian.Uint32(b[end:]) {
		return header{}, errChecksum
	}
	return parseHeader(b, size)
}

// parseHeader parses the bytes before the payload after their checksum was verified.
func parseHeader(b []byte, size int64) (header, error) {
	f := b[prefixSize : len(b)-checksumSize]
	micro := int64(binary.LittleEndian.Uint64(f[8:])) //nolint:gosec // two's complement
	payload := binary.LittleEndian.Uint64(f[16:])
	idLength := int(binary.LittleEndian.Uint16(f[24:]))
	text := f[fixedHeader:]
	if idLength > len(text) {
		return header{}, errHeader
	}
	if payload > math.MaxInt64 || int64(payload) != size-int64(len(b))-checksumSize {
		return header{}, errLength
	}
	return header{
		Metadata: Metadata{
			ID:         string(text[:idLength]),
			SequenceNr: binary.LittleEndian.Uint64(f),
			Time:       time.UnixMicro(micro).UTC(),
		},
		manifest: string(text[idLength:]),
		payload:  int64(payload),
		sum:      checksum(b),
	}, nil
}

// decodePayload reads the payload. The allocated size is bounded by the file size, because
// decodeHeader has compared the payload length with it.
func decodePayload(r io.Reader, h header) (Snapshot, error) {
	b := make([]byte, h.payload+checksumSize)
	if err := readFull(r, b); err != nil {
		return Snapshot{}, err
	}
	payload := b[:h.payload:h.payload]
	if crc32.Update(h.sum, castagnoli(), payload) != binary.LittleEndian.Uint32(b[h.payload:]) {
		return Snapshot{}, errChecksum
	}
	return Snapshot{Metadata: h.Metadata, Manifest: h.manifest, Payload: payload}, nil
}

func readFull(r io.Reader, b []byte) error {
	_, err := io.ReadFull(r, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errShort
	}
	return err
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli()) }

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }
