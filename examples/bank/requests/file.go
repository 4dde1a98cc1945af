// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// hashLength is the length of the hash of a file in an ID: 16 bytes in hex.
const hashLength = 32

// Hash returns the hash of a file's contents, as it stands in the IDs of its
// lines.
func Hash(r io.Reader) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", fmt.Errorf("requests: hash: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil))[:hashLength], nil
}

// FileLine returns the ID of a line of a file, "<hash>:<line>". Lines count from
// 1.
func FileLine(hash string, line uint64) string {
	return hash + ":" + strconv.FormatUint(line, 10)
}

// ParseFileLine takes apart what FileLine made, and reports whether it did.
func ParseFileLine(id string) (hash string, line uint64, ok bool) {
	hash, number, found := strings.Cut(id, ":")
	if !found || len(hash) != hashLength || strings.Trim(hash, "0123456789abcdef") != "" {
		return "", 0, false
	}
	line, err := strconv.ParseUint(number, 10, 63)
	if err != nil || line == 0 || number[0] == '0' || number[0] == '+' {
		return "", 0, false
	}
	return hash, line, true
}
