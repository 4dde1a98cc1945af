// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package rates

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refold-io/refold/examples/bank/money"
)

// maxFile bounds the size of the file, in bytes.
const maxFile = 1 << 20

// Config configures a File. The zero value selects the defaults.
type Config struct {
	// MaxAge is how long a rate is valid after its as-of time. Defaults to no limit.
	MaxAge time.Duration
	// Interval is how often Run checks the file for changes. Defaults to 1 s.
	Interval time.Duration
	// Logger logs changes and failures. Defaults to none.
	Logger *slog.Logger
}

// File is a table of rates in a file. While the file is unreadable, File keeps the last valid
// table, and its rates become stale. It is safe for concurrent use.
type File struct {
	path    string
	cfg     Config
	current atomic.Pointer[Table]

	mu   sync.Mutex
	seen fs.FileInfo // metadata of the last version that was read
}

// Open reads the file, which must exist and be valid.
func Open(path string, cfg Config) (*File, error) {
	cfg.Interval = cmp.Or(cfg.Interval, time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	f := &File{path: path, cfg: cfg}
	if _, err := f.Reload(); err != nil {
		return nil, err
	}
	return f, nil
}

// Quote calls Table.Quote of the current table. It does not block.
func (f *File) Quote(from, to money.Currency, at time.Time) (Quote, error) {
	return f.current.Load().Quote(from, to, at)
}

// Reload reads the file if it has changed since the last read, and reports whether it has.
func (f *File) Reload() (changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if err != nil {
		return false, fmt.Errorf("rates: %w", err)
	}
	if f.seen != nil && f.seen.ModTime().Equal(info.ModTime()) && f.seen.Size() == info.Size() && os.SameFile(f.seen, info) {
		return false, nil
	}
	f.seen = info
	table, err := read(f.path)
	if err != nil {
		return true, fmt.Errorf("rates: %s: %w", f.path, err)
	}
	f.current.Store(table.WithMaxAge(f.cfg.MaxAge))
	return true, nil
}

func read(path string) (*Table, error) {
	file, err := os.Open(path) //nolint:gosec // the operator chooses the path
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // opened for reading
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrFormat, maxFile)
	}
	table, err := Parse(data)
	if err != nil {
		return nil, err
	}
	table.source = cmp.Or(table.source, filepath.Base(path))
	return table, nil
}

// Run checks for changes until ctx ends.
func (f *File) Run(ctx context.Context) {
	tick := time.NewTicker(f.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		changed, err := f.Reload()
		if err != nil {
			f.cfg.Logger.WarnContext(ctx, "rates not read, keeping the last valid rates", slog.Any("error", err))
		} else if changed {
			f.cfg.Logger.InfoContext(ctx, "rates changed", slog.String("file", f.path))
		}
	}
}
