// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package leveldb

import (
	"time"

	"github.com/syndtr/goleveldb/leveldb/storage"
)

// OpenStorage opens a database in a storage of the test's.
func OpenStorage(files storage.Storage, syncDir func() error, cfg Config) (*DB, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return open("storage", files, syncDir, cfg)
}

// WithLogSize returns a Config with logs and tables of that size.
func (c Config) WithLogSize(n int) Config {
	c.writeBuffer = n
	return c
}

// WithReopenPause returns a Config with that pause between attempts to open the
// database again.
func (c Config) WithReopenPause(d time.Duration) Config {
	c.reopenPause = d
	return c
}
