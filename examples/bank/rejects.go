// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
)

// rejects is the file of the lines that were bad or refused. It is made when
// there is one, and replaces that of an earlier run.
type rejects struct {
	path string

	mu   sync.Mutex
	file *os.File
	csv  *csv.Writer
	err  error
}

func (r *rejects) write(line uint64, code string, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return
	}
	if r.file == nil {
		if r.file, r.err = os.OpenFile(r.path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600); r.err != nil {
			return
		}
		r.csv = csv.NewWriter(r.file)
		r.err = r.csv.Write([]string{"line", "code", "reason"})
	}
	if err := r.csv.Write([]string{strconv.FormatUint(line, 10), code, why.Error()}); err != nil {
		r.err = err
	}
}

// name is the path of the file if there is one.
func (r *rejects) name() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		return ""
	}
	return r.path
}

// Close ends the file, and returns the first error that there was.
func (r *rejects) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil && r.err == nil {
		return nil
	}
	if r.csv != nil {
		r.csv.Flush()
		r.err = errors.Join(r.err, r.csv.Error(), r.file.Close())
	}
	if r.err != nil {
		return fmt.Errorf("write the rejects: %w", r.err)
	}
	return nil
}
